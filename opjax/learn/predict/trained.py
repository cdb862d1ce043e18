"""Trained operators, saved with all that predictions on other meshes need."""

import json
import os
import pathlib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.core
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from opjax import _formats, streaming
from opjax.learn.config import ModelOptions, fields, renamed
from opjax.learn.json_files import read_object, to_json, tuples, write_json
from opjax.learn.predict import grids, in_time, prediction
from opjax.learn.predict.field import Field
from opjax.learn.predict.learned import Learned
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Operator
from opjax.normalize import Normalizer
from opjax.samples import Sample, Series, ranges
from opjax.samples.fields import Fields, to_description
from opjax.samples.sliced import Sliced
from opjax.training import checkpoint

# A sample, a file, points of a mesh, or values on grids.
MeshLike = Sample | str | os.PathLike[str] | ArrayLike

FOLDER = "operator"  # of a trained operator, inside the folder of its member
_MAX_LAYERS = 10_000


class Trained(Learned):
    """An operator with what belongs to it; call it to predict.

        trained = learn.load("runs/mine")
        values = trained("new/mesh.vtu")
        values = trained(points, features)
        values = trained(grid)  # (h, w, c), or a batch (b, h, w, c)

    Attributes:
      model: between encoded arrays.
      normalizers: of `mesh_points`, `features` and `target`, where there are any.
      description: as from `describe`, with the configuration under `config`.
      folder: where it was found.
    """

    __slots__ = ()

    def __call__(
        self,
        mesh: MeshLike,
        features: ArrayLike | None = None,
        *,
        quadrature_weights: ArrayLike | None = None,
        scalars: ArrayLike | None = None,
        time: float | None = None,
        chunk_size: int = 2**14,
        memory_gib: float = 8.0,
        scratch: str | os.PathLike[str] | None = None,
    ) -> np.ndarray:
        """Predicts on a mesh, in physical units.

        Args:
          mesh: a sample; a file with one, in one of the formats of `opjax.files`; the
            points of a mesh, `(n, p)`; or, of an operator of uniform grids, the values
            on a grid `(h, w, c)` or on several `(b, h, w, c)`. The axis of channels may
            be left out where there is one.
          features: values at the points, `(n, c)` or `(n,)`; only with points.
          quadrature_weights: weights of the points, `(n,)`; only with points.
          scalars: of an operator that takes some, `(s,)`, in the order of their names;
            not with a sample or a file, which have them.
          time: of an operator with a time embedding.
          chunk_size: points that are evaluated at once, by operators that can.
          memory_gib: largest memory of an evaluation, in GiB. Features of all points
            are kept in memory if a sixteenth of it is enough.
          scratch: folder for a file with them otherwise, 4 bytes for each channel and
            point; the system's temporary one if None.

        Returns:
          Values of the output function, float32 of shape `(n, q)`, or float64 where an
          offset is so large that float32 would lose digits; on grids, in the shape of
          the grids, with channels where the input has them or where there are several.

        Raises:
          OSError: if the file cannot be read, or the folder not be written.
          TypeError: if the values are no real numbers, or are traced by JAX.
          ValueError: if it is damaged or holds several samples, the sample does not
            fit the operator or the memory, or the operator predicts scalars alone.
        """
        self._refuse_without_field()
        _refuse_traced(mesh, features, quadrature_weights, scalars)

        def predict(sample: Sample) -> np.ndarray:
            found = prediction.predict(
                self,
                sample,
                time=time,
                chunk_size=chunk_size,
                memory_gib=memory_gib,
                scratch=scratch,
            )
            return found.values

        if isinstance(mesh, Sample | str | os.PathLike):
            _refuse_beside(
                mesh, features=features, weights=quadrature_weights, scalars=scalars
            )
            return predict(self.one(mesh))
        if np.ndim(mesh) == 2 and (features is not None or grids.is_mesh(self)):
            return predict(grids.of_points(mesh, features, quadrature_weights, scalars))
        what = f"an array of shape {np.shape(mesh)} is taken as grids, which"
        _refuse_beside(what, features=features, weights=quadrature_weights)
        found = grids.of_grids(self, mesh)
        numbers = None if scalars is None else grids.of_scalars(scalars)
        values = [predict(one._replace(scalars=numbers)) for one in found.samples]
        return np.reshape(values, found.output_shape)

    def both(
        self,
        mesh: Sample | str | os.PathLike[str],
        *,
        time: float | None = None,
        chunk_size: int = 2**14,
        memory_gib: float = 8.0,
        scratch: str | os.PathLike[str] | None = None,
    ) -> prediction.Predicted:
        """Predicts the output function and the scalars of a sample.

            values, scalars = trained.both("new/wing.vtu")

        Args:
          mesh: a sample, or a file with one.
          time: see `__call__`; likewise the others.
          chunk_size: points that are evaluated at once.
          memory_gib: largest memory of an evaluation, in GiB.
          scratch: folder for a file.

        Returns:
          `values (n, q)`, `(n, 0)` of an operator that predicts scalars alone, and
          `scalars (t,)` in the order of `description["names"]["target_scalars"]`; None
          of an operator without.

        Raises:
          OSError: as from `__call__`.
          ValueError: as from `__call__`.
        """
        self._refuse_series()
        return prediction.predict(
            self,
            self.one(mesh),
            time=time,
            chunk_size=chunk_size,
            memory_gib=memory_gib,
            scratch=scratch,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the operator, for `learn.load` and `opjax-predict`.

        Args:
          folder: a new or empty one.

        Raises:
          FileExistsError: if the folder holds anything.
          OSError: if it cannot be written.
        """
        path = pathlib.Path(folder).expanduser()
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FileExistsError(
                f"{path} is not empty; give a new folder, so that nothing is lost."
            )
        config = {"format": _formats.CONFIGURATION, **self.description["config"]}
        write_json(path / "config.json", config)
        save(path, self.model, self.normalizers, self.description)
        finish(path, {})

    def stream(
        self,
        arrays: Mapping[str, Any],
        *,
        time: float | None = None,
        chunk_size: int = 2**14,
        memory_gib: float = 8.0,
        scratch: str | os.PathLike[str] | None = None,
    ) -> Iterator[np.ndarray]:
        """Predicts chunk by chunk on a mesh that need not fit into memory.

        Args:
          arrays: `mesh_points`, and `features` and `quadrature_weights` where the
            operator was trained with them, of any kind that can be sliced: `np.memmap`,
            HDF5 data sets; and `scalars`, `(s,)`, of an operator that takes some.
          time: see `__call__`; likewise the others.
          chunk_size: points that are evaluated at once.
          memory_gib: largest memory of an evaluation, in GiB.
          scratch: folder for a file.

        Returns:
          An iterator of values of the output function, of shape `(m, q)` and the type
          that a call returns.

        Raises:
          OSError: if the folder cannot be written.
          ValueError: if the operator cannot be evaluated in chunks, or the arrays or
            the memory do not fit it.
        """
        self._refuse_without_field()
        parts = self.stream_channels(
            arrays,
            time=time,
            chunk_size=chunk_size,
            memory_gib=memory_gib,
            scratch=scratch,
        )
        return (prediction.decoded(self, part) for part in parts)

    def stream_channels(
        self,
        arrays: Mapping[str, Any],
        *,
        time: float | None = None,
        chunk_size: int = 2**14,
        memory_gib: float = 8.0,
        scratch: str | os.PathLike[str] | None = None,
    ) -> Iterator[np.ndarray]:
        """Evaluates all channels chunk by chunk, those of scalars among them.

        Args:
          arrays: see `stream`; likewise the others.
          time: of an operator with a time embedding.
          chunk_size: points that are evaluated at once.
          memory_gib: largest memory of an evaluation, in GiB.
          scratch: folder for a file.

        Returns:
          An iterator of values as the model returns them, `(m, q)` and further
          channels that scalars are read off.

        Raises:
          OSError: as from `stream`.
          ValueError: as from `stream`.
        """
        self._refuse_series()
        given: Any = dict(arrays)
        prediction.check(self, Sample(**given, name="the mesh"), weights=True)
        return prediction.chunks(
            self,
            arrays,
            time=time,
            chunk_size=chunk_size,
            memory_gib=memory_gib,
            scratch=scratch,
        )

    def rollout(
        self,
        series: Series,
        num_steps: int,
        *,
        time_step: float | None = None,
    ) -> Iterator[np.ndarray]:
        """Predicts frame after frame, by an operator that was trained on series.

            frames = np.stack(list(trained.rollout(series, 50)))

        Args:
          series: with as many frames as the model sees; later ones are not looked at.
          num_steps: number of frames to predict.
          time_step: time between them; by default, as in training.

        Returns:
          An iterator of frames `(n, c)`, in physical units. One frame is in memory.

        Raises:
          ValueError: if the operator was not trained on series, or has no such step; or
            the series does not fit it. From the iterator, if a frame is not finite.
        """
        lags = in_time.lags_of(self, num_steps, time_step)
        return in_time.frames(self, series, lags)

    def field(
        self,
        mesh: Sample | str | os.PathLike[str],
        *,
        time: float | None = None,
        chunk_size: int = 2**14,
    ) -> Field:
        """Finds the coefficients of all layers, for predictions at other points.

            field = trained.field("new/part.vtu")
            probes = field.at(points)

        Args:
          mesh: where the input is given, as for `__call__`.
          time: of an operator with a time embedding.
          chunk_size: points that are evaluated at once.

        Returns:
          The field, which knows the mesh by its coefficients only.

        Raises:
          OSError: if the file cannot be read.
          ValueError: as from `stream`.
        """
        self._refuse_without_field()
        sample = self.one(mesh)
        prediction.check(self, sample, weights=True)
        prediction.refuse_whole(self)
        arrays = prediction.encoded(self, prediction.arrays_of(sample))
        found = streaming.coefficients(
            prediction.of_function(self.model),
            arrays,
            chunk_size=chunk_size,
            time=time,
        )
        return Field(self, found, time, sample.scalars)

    def _refuse_without_field(self) -> None:
        """Raises ValueError if the operator predicts no field of one mesh."""
        self._refuse_series()
        if not self.description["channels"]["target"]:
            raise ValueError(
                f"The operator in {self.folder} predicts scalars alone, no field; call "
                "trained.both(sample).scalars."
            )

    def _refuse_series(self) -> None:
        """Raises ValueError if the operator advances series in time."""
        if "time" in self.description:
            raise ValueError(
                f"The operator in {self.folder} was trained on series; call "
                "trained.rollout(series, num_steps), or opjax-predict with --steps."
            )


def _refuse_traced(*arguments: object) -> None:
    """Raises TypeError for arrays of a function that is being transformed."""
    parts = [part for given in arguments for part in jax.tree.leaves(given)]
    if any(isinstance(part, jax.core.Tracer) for part in parts):
        raise TypeError(
            "trained(...) returns NumPy arrays, so jax.grad, jax.vmap and jax.jit do "
            "not go through it. Transform trained.model, which takes encoded arrays: "
            "opjax.normalize.encode(trained.normalizers['mesh_points'], points), and "
            "decode its values with those of 'target'; see \"Derivatives\" on the page "
            "Export and call."
        )


def _refuse_beside(
    mesh: object,
    *,
    features: ArrayLike | None,
    weights: ArrayLike | None,
    scalars: ArrayLike | None = None,
) -> None:
    """Raises ValueError for arrays beside a mesh that has its own."""
    given = {"features": features, "quadrature_weights": weights, "scalars": scalars}
    for name, array in given.items():
        if array is not None:
            what = mesh.name if isinstance(mesh, Sample) else mesh
            raise ValueError(
                f"{name} belong to the points of one mesh, an array (n, p); {what} "
                "has its own."
            )


def describe(
    train: Sequence[Sample] | Sliced,
    *,
    sizes: operators.Sizes,
    names: Mapping[str, Sequence[str]] | None = None,
    layout: operators.Layout | None = None,
    fields: Fields | None = None,
) -> dict[str, Any]:
    """Says what an operator is for: sizes and the ranges of the training samples.

    Args:
      train: training samples.
      sizes: that the model was built for.
      names: of the channels, by array.
      layout: that the model was built with; as by default if None.
      fields: of the output function, where each has an error of its own.

    Returns:
      JSON values: `sizes`, `channels` of the arrays (zero for none), their `names`,
      `layout`, `weighted`, `num_train`, and what `ranges.measure` returns.
    """
    weighted = (
        train.weighted
        if isinstance(train, Sliced)
        else train[0].quadrature_weights is not None
    )
    channels = {
        "mesh_points": sizes.point_dim,
        "features": sizes.feature_dim - sizes.scalar_dim,
        "target": sizes.out_features,
    }
    if sizes.scalar_dim:
        channels["scalars"] = sizes.scalar_dim
    if sizes.target_scalars:
        channels["target_scalars"] = sizes.target_scalars
    found = {
        "sizes": sizes._asdict(),
        "channels": channels,
        "names": {k: list(listed) for k, listed in (names or {}).items()},
        "layout": (layout or operators.Layout())._asdict(),
        "weighted": weighted,
        "num_train": len(train),
    }
    if fields is not None:
        found["fields"] = to_description(fields)
    return to_json(found | ranges.measure(train) | {"uniform": grids.is_uniform(train)})


def save(
    folder: pathlib.Path,
    model: Any,
    normalizers: Mapping[str, Normalizer],
    description: Mapping[str, Any],
) -> None:
    """Saves the operator of a member in its folder, for `load`."""
    payload = {"model": model, "normalizers": dict(normalizers)}
    config = json.loads((folder / "config.json").read_text())
    config.pop("format", None)  # the checkpoint has one
    metadata = {
        **description,
        "config": config,
        "normalizers": {k: np.shape(n.mean) for k, n in normalizers.items()},
        "normalizer_types": {k: n.mean.dtype.name for k, n in normalizers.items()},
    }
    checkpoint.save(folder / FOLDER, 0, payload, metadata=to_json(metadata), keep=1)


def finish(folder: pathlib.Path, result: Mapping[str, Any]) -> None:
    """Marks the folder of an operator as finished, for `load`."""
    write_json(folder / "result.json", dict(result))


def load(workdir: str | os.PathLike[str], *, own_model: str | None = None) -> Trained:
    """Reads the operator of a run: of the smallest validation error, else the first.

    Nothing that the folder holds is run. A model of your own is imported again by its
    name, which you have to give: no folder chooses what is imported.

    Args:
      workdir: folder of the run, or of one of its members.
      own_model: the name of the model, if it is one of your own,
        `package.module:function`.

    Raises:
      FileNotFoundError: if there is no finished run.
      ValueError: if a model of your own is not the one of that name, or cannot be
        imported; if a later opjax wrote the folder.
      opjax.training.checkpoint.CheckpointError: if the operator is damaged.
    """
    root = pathlib.Path(workdir).expanduser()
    finished = [
        folder
        for folder in [root, *sorted(path.parent for path in root.glob(f"*/{FOLDER}"))]
        if checkpoint.all_steps(folder / FOLDER) and (folder / "result.json").is_file()
    ]
    if not finished:
        raise FileNotFoundError(
            f"{root} holds no trained operator; name the --workdir of a finished run."
        )

    def validation(folder: pathlib.Path) -> float:
        found = read_object(folder / "result.json").get("validation")
        return float("inf") if not isinstance(found, int | float) else found

    folder = min(finished, key=validation)
    description = _description(folder, own_model)
    try:
        template = _template(description)
    except Exception as error:  # what is not as it was leads models anywhere
        raise _damaged(folder, f"it describes no operator: {error!r}") from error
    found = checkpoint.restore(folder / FOLDER, template)
    assert found is not None
    payload = found.payload
    return Trained(payload["model"], payload["normalizers"], description, folder)


def _damaged(folder: pathlib.Path, reason: str) -> checkpoint.CheckpointError:
    return checkpoint.CheckpointError(
        f"The operator in {folder} is damaged, or of another version: {reason[:300]} "
        "(restore the folder from a copy, or train again)."
    )


def _description(folder: pathlib.Path, own_model: str | None) -> dict[str, Any]:
    """What was saved beside an operator, checked."""
    try:
        found = _checked(checkpoint.read_metadata(folder / FOLDER, 0))
    except _formats.NewerFormatError:
        raise
    except ValueError as error:
        raise _damaged(folder, str(error)) from error
    (name,) = found["config"]["models"]
    if operators.is_own(name) and name != own_model:
        raise ValueError(
            f"{folder} holds a model that is not of opjax, {name!r}; to import and run "
            f"it, if you trust it, give own_model={name!r} (--own_model={name})."
        )
    return found


def _checked(found: Any) -> dict[str, Any]:
    """Raises ValueError unless a description has the parts that `save` gives it."""
    parts = {"sizes": dict, "channels": dict, "names": dict, "weighted": bool}
    parts |= {"config": dict, "normalizers": dict, "ranges": dict, "num_points": list}
    for part, kind in parts.items():
        if not isinstance(found, dict) or not isinstance(found.get(part), kind):
            raise ValueError(f"no {part} in its description")
    config, sizes = found["config"], found["sizes"]
    config = found["config"] = renamed.current(config)
    given = {name: tuples(value) for name, value in config.items()}
    fields.check_types(ModelOptions, given)
    models = config.get("models")
    if not isinstance(models, list) or [type(m) for m in models] != [str]:
        raise ValueError(f"models={models!r}, expected one")
    if not 0 < config.get("num_layers", 1) <= _MAX_LAYERS:
        raise ValueError(f"num_layers={config['num_layers']}")
    if set(sizes) - set(operators.Sizes._fields):
        raise ValueError(f"sizes of {sorted(sizes)}")
    kinds = found.setdefault("normalizer_types", {})  # in opjax 0.2 all float32
    known = ("float32", "float64")
    if not isinstance(kinds, dict) or any(k not in known for k in kinds.values()):
        raise ValueError(f"normalizer_types={kinds!r}")
    ends = found.setdefault("layout", {})  # operators of opjax 0.2 have none
    if not isinstance(ends, dict) or set(ends) - set(operators.Layout._fields):
        raise ValueError(f"layout={ends!r}")
    counts = [*_numbers(sizes), *found["channels"].values(), *found["num_points"]]
    counts += [n for shape in found["normalizers"].values() for n in tuples(shape)]
    if not all(type(n) in (int, float, bool) and abs(n) < 2**31 for n in counts):
        raise ValueError("sizes that are none")
    return found


def _numbers(value: Any) -> list[Any]:
    """All that is in nested lists and objects, but nothing that is null."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [number for part in inner for number in _numbers(part)]
    return [] if value is None else [value]


def _template(description: dict[str, Any]) -> dict[str, Any]:
    """Shapes of all that `save` saved."""
    sizes = {name: tuples(value) for name, value in description["sizes"].items()}

    def build(key: jax.Array) -> Operator:
        return operators.build(
            types.SimpleNamespace(**description["config"]),
            operators.Sizes(**sizes),
            layout=operators.Layout(**description["layout"]),
            rngs=nnx.Rngs(key),
        )

    normalizers, kinds = {}, description["normalizer_types"]
    for name, shape in description["normalizers"].items():
        array = np.empty(tuple(shape), kinds.get(name, np.float32))
        normalizers[name] = Normalizer(array, array)
    model = jax.eval_shape(build, jax.random.key(0))
    return {"model": model, "normalizers": normalizers}
