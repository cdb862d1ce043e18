"""Trained operators, saved with everything that predictions need."""

import json
import os
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from opjax import _formats, streaming
from opjax._trees import Columns, Json, Model
from opjax.files.formats import OnePath
from opjax.learn.config.quantities import parse
from opjax.learn.json_files import read_object, to_json, write_json
from opjax.learn.named_types import HostArrays, Row
from opjax.learn.predict import (
    exportable,
    functions,
    grids,
    in_time,
    named,
    prediction,
    published,
)
from opjax.learn.predict.description import Description
from opjax.learn.predict.field import Field
from opjax.learn.predict.learned import Learned, MeshFile
from opjax.learn.predict.prediction import LIMITS, Limits
from opjax.learn.predict.starting import Start
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Operator
from opjax.normalize import Normalizer
from opjax.samples import Sample, Series
from opjax.training import checkpoint

MeshLike = MeshFile | ArrayLike  # or points of a mesh, or values on grids

FOLDER = "operator"  # of a trained operator, inside the folder of its member


class Trained(Learned):
    """A trained operator with its normalisers; call it to predict.

        trained = learn.load("runs/mine")
        values = trained("new/mesh.vtu")
        values = trained(points, features)
        values = trained(grid)  # (h, w, c), or a batch (b, h, w, c)

    Attributes:
      model: the model, which maps encoded arrays.
      normalizers: normalisers of `mesh_points`, `features` and `target`, if any.
      description: description of the operator.
      folder: folder from which it was loaded.
      start: the baseline that it adds to, for a run with --start_from=baseline.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn
      >>> points = np.random.default_rng(0).uniform(size=(8, 9, 2))
      >>> data = {"mesh_points": points, "target": points[..., 0]}
      >>> trained = learn.train(data, preset="smoke", num_epochs=1)
      >>> trained(points[0]).shape
      (9, 1)
      >>> trained(points[0, :5]).shape  # any number of points
      (5, 1)
    """

    __slots__ = ()

    def __call__(
        self,
        mesh: MeshLike,
        features: ArrayLike | None = None,
        *,
        quadrature_weights: ArrayLike | None = None,
        scalars: ArrayLike | Mapping[str, float] | None = None,
        time: float | None = None,
        limits: Limits = LIMITS,
    ) -> Any:
        """Predicts on a mesh, in physical units.

        Args:
          mesh: a sample; a file with one, in one of the formats of `opjax.files`; the
            points of a mesh, `(n, p)`; or, of an operator of uniform grids, the values
            on a grid `(h, w, c)` or on several `(b, h, w, c)`. The axis of channels may
            be left out where there is one.
          features: values at the points, `(n, c)` or `(n,)`; only with points.
          quadrature_weights: weights of the points, `(n,)`; only with points.
          scalars: of an operator that takes some, `(s,)`, in the order of their names,
            or by name with the numbers that cases are scaled by; not with a sample or
            a file, which have them.
          time: time, for an operator with a time embedding.
          limits: memory limits.

        Returns:
          Values of the output function, float32 of shape `(n, q)`, or float64 where an
          offset is so large that float32 would lose digits; on grids, in the shape of
          the grids, with channels where the input has them or where there are several.
          Of arguments that JAX traces, an array of JAX, as from `function`.

        Raises:
          OSError: if the file cannot be read, or the folder not be written.
          TypeError: if the values are no real numbers.
          ValueError: if it is damaged or holds several samples, an input is NaN or
            infinite, the sample does not fit the operator or the memory, or the
            operator predicts scalars alone.
        """
        self._refuse_without_field()
        given = functions.Arguments(mesh, features, scalars, quadrature_weights)
        if functions.is_traced(*given, time):
            return self._traced(given, time)
        numbers: Mapping[str, float] = {}
        if isinstance(scalars, Mapping):
            scalars, numbers = grids.named_scalars(self, scalars)
            given = given._replace(scalars=scalars)

        def predict(sample: Sample) -> np.ndarray:
            sample = sample._replace(numbers=numbers) if numbers else sample
            return prediction.predict(self, sample, time=time, limits=limits).values

        if self._is_mesh(given):
            return predict(self.one(given.points))
        if self._has_points(given):
            arrays = features, scalars, quadrature_weights
            return predict(grids.of_points(given.points, *arrays))
        cases = grids.of_grids(self, given.points)
        row = None if scalars is None else grids.of_scalars(scalars)
        values = [predict(one._replace(scalars=row)) for one in cases.samples]
        return np.reshape(values, cases.output_shape)

    @property
    def function(self) -> functions.Function:
        """The operator as a pure function of arrays in physical units.

            f, parameters = trained.function, trained.parameters
            values = f(parameters, points, features)          # (n, q)
            slope = jax.grad(lambda x: f(parameters, x, features).mean())(points)

        The signature is `f(parameters, points, features, scalars, quadrature_weights,
        time)`, without the arguments that the operator does not use, see `arguments`.
        It supports `jax.jit`, `grad`, `jvp`, `vmap` and `hessian`; with `chunk_size`,
        only reverse mode; with convolutions on grids, no `jvp`. It returns the field;
        if the operator predicts scalars, a `Predicted` with both; for an operator of
        series, the frame at `time` after the last one.

        Features are arguments: distances and normals that were computed from the mesh
        (`--geometry`) do not change when points move, and neither do weights. For an
        operator of one grid, the points must be in the order of the grid.

        Raises:
          ValueError: if the operator adds to a baseline. The function raises it if
            shapes do not fit the operator, or if inputs have an offset that is too
            large for their precision.
        """
        return functions.operator(self)

    @property
    def parameters(self) -> functions.Parameters:
        """Parameters and normalisers as a pytree: the first argument of `function`."""
        return functions.Parameters(self.model, self.normalizers)

    def quantity(self, text: str, mesh: MeshFile) -> functions.Function:
        """Returns a quantity of interest as a pure function of the same arguments.

            drag = trained.quantity("force_x:p@wall", "new/wing.vtu")
            x = trained.arguments("new/wing.vtu")
            slope = jax.grad(drag, argnums=1)(trained.parameters, *x)  # to the points

        Boundaries and cells are taken from the sample. If fields are point data, the
        areas of a wall follow the points; for cell data they are constant.

        Args:
          text: one quantity, as in --quantities.
          mesh: a sample, or a file with one.

        Returns:
          A function of the arguments of `function` with a scalar value. For a maximum
          or minimum, equal values share the gradient.

        Raises:
          OSError: if the file cannot be read.
          ValueError: if the quantity or its boundary is unknown, or it is not defined
            on this mesh.
        """
        facets = any(one.is_over_facets for one in parse(text))
        return functions.quantity(self, text, self.one(mesh, facets=facets))

    def arguments(self, mesh: MeshFile) -> functions.Arguments:
        """Returns the arrays of a sample as arguments of `function`, in order.

            values = trained.function(trained.parameters, *trained.arguments("a.vtu"))

        Args:
          mesh: a sample, or a file with one.

        Raises:
          OSError: if the file cannot be read.
          ValueError: if it is damaged or contains several samples.
        """
        return functions.arguments(self, self.one(mesh))

    def quantity_inputs(self, text: str, mesh: MeshFile) -> HostArrays:
        """Returns what an exported operator needs of a mesh for its quantities.

            more = trained.quantity_inputs("force_x:p@wall", "new/wing.vtu")
            found = operator.call(points, features, *more.values())

        Args:
          text: the quantities that it was exported with, in the same order.
          mesh: a sample, or a file with one.

        Returns:
          The arrays by the name of the input, such as `"area_vectors@wall"`, float32.

        Raises:
          OSError: if the file cannot be read.
          ValueError: if a quantity cannot be exported or is not defined on this mesh.
        """
        quantities = parse(text)
        facets = any(one.is_over_facets for one in quantities)
        operator = exportable.Exportable(self, quantities)
        return operator.arrays(self.one(mesh, facets=facets))

    def _traced(self, given: functions.Arguments, time: Any) -> Any:
        """`__call__` of arguments that JAX traces."""
        mesh, parameters = given.points, self.parameters
        if self._is_mesh(given):
            sample = mesh if isinstance(mesh, Sample) else self.one(mesh)
            given = functions.arguments(self, sample)
        elif not self._has_points(given):
            return functions.on_grids(self)(parameters, mesh, given.scalars, time)
        return functions.field(self.function(parameters, *given, time))

    def _is_mesh(self, given: functions.Arguments) -> bool:
        """Whether a sample or file is passed, which refuses arrays beside it."""
        mesh = given.points
        if not isinstance(mesh, Sample | str | os.PathLike):
            return False
        _refuse_beside(mesh.name if isinstance(mesh, Sample) else mesh, given)
        return True

    def _has_points(self, given: functions.Arguments) -> bool:
        """Whether points are passed; raises ValueError for arrays beside grids."""
        shape = np.shape(given.points)
        if len(shape) == 2 and (given.features is not None or grids.is_mesh(self)):
            return True
        what = f"an array of shape {shape} is taken as grids, which"
        _refuse_beside(what, given._replace(scalars=None))
        return False

    def both(
        self,
        mesh: MeshFile,
        *,
        time: float | None = None,
        limits: Limits = LIMITS,
    ) -> prediction.Predicted:
        """Predicts the output function and the scalars of a sample.

            values, scalars = trained.both("new/wing.vtu")

        Args:
          mesh: a sample, or a file with one.
          time: see `__call__`.
          limits: memory limits.

        Returns:
          `values (n, q)`, or `(n, 0)` if only scalars are predicted; and `scalars (t,)`
          in the order of `description.names["target_scalars"]`, or None if the operator
          predicts none.

        Raises:
          OSError: as from `__call__`.
          ValueError: as from `__call__`.
        """
        self._refuse_series()
        return prediction.predict(self, self.one(mesh), time=time, limits=limits)

    def save(self, folder: OnePath) -> None:
        """Saves the operator, for `learn.load` and `opjax-predict`.

        Args:
          folder: a new or empty folder.

        Raises:
          FileExistsError: if the folder is not empty.
          OSError: if it cannot be written.
        """
        path = pathlib.Path(folder).expanduser()
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FileExistsError(
                f"{path} is not empty; choose a new folder, so that nothing is "
                "overwritten."
            )
        config = {"format": _formats.CONFIGURATION, **self.config}
        write_json(path / "config.json", config)
        save(path, self.model, self.normalizers, self.description)
        if self.start is not None:
            self.start.save(path)
        finish(path, {})

    def example(self) -> Sample:
        """Reads the test case that `opjax-publish` stored beside the operator.

            trained = learn.load("darcy")
            values = trained(trained.example())

        Raises:
          OSError: if the operator has no example, or it is damaged.
        """
        return published.read_example(self.folder)

    def stream(
        self,
        arrays: Columns,
        *,
        time: float | None = None,
        limits: Limits = LIMITS,
    ) -> Iterator[np.ndarray]:
        """Predicts chunk by chunk on a mesh that may be larger than memory.

        Args:
          arrays: `mesh_points`; `features` and `quadrature_weights` if the operator was
            trained with them; any type that supports slicing, such as `np.memmap` and
            HDF5 data sets; and `scalars`, `(s,)`, if the operator has scalar inputs.
          time: see `__call__`.
          limits: memory limits.

        Returns:
          An iterator of values of the output function, of shape `(m, q)`, with the same
          type as from a call.

        Raises:
          OSError: if the folder cannot be written.
          ValueError: if the operator cannot be evaluated in chunks, or the arrays or
            the memory limit do not fit it.
        """
        self._refuse_without_field()
        parts = self.stream_channels(arrays, time=time, limits=limits)
        return (prediction.decoded(self, part) for part in parts)

    def stream_channels(
        self,
        arrays: Columns,
        *,
        time: float | None = None,
        limits: Limits = LIMITS,
    ) -> Iterator[np.ndarray]:
        """Evaluates all channels chunk by chunk, including those that scalars need.

        Args:
          arrays: see `stream`.
          time: time, for an operator with a time embedding.
          limits: memory limits.

        Returns:
          An iterator of model outputs, `(m, q)`, with further channels from which
          scalars are computed.

        Raises:
          OSError: as from `stream`.
          ValueError: as from `stream`.
        """
        self._refuse_series()
        prediction.refuse_whole(self, sliced=True)
        columns: Any = dict(arrays)
        prediction.check(self, Sample(**columns, name="the mesh"), weights=True)
        return prediction.chunks(self, arrays, time=time, limits=limits)

    def rollout(
        self,
        series: Series,
        num_steps: int,
        *,
        time_step: float | None = None,
    ) -> Iterator[np.ndarray]:
        """Predicts frame after frame with an operator that was trained on series.

            frames = np.stack(list(trained.rollout(series, 50)))

        Args:
          series: series with at least as many frames as the model receives; later ones
            are ignored.
          num_steps: number of frames to predict.
          time_step: time between frames; by default, as in training.

        Returns:
          An iterator of frames `(n, c)`, in physical units. Only one frame is in
          memory.

        Raises:
          ValueError: if the operator was not trained on series or does not support the
            time step, or the series does not fit the operator. The iterator raises it
            if a frame is not finite.
        """
        lags = in_time.lags_of(self, num_steps, time_step)
        return in_time.frames(self, series, lags)

    def field(
        self,
        mesh: MeshFile,
        *,
        time: float | None = None,
        chunk_size: int = 2**14,
    ) -> Field:
        """Computes the coefficients of all layers, for predictions at other points.

            field = trained.field("new/part.vtu")
            probes = field.at(points)

        Args:
          mesh: mesh with the input, as for `__call__`.
          time: time, for an operator with a time embedding.
          chunk_size: number of points that are evaluated at once.

        Returns:
          The field, which stores only the coefficients, not the mesh.

        Raises:
          OSError: if the file cannot be read.
          ValueError: as from `stream`.
        """
        self._refuse_without_field()
        sample = self.one(mesh)
        prediction.check(self, sample, weights=True)
        prediction.refuse_whole(self)
        reduced = self.reduced(sample)
        arrays = prediction.encoded(self, prediction.arrays_of(reduced))
        coefficients = streaming.coefficients(
            prediction.of_function(self.model),
            arrays,
            streaming.Chunks(chunk_size),
            time=time,
        )
        return Field(self, coefficients, time, sample.scalars, sample.numbers)

    def _refuse_without_field(self) -> None:
        """Raises ValueError if the operator predicts no field of one mesh."""
        self._refuse_series()
        if not self.channels.target:
            raise ValueError(
                f"The operator in {self.folder} predicts only scalars, not a field; "
                "call trained.both(sample).scalars."
            )

    def _refuse_series(self) -> None:
        """Raises ValueError if the operator advances series in time."""
        if self.description.time is not None:
            raise ValueError(
                f"The operator in {self.folder} was trained on series; call "
                "trained.rollout(series, num_steps), or opjax-predict with --steps."
            )


