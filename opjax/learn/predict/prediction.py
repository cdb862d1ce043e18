"""Evaluation of trained operators on meshes of any size, in bounded memory."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import nn, normalize, samples, streaming
from opjax._trees import Arrays, Columns, Model, PyTree
from opjax.learn.predict.learned import Learned
from opjax.learn.registry import operators
from opjax.nn import division
from opjax.normalize import Normalizer
from opjax.samples import Sample, layout
from opjax.samples.base import check_finite
from opjax.samples.normalizers import encode_stored
from opjax.samples.sliced import WithConstants
from opjax.streaming import plan

_MANY_POINTS = 2**17  # seconds for each layer and head
# Inputs whose numbers are checked, and their axis, by name of the array.
_INPUTS = {
    "mesh_points": ("coordinates", 1),
    "features": ("channels of features", 1),
    "scalars": ("scalars", 0),
}
_ARRAYS = ("mesh_points", "features", "quadrature_weights", "scalars")


class Predicted(NamedTuple):
    """The predictions of an operator for a sample, in physical units.

    Attributes:
      values: values of the output function, `(n, q)`.
      scalars: predicted scalars of the sample, `(t,)`; None if the operator predicts
        none.
    """

    values: Any
    scalars: Any = None


class Limits(NamedTuple):
    """Memory limits of an evaluation.

    Attributes:
      chunk_size: number of points that are evaluated at once, if the operator supports
        chunks.
      memory_gib: maximum memory, in GiB. The features of all points are stored in
        memory if they fit in a sixteenth of it.
      scratch: folder for a file of these features otherwise, with 4 bytes per channel
        and point; the system's temporary folder if None.

    Examples:
      >>> from opjax import learn
      >>> limits = learn.Limits(chunk_size=4096, memory_gib=2.0)
      >>> limits.chunk_size  # for trained(mesh, limits=limits)
      4096
    """

    chunk_size: int = 2**14
    memory_gib: float = 8.0
    scratch: str | os.PathLike[str] | None = None


LIMITS = Limits()  # by default


def predict_sample(
    normalizers: Mapping[str, Normalizer],
    model: Model,
    sample: Arrays,
    *,
    time: jax.Array | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """Evaluates an operator on an encoded sample, in physical units, `(n, q)`.

    The arguments are the same as for `operators.call`.
    """
    values = operators.call(model, sample, time=time, axis_name=axis_name)
    return decode_target(normalizers, values)


def call_both(
    model: Model,
    sample: Arrays,
    *,
    time: jax.Array | None = None,
    axis_name: str | None = None,
) -> Predicted:
    """Evaluates an operator on an encoded sample; also returns predicted scalars.

    The arguments are the same as for `operators.call`; predictions are in normalised
    units.
    """
    if not isinstance(model, nn.models.ScalarOperator):
        values = operators.call(model, sample, time=time, axis_name=axis_name)
        return Predicted(values)
    both = operators.call(model.both, sample, time=time, axis_name=axis_name)
    return Predicted(*both)


def of_function(model: Model) -> Any:
    """The model of the output function, with the channels that a scalar head reads.

    Dropout is removed, because it would prevent evaluation in chunks.
    """
    inner = model.operator if isinstance(model, nn.models.ScalarOperator) else model
    return nn.models.without_dropout(inner)


def decode_target(
    normalizers: Mapping[str, Normalizer], values: jax.Array
) -> jax.Array:
    """Values of the output function in physical units."""
    if "target" not in normalizers:
        return values
    return normalize.decode(normalizers["target"], values)


def predict(
    trained: Learned,
    sample: Sample,
    *,
    time: float | None,
    limits: Limits,
) -> Predicted:
    """Evaluates an operator on a mesh, see `Trained.__call__`.

    Meshes up to the size of a chunk are padded to one of a few sizes, and the operator
    is compiled once per size. Larger meshes are evaluated chunk by chunk if the
    operator supports it, see `opjax.streaming`. Otherwise the mesh is evaluated as a
    whole, if it fits.

    Raises:
      ValueError: if the sample does not fit the operator or the memory, or an input or
        the prediction is not finite.
    """
    check(trained, sample, weights=True)
    check_finite(sample._replace(target=None), sample.name)
    if sample.scalars is not None and not np.isfinite(sample.scalars).all():
        raise ValueError(f"{sample.name}: scalars {sample.scalars} are not all finite.")
    predicted = _predict_reduced(trained, trained.reduced(sample), time, limits)
    if trained.scaling is not None:
        trained.scaling.warn_of_units(sample, trained.description.numbers)
    predicted = in_case(trained, sample, predicted)
    check_finite_output(sample.name, *predicted)
    return predicted


def in_case(trained: Learned, sample: Sample, predicted: Predicted) -> Predicted:
    """Converts predictions for a scaled case to physical units."""
    values, scalars = predicted
    if scalars is not None:
        scalars = trained.physical(scalars, sample, "target_scalars")
    return Predicted(trained.physical(values, sample), scalars)


def _predict_reduced(
    trained: Learned, sample: Sample, time: float | None, limits: Limits
) -> Predicted:
    """Evaluates an operator on a case as its normalisers see it."""
    n, arrays = sample.num_points, arrays_of(sample)
    if n > limits.chunk_size and not obstacle(trained):
        parts = chunks(trained, arrays, time=time, limits=limits)
        values = np.concatenate(list(parts))
        means = Means(trained.model)
        means.add(values, sample.quadrature_weights)
        scalars = means.scalars(trained.normalizers)
        return Predicted(_of_case(trained, sample, values), scalars)
    when = None if time is None else jnp.asarray(time, jnp.float32)
    if not trained.fixed_points and n <= limits.chunk_size:
        bare = sample._replace(target=None, target_scalars=None)
        arrays = samples.pad(bare, padded_size(n))
    if n > limits.chunk_size:
        warn_of_pairs(trained, n)
        _check_memory(trained, arrays, when, limits.memory_gib)
    whole = _whole(trained.model, model_input(trained, arrays), when)
    scalars = whole.scalars
    if scalars is not None:
        scalars = in_units(trained.normalizers, "target_scalars", scalars)
    values = np.asarray(whole.values)[:n]
    return Predicted(_of_case(trained, sample, values), scalars)


def _of_case(trained: Learned, sample: Sample, values: np.ndarray) -> np.ndarray:
    """Values of the output function of a case over its scales.

    Of an operator that starts from a baseline, the sum of both.
    """
    difference = decoded(trained, values)
    if trained.start is None:
        return difference
    std = trained.normalizers["target"].std
    total = trained.start.total(values[:, : difference.shape[1]], std, sample)
    return total.astype(difference.dtype)


class Means:
    """Weighted means of the channels that a scalar head reads, chunk by chunk.

    Args:
      model: any model; there are no means if it predicts no scalars.
    """

    def __init__(self, model: Model):
        has_head = isinstance(model, nn.models.ScalarOperator)
        self._model: nn.models.ScalarOperator | None = model if has_head else None
        self._sum: Any = 0.0
        self._mass = 0.0

    def add(self, values: np.ndarray, weights: np.ndarray | None) -> None:
        """Adds the channels of some points, `(m, c)`, and their weights."""
        if self._model is None:
            return
        weights = np.ones(len(values)) if weights is None else weights
        weights = np.asarray(weights, np.float64)
        read = np.where(weights[:, None] > 0, values[:, self._model.out_features :], 0)
        self._sum = self._sum + weights @ read
        self._mass += weights.sum()

    def scalars(self, normalizers: Mapping[str, Normalizer]) -> np.ndarray | None:
        """Returns the scalars, in physical units, `(t,)`."""
        if self._model is None:
            return None
        means = jnp.asarray((self._sum / self._mass).astype(np.float32))
        encoded = jax.jit(self._model.head.of_means)(means)
        return in_units(normalizers, "target_scalars", encoded)


def arrays_of(sample: Sample) -> dict[str, np.ndarray]:
    """The input arrays of a model for a sample."""
    return samples.arrays(sample, _ARRAYS)


def model_input(
    trained: Learned,
    arrays: Mapping[str, np.ndarray],
    normalizers: Mapping[str, Normalizer] | None = None,
) -> dict[str, np.ndarray]:
    """Encodes the arrays of a sample, in the precision of the parameters.

    Args:
      trained: the operator.
      arrays: arrays of a sample, by name.
      normalizers: normalisers that replace those of the operator.
    """
    dtype = _dtype_of(trained)
    inputs = encode_stored(arrays, normalizers or trained.normalizers)
    return {name: np.asarray(array, dtype) for name, array in inputs.items()}


def _dtype_of(trained: Learned) -> Any:
    """The precision of the parameters."""
    leaves = jax.tree.leaves(trained.model)
    real = (x for x in leaves if jnp.isdtype(x.dtype, "real floating"))
    return jnp.result_type(*real)


def obstacle(trained: Learned) -> str | None:
    """Returns why an operator cannot be evaluated in chunks; empty if it can."""
    model = of_function(trained.model)
    if any(jnp.ndim(n.mean) > 1 for n in trained.normalizers.values()):
        return "its data are normalised point by point"
    return division.obstacle(model, "stream")


def chunks(
    trained: Learned,
    source: Columns,
    *,
    time: float | None,
    limits: Limits,
) -> Iterator[np.ndarray]:
    """Evaluates the model of the output function in chunks, without decoding.

    See `Trained.stream_channels`.
    """
    n, model = len(source["mesh_points"]), of_function(trained.model)
    layers, channels, width = plan.sizes(model)
    limit = limits.memory_gib * 2**30
    # Features of all points: in memory if they take little of it, else in a file.
    small = n * channels * width <= limit / 16
    folder = None if small or layers == 1 else limits.scratch or tempfile.gettempdir()
    needed = plan.needed_bytes(
        model, n, store_every=0, chunk_size=limits.chunk_size, backward=False
    )
    if needed > limit:
        text = plan.advice(
            model, n, memory_limit=limit, chunk_size=limits.chunk_size, backward=False
        )
        raise ValueError(f"memory_gib={limits.memory_gib:g} is too small: {text}")
    return streaming.predict(
        model,
        encoded(trained, source),
        streaming.Chunks(limits.chunk_size, storage=folder),
        time=time,
    )


def refuse_whole(trained: Learned, *, sliced: bool = False) -> None:
    """Raises ValueError if an operator cannot be evaluated in chunks.

    Args:
      trained: the operator.
      sliced: whether the case is read in slices, which scales do not support.
    """
    if sliced and trained.scaling is not None:
        raise ValueError(
            f"The operator in {trained.folder} was trained with scales or angles, "
            "which need whole cases: call trained(sample), which also works in "
            "chunks, or omit --stream."
        )
    if trained.start is not None:
        raise ValueError(
            f"The operator in {trained.folder} uses a baseline, which needs whole "
            "cases: call trained(sample), which also works in chunks, or omit "
            "--stream."
        )
    if reason := obstacle(trained):
        raise ValueError(
            f"{trained.name} in {trained.folder} cannot be evaluated in chunks: "
            f"{reason}. Call it on the whole mesh."
        )


class Encoded:
    """Rows of an array, encoded for the model when they are read.

    Args:
      column: any array that supports slicing.
      encode: function that encodes some of its rows.
    """

    def __init__(self, column: Any, encode: Callable[[np.ndarray], np.ndarray]):
        self._column, self._encode = column, encode

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the column."""
        return self._column.shape

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._encode(np.asarray(self._column[rows]))


