"""Fields on structured meshes in the files of Geo-FNO: `X`, `Y` and `Q`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.datasets import _arrays
from opjax.datasets.samples import Sample

SOURCE = (
    "the Google Drive folder 1YBuaoTdOSr_qzaow-G-iwvbUI7fiUzu8 of the Fourier neural "
    "operator with learned deformations (Geo-FNO)"
)


class Files(NamedTuple):
    """What the three files of a problem are called and hold.

    Attributes:
      stem: file names are `<stem>_X.npy`, `<stem>_Y.npy` and `<stem>_Q.npy`.
      folders: where they may be, below the folder that the user names.
      channels: names of the fields along axis 1 of `Q`.
    """

    stem: str
    folders: tuple[str, ...]
    channels: tuple[str, ...]

    def rows(self, channels: Sequence[str]) -> list[int]:
        """Positions of the named channels; raises ValueError if one is unknown."""
        unknown = [name for name in channels if name not in self.channels]
        if isinstance(channels, str) or unknown or not channels:
            raise ValueError(
                f"channels={channels!r} must be a sequence of some of {self.channels}."
            )
        return [self.channels.index(name) for name in channels]


def read(
    data_dir: str | os.PathLike, files: Files
) -> tuple[np.ndarray, np.ndarray, Path]:
    """Coordinates `(samples, h, w, 2)`, fields `(samples, channels, h, w)`, a path.

    Raises:
      FileNotFoundError: if a file is missing.
      ValueError: if a file is damaged or the shapes disagree.
    """

    def one(letter: str, shape: Sequence[int | None]) -> tuple[np.ndarray, Path]:
        name = f"{files.stem}_{letter}.npy"
        names = [f"{folder}/{name}" for folder in files.folders]
        path = _arrays.find(data_dir, [name, *names], source=SOURCE)
        return _arrays.read(path, shape=shape, source=SOURCE), path

    x, path = one("X", (None, None, None))
    y, _ = one("Y", x.shape)
    fields, _ = one("Q", (len(x), len(files.channels), *x.shape[1:]))
    return np.stack([x, y], axis=-1), fields, path


def write(data_dir: str | os.PathLike, files: Files, samples: Sequence[Sample]) -> None:
    """Writes samples with all channels in the published layout.

    Raises:
      ValueError: if a sample has no grid, another one than the first, or not all
        channels.
      OSError: if a file cannot be written.
    """
    shape = samples[0].grid_shape
    if shape is None:
        raise ValueError("The samples have no grid_shape, expected points of a grid.")
    for index, sample in enumerate(samples):
        found = None if sample.target is None else sample.target.shape
        expected = (int(np.prod(shape)), len(files.channels))
        if sample.grid_shape != shape or found != expected:
            raise ValueError(
                f"sample {index} has grid_shape {sample.grid_shape} and target {found},"
                f" expected {shape} and {expected}: channels {files.channels}."
            )
    points = np.stack([s.mesh_points.reshape(*shape, 2) for s in samples])
    fields = np.stack([np.asarray(s.target).T.reshape(-1, *shape) for s in samples])
    folder = Path(data_dir).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    for letter, array in (("X", points[..., 0]), ("Y", points[..., 1]), ("Q", fields)):
        np.save(folder / f"{files.stem}_{letter}.npy", array)


def samples(
    points: np.ndarray, fields: np.ndarray, rows: Sequence[int], *, name: str
) -> list[Sample]:
    """Samples of some channels.

    Args:
      points: `(samples, h, w, 2)`.
      fields: `(samples, channels, h, w)`.
      rows: channels of the targets.
      name: what messages call a sample, before its number.
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
