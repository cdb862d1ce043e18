"""Frames of series that stay in their files and are read on access."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opjax.files import building, hdf5
from opjax.files.formats import opened
from opjax.files.frames import Listed
from opjax.files.options import ReadOptions
from opjax.samples.stored import Place


class StoredFrames:
    """Frames `(t, n, c)` on disk, none of them in memory.

    Args:
      read: `read(frame)` returns the values of a frame, with any axes.
      shape: numbers of frames, points and channels.
      name: name of the series, for messages.
    """

    def __init__(
        self, read: Callable[[int], np.ndarray], shape: tuple[int, ...], name: str
    ):
        self._read, self.shape, self._name = read, shape, name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Single precision."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, frame: int, /) -> np.ndarray:
        """Reads a frame, `(n, c)`.

        Raises:
          OSError: if its file is missing.
          ValueError: if it is damaged, or not what it was when the run began.
        """
        values = self._read(range(len(self))[frame])
        if values.size != self.shape[1] * self.shape[2]:
            raise ValueError(
                f"{self._name}: frame {frame} has different points or channels "
                "than at the start of the run; do not change files during a run."
            )
        return values.reshape(self.shape[1:])


def of_hdf5(
    file: Path, group: str, names: Sequence[str], num_points: int, frame: int
) -> np.ndarray:
    """Reads a frame of fields of an `.h5` file, joined along their channels."""
    name = Place(str(file), group).name
    with hdf5.open_groups(file) as groups:
        if group not in groups:
            raise ValueError(f"{file} no longer has the group {group!r}.")
        fields = {key: hdf5.dataset(Path(name), groups[group], key) for key in names}
        parts = [building.numbers(name, k, field[frame]) for k, field in fields.items()]
    for key, part in zip(names, parts, strict=True):
        if part.size % num_points:
            raise ValueError(
                f"{name}: frame {frame} of {key} has shape {part.shape}, which "
                f"does not match {num_points} points; do not change files during a "
                "run."
            )
    return np.concatenate([part.reshape(num_points, -1) for part in parts], axis=1)


def of_meshes(listed: Sequence[Listed], options: ReadOptions, frame: int) -> np.ndarray:
    """Reads the fields of one frame of a mesh, joined along their channels."""
    file, _, step = listed[frame]
    with opened(file, options, step=step) as groups:
        values = building.build(str(file), groups[""], options).sample.target
    assert values is not None
    return values
