"""Features of a point from its nearest points, on any mesh."""

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


def local_features(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Local means and deviations of fields, and closeness to the boundary.

    For the 9 and for the 21 nearest points: the mean of each field, the logarithm of
    its standard deviation, the difference from the mean and its absolute value, and the
    distance to the mean of their coordinates, which is zero in the interior and large
    at a boundary.

    Args:
      points: coordinates of about unit size, `(n, p)`.
      values: values of the fields, of about unit size, `(n, m)`.

    Returns:
      The features, `(n, local_count(m))`.
    """
    parts: list[np.ndarray] = []
    most = nearest(points, _COUNTS[-1])
    for count in _COUNTS:
        near = most[:, :count]  # they are sorted by their distance
        around = values[near]
        mean, deviation = around.mean(axis=1), around.std(axis=1)
        apart = values - mean
        middle = np.linalg.norm(points[near].mean(axis=1) - points, axis=1)
        parts += [mean, np.log(deviation + 0.01), apart, np.abs(apart)]
        parts.append(5 * middle[:, None])
    return np.concatenate(parts, axis=1)


def local_count(num_fields: int) -> int:
    """Number of features of `local_features` for this number of fields."""
    return len(_COUNTS) * (4 * num_fields + 1)


def local_largest(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The maximum over the 9 nearest points of every point, `(n, m)`."""
    return values[nearest(points, _COUNTS[0])].max(axis=1)


def local_mean(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The mean over the 9 nearest points of every point, `(n, m)`."""
    return values[nearest(points, _COUNTS[0])].mean(axis=1)
