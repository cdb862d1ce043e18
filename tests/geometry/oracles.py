"""Cells to test with, and their volumes and centres by Gauss quadrature."""

import itertools

import numpy as np

BOX = np.array(
    [[x, y, z] for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))], float
)
CORNERS = {
    "line": BOX[:2],
    "triangle": BOX[[0, 1, 3]],
    "strip": BOX[[0, 1, 3, 2]],
    "polygon": np.array([[0, 0, 0], [2, 0, 0], [3, 1, 0], [1.5, 2, 0], [0, 1.5, 0]]),
    "pixel": BOX[[0, 1, 3, 2]],
    "quad": BOX[:4],
    "tetra": BOX[[0, 1, 3, 4]],
    "voxel": BOX[[0, 1, 3, 2, 4, 5, 7, 6]],
    "hexahedron": BOX,
    "wedge": BOX[[0, 3, 1, 4, 7, 5]],
    "pyramid": np.vstack([BOX[:4], [[0.5, 0.5, 1]]]),
}
VTK = {
    **{"line": 3, "triangle": 5, "strip": 6, "polygon": 7, "pixel": 8, "quad": 9},
    **{"tetra": 10, "voxel": 11, "hexahedron": 12, "wedge": 13, "pyramid": 14},
}
# Corners of the hexahedron (or quadrilateral) that collapses to each kind.
AS_BOX = {
    "triangle": (0, 1, 2, 2),
    "pixel": (0, 1, 3, 2),
    "quad": (0, 1, 2, 3),
    "tetra": (0, 1, 2, 2, 3, 3, 3, 3),
    "voxel": (0, 1, 3, 2, 4, 5, 7, 6),
    "hexahedron": (0, 1, 2, 3, 4, 5, 6, 7),
    "wedge": (0, 2, 1, 1, 3, 5, 4, 4),
    "pyramid": (0, 1, 2, 3, 4, 4, 4, 4),
}


def volume_and_center(corners, kind):
    """Integrates one and x over the bi- or trilinear map of a cell."""
    corners = corners[list(AS_BOX[kind])]
    dimension = 2 if len(corners) == 4 else 3
    nodes, weights = np.polynomial.legendre.leggauss(6)
    total, moment = 0.0, np.zeros(3)
    for picks in itertools.product(range(6), repeat=dimension):
        at = [(nodes[i] + 1) / 2 for i in picks]
        weight = np.prod([weights[i] / 2 for i in picks])
        shape, slopes = _shape(at)
        tangents = slopes @ corners
        if dimension == 3:
            element = np.linalg.det(tangents)
        else:
            element = np.linalg.norm(np.cross(*tangents))
        total += weight * element
        moment += weight * element * (shape @ corners)
    return total, moment / total


def _shape(at):
    """Multilinear functions of the corners and their derivatives."""
    corners = [(0, 0), (1, 0), (1, 1), (0, 1)]
    if len(at) == 3:
        corners = [(*c, z) for z in (0, 1) for c in corners]
    parts = np.array(
        [[x if c else 1 - x for x, c in zip(at, one, strict=True)] for one in corners]
    )
    signs = np.where(np.array(corners) == 1, 1.0, -1.0)
    slopes = [
        signs[:, d] * np.prod(np.delete(parts, d, axis=1), axis=1)
        for d in range(len(at))
    ]
    return np.prod(parts, axis=1), np.array(slopes)


def segment_distance(point, a, b):
    share = np.clip((point - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
    return np.linalg.norm(point - a - share * (b - a))


def facet_distance(point, corners):
    """By brute force: the plane where the foot is inside, or the nearest side."""
    sides = zip(corners, np.roll(corners, -1, axis=0), strict=True)
    found = min(segment_distance(point, a, b) for a, b in sides)
    edges = np.array([corners[1] - corners[0], corners[2] - corners[0]]).T
    shares = np.linalg.lstsq(edges, point - corners[0], rcond=None)[0]
    if min(shares.min(), 1 - shares.sum()) >= 0:
        found = min(found, np.linalg.norm(corners[0] + edges @ shares - point))
    return found
