"""Arrays as inputs instead of samples: points, and values on uniform grids."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from opjax.learn.predict.learned import Learned
from opjax.samples import Sample, grid_points
from opjax.samples.base import real


class Grids(NamedTuple):
    """Values on one or several grids.

    Attributes:
      samples: one sample for each grid.
      output_shape: shape of the predictions, in the layout of the input.
    """

    samples: list[Sample]
    output_shape: tuple[int, ...]


class Layout(NamedTuple):
    """Axes of an array of values on one or several uniform grids.

    Attributes:
      shape: number of points per axis of a grid.
      points: points of the grid, in row-major order, `(n, k)`.
      rows: shape of the values as features, `(grids, n, channels)`.
      output_shape: shape of the predictions, in the layout of the input.
    """

    shape: tuple[int, ...]
    points: np.ndarray
    rows: tuple[int, int, int]
    output_shape: tuple[int, ...]


def is_mesh(trained: Learned) -> bool:
    """Whether an operator takes only points, without features."""
    return not trained.channels.features


def of_points(
    mesh_points: ArrayLike,
    features: ArrayLike | None,
    scalars: ArrayLike | None,
    quadrature_weights: ArrayLike | None,
) -> Sample:
    """Converts arrays to a sample: points `(n, p)`, features `(n, c)` or `(n,)`.

    Raises:
      TypeError: if an array is not real-valued.
      ValueError: if the arrays have different numbers of points.
    """
    points, values, weights = by_rows(real, mesh_points, features, quadrature_weights)
    return Sample(
        points,
        features=values,
        quadrature_weights=weights,
        name="the mesh given",
        scalars=None if scalars is None else of_scalars(scalars),
    )


def by_rows(
    convert: Callable[[str, ArrayLike], Any],
    points: ArrayLike,
    features: ArrayLike | None,
    weights: ArrayLike | None,
) -> tuple[Any, Any, Any]:
    """Returns converted points, features `(n, c)` and weights of one case.

    Raises:
      ValueError: if the arrays have different numbers of points.
    """
    rows = convert("mesh_points", points)
    values = None if features is None else convert("features", features)
    if values is not None and values.ndim == 1:
        values = values[:, None]
    masses = None if weights is None else convert("quadrature_weights", weights)
    for name, array, rank in (
        ("features", values, 2),
        ("quadrature_weights", masses, 1),
    ):
        if array is not None and (
            array.ndim != rank or array.shape[0] != rows.shape[0]
        ):
            raise ValueError(
                f"{name} have shape {array.shape}, but there are {rows.shape[0]} "
                f"points {rows.shape}: pass one row per point, and use jax.vmap for "
                "batches."
            )
    return rows, values, masses


def named_scalars(
    trained: Learned, given: Mapping[str, float]
) -> tuple[np.ndarray | None, dict[str, float]]:
    """Divides named numbers into the scalars of an operator, `(s,)`, and the others.

    Raises:
      ValueError: if a scalar is missing.
    """
    names = trained.channel_names.get("scalars") or ()
    if missing := [name for name in names if name not in given]:
        raise ValueError(
            f"scalars have no {missing[0]!r}, which the operator in {trained.folder} "
            f"needs; it was trained with {', '.join(names)}."
        )
    values = {name: float(of_scalars(value)[0]) for name, value in given.items()}
    others = {name: value for name, value in values.items() if name not in names}
    scalars = np.asarray([values[name] for name in names], np.float64)
    return (scalars if names else None), others


def of_scalars(scalars: ArrayLike) -> np.ndarray:
    """Converts scalars of a sample to an array of shape `(s,)`.

    Raises:
      TypeError: if they are not real numbers.
      ValueError: if they are not a vector, or not finite.
    """
    array = np.atleast_1d(real("scalars", scalars))
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(
            f"scalars of shape {array.shape} must be finite numbers of shape (s,), one "
            "for each name; for batches, use jax.vmap."
        )
    return array


def layout(trained: Learned, shape: tuple[int, ...]) -> Layout:
    """Identifies the axes of an array of values on uniform grids.

    Args:
      trained: an operator whose training samples are on uniform grids of `k` axes.
      shape: shape of the values: `k` axes and channels for one grid, with one more axis
        in front for several. The axis of a single channel may be omitted. A grid far
        from those of training, with other proportions or a quarter of the points along
        an axis, gives a warning.

    Raises:
      ValueError: if the operator does not support uniform grids, the shape does not
        fit, or it has no axis of channels and its grids are far from those of training.
    """
    description = trained.description
    trained_shape = description.sizes.grid_shape
    if not description.uniform or trained_shape is None:
        raise ValueError(
            f"An array of shape {shape} does not define its points, and the "
            f"operator in {trained.folder} was not trained on uniform grids. Pass "
            "points (n, p) and features (n, c), or a sample."
        )
    axes, channels = len(trained_shape), description.channels.features
    outputs = description.channels.target
    bare = channels == 1 and not (len(shape) > axes and shape[-1] == 1)
    batched = len(shape) == axes + 2 - bare
    fits = batched or len(shape) == axes + 1 - bare
    if not fits or not bare and shape[-1] != channels:
        grid = ", ".join("hwd"[:axes])
        raise ValueError(
            f"The values on a grid have shape {shape}, expected ({grid}, "
            f"{channels}) or a batch (b, {grid}, {channels})."
        )
    grid_shape = shape[batched : batched + axes]
    if not trained.fixed_points and _is_far(grid_shape, trained_shape):
        text = (
            f"The values have shape {shape}, read as grids of {grid_shape}, but the "
            f"operator in {trained.folder} was trained on grids of {trained_shape} "
            f"with {channels} channel{'s' if channels > 1 else ''}"
        )
        if bare and batched:  # or channels that the operator does not take
            raise ValueError(
                f"{text}. For a batch of such grids, give the axis of channels, too: "
                f"{(*shape, 1)}."
            )
        warnings.warn(
            f"{text}: check the order of the axes. Another resolution has about the "
            "same proportions.",
            stacklevel=4,
        )
    low, high = description.ranges["mesh_points"]
    num_grids = shape[0] if batched else 1
    tail = () if bare and outputs == 1 else (outputs,)
    return Layout(
        grid_shape,
        grid_points(grid_shape, low, high),
        (num_grids, math.prod(grid_shape), channels),
        (*shape[: batched + axes], *tail),
    )


def _is_far(shape: tuple[int, ...], trained: tuple[int, ...]) -> bool:
    """Whether a grid is hardly another resolution of the grids of training."""
    ratios = [size / points for size, points in zip(shape, trained, strict=True)]
    turned = shape != trained and sorted(shape) == sorted(trained)
    return turned or min(ratios) < 0.25 or max(ratios) > 2 * min(ratios)


def of_grids(trained: Learned, values: ArrayLike) -> Grids:
    """Converts values on uniform grids to samples.

    Args:
      trained: see `layout`.
      values: array of a shape that `layout` accepts.

    Raises:
      TypeError: if the values are not real numbers.
      ValueError: as from `layout`.
    """
    array = real("The values on a grid", values)
    grid = layout(trained, array.shape)
    samples = [
        Sample(grid.points, features=row, grid_shape=grid.shape, name=f"grid {i}")
        for i, row in enumerate(array.reshape(grid.rows))
    ]
    return Grids(samples, grid.output_shape)
