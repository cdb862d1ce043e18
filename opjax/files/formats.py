"""The formats of your own data: finding files, and opening one of any format."""

import glob
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from opjax.files import cgns, conversion, hdf5, limits, npz, stacking
from opjax.files.npz import Groups
from opjax.files.options import ReadOptions
from opjax.files.vtk import fields

SURFACES = (".vtp", ".stl", ".ply")
BLOCKS = (".vtm",)
SUFFIXES = (".npz", *hdf5.SUFFIXES, ".vtu", ".vtk", ".cgns", *BLOCKS, *SURFACES)
_LISTED = ".npz, .h5, .vtu, .vtk, .cgns, .vtm, .vtp, .stl or .ply"
_DEEPEST = 3  # folders below a folder in which files are looked for, for a hint
_MOST = 10_000  # files that are looked at for it
OnePath = str | os.PathLike[str]
Paths = OnePath | Sequence[OnePath]


def listed(paths: str | Iterable[str]) -> list[str]:
    """Divides paths at commas; a comma inside the name of what exists divides nothing.

    Args:
      paths: folders, files and patterns with commas between them, or the parts of such
        a text.

    Returns:
      The paths, without blanks around them.
    """
    text = paths if isinstance(paths, str) else ",".join(paths)
    parts, separate = text.split(","), list[str]()
    while parts:
        ends = range(len(parts), 0, -1)
        several = [",".join(parts[:end]).strip() for end in ends]
        whole = [one for one in several if one and _exists(Path(one).expanduser())]
        path = whole[0] if whole else parts[0].strip()
        parts = parts[ends[several.index(path)] :] if whole else parts[1:]
        separate += [path] if path else []
    return separate


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a list of many files is longer than a name may be
        return False


def find(paths: Paths, *, stacked: bool = False) -> list[Path]:
    """Lists the files of a data set, in the order of their names.

    Args:
      paths: a folder, whose files of other formats are ignored, a file, or a pattern
        such as `"data/*.npz"`; or several of these.
      stacked: look for files of many samples, see `read`: a folder of `.npy` files
        counts as one.

    Returns:
      The files, each once, all of one format.

    Raises:
      FileNotFoundError: if a path does not exist, a folder or pattern has no file, or
        a link leads nowhere.
      ValueError: if a format is unknown or there are several.
    """
    every = [paths] if isinstance(paths, str | os.PathLike) else paths
    files = sorted({file for path in every for file in _files_of(path, stacked)})
    if not files:
        raise FileNotFoundError("No files were given; name a folder or files.")
    formats = Counter(file.suffix.lower() for file in files)
    if len(formats) > 1:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in formats.items())
        raise ValueError(
            f"A data set has one format, but {files[0].parent} and the other paths "
            f"have {counts} files; name those of one format, '*{files[0].suffix}'."
        )
    return files


def _files_of(path: OnePath, stacked: bool) -> list[Path]:
    root = Path(path).expanduser()
    if stacked and stacking.is_folder(root):
        return [root]
    if root.is_dir():
        return _in_folder(root)
    if root.exists():
        check_suffix(root)
        return [root]
    limits.check_link(root)
    matches = [Path(match) for match in glob.glob(pattern(root))]
    if not matches:
        raise _no_match(root)
    return [file for match in matches for file in _files_of(match, stacked)]


def _in_folder(root: Path) -> list[Path]:
    inside = [f for f in root.iterdir() if f.name[0] != "."]
    files = [f for f in inside if f.suffix.lower() in SUFFIXES and not f.is_dir()]
    # Surfaces and lists of blocks beside meshes are what they were made of.
    for others in (SURFACES, BLOCKS):
        files = [f for f in files if f.suffix.lower() not in others] or files
    files = files or cgns.samples(root)
    for file in files:
        limits.check_link(file)
    if not files:
        raise _no_samples(root, inside)
    return files


def _no_samples(root: Path, inside: list[Path]) -> FileNotFoundError:
    """The error for a folder without samples: what it has, and what to do."""
    files = [path for path in inside if path.is_file()]
    suffixes = sorted({f.suffix or f.name for f in files})[:8]
    ways = map(conversion.way, [root, *sorted(inside)])  # a folder may be a .zarr
    hint = next(filter(None, ways), "")
    if not hint and (below := _below(root)):
        hint = f" Folders below it have some: give '{below}', a pattern."
    elif not hint and stacking.is_folder(root):
        hint = " Of .npy files of many samples each, give --stacked (stacked=True)."
    return FileNotFoundError(
        f"The folder {root} has no {_LISTED} files, but {len(files)} others "
        f"{suffixes}; samples are files directly in it.{hint}"
    )


def _below(root: Path) -> str:
    """A pattern of the folders below a folder that have samples; empty for none."""
    level, looked = [root], 0
    for depth in range(1, _DEEPEST + 1):
        level = [d for f in level for d in sorted(f.iterdir()) if d.is_dir()]
        for folder in level:
            looked += 1
            samples = (f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES)
            if next(samples, None) is None:
                continue
            names = {f.relative_to(root).parts[-1] for f in level}
            last = names.pop() if len(names) == 1 else "*"
            return str(Path(root, *["*"] * (depth - 1), last))
        if looked > _MOST:
            break
    return ""


def pattern(root: Path) -> str:
    """The pattern of a path, in which what exists is no pattern: `d [1]/s_*.npz`."""
    literal = next(parent for parent in root.parents if parent.exists())
    rest = root.relative_to(literal)
    return str(Path(glob.escape(str(literal)), rest))


def _no_match(root: Path) -> FileNotFoundError:
    note = ""
    if "[" in str(root):
        note = " In a pattern, [1] is a set of characters; write [[]1] for brackets."
    elif "," in str(root):
        note = " Commas separate paths."
    return FileNotFoundError(
        f"{root} is no file and no folder, and matches none.{note}"
    )


def written_name(path: Path) -> str:
    """What the copy of a file with a prediction is called."""
    return cgns.stem(path) + written_suffix(path)


def written_suffix(path: Path) -> str:
    """The suffix of a copy with a prediction: its own, where that can be written."""
    suffix = path.suffix.lower()
    others = {".stl": ".vtp", ".ply": ".vtp", ".vtm": ".vtu", ".cgns": ".vtu"}
    return others.get(suffix, path.suffix)


def check_suffix(path: Path) -> None:
    """Raises ValueError for an unknown format."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path} has the unknown suffix {path.suffix!r}; samples are "
            f"{_LISTED} files.{conversion.way(path)}"
        )


def opened(
    file: Path, options: ReadOptions, *, group: str | None = None
) -> AbstractContextManager[Groups]:
    """Opens a file, or one group of it."""
    suffix, max_bytes = file.suffix.lower(), options.max_bytes
    if options.stacked:
        return stacking.open_stacked(file, max_bytes)
    if suffix == ".npz":
        return npz.open_npz(file, max_bytes)
    if suffix in hdf5.SUFFIXES:
        return hdf5.open_hdf5(file, max_bytes, group=group)
    return fields.open_vtk(
        file,
        max_bytes,
        point_dim=options.point_dim,
        quadrature=options.quadrature,
    )
