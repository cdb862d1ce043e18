"""Features of a point from its nearest points, on any mesh."""

from types import ModuleType
from typing import Any

import numpy as np

_COUNTS = (9, 21)  # with the point itself; on a grid they leave few ties


def nearest(points: np.ndarray, count: int) -> np.ndarray:
    """Indices of the nearest points of every point, including the point itself.

    Args:
      points: coordinates, `(n, p)`.
      count: number of nearest points; all if there are fewer.

    Returns:
      The indices, `(n, min(count, n))`.
    """
    from scipy.spatial import KDTree

    points = np.asarray(points, np.float64)
    places = KDTree(points).query(points, min(count, len(points)))[1]
    return np.reshape(places, (len(points), -1))


def of_each(points: np.ndarray) -> np.ndarray:
    """Indices of the nearest points that `local_features` uses, `(n, k)`."""
    return nearest(points, _COUNTS[-1])


def local_features(
    points: Any,
    values: Any,
    near: np.ndarray | None = None,
    array: ModuleType = np,
) -> Any:
    """Local means and deviations of fields, and closeness to the boundary.

    For the 9 and for the 21 nearest points: the mean of each field, the logarithm of
    its standard deviation, the difference from the mean and its absolute value, and the
    distance to the mean of their coordinates, which is zero in the interior and large
    at a boundary.

    Args:
      points: coordinates of about unit size, `(n, p)`.
      values: values of the fields, of about unit size, `(n, m)`.
      near: indices from `of_each`; computed from the points if None.
      array: module to compute with, `numpy` or `jax.numpy`.

    Returns:
      The features, `(n, local_count(m))`.
    """
    parts: list[Any] = []
    near = of_each(points) if near is None else near
    for count in _COUNTS:
        few = near[:, :count]  # they are sorted by their distance
        around = values[few]
        mean, deviation = around.mean(axis=1), root(around.var(axis=1), array)
        apart = values - mean
        middle = points[few].mean(axis=1) - points
        distance = root((middle * middle).sum(axis=1), array)
        parts += [mean, array.log(deviation + 0.01), apart, array.abs(apart)]
        parts.append(5 * distance[:, None])
    return array.concatenate(parts, axis=1)


def root(squares: Any, array: ModuleType = np) -> Any:
    """The square root, whose gradient is zero at zero."""
    zero = squares == 0
    return array.where(zero, 0, array.sqrt(array.where(zero, 1, squares)))


def local_count(num_fields: int) -> int:
    """Number of features of `local_features` for this number of fields."""
    return len(_COUNTS) * (4 * num_fields + 1)


def local_largest(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The maximum over the 9 nearest points of every point, `(n, m)`."""
    return values[nearest(points, _COUNTS[0])].max(axis=1)


def local_mean(points: Any, values: Any, near: np.ndarray | None = None) -> Any:
    """The mean over the 9 nearest points of every point, `(n, m)`; see above."""
    near = of_each(points) if near is None else near
    return values[near[:, : _COUNTS[0]]].mean(axis=1)
