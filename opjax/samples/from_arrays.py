"""Samples from stacked arrays: meshes of equal size, and grids."""

from collections.abc import Mapping, Sequence

import numpy as np
from jax.typing import ArrayLike

from opjax.samples import layout
from opjax.samples.base import FIELDS, Sample, converted, real


def from_arrays(
    *,
    target: ArrayLike | None = None,
    features: ArrayLike | None = None,
    mesh_points: ArrayLike | None = None,
    quadrature_weights: ArrayLike | None = None,
    grid_axes: int = 2,
    scalars: ArrayLike | None = None,
    target_scalars: ArrayLike | None = None,
    numbers: Mapping[str, ArrayLike] | None = None,
) -> list[Sample]:
    """Converts arrays of many samples to samples.

    With `mesh_points`, all meshes have `n` points. Without them, the samples lie on a
    uniform grid of the unit square (or interval, or cube), including its boundary.

    Args:
      target: values to predict, shape `(b, n)` or `(b, n, q)`; on a grid with
        `grid_axes = 2`, `(b, h, w)` or `(b, h, w, q)`. None if only scalars are
        predicted.
      features: input values, with the same shapes; None if the mesh is the only input.
      mesh_points: coordinates, shape `(b, n, p)`, or `(n, p)` if all samples share
        them. None for a grid, which needs a target or features.
      quadrature_weights: weights of the points, shape `(b, n)` or `(n,)`. Not supported
        for grids.
      grid_axes: number of axes of the grid.
      scalars: scalar inputs of every sample, `(b, s)` or `(b,)`.
      target_scalars: scalars of every sample to predict, `(b, t)` or `(b,)`.
      numbers: further scalars of every sample by name, `(b,)` each, for the scales of
        `learn.train`; they are not model inputs.

    Returns:
      The samples, in order. Arrays are copied only if necessary.

    Raises:
      TypeError: if an array is not real-valued.
      ValueError: if shapes are inconsistent, or there is nothing to predict.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> x = np.random.default_rng(0).normal(size=(8, 6, 5))  # eight fields on a grid
      >>> cases = samples.from_arrays(features=x, target=np.sin(x))
      >>> len(cases), cases[0].grid_shape, cases[0].features.shape
      (8, (6, 5), (30, 1))
    """
    if target is None and target_scalars is None:
        raise ValueError("Pass target or target_scalars.")
    fields = {"target": target, "features": features}
    arrays = {k: _stacked(k, array) for k, array in fields.items() if array is not None}
    grid_shape = weights = None
    if mesh_points is None:
        if quadrature_weights is not None:
            raise ValueError(
                "quadrature_weights need mesh_points; they are not supported for grids."
            )
        if not arrays:
            raise ValueError("Pass mesh_points, or a target or features on a grid.")
        grid_shape = _grid_shape(arrays, grid_axes)
        points, count = grid_points(grid_shape), len(next(iter(arrays.values())))
        flat = {k: array.reshape(count, len(points), -1) for k, array in arrays.items()}
    else:
        points = _stacked("mesh_points", mesh_points)
        present = [a for a in (target, features, target_scalars) if a is not None]
        count = len(np.atleast_1d(np.asarray(present[0])))
        if points.ndim not in (2, 3):
            raise ValueError(
                f"mesh_points has shape {points.shape}, expected (b, n, p) for b "
                "samples, or (n, p) for a common mesh."
            )
        points = points.view()
        points.flags.writeable = False  # of all samples
        shape = (count, points.shape[-2])
        flat = {name: _flat(name, array, shape) for name, array in arrays.items()}
        if quadrature_weights is not None:
            stacked = _stacked("quadrature_weights", quadrature_weights)
            weights = np.broadcast_to(stacked, shape)
    meshes = [points] * count
    if points.ndim == 3:
        meshes = list(np.broadcast_to(points, (count, *points.shape[1:])))
    samples = [
        Sample(
            mesh_points=meshes[i],
            target=flat["target"][i] if "target" in flat else None,
            features=flat["features"][i] if "features" in flat else None,
            quadrature_weights=None if weights is None else weights[i],
            grid_shape=grid_shape,
            name=f"sample {i}",
        )
        for i in range(count)
    ]
    samples = _with_numbers(samples, numbers or {})
    return _with_scalars(samples, scalars=scalars, target_scalars=target_scalars)