def mean_of(
    seeds: Sequence[Trained], sample: Sample, *, limits: Limits = LIMITS
) -> prediction.Predicted:
    """Predicts the mean over several operators, in physical units.

    Args:
      seeds: operators of the same fields and scalars, see `calibration.siblings`.
      sample: see `Trained.both`.
      limits: memory limits.
    """
    predicted = [one.both(sample, limits=limits) for one in seeds]
    if len(predicted) == 1:
        return predicted[0]
    dtype = np.result_type(*(one.values.dtype for one in predicted))
    values = np.mean([one.values for one in predicted], axis=0, dtype=np.float64)
    if predicted[0].scalars is None:
        return prediction.Predicted(values.astype(dtype))
    scalars = np.mean([one.scalars for one in predicted], axis=0, dtype=np.float64)
    return prediction.Predicted(values.astype(dtype), scalars)


def _refuse_beside(what: object, given: functions.Arguments) -> None:
    """Raises ValueError for arrays beside a mesh that has its own."""
    for name, array in given._replace(points=None)._asdict().items():
        if array is not None:
            raise ValueError(
                f"{name} can only be passed with an array (n, p) of mesh points; "
                f"{what} already contains them."
            )


def save(
    folder: pathlib.Path,
    model: Model,
    normalizers: Mapping[str, Normalizer],
    description: Description,
) -> None:
    """Saves the operator of a member in its folder, for `load`."""
    payload = {"model": model, "normalizers": dict(normalizers)}
    config = json.loads((folder / "config.json").read_text())
    config.pop("format", None)  # the checkpoint has one
    metadata = described(description, normalizers, config)
    checkpoint.save(folder / FOLDER, 0, payload, metadata=metadata, keep=1)


