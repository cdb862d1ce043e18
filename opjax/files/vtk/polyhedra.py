"""Polyhedra of VTK files: cells that are defined by their faces.

Files up to VTK 9.3, and those of most solvers, contain one list of integers, `faces`:
for each cell the number of its faces, and for each face the number of its points and
the points. `faceoffsets` are the ends of the cells in it, -1 for other types. Newer
files define faces by `face_connectivity` and `face_offsets`, and cells, as indices of
faces, by `polyhedron_to_faces` and `polyhedron_offsets`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax import geometry
from opjax.files import limits
from opjax.files.vtk import kinds

_OLD = ("faces", "faceoffsets")
_NEW = (
    "face_connectivity",
    "face_offsets",
    "polyhedron_to_faces",
    "polyhedron_offsets",
)
_PADDING = 64  # faces take so many times their corners, at most


class Polyhedra(NamedTuple):
    """Faces of the polyhedra of a mesh.

    Attributes:
      offsets: start of each face in `corners`, and the end of the last one, `(f + 1,)`.
      corners: point indices of the faces, concatenated.
      cells: start of the faces of each cell of the mesh, and the end of the last one,
        `(m + 1,)`. Cells of other types have no faces.
    """

    offsets: np.ndarray
    corners: np.ndarray
    cells: np.ndarray

    def facets(self, path: object, rows: np.ndarray) -> geometry.Facets:
        """Faces of some cells, with the position of each cell in `rows`.

        Args:
          path: the file, for messages.
          rows: indices of the cells.

        Raises:
          ValueError: if one face has many more corners than others.
        """
        chosen = self.of(rows)
        sizes = np.diff(chosen.offsets)
        widest = sizes.max(initial=0)
        if widest * len(sizes) > _PADDING * self.corners.size:
            raise ValueError(
                f"{path} has polyhedra with faces of up to {widest} corners among "
                "many small faces; repair the mesh."
            )
        columns = np.minimum(np.arange(widest)[None, :], sizes[:, None] - 1)
        corners = chosen.corners[chosen.offsets[:-1, None] + columns]
        owners = np.repeat(np.arange(len(rows)), np.diff(chosen.cells))
        return geometry.Facets(corners, owners)

    def of(self, rows: np.ndarray) -> "Polyhedra":
        """Returns the faces of some cells."""
        counts = np.diff(self.cells)[rows]
        chosen = spans(self.cells[rows], counts)
        sizes = np.diff(self.offsets)[chosen]
        return Polyhedra(
            offsets_of(sizes),
            self.corners[spans(self.offsets[chosen], sizes)],
            offsets_of(counts),
        )

    def stored(self) -> dict[str, np.ndarray]:
        """The arrays in the form that all versions of VTK read."""
        counts, sizes = np.diff(self.cells), np.diff(self.offsets)
        # Before every face its size, and before the first one their number.
        first = self.cells[:-1][counts > 0]
        places = np.concatenate([self.offsets[:-1], self.offsets[first]])
        values = np.concatenate([sizes, counts[counts > 0]])
        keys = np.concatenate([np.ones(len(sizes), int), np.zeros(len(first), int)])
        order = np.lexsort([keys, places])
        stream = np.insert(self.corners, places[order], values[order])
        lengths = self.offsets[self.cells[1:]] - self.offsets[self.cells[:-1]]
        ends = np.cumsum(lengths + counts + (counts > 0))
        return dict(zip(_OLD, (stream, np.where(counts > 0, ends, -1)), strict=True))

    def check(self, path: Path, num_points: int, types: np.ndarray) -> None:
        """Checks that faces are consistent with the mesh.

        Raises:
          ValueError: if they are inconsistent. The message names the file.
        """
        counts, sizes, corners = (
            np.diff(self.cells),
            np.diff(self.offsets),
            self.corners,
        )
        own = types == kinds.POLYHEDRON
        if (counts[own] < 4).any() or counts[~own].any() or (sizes < 3).any():
            what = "polyhedra with fewer than four faces of three corners"
            raise limits.damaged(path, what)
        if len(corners) and not (corners.min() >= 0 and corners.max() < num_points):
            what = f"faces of polyhedra name points from {corners.min()} to "
            raise limits.damaged(
                path, f"{what}{corners.max()}, but there are {num_points}"
            )


def read(
    path: Path, stored: dict[str, np.ndarray], types: np.ndarray, max_size: int
) -> Polyhedra | None:
    """Reads faces from the cell arrays of a file; None if it has none.

    Args:
      path: the file.
      stored: integer arrays by name.
      types: VTK's numbers of the cell types.
      max_size: maximum number of corners of all faces.

    Raises:
      ValueError: if polyhedra have no faces, or arrays are inconsistent.
    """
    own = types == kinds.POLYHEDRON
    if not own.any():
        return None
    if all(name in stored for name in _NEW):
        polyhedra = _of_lists(path, [stored[name] for name in _NEW], max_size)
    elif all(name in stored for name in _OLD):
        polyhedra = _of_stream(path, stored["faces"], stored["faceoffsets"], own)
    else:
        raise limits.damaged(path, "polyhedra without their faces")
    if len(polyhedra.cells) != len(types) + 1:
        raise limits.damaged(path, "a wrong number of polyhedra")
    return polyhedra


def _of_lists(path: Path, arrays: Sequence[np.ndarray], max_size: int) -> Polyhedra:
    """Faces of cells that are numbers of faces; one may belong to several cells."""
    corners, ends, numbers, cell_ends = arrays
    offsets, cells = (np.concatenate([[0], part]) for part in (ends, cell_ends))
    sizes = np.diff(offsets)
    for starts, listed in ((offsets, corners), (cells, numbers)):
        if (np.diff(starts) < 0).any() or starts[-1] != len(listed):
            raise _in_disorder(path)
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < len(sizes)):
        raise limits.damaged(path, f"polyhedra contain face indices above {len(sizes)}")
    total = sizes[numbers].sum()
    limits.check_size(path, "faces of polyhedra", int(total), max_size)
    every = corners[spans(offsets[numbers], sizes[numbers])]
    return Polyhedra(offsets_of(sizes[numbers]), every, cells)


def _of_stream(
    path: Path, stream: np.ndarray, ends: np.ndarray, own: np.ndarray
) -> Polyhedra:
    """Faces of a list of numbers and points."""
    if len(ends) != len(own):
        raise _in_disorder(path)
    ends = ends[own]
    place = np.concatenate([[0], ends])[:-1]
    if (np.diff(ends, prepend=0) < 1).any() or ends[-1] != len(stream):
        raise _in_disorder(path)
    counts, place = stream[place], place + 1
    if (counts < 1).any() or (counts > ends - place).any():
        raise _in_disorder(path)
    cells = np.zeros(len(own) + 1, np.int64)
    cells[1:][own] = counts
    cells, left = np.cumsum(cells), np.arange(len(counts))
    starts = np.zeros(cells[-1], np.int64)
    for rank in range(counts.max()):  # the same face of all cells
        left = left[counts[left] > rank]
        if (place[left] >= ends[left]).any():
            raise _in_disorder(path)
        sizes = stream[place[left]]
        starts[cells[:-1][own][left] + rank] = place[left]
        place[left] += np.maximum(sizes, 0) + 1
    sizes = stream[starts]
    if (place != ends).any() or (sizes < 0).any():
        raise _in_disorder(path)
    corners = stream[spans(starts + 1, sizes)]
    return Polyhedra(offsets_of(sizes), corners, cells)


def _in_disorder(path: Path) -> ValueError:
    return limits.damaged(path, "faces of polyhedra do not follow one another")


def joined(
    pieces: Sequence[Polyhedra | None],
    first_points: Sequence[int],
    num_cells: Sequence[int],
) -> Polyhedra | None:
    """Joins the polyhedra of pieces; None if no piece has any.

    Args:
      pieces: polyhedra of each piece.
      first_points: index of the first point of each piece.
      num_cells: number of cells of each piece.
    """
    if not any(pieces):
        return None
    none = np.zeros(0, np.int64)
    every = [
        piece or Polyhedra(np.zeros(1, np.int64), none, np.zeros(count + 1, np.int64))
        for piece, count in zip(pieces, num_cells, strict=True)
    ]
    shifted = [p.corners + s for p, s in zip(every, first_points, strict=True)]
    sizes, counts = ([np.diff(p[i]) for p in every] for i in (0, 2))
    return Polyhedra(
        offsets_of(np.concatenate(sizes)),
        np.concatenate(shifted),
        offsets_of(np.concatenate(counts)),
    )


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Returns where consecutive lists of these sizes begin, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def first_rows(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds different rows in the order in which they appear.

    Returns:
      Where each of them appears first, and which of them every row is.
    """
    _, first, groups = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[groups.reshape(-1)]


def spans(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenated index ranges: 3, 4 and 8 for (3, 8) and (2, 1)."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum())