def _with_numbers(
    samples: list[Sample], numbers: Mapping[str, ArrayLike]
) -> list[Sample]:
    """Adds named numbers to samples, one of each array for each of them."""
    rows: list[dict[str, float]] = [{} for _ in samples]
    for name, values in numbers.items():
        array = np.asarray(_stacked(name, values), np.float64)
        if array.shape != (len(samples),) or not np.isfinite(array).all():
            raise ValueError(
                f"The numbers {name} have shape {array.shape}, expected "
                f"({len(samples)},) with one finite number per sample."
            )
        for row, value in zip(rows, array.tolist(), strict=True):
            row[name] = value
    if not numbers:
        return samples
    return [one._replace(numbers=r) for one, r in zip(samples, rows, strict=True)]


def _with_scalars(samples: list[Sample], **given: ArrayLike | None) -> list[Sample]:
    """Adds scalars to samples, a row of each array for each of them."""
    for name, values in given.items():
        if values is None:
            continue
        array = _stacked(name, values)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or len(array) != len(samples):
            raise ValueError(
                f"{name} has shape {np.shape(values)}, expected (b, s) with one "
                f"row for each of the {len(samples)} samples."
            )
        samples = [
            one._replace(**{name: row}) for one, row in zip(samples, array, strict=True)
        ]
    return samples


def columns(sample: Sample) -> Sample:
    """Returns a sample with values `(n, channels)`; a single channel may be `(n,)`.

    Real numbers of any dtype become floating point, see `real`; labels stay integers.

    Raises:
      TypeError: if an array is not real-valued.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> samples.columns(samples.Sample(np.ones((5, 2)), np.ones(5))).target.shape
      (5, 1)
    """

    def column(name: str, array: np.ndarray) -> np.ndarray:
        if name != "target" or array.dtype.kind not in "iu":
            array = real(f"{sample.name or 'sample'}: {name}", array)
        is_bare = array.ndim == 1 and name in ("features", "target")
        return array[:, None] if is_bare else array

    return converted(sample, column, (*FIELDS, "scalars"))


def grid_points(
    shape: Sequence[int],
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
) -> np.ndarray:
    """Returns the points of a uniform grid, row by row, shape `(prod(shape), p)`.

    Args:
      shape: points per axis.
      low: lower corner of the grid; zeros by default.
      high: upper corner of the grid; ones by default.

    Examples:
      >>> from opjax import samples
      >>> samples.grid_points((2, 2)).tolist()
      [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    low = [0.0] * len(shape) if low is None else low
    high = [1.0] * len(shape) if high is None else high
    axes = [np.linspace(*ends) for ends in zip(low, high, shape, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))


def _stacked(name: str, values: ArrayLike) -> np.ndarray:
    """One array of the values of all samples."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} contains arrays of different shapes; for meshes of different "
            "sizes, pass a list of samples.Sample."
        ) from error
    return real(name, array)


def _grid_shape(arrays: dict[str, np.ndarray], grid_axes: int) -> tuple[int, ...]:
    """Returns the grid that all arrays have behind their first axis."""
    role, first = next(iter(arrays.items()))
    shape = first.shape[1 : 1 + grid_axes]
    for name, array in arrays.items():
        fits = array.ndim in (grid_axes + 1, grid_axes + 2)
        if not fits or array.shape[: 1 + grid_axes] != first.shape[: 1 + grid_axes]:
            beside = "" if name == role else f", but {role} has {first.shape}"
            raise ValueError(
                f"{name} has shape {array.shape}{beside}. Without mesh_points it "
                f"must be (samples, {grid_axes} axes of the grid) or (samples, "
                f"{grid_axes} axes, "
                f"channels){', the same for both' * bool(beside)}. Pass "
                "mesh_points, or another grid_axes."
            )
        if array.ndim == grid_axes + 2:
            what = f"{name} of shape {array.shape}"
            layout.warn_of_channels_first(what, shape, array.shape[-1], axis=1)
    return shape


def _flat(name: str, array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Values of points `(b, n, c)`; one channel may be left out."""
    if array.ndim not in (2, 3) or array.shape[:2] != shape:
        raise ValueError(
            f"{name} has shape {array.shape}, but mesh_points are for {shape[0]} "
            f"samples of {shape[1]} points: expected {shape} or {(*shape, 'c')}."
        )
    return array.reshape(*shape, -1)
