"""Surfaces in the Object File Format, with one label per vertex."""

from pathlib import Path

import numpy as np

from opjax._files import OnePath


def read_vertices(path: OnePath) -> np.ndarray:
    """Reads the vertices of an `.off` file; faces are counted but not read.

    The file contains the word `OFF`, the numbers of vertices, faces and edges, three
    coordinates per vertex and one line per face, separated by spaces or line breaks.
    Text after `#` is a comment.

    Args:
      path: the file.

    Returns:
      Coordinates, float64 of shape `(n, 3)`.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is not an `.off` file, has no vertex, is truncated, or a
        coordinate is not a finite number.
    """
    path = Path(path)
    words = _words(path)
    if not words or words[0] != "OFF":
        start = " ".join(words[:4])[:40]
        raise ValueError(f"{path} begins with {start!r}, expected the word OFF.")
    counts = words[1:4]
    if len(counts) < 3 or not all(map(_is_count, counts)):
        raise ValueError(
            f"{path} has {' '.join(counts)[:40]!r} after OFF, expected the numbers of "
            "vertices, faces and edges."
        )
    num_vertices, num_faces = int(counts[0]), int(counts[1])
    if not num_vertices:
        raise ValueError(f"{path} has no vertices; remove the mesh from the list.")
    coordinates = words[4 : 4 + 3 * num_vertices]
    rest = len(words) - 4 - len(coordinates)
    # A face takes its number of corners and three of them at least.
    if len(coordinates) < 3 * num_vertices or rest < 4 * num_faces:
        raise ValueError(
            f"{path} is truncated: it declares {num_vertices} vertices and "
            f"{num_faces} faces, but contains {len(coordinates)} of "
            f"{3 * num_vertices} coordinates and {rest} of at least "
            f"{4 * num_faces} numbers for faces. Download it again."
        )
    try:
        vertices = np.array(coordinates, np.float64).reshape(-1, 3)
    except ValueError as error:
        raise ValueError(
            f"{path} has a coordinate that is not a number: {error}."
        ) from None
    largest = np.finfo(np.float32).max
    bad = np.flatnonzero(~(np.abs(vertices) < largest).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{path} has {bad.size} non-finite vertices, the first one is vertex "
            f"{bad[0]}: {vertices[bad[0]].tolist()}."
        )
    return vertices


def read_triangles(path: OnePath) -> np.ndarray:
    """Reads the faces of an `.off` file, after `read_vertices`.

    Args:
      path: the file.

    Returns:
      Indices of vertices, int64 of shape `(m, 3)`; empty if there are no faces.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if a face does not have three corners that are vertices.
    """
    words = _words(Path(path))
    num_vertices, num_faces = int(words[1]), int(words[2])
    words = words[4 + 3 * num_vertices :]
    if len(words) != 4 * num_faces:
        raise ValueError(
            f"{path} has {len(words)} numbers for its {num_faces} faces, expected "
            "four for each: the number 3 and the corners of a triangle, without "
            "colours."
        )
    try:
        faces = np.array(words, np.int64).reshape(-1, 4)
    except (OverflowError, ValueError) as error:
        raise ValueError(
            f"{path} has a corner that is not a number: {error}."
        ) from None
    if faces.size and not (
        np.all(faces[:, 0] == 3)
        and np.all(faces[:, 1:] >= 0)
        and np.all(faces[:, 1:] < num_vertices)
    ):
        raise ValueError(
            f"{path} has faces that are not triangles with valid vertices."
        )
    return faces[:, 1:]


def read_labels(path: OnePath, *, lowest: int, highest: int) -> np.ndarray:
    """Reads integers, one per vertex.

    Args:
      path: a text file, numbers separated by spaces or line ends.
      lowest: minimum label.
      highest: maximum label.

    Returns:
      The labels, int32 of shape `(n,)`.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if a label is not an integer or is out of range.
    """
    path = Path(path)
    try:
        labels = np.array([int(word) for word in _words(path)], np.int64)
    except (OverflowError, ValueError) as error:
        raise ValueError(
            f"{path} has a label that is not an integer: {error}."
        ) from None
    bad = np.flatnonzero((labels < lowest) | (labels > highest))
    if bad.size:
        raise ValueError(
            f"{path} has {bad.size} labels outside {lowest} to {highest}, the "
            f"first one is {labels[bad[0]]} at vertex {bad[0]}."
        )
    return labels.astype(np.int32)


def write(path: OnePath, vertices: np.ndarray) -> None:
    """Writes vertices `(n, 3)` as a surface without faces, without loss of digits."""
    rows = "".join(" ".join(map(str, row)) + "\n" for row in vertices.tolist())
    Path(path).write_text(f"OFF\n{len(vertices)} 0 0\n{rows}")


def _is_count(word: str) -> bool:
    return word.isdecimal() and len(word) <= 18


def _words(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} ({path.stat().st_size} bytes) is not a text file: {error}."
        ) from None
    if "#" in text:
        text = "\n".join(line.partition("#")[0] for line in text.splitlines())
    return text.split()