def described(
    description: Description, normalizers: Mapping[str, Normalizer], config: Json
) -> Row:
    """Returns all that is stored beside the arrays of an operator, as JSON values."""
    return to_json(
        {
            **description.to_json(),
            "config": config,
            "normalizers": {k: np.shape(n.mean) for k, n in normalizers.items()},
            "normalizer_types": {k: n.mean.dtype.name for k, n in normalizers.items()},
        }
    )


def finish(folder: pathlib.Path, result: Json) -> None:
    """Marks the folder of an operator as finished, for `load`."""
    write_json(folder / "result.json", dict(result))


def load(workdir: OnePath, *, own_model: str | None = None) -> Trained:
    """Loads a trained operator: of a run, published, or one that ships with opjax.

        trained = learn.load("runs/mine")
        trained = learn.load("darcy")
        trained = learn.load("hf://owner/name@revision")

    If a run has several, it is the one with the smallest validation error, or the first
    without validation. Loading executes no code from the folder. A user-defined model
    is imported only if you pass its name: no folder decides what is imported. Nothing
    is downloaded without the prefix `hf://`.

    Args:
      workdir: folder of a run, of one of its members or of `opjax-publish`; a name
        from `list_operators`, if no folder has this name; or `hf://owner/name`, which
        needs `huggingface_hub`.
      own_model: name of the model if it is user-defined, `package.module:function`.

    Raises:
      FileNotFoundError: if there is no finished run.
      ImportError: if `safetensors` or `huggingface_hub` is needed but not installed.
      ValueError: if a user-defined model does not have that name or cannot be imported,
        or a later opjax wrote the folder.
      opjax.training.checkpoint.CheckpointError: if the operator is damaged.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import learn
      >>> points = np.random.default_rng(0).uniform(size=(8, 9, 2))
      >>> data = {"mesh_points": points, "target": points[..., 0]}
      >>> trained = learn.train(data, preset="smoke", num_epochs=1)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     trained.save(folder)
      ...     loaded = learn.load(folder)
      >>> bool(np.all(loaded(points[0]) == trained(points[0])))
      True
    """
    root = named.resolve(workdir)
    if published.is_published(root):
        content = published.read(root)
        stored = content.config["operator"]
        description, normalizers = _read(root / published.CONFIG, lambda: stored)
        template = _template(root, description, normalizers, own_model)
        payload = content.payload(template)
        return _trained(root, description, payload)
    finished = [
        folder
        for folder in [root, *sorted(path.parent for path in root.glob(f"*/{FOLDER}"))]
        if checkpoint.all_steps(folder / FOLDER) and (folder / "result.json").is_file()
    ]
    if not finished:
        raise FileNotFoundError(
            f"{root} contains no trained operator; pass the --workdir of a "
            f"finished run{named.hint(root)}."
        )

    def validation(folder: pathlib.Path) -> float:
        restored = read_object(folder / "result.json").get("validation")
        return float("inf") if not isinstance(restored, int | float) else restored

    folder = min(finished, key=validation)
    description, normalizers = _of_run(folder)
    template = _template(folder, description, normalizers, own_model)
    restored = checkpoint.restore(folder / FOLDER, template)
    assert restored is not None
    return _trained(folder, description, restored.payload)


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the configuration of a finished run, whose model is not built."""
    return _of_run(folder)[0].config


def _of_run(folder: pathlib.Path) -> tuple[Description, dict[str, Normalizer]]:
    return _read(folder, lambda: checkpoint.read_metadata(folder / FOLDER, 0))


def _trained(folder: pathlib.Path, description: Description, payload: Any) -> Trained:
    start = _start(folder, description)
    return Trained(payload["model"], payload["normalizers"], description, folder, start)


def _template(
    folder: pathlib.Path,
    description: Description,
    normalizers: Mapping[str, Normalizer],
    own_model: str | None,
) -> Row:
    """The structure of an operator, for the arrays of its folder."""
    (name,) = description.config["models"]
    if operators.is_own(name) and name != own_model:
        raise ValueError(
            f"{folder} contains a model that is not part of opjax, {name!r}; if you "
            f"trust it, import and run it with own_model={name!r} "
            f"(--own_model={name})."
        )
    try:
        return {"model": _model(description), "normalizers": normalizers}
    except Exception as error:  # what is not as it was leads models anywhere
        raise _damaged(
            folder, f"it does not describe an operator: {error!r}"
        ) from error


def _start(folder: pathlib.Path, description: Description) -> Start | None:
    """Reads what an operator starts from; None if it starts from nothing."""
    if description.config.get("start_from", "nothing") == "nothing":
        return None
    try:
        start = Start.load(folder)
    except (FileNotFoundError, ValueError) as error:
        raise _damaged(folder, f"its baseline is invalid: {error}") from error
    if start.shares.shape != (description.channels.target,):
        raise _damaged(
            folder, f"its factors of the model have shape {start.shares.shape}"
        )
    return start


def _damaged(folder: pathlib.Path, reason: str) -> checkpoint.CheckpointError:
    return checkpoint.CheckpointError(
        f"The operator in {folder} is damaged, or of another version: {reason[:300]} "
        "(restore the folder from a copy, or train again)."
    )


def _read(
    folder: pathlib.Path, description: Callable[[], Json]
) -> tuple[Description, dict[str, Normalizer]]:
    """What was saved beside an operator, and normalisers of the shapes that it has."""
    try:
        stored = description()
        return Description.from_json(stored), _normalizers(stored)
    except _formats.NewerFormatError:
        raise
    except Exception as error:  # what is not as it was raises anything
        raise _damaged(folder, str(error)) from error


def _normalizers(stored: Json) -> dict[str, Normalizer]:
    """Normalisers of the shapes and types that were stored; in opjax 0.2 float32."""
    shapes, kinds = stored["normalizers"], stored.get("normalizer_types", {})
    if any(kind not in ("float32", "float64") for kind in kinds.values()):
        raise ValueError(f"normalizer_types={kinds!r}")
    arrays = {
        k: np.empty(tuple(n), kinds.get(k, np.float32)) for k, n in shapes.items()
    }
    return {name: Normalizer(array, array) for name, array in arrays.items()}


def _model(description: Description) -> Operator:
    """Shapes of the parameters of an operator."""

    def build(key: jax.Array) -> Operator:
        return operators.build(
            types.SimpleNamespace(**description.config),
            description.sizes,
            layout=description.layout,
            rngs=nnx.Rngs(key),
        )

    return jax.eval_shape(build, jax.random.key(0))