def _encode(normalizer: Normalizer, dtype: Any, values: np.ndarray) -> np.ndarray:
    """Encoded values in the type of the parameters."""
    return normalize.encode_host(normalizer, values).astype(dtype, copy=False)


def encoded(trained: Learned, arrays: Columns) -> dict[str, Any]:
    """Sliceable arrays, encoded for the model, with scalars as features."""
    normalizers, dtype = trained.normalizers, _dtype_of(trained)
    columns: dict[str, Any] = {
        k: Encoded(a, partial(_encode, normalizers[k], dtype))
        if k in normalizers and k in _ARRAYS
        else a
        for k, a in arrays.items()
        if k != "scalars"
    }
    if "scalars" in arrays:
        row = np.asarray(arrays["scalars"])
        scalars = _encode(normalizers["scalars"], dtype, row)
        n = len(arrays["mesh_points"])
        columns["features"] = WithConstants(columns.get("features"), scalars, n)
    return columns


def decoded(trained: Learned, values: np.ndarray) -> np.ndarray:
    """Values of the output function in physical units, see `in_units`."""
    channels = trained.channels.target
    return in_units(trained.normalizers, "target", values[:, :channels])


def in_units(
    normalizers: Mapping[str, Normalizer], name: str, encoded: Any
) -> np.ndarray:
    """Converts predictions of an operator to physical units, on the host.

    Args:
      normalizers: normalisers of the operator.
      name: name of the array, `"target"` or `"target_scalars"`.
      encoded: the prediction, or several stacked along the first axes.

    Returns:
      The values in their dtype, or in float64 if it does not represent them accurately,
      see `normalize.decode_host`.
    """
    values = np.asarray(encoded)
    if name not in normalizers:
        return values
    return normalize.decode_host(normalizers[name], values)


