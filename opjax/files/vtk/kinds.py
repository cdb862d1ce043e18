"""VTK's cell types: numbers, names, points and shapes."""

from collections.abc import Iterable

POLYHEDRON = 42
# Names of kinds in VTK, without VTK_.
_NAMES = {
    **{0: "EMPTY_CELL", 1: "VERTEX", 2: "POLY_VERTEX", 3: "LINE", 4: "POLY_LINE"},
    **{5: "TRIANGLE", 6: "TRIANGLE_STRIP", 7: "POLYGON", 8: "PIXEL", 9: "QUAD"},
    **{10: "TETRA", 11: "VOXEL", 12: "HEXAHEDRON", 13: "WEDGE", 14: "PYRAMID"},
    **{15: "PENTAGONAL_PRISM", 16: "HEXAGONAL_PRISM", 21: "QUADRATIC_EDGE"},
    **{22: "QUADRATIC_TRIANGLE", 23: "QUADRATIC_QUAD", 24: "QUADRATIC_TETRA"},
    **{25: "QUADRATIC_HEXAHEDRON", 26: "QUADRATIC_WEDGE", 27: "QUADRATIC_PYRAMID"},
    **{28: "BIQUADRATIC_QUAD", 29: "TRIQUADRATIC_HEXAHEDRON"},
    **{30: "QUADRATIC_LINEAR_QUAD", 31: "QUADRATIC_LINEAR_WEDGE"},
    **{32: "BIQUADRATIC_QUADRATIC_WEDGE", 33: "BIQUADRATIC_QUADRATIC_HEXAHEDRON"},
    **{34: "BIQUADRATIC_TRIANGLE", 35: "CUBIC_LINE", 36: "QUADRATIC_POLYGON"},
    **{37: "TRIQUADRATIC_PYRAMID", 41: "CONVEX_POINT_SET", POLYHEDRON: "POLYHEDRON"},
    **{68: "LAGRANGE_CURVE", 69: "LAGRANGE_TRIANGLE", 70: "LAGRANGE_QUADRILATERAL"},
    **{71: "LAGRANGE_TETRAHEDRON", 72: "LAGRANGE_HEXAHEDRON", 73: "LAGRANGE_WEDGE"},
    **{74: "LAGRANGE_PYRAMID", 75: "BEZIER_CURVE", 76: "BEZIER_TRIANGLE"},
    **{77: "BEZIER_QUADRILATERAL", 78: "BEZIER_TETRAHEDRON"},
    **{79: "BEZIER_HEXAHEDRON", 80: "BEZIER_WEDGE", 81: "BEZIER_PYRAMID"},
}
# Number of points of kinds that all have as many.
POINTS = {
    **{0: 0, 1: 1, 3: 2, 5: 3, 8: 4, 9: 4, 10: 4, 11: 8, 12: 8, 13: 6, 14: 5},
    **{15: 10, 16: 12, 21: 3, 22: 6, 23: 8, 24: 10, 25: 20, 26: 15, 27: 13},
    **{28: 9, 29: 27, 30: 6, 31: 12, 32: 18, 33: 24, 34: 7, 35: 4, 37: 19},
}
# Smallest number of points of kinds that have any number of them.
FEWEST = {2: 1, 4: 2, 6: 3, 7: 3, POLYHEDRON: 4}
# Cells, such as Lagrange's, whose number of points depends on their order.
CURVED = {36, 41, *range(60, 67), *range(68, 82)}
WITHOUT_EXTENT = {0, 1, 2}  # empty cells and vertices
# Names in `opjax.geometry` of cells of first order.
LINEAR = {
    **{3: "line", 4: "line", 5: "triangle", 6: "strip", 7: "polygon", 8: "pixel"},
    **{9: "quad", 10: "tetra", 11: "voxel", 12: "hexahedron", 13: "wedge"},
    **{14: "pyramid", POLYHEDRON: "polyhedron"},
}
# Of higher order: the linear cell whose corners are their first points. Faces are
# shared as those of the linear cells are.
HIGHER = {
    **{21: "line", 22: "triangle", 23: "quad", 24: "tetra", 25: "hexahedron"},
    **{26: "wedge", 27: "pyramid", 28: "quad", 29: "hexahedron", 30: "quad"},
    **{31: "wedge", 32: "wedge", 33: "hexahedron", 34: "triangle", 35: "line"},
    **{37: "pyramid", 68: "line", 69: "triangle", 70: "quad", 71: "tetra"},
    **{72: "hexahedron", 73: "wedge", 74: "pyramid", 75: "line", 76: "triangle"},
    **{77: "quad", 78: "tetra", 79: "hexahedron", 80: "wedge", 81: "pyramid"},
}
SHAPES = LINEAR | HIGHER

_QUAD = ((0, 1), (1, 2), (2, 3), (3, 0))
_TRIANGLE = ((0, 1), (1, 2), (2, 0))
_TETRA = (*_TRIANGLE, (0, 3), (1, 3), (2, 3))
_ENDS = (*_TRIANGLE, (3, 4), (4, 5), (5, 3))  # the triangles of a wedge
_WEDGE = (*_ENDS, (0, 3), (1, 4), (2, 5))
_TOP = ((4, 5), (5, 6), (6, 7), (7, 4))
_BOX = (*_QUAD, *_TOP, (0, 4), (1, 5), (2, 6), (3, 7))
_AROUND = ((0, 3, 7, 4), (1, 2, 6, 5), (0, 1, 5, 4), (3, 2, 6, 7))
_PYRAMID = (*_QUAD, (0, 4), (1, 4), (2, 4), (3, 4))
_SLOPES = ((0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4))
# The corners between which the other points of cells of second order are: on an edge,
# in a face or inside; of a cubic line, both.
BETWEEN: dict[int, tuple[tuple[int, ...], ...]] = {
    21: ((0, 1),),
    35: ((0, 1), (0, 1)),
    22: _TRIANGLE,
    34: (*_TRIANGLE, (0, 1, 2)),
    23: _QUAD,
    28: (*_QUAD, (0, 1, 2, 3)),
    30: ((0, 1), (2, 3)),
    24: _TETRA,
    25: _BOX,
    33: (*_BOX, *_AROUND),
    29: (*_BOX, *_AROUND, (0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8))),
    26: _WEDGE,
    31: _ENDS,
    32: (*_WEDGE, (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
    27: _PYRAMID,
    37: (*_PYRAMID, (0, 1, 2, 3), *_SLOPES, (0, 1, 2, 3, 4)),
}


def named(kinds: Iterable[int]) -> str:
    """Formats cell type numbers with their names: `[7, 9] (VTK_POLYGON, VTK_QUAD)`."""
    numbers = sorted(kinds)
    names = (f"VTK_{_NAMES.get(kind, 'unknown')}" for kind in numbers)
    return f"{numbers} ({', '.join(names)})"
