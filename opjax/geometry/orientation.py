"""Connected parts of surfaces, and their orientation."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from opjax.geometry import _arrays
from opjax.geometry import facets as areas

_SAMPLES = 64  # points of a part that are looked for inside of another one
_FLAT = 1e-12  # share of its box that a part without an inside encloses at most
_PAIRS = 1_000_000  # of a point and a facet, at once


class OpenSurfaceError(ValueError):
    """A surface (a curve, in the plane) that is not closed.

    Attributes:
      edges: point indices of its open edges, `(k, 2)`, or of its open ends in the
        plane, `(k, 1)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import OpenSurfaceError, outward_facets
      >>> points = np.array([[0.0, 0], [1, 0], [0, 1]])
      >>> try:
      ...     outward_facets(points, [[0, 1], [1, 2]])
      ... except OpenSurfaceError as error:
      ...     print(error.edges.tolist())
      [[0], [2]]
    """

    def __init__(self, edges: np.ndarray):
        where = " and ".join(map(str, edges[0].tolist()))
        super().__init__(
            f"the surface is open at {len(edges)} edges (ends, in the plane), the "
            f"first one at the points {where}; close it."
        )
        self.edges = edges


def surface_parts(
    mesh_points: Float[ArrayLike, "n p"], facets: Int[ArrayLike, "m corners"]
) -> Int[np.ndarray, " m"]:
    """Numbers the connected parts of a surface (of a curve, in the plane).

    Facets are connected by an edge (an end, in the plane) that two of them share; its
    points may be duplicates at one location, as at a trailing edge. Closed surfaces
    that touch each other in edges of more facets are separate parts.

    Args:
      mesh_points: shape `(n, p)`, `p` of 2 or 3.
      facets: point indices, `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      The index of the part of each facet, from 0.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: if shapes do not match or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import surface_parts
      >>> points = np.array([[0.0, 0], [1, 0], [0, 1], [2, 0], [3, 0]])
      >>> surface_parts(points, [[0, 1], [3, 4], [1, 2], [2, 0]]).tolist()
      [0, 1, 0, 0]
    """
    return _parts(_merged(*_checked(mesh_points, facets)))


def outward_facets(
    mesh_points: Float[ArrayLike, "n p"], facets: Int[ArrayLike, "m corners"]
) -> Int[np.ndarray, "m corners"]:
    """Orients the facets of closed surfaces outwards.

    Every connected part, see `surface_parts`, is oriented separately by its nesting:
    outermost parts outwards; a part inside another one inwards, as the wall of a
    cavity; a part inside two outwards again. So normals point out of the solid,
    regardless of the original orientation of the facets. A part without volume, such as
    two coinciding sheets, is unchanged.

    Args:
      mesh_points: shape `(n, p)`, `p` of 2 or 3.
      facets: point indices, `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      The facets in the same order. The corners of reoriented facets are reversed.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      OpenSurfaceError: if a part is open.
      ValueError: if a part is not orientable, such as a Klein bottle, shapes do not
        match, or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import outward_facets
      >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
      >>> outward_facets(square, [[0, 3], [3, 2], [2, 1], [1, 0]]).tolist()
      [[3, 0], [2, 3], [1, 2], [0, 1]]
    """
    points, outward = _checked(mesh_points, facets)
    merged = _merged(points, outward)
    turned = against_neighbours(merged)
    outward[turned], merged[turned] = outward[turned, ::-1], merged[turned, ::-1]
    if len(edges := unbalanced_edges(merged)):
        raise OpenSurfaceError(edges)
    parts = _parts(merged)
    rows = np.split(np.argsort(parts, kind="stable"), np.cumsum(np.bincount(parts)))
    own = [outward[some] for some in rows[:-1]]
    volumes = np.array([_volume(points, one) for one in own])
    low = np.array([points[one].min(axis=(0, 1)) for one in own])
    high = np.array([points[one].max(axis=(0, 1)) for one in own])
    for number, one in enumerate(own):
        around = ((low <= low[number]) & (high >= high[number])).all(axis=1)
        around &= (volumes != 0) & (np.arange(len(own)) != number)
        shells = [own[other] for other in np.flatnonzero(around)]
        depth = sum(_is_inside(points, one, shell) for shell in shells)
        if volumes[number] * (-1) ** depth < 0:
            outward[rows[number]] = one[:, ::-1]
    return outward


def unbalanced_edges(
    facets: Int[np.ndarray, "m corners"],
) -> Int[np.ndarray, "k ends"]:
    """Edges with different numbers of facets in the two directions."""
    keys, numbers, signs, _ = _edges(facets)
    return keys[np.bincount(numbers, signs, minlength=len(keys)) != 0]


def _checked(
    mesh_points: ArrayLike, facets: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Points in double precision and a copy of the facets, which fit them."""
    points = _arrays.coordinates(np.asarray(mesh_points))
    corners = np.array(facets)
    areas.facet_area_vectors(points, corners)  # checks them
    return points, corners.astype(np.int64)


def _merged(points: np.ndarray, facets: np.ndarray) -> np.ndarray:
    """Facets with the first number of all points that are in one place."""
    _, first, places = np.unique(points, axis=0, return_index=True, return_inverse=True)
    return first[places.reshape(-1)][facets]


def _edges(
    facets: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Edges (ends, in the plane): different ones, then of each place in a facet.

    Returns:
      Points of the different edges, `(k, 2)` or `(k, 1)`; and for each edge of each
      facet its number, its direction of 1 or -1, and its facet.
    """
    rows = np.repeat(np.arange(len(facets)), facets.shape[1])
    if facets.shape[1] == 2:
        keys, signs = facets.reshape(-1, 1), np.tile([1, -1], len(facets))
    else:
        ends = np.stack([facets, np.roll(facets, -1, axis=1)], axis=2).reshape(-1, 2)
        keep = ends[:, 0] != ends[:, 1]  # facets of fewer corners repeat one
        ends, rows = ends[keep], rows[keep]
        keys, signs = np.sort(ends, axis=1), np.sign(ends[:, 1] - ends[:, 0])
    keys, numbers = np.unique(keys, axis=0, return_inverse=True)
    return keys, numbers.reshape(-1), signs, rows


def connected(pairs: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the connected parts of a graph of so many nodes, `(count,)`."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(pairs), bool)
    graph = coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return connected_components(graph, directed=False)[1]


def _neighbours(facets: np.ndarray) -> tuple[np.ndarray, Bool[np.ndarray, " k"]]:
    """Pairs of facets that alone share an edge, and which ones are turned alike."""
    keys, numbers, signs, rows = _edges(facets)
    shared = np.bincount(numbers, minlength=len(keys)) == 2
    order = np.argsort(numbers, kind="stable")
    order = order[shared[numbers[order]]].reshape(-1, 2)
    return rows[order], signs[order].sum(axis=1) == 0


def against_neighbours(facets: np.ndarray) -> Bool[np.ndarray, " m"]:
    """Facets to flip, so that neighbouring facets have the same orientation.

    A facet and its reverse are two nodes of a graph, in which compatible orientations
    are connected.
    """
    count = len(facets)
    pairs, alike = _neighbours(facets)
    other = np.where(alike, 0, count)
    pairs = np.concatenate(
        [
            np.stack([pairs[:, 0], pairs[:, 1] + other], axis=1),
            np.stack([pairs[:, 0] + count, pairs[:, 1] + count - other], axis=1),
        ]
    )
    labels = connected(pairs, 2 * count)
    if (bad := labels[:count] == labels[count:]).any():
        raise ValueError(
            f"the surface is not orientable, like a Moebius strip: {bad.sum()} "
            "facets, the first one with the points "
            f"{facets[np.argmax(bad)].tolist()}, have no outward normal. Repair the "
            "mesh."
        )
    return labels[:count] > labels[count:]


def _parts(facets: np.ndarray) -> np.ndarray:
    """Numbers of the parts of facets whose points are merged; see `surface_parts`."""
    count = len(facets)
    parts = connected(_neighbours(facets)[0], count)
    # What ends in an edge of more facets belongs to what else ends there.
    keys, numbers, signs, rows = _edges(facets)
    ends, inverse = np.unique(
        np.stack([numbers, parts[rows]], axis=1), axis=0, return_inverse=True
    )
    ends = ends[np.bincount(inverse.reshape(-1), signs, minlength=len(ends)) != 0]
    nodes = int(parts.max(initial=-1)) + 1
    joined = connected(ends[:, ::-1] + [0, nodes], nodes + len(keys))[:nodes]
    return np.unique(joined[parts], return_inverse=True)[1].reshape(-1)


def _volume(points: np.ndarray, facets: np.ndarray) -> float:
    """Volume inside, with its sign; zero up to rounding is zero."""
    volume = float(areas.enclosed_volume(*_own(points, facets)))
    corners = points[facets.reshape(-1)]
    return volume if abs(volume) > _FLAT * np.ptp(corners, axis=0).prod() else 0.0


def _own(points: np.ndarray, facets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of facets alone, and facets of these."""
    numbers, places = np.unique(facets, return_inverse=True)
    return points[numbers], places.reshape(facets.shape)


def _is_inside(points: np.ndarray, part: np.ndarray, shell: np.ndarray) -> bool:
    """Whether a part lies inside of a closed one: some of it does, and none outside."""
    corners = points[np.unique(part)]
    steps = np.linspace(0, len(corners) - 1, min(_SAMPLES, len(corners)))
    turns = np.abs(_turns(corners[np.unique(steps.astype(int))], points[shell]))
    whole = np.abs(turns - np.round(turns)) < 1e-6  # others lie on the shell
    return bool((turns[whole] > 0.5).any() and (turns[whole] > 0.5).all())


def _turns(where: np.ndarray, facets: np.ndarray) -> np.ndarray:
    """How often a closed surface goes around points: 0 outside, 1 or -1 inside."""
    step = max(1, _PAIRS // len(facets))
    parts = [where[i : i + step] for i in range(0, len(where), step)]
    turns = _angles if where.shape[1] == 2 else _solid_angles
    return np.concatenate([turns(facets[None] - p[:, None, None]) for p in parts])


def _angles(corners: np.ndarray) -> np.ndarray:
    """Angles that sides `(q, m, 2, 2)` are seen under from the origin, in turns."""
    a, b = corners[..., 0, :], corners[..., 1, :]
    turned = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    return np.arctan2(turned, (a * b).sum(axis=-1)).sum(axis=-1) / (2 * np.pi)


def _solid_angles(corners: np.ndarray) -> np.ndarray:
    """Solid angles of polygons `(q, m, corners, 3)` from the origin, in turns.

    References:
      Van Oosterom and Strackee, "The solid angle of a plane triangle", IEEE
      Transactions on Biomedical Engineering 30(2), 1983.
    """
    halves = np.zeros(corners.shape[:2])
    lengths = _arrays.norm(corners)
    for i in range(1, corners.shape[2] - 1):
        a, b, c = (corners[:, :, k] for k in (0, i, i + 1))
        u, v, w = (lengths[:, :, k] for k in (0, i, i + 1))
        above = (a * _arrays.cross(b, c)).sum(axis=-1)
        beside = u * v * w + (a * b).sum(axis=-1) * w
        beside += (b * c).sum(axis=-1) * u + (c * a).sum(axis=-1) * v
        halves += 2 * np.arctan2(above, beside)
    return halves.sum(axis=-1) / (4 * np.pi)