def weights_of(sample: Sample) -> np.ndarray:
    """Returns the quadrature weights of a sample, ones if it has none, `(n,)`."""
    weights = sample.quadrature_weights
    return np.ones(sample.num_points) if weights is None else np.asarray(weights, float)


def has_weight(sample: Sample) -> np.ndarray:
    """Whether each point counts, `(n,)`: those of positive weight do."""
    return weights_of(sample) > 0


def check_finite_output(name: str, *values: np.ndarray | None) -> None:
    """Raises ValueError if a prediction is not finite."""
    if not all(np.isfinite(part).all() for part in values if part is not None):
        raise ValueError(
            f"The prediction for {name} is not finite; its inputs are too far from the "
            "training data."
        )


def padded_size(num_points: int) -> int:
    """The padded size of a mesh: at most an eighth more points, or 64."""
    step = max(64, 2 ** max(num_points.bit_length() - 4, 0))
    return -(-num_points // step) * step


def check(trained: Learned, sample: Sample, *, weights: bool) -> None:
    """Raises ValueError unless a sample has the inputs of an operator.

    Without `weights`, quadrature weights are optional.
    """
    description = trained.description
    operator = f"the operator in {trained.folder}"
    for name, (what, axis) in _INPUTS.items():
        array = getattr(sample, name)
        expected = getattr(description.channels, name)
        count = 0 if array is None else np.shape(array)[axis]
        if count != expected:
            names = description.names.get(name)
            hint = "." if name == "scalars" else "; see --point_dim."
            raise ValueError(
                f"{sample.name} has {count} {what}, but {operator} was trained with "
                f"{expected}" + (f" ({', '.join(names)})." if names else hint)
            )
    trained.check_plane(sample)
    weighted = sample.quadrature_weights is not None
    if weights and weighted != description.weighted:
        has = ("without", "with")
        raise ValueError(
            f"{sample.name} was passed {has[weighted]} quadrature_weights, but "
            f"{operator} was trained {has[not weighted]} them."
        )
    num_points = description.sizes.num_points
    if trained.fixed_points and sample.num_points != num_points:
        raise ValueError(
            f"{sample.name} has {sample.num_points} points, but {operator} supports "
            f"only meshes of {num_points} points."
        )
    _check_grid(trained, sample)


def _check_grid(trained: Learned, sample: Sample) -> None:
    """Raises ValueError for another grid of as many points, where one is fixed."""
    grid = trained.sizes.grid_shape
    if not trained.fixed_points or grid is None or sample.grid_shape == grid:
        return
    if sample.grid_shape is None:  # points, which have to be in the order of the grid
        points = np.asarray(sample.mesh_points)
        layout.check_order([layout.Grid(sample.name, points, grid)])
        return
    raise ValueError(
        f"{sample.name} is on a grid of {tuple(sample.grid_shape)}, but the operator "
        f"in {trained.folder} supports only grids of {grid}."
    )


@jax.jit
def _whole(model: Model, arrays: PyTree, when: jax.Array | None) -> Predicted:
    return call_both(model, arrays, time=when)


def warn_of_pairs(trained: Learned, num_points: int) -> None:
    """Warns of a long evaluation if it compares many pairs of points."""
    if num_points > _MANY_POINTS and operators.entry(trained.name).quadratic:
        warnings.warn(
            f"{trained.name} compares all pairs of {num_points} points, "
            f"{num_points**2:.1e} in every layer and head, which may take hours. Use "
            "a coarser mesh, or train functional or transolver, whose time grows "
            "linearly.",
            stacklevel=2,
        )


def _check_memory(
    trained: Learned, arrays: PyTree, when: jax.Array | None, memory_gib: float
) -> None:
    """Asks the compiler for the memory of an evaluation before there is one."""
    n = len(arrays["mesh_points"])
    lowered = _whole.lower(trained.model, model_input(trained, arrays), when)
    analysis = lowered.compile().memory_analysis()
    needed = getattr(analysis, "temp_size_in_bytes", 0)
    if needed > memory_gib * 2**30:
        raise ValueError(
            f"{trained.name} needs about {needed / 2**30:.1f} GiB for a mesh of "
            f"{n} points, above {memory_gib=:g}. Raise --memory_gib if the machine "
            "has more memory, use a coarser mesh, or train a model that can be "
            "evaluated in chunks: functional, or transolver without convolutions."
        )
