"""File formats of your own data: searches for files, and opens any format."""

import glob
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from opjax._files import OnePath
from opjax.files import cases, cgns, conversion, folders, hdf5, limits, npz, stacking
from opjax.files.npz import Groups
from opjax.files.options import ReadOptions
from opjax.files.vtk import fields, foreign, joining, lists, xdmf

SURFACES = (".vtp", ".stl", ".ply")
BLOCKS = (".vtm",)
# Formats that VTK reads; in a folder, others go before them.
_OTHERS = foreign.SUFFIXES
_OWN = (".npz", *hdf5.SUFFIXES, ".vtu", ".pvtu", ".vtk", ".cgns", *BLOCKS, *SURFACES)
SUFFIXES = (*_OWN, *_OTHERS)
_LISTED = (
    ".npz, .h5, .vtu, .pvtu, .pvd, .vtk, .vtkhdf, .vti, .vtr, .vts, .vtm, .vtp, .stl, "
    ".ply, .cgns, .xdmf, .case, .e or .cas"
)
Paths = OnePath | Sequence[OnePath]


def listed(paths: str | Iterable[str]) -> list[str]:
    """Splits paths at commas, except commas inside the name of an existing path.

    Args:
      paths: folders, files and patterns separated by commas, or a sequence of them.

    Returns:
      The paths, without surrounding spaces.
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
    """Lists the files of a data set, sorted by name.

    A folder may contain one folder per case, see `files.folders`. If a time list such
    as `case.vtm.series` names files, only the last one is used, with a warning.

    Args:
      paths: a folder, in which files of other formats are ignored; a file; or a pattern
        such as `"data/*.npz"`; or several of these.
      stacked: search for files with many samples, see `read`; a folder of `.npy` files
        then counts as one file.

    Returns:
      The files, without repetition, all of one format.

    Raises:
      FileNotFoundError: if a path does not exist, a folder or pattern has no file, or a
        link is broken.
      ValueError: if a format is unknown or there are several, or the folder of a case
        has several files that are not known to be time steps.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for name in ("b", "a"):
      ...         np.savez(f"{folder}/{name}.npz", target=np.ones(3))
      ...     [path.name for path in files.find(folder)]
      ['a.npz', 'b.npz']
      >>> files.find("no/such/folder")
      Traceback (most recent call last):
          ...
      FileNotFoundError: no/such/folder: no such file or folder, ...
    """
    every = [paths] if isinstance(paths, str | os.PathLike) else paths
    chosen = {file for path in every for file in _files_of(path, stacked)}
    files = folders.latest(sorted(chosen))
    if not files:
        raise FileNotFoundError("No files were passed; name a folder or files.")
    formats = Counter(file.suffix.lower() for file in files)
    if len(formats) > 1:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in formats.items())
        first = files[0]
        above = Path(os.path.commonpath([file.parent for file in files]))
        deeper = ["*"] * len(first.parent.relative_to(above).parts)
        raise ValueError(
            f"A data set must have one format, but {first.parent} and the other "
            f"paths have {counts} files; pass only one format, "
            f"'{above.joinpath(*deeper, f'*{first.suffix}')}'."
        )
    return files


def _files_of(path: OnePath, stacked: bool) -> list[Path]:
    root = Path(path).expanduser()
    if stacked and stacking.is_folder(root):
        return [root]
    if root.is_dir():
        return _in_folder(root)
    if root.exists():
        if root.suffix.lower() in lists.SUFFIXES:
            return [folders.last_of(root)]
        check_suffix(root)
        return [root]
    limits.check_link(root)
    matches = matching(root)
    if not matches:
        raise _no_match(root)
    return [file for match in matches for file in _files_of(match, stacked)]


def _in_folder(root: Path) -> list[Path]:
    files = _directly_in(root) or cgns.samples(root)
    files = files or folders.below(root, _directly_in)
    if not files:
        raise _no_samples(root)
    return files


def _directly_in(root: Path) -> list[Path]:
    """The files of samples directly in a folder."""
    inside = [f for f in root.iterdir() if f.name[0] != "."]
    files = [f for f in inside if f.suffix.lower() in SUFFIXES and not f.is_dir()]
    files = [f for f in files if not f.name.startswith("log.")]  # of foamToVTK
    whole = [f for f in files if f.suffix.lower() == ".pvtu"]
    pieces = {piece for file in whole for piece in joining.pieces(file)}
    files = [f for f in xdmf.whole(files) if f not in pieces]
    # Surfaces and lists of blocks beside meshes are what they were made of.
    for others in (_OTHERS, SURFACES, BLOCKS):
        files = [f for f in files if f.suffix.lower() not in others] or files
    for file in files:
        limits.check_link(file)
    suffixes = {f".p{file.suffix.lower()[1:]}" for file in files}
    for file in sorted(inside):
        if file.suffix.lower() in suffixes.intersection(conversion.JOINED):
            raise ValueError(
                f"{file} joins pieces in its folder, which are no samples of their "
                f"own.{conversion.way(file)}"
            )
    return sorted(files)


def _no_samples(root: Path) -> FileNotFoundError:
    """The error for a folder without samples: what it has, and what to do."""
    inside = [f for f in sorted(root.iterdir()) if f.name[0] != "."]
    files = [path for path in inside if path.is_file()]
    suffixes = sorted({f.suffix or f.name for f in files})[:8]
    hint = conversion.way_in(root)
    if not hint and stacking.is_folder(root):
        hint = " Of .npy files of many samples each, give --stacked (stacked=True)."
    others = f"{len(files)} others {suffixes}"
    if inside and not files:
        others = f"only folders {[path.name for path in inside][:8]}"
    parts = sorted([*root.glob("processor*"), *root.glob("*/processor*")])
    if not hint and parts:
        hint = f" {parts[0]} has a part of a parallel run, which is no sample: join "
        hint += "the parts to one file, in OpenFOAM by reconstructPar and foamToVTK."
    return FileNotFoundError(
        f"The folder {root} has no {_LISTED} files, but {others}; "
        f"samples are files in it, or in a folder for each case.{hint}"
    )


def matching(root: Path) -> list[Path]:
    """The files that match a pattern, ignoring tables of cases."""
    paths = [Path(match) for match in glob.glob(pattern(root))]
    return [path for path in paths if path.name != cases.TABLE]


def pattern(root: Path) -> str:
    """Returns a glob pattern for a path.

    The part that exists is escaped, such as the folder in `d [1]/s_*.npz`.
    """
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
        f"{root}: no such file or folder, and no file matches the pattern.{note}"
    )


def written_name(path: Path) -> str:
    """File name of the copy with a prediction."""
    return cgns.stem(path) + written_suffix(path)


def written_suffix(path: Path) -> str:
    """Suffix of the copy with a prediction: the original, if it can be written."""
    suffix = path.suffix.lower()
    read_only = (".vtm", ".pvtu", ".pvd", ".cgns", *foreign.SUFFIXES)
    others = {".stl": ".vtp", ".ply": ".vtp", **dict.fromkeys(read_only, ".vtu")}
    return others.get(suffix, path.suffix)


def check_suffix(path: Path) -> None:
    """Raises ValueError for an unknown format."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path} has the unknown suffix {path.suffix!r}; supported: "
            f"{_LISTED}.{conversion.way(path) or conversion.OTHERWISE}"
        )


def opened(
    file: Path,
    options: ReadOptions,
    *,
    group: str | None = None,
    step: int | None = None,
) -> AbstractContextManager[Groups]:
    """Opens a file, a group of it, or a frame of a mesh."""
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
        step=step,
    )
