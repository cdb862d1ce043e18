"""Interpolation of a field from mesh points to sensors."""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax.geometry import _arrays, triangles

_TOLERANCE = 1e-6  # of a cell, that a sensor on its edge may lie outside
_FLAT = 1e-12


class Sensors(NamedTuple):
    """Interpolation from mesh points to sensors; call it with values at points.

    Attributes:
      corners: indices of the mesh points of the cell of each sensor, `(m, c)`.
      weights: weights of these points, `(m, c)`; each row adds up to one.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import sensors
      >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
      >>> found = sensors(np.array([[0.25, 0.25]]), points, [[0, 1, 2]])
      >>> found(points[:, :1]).tolist()
      [[0.25]]
    """

    corners: Int[np.ndarray, "m c"]
    weights: Float[np.ndarray, "m c"]

    def __call__(self, values: Any) -> Any:
        """Interpolates values at points, `(n, q)`, to the sensors, `(m, q)`.

        It is linear in the values, which may be NumPy or JAX arrays, so JAX can
        differentiate it.
        """
        shares = self.weights[:, :, None].astype(values.dtype)
        return (shares * values[self.corners]).sum(axis=1)


def sensors(
    places: Float[ArrayLike, "m p"],
    mesh_points: Float[ArrayLike, "n p"],
    cells: Int[ArrayLike, "k corners"],
) -> Sensors:
    """Finds the cell of each sensor, for linear interpolation, on the host.

    Quadrilaterals are divided into two triangles each.

    Complexity: `O(m k)`.

    Args:
      places: coordinates of the sensors, `(m, p)`, with `p` of 2 or 3.
      mesh_points: points of the mesh, `(n, p)`.
      cells: triangles or quadrilaterals in the plane, tetrahedra in space, `(k, 3)` or
        `(k, 4)`.

    Returns:
      The interpolation, which is exact for linear fields (on quadrilaterals, too).

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: if a sensor is outside the mesh, or cells have another type.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import sensors
      >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
      >>> sensors(np.array([[0.5, 0.25]]), points, [[0, 1, 2]]).weights.tolist()
      [[0.25, 0.5, 0.25]]
      >>> sensors(np.array([[2.0, 0.0]]), points, [[0, 1, 2]])
      Traceback (most recent call last):
          ...
      ValueError: Sensor 0 at (2, 0) is outside the mesh, which extends from (0, 0) to \
(1, 1); its nearest mesh point, (1, 0), is 1 away. Move or remove the sensor.
    """
    points = np.asarray(_arrays.coordinates(mesh_points), np.float64)
    rows = np.asarray(_arrays.coordinates(places, "places"), np.float64)
    corners = _arrays.indices("cells", cells, len(points))
    dim, count = points.shape[1], corners.shape[1]
    if rows.shape[1] != dim:
        raise ValueError(
            f"places have shape {rows.shape}, but mesh_points {points.shape}: expected "
            "as many coordinates."
        )
    if (dim, count) not in ((2, 3), (2, 4), (3, 4)):
        raise ValueError(
            f"cells with {count} corners in {dim} dimensions have no sensors; expected "
            "triangles or quadrilaterals in the plane, or tetrahedra in space."
        )
    if (dim, count) == (2, 4):
        corners, _ = triangles.facet_triangles(_arrays.in_space(points), corners)
    first = points[corners[:, 0]]
    edges = np.swapaxes(points[corners[:, 1:]] - first[:, None], 1, 2)
    solid = np.abs(np.linalg.det(edges)) > _FLAT * np.ptp(points, axis=0).max() ** dim
    corners, first, edges = corners[solid], first[solid], edges[solid]
    inverse = np.linalg.inv(edges)
    chosen: list[int] = []
    weights: list[np.ndarray] = []
    for number, place in enumerate(rows):
        inner = np.einsum("kij,kj->ki", inverse, place - first)
        shares = np.concatenate([1 - inner.sum(axis=1, keepdims=True), inner], axis=1)
        least = shares.min(axis=1)
        best = int(np.argmax(least))
        if not least[best] >= -_TOLERANCE:
            raise ValueError(_outside(number, place, points))
        clipped = np.maximum(shares[best], 0)
        chosen.append(best)
        weights.append(clipped / clipped.sum())
    return Sensors(corners[chosen], np.stack(weights))


def _outside(number: int, place: np.ndarray, points: np.ndarray) -> str:
    distances = np.linalg.norm(points - place, axis=1)
    nearest = int(np.argmin(distances))
    low, high, near, at = (
        "(" + ", ".join(f"{x:.6g}" for x in row) + ")"
        for row in (points.min(axis=0), points.max(axis=0), points[nearest], place)
    )
    return (
        f"Sensor {number} at {at} is outside the mesh, which extends from {low} to "
        f"{high}; its nearest mesh point, {near}, is {distances[nearest]:.6g} away. "
        "Move or remove the sensor."
    )
