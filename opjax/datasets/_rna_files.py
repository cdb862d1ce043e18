"""Reads the files of the published RNA surfaces, see `rna.load`."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opjax.datasets import _arrays, _off
from opjax.files import variables
from opjax.samples import Sample, check

NUM_CLASSES = 260
PUBLISHED = {"train": 547, "test": 136}

_LOGGER = logging.getLogger(__name__)
_LOWEST, _HIGHEST = -1, NUM_CLASSES - 2
_SOURCE = "github.com/nmwsharp/RNA-Surface-Segmentation-Dataset"


def names(root: Path, split: str) -> list[str]:
    """Returns the names of the surfaces in a list, without `.off`."""
    path = _arrays.find(root, [f"{split}.txt"], source=_SOURCE)
    lines = [line.strip() for line in path.read_text().splitlines()]
    names = [line.removesuffix(".off") for line in lines if line]
    bad = [name for name in names if Path(name).name != name]
    if bad or len(set(names)) < len(names) or not names:
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"{path} must list file names without duplicates or folders; it has "
            f"{len(names)} lines, with the duplicates {twice[:8]}, and names with "
            f"folders {bad[:8]}."
        )
    if len(names) != PUBLISHED[split]:
        _LOGGER.warning(
            "%s names %d surfaces, %d were published: results are not comparable.",
            path,
            len(names),
            PUBLISHED[split],
        )
    return names


def check_files(root: Path, split: str, names: Sequence[str]) -> None:
    """Raises FileNotFoundError with the names of missing files of surfaces."""
    paths = [p for name in names for p in files_of(root, name)]
    missing = [str(path.relative_to(root)) for path in paths if not path.is_file()]
    if missing:
        listed = "".join(f"\n  {path}" for path in missing[:8])
        more = f"\n  and {len(missing) - 8} others" if len(missing) > 8 else ""
        raise FileNotFoundError(
            f"{root} lacks {len(missing)} files of the {len(names)} surfaces in "
            f"{split}.txt:{listed}{more}\nGet them from {_SOURCE}, or remove their "
            "lines from the list."
        )


def files_of(root: Path, name: str) -> tuple[Path, Path]:
    """Returns the surface file and the label file."""
    return root / "off" / f"{name}.off", root / "labels" / f"{name}.txt"


def read_mesh(root: Path, name: str) -> Sample:
    """Reads all vertices of a surface."""
    surface, text = files_of(root, name)
    vertices = _off.read_vertices(surface)
    labels = _off.read_labels(text, lowest=_LOWEST, highest=_HIGHEST)
    if len(labels) != len(vertices):
        raise ValueError(
            f"{surface} has {len(vertices)} vertices, but {text} has {len(labels)} "
            f"labels; get both again from {_SOURCE}."
        )
    return Sample(vertices.astype(np.float32), labels + np.int32(1), name=name)


def read_samples(
    root: Path, split: str, num_points: int, limit: int | None
) -> list[Sample]:
    """Reads the first points of all surfaces from one file."""
    try:
        path = _arrays.find(root, [f"rna_{split}_4096.npz"], source=_SOURCE)
    except FileNotFoundError as error:
        lists = f"\nNor is there {root / 'train.txt'}, of the published folder."
        raise FileNotFoundError(f"{error}{lists}") from None
    points = _arrays.read(path, "points", shape=(None, None, 3), source=_SOURCE)
    shape = points.shape[:2]
    labels = _arrays.read(path, "labels", shape=shape, source=_SOURCE, dtype=np.int32)
    names = variables.read_variable(path, "names", source=_SOURCE)
    if names.shape != shape[:1] or names.dtype.kind != "U":
        raise ValueError(
            f"names in {path} has shape {names.shape} and dtype {names.dtype}, "
            f"expected {shape[:1]} strings, because points has shape "
            f"{points.shape}."
        )
    if num_points > shape[1]:
        raise ValueError(
            f"{path} has {shape[1]} points per surface, but {num_points=} were "
            "requested; use fewer points, or read the published meshes."
        )
    take(names, limit, path)
    found = [
        Sample(
            points[row, :num_points],
            labels[row, :num_points] + np.int32(1),
            name=str(names[row]).removesuffix(".off"),
        )
        for row in range(len(points) if limit is None else limit)
    ]
    check(found, num_classes=NUM_CLASSES)
    return found


def take(found: Sequence[str] | np.ndarray, limit: int | None, path: Path) -> None:
    """Returns the first surfaces; raises ValueError if there are too few."""
    if limit is not None and not 1 <= limit <= len(found):
        raise ValueError(
            f"{path} has {len(found)} surfaces, but {limit} were requested "
            "(validation surfaces are training surfaces and count too)."
        )
