"""Samples on structured grids, and their fields in the files of Geo-FNO."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax._files import OnePath
from opjax.datasets import _arrays
from opjax.files import variables
from opjax.samples import Sample, join


def unit_grid(
    shape: Sequence[int], *, periodic: bool = False, indexing: str = "ij"
) -> np.ndarray:
    """Returns the points of a uniform grid of the unit cube, in float32.

    Args:
      shape: points per axis.
      periodic: whether the last point is one step before the end of the axis, instead
        of at the end.
      indexing: "ij" for points row by row; "xy" as in `numpy.meshgrid`.
    """
    axes = [np.linspace(0, 1, size, endpoint=not periodic) for size in shape]
    grid = np.stack(np.meshgrid(*axes, indexing=indexing), axis=-1)  # pyright: ignore
    return grid.reshape(-1, len(axes)).astype(np.float32)


def on_grid(
    points: np.ndarray,
    shape: Sequence[int],
    features: np.ndarray,
    target: np.ndarray,
    *,
    name: str,
) -> list[Sample]:
    """Returns samples that share the points of a grid, as views of two arrays.

    Args:
      points: points of the grid, `(n, p)`.
      shape: points per axis.
      features: values with `n` points and any number of channels per sample.
      target: true value of every sample, shape `(n,)`.
      name: name of a sample in messages, before its index.
    """
    features, target = (
        array.reshape(len(array), len(points), -1) for array in (features, target)
    )
    grid_shape = tuple(int(size) for size in shape)
    return [
        Sample(points, t, f, grid_shape=grid_shape, name=f"{name} {index}")
        for index, (f, t) in enumerate(zip(features, target, strict=True))
    ]


def fields(samples: Sequence[Sample]) -> tuple[np.ndarray, np.ndarray]:
    """Returns features and targets of samples on a common grid.

    Raises:
      ValueError: if there is no sample, a sample has no features or target, or they are
        not on one structured grid.
    """
    shapes = {sample.grid_shape for sample in samples}
    shape = shapes.pop() if len(shapes) == 1 else None
    if shape is None:
        listed = sorted(map(str, {sample.grid_shape for sample in samples}))
        raise ValueError(
            "This layout needs samples on one structured grid, but grid_shape is "
            f"{listed}."
        )

    def joined(name: str) -> np.ndarray:
        arrays = [getattr(sample, name) for sample in samples]
        if any(array is None for array in arrays):
            raise ValueError("Every sample needs features and a target.")
        return join(arrays).reshape(len(samples), *shape, -1)

    return joined("features"), joined("target")


class Files(NamedTuple):
    """Names and content of the three files of a Geo-FNO problem.

    Attributes:
      stem: stem of the files `<stem>_X.npy`, `<stem>_Y.npy` and `<stem>_Q.npy`.
      folders: possible subfolders of the user's folder.
      channels: names of the fields along axis 1 of `Q`.
    """

    stem: str
    folders: tuple[str, ...]
    channels: tuple[str, ...]

    def rows(self, channels: Sequence[str]) -> list[int]:
        """Returns the indices of named channels; raises ValueError for unknown ones."""
        unknown = [name for name in channels if name not in self.channels]
        if isinstance(channels, str) or unknown or not channels:
            raise ValueError(
                f"channels={channels!r} must be a sequence of some of {self.channels}."
            )
        return [self.channels.index(name) for name in channels]


def read(data_dir: OnePath, files: Files) -> tuple[np.ndarray, np.ndarray, Path]:
    """Reads coordinates `(b, h, w, 2)`, fields `(b, channels, h, w)` and a path.

    Raises:
      FileNotFoundError: if a file is missing.
      ValueError: if a file is damaged or the shapes are inconsistent.
    """

    def one(letter: str, shape: Sequence[int | None]) -> tuple[np.ndarray, Path]:
        name = f"{files.stem}_{letter}.npy"
        names = [f"{folder}/{name}" for folder in files.folders]
        path = _arrays.find(data_dir, [name, *names], source=_arrays.GEO_FNO)
        return _arrays.read(path, shape=shape, source=_arrays.GEO_FNO), path

    x, path = one("X", (None, None, None))
    y, _ = one("Y", x.shape)
    fields, _ = one("Q", (len(x), len(files.channels), *x.shape[1:]))
    return np.stack([x, y], axis=-1), fields, path


def write(data_dir: OnePath, files: Files, samples: Sequence[Sample]) -> None:
    """Writes samples with all channels to files in a folder; creates it if missing.

    Raises:
      ValueError: if a sample has no grid, a different grid than the first, or not all
        channels.
      OSError: if a file cannot be written.
    """
    shape = samples[0].grid_shape
    if shape is None:
        raise ValueError(
            "The samples have no grid_shape; expected samples on a structured grid."
        )
    for index, sample in enumerate(samples):
        target_shape = None if sample.target is None else sample.target.shape
        expected = (int(np.prod(shape)), len(files.channels))
        if sample.grid_shape != shape or target_shape != expected:
            raise ValueError(
                f"sample {index} has grid_shape {sample.grid_shape} and target "
                f"{target_shape}, expected {shape} and {expected}, with the channels "
                f"{files.channels}."
            )
    points = np.stack([s.mesh_points.reshape(*shape, 2) for s in samples])
    fields = np.stack([np.asarray(s.target).T.reshape(-1, *shape) for s in samples])
    arrays = {"X": points[..., 0], "Y": points[..., 1], "Q": fields}
    named = {f"{files.stem}_{letter}.npy": array for letter, array in arrays.items()}
    variables.save(Path(data_dir).expanduser(), named)


def samples(
    points: np.ndarray, fields: np.ndarray, rows: Sequence[int], *, name: str
) -> list[Sample]:
    """Returns samples with some channels as targets, each on its own mesh.

    Args:
      points: coordinates, `(samples, h, w, 2)`.
      fields: fields, `(samples, channels, h, w)`.
      rows: indices of the target channels.
      name: name of a sample in messages, before its index.
    """
    shape = points.shape[1:3]
    return [
        Sample(
            mesh_points=np.array(x.reshape(-1, 2), np.float32),
            target=np.array(q[list(rows)].reshape(len(rows), -1).T, np.float32),
            grid_shape=(int(shape[0]), int(shape[1])),
            name=f"{name} {index}",
        )
        for index, (x, q) in enumerate(zip(points, fields, strict=True))
    ]
