"""Cases in folders: finds the file of each case.

    cases/cases.csv                        a row for each folder
    cases/case_000/VTK/case_000_116.vtm    the file that is found
    cases/case_001/VTK/case_001_98.vtm

If a case has files of several times, the last one is its sample.
"""

import fnmatch
import functools
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from opjax.files import cases, cgns, conversion, limits
from opjax.files.vtk import lists

_DEEPEST = 3  # folders below that of a case in which files are looked for
# Folders of OpenFOAM that have surfaces and samples, but not the fields of the case.
_NO_RESULTS = re.compile(
    r"constant|system|dynamicCode|postProcessing|processors?\d*(_.*)?"
)
_NUMBERED = re.compile(r"(.*?)[_.-]?(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")
_SHOWN = 3

# What lists the files of samples directly in a folder.
SamplesIn = Callable[[Path], list[Path]]


def below(root: Path, samples_in: SamplesIn) -> list[Path]:
    """Finds the sample of each case in the subfolders of a folder.

    Args:
      root: parent folder of the cases.
      samples_in: function that lists the sample files directly in a folder.

    Returns:
      One file per case, or those that rows of the table name; empty if no subfolder
      contains any.

    Raises:
      FileNotFoundError: if a table in `root` has a row for a folder without samples.
      ValueError: if a folder has several files that may be separate cases.
    """
    every = [path for path in sorted(root.iterdir()) if is_open(path)]
    nearest = {folder: _nearest(folder, samples_in) for folder in every}
    if not any(nearest.values()):
        return []
    rows = cases.names_in(root)
    _check_empty(root, nearest, rows)
    chosen = _named(nearest, rows, samples_in)
    kept = [file for files in chosen.values() for file in files]
    skipped: set[Path] = set()
    for folder, files in nearest.items():
        if files and folder not in chosen:
            kept.append(_one(root, folder, files, named=folder.name in rows))
            skipped.update(files)
    _tell(skipped.difference(kept), sorted(kept))
    return kept


def _named(
    folders: Collection[Path], rows: Iterable[str], samples_in: SamplesIn
) -> dict[Path, list[Path]]:
    """The files of samples that rows of a table name, by the folder of their case."""
    named: dict[Path, list[Path]] = {}
    inside = functools.cache(samples_in)
    by_name = {folder.name: folder for folder in folders}
    for row in rows:
        first, *rest = Path(row).parts or ("",)
        if not rest or ".." in rest or first not in by_name:
            continue
        file = by_name[first].joinpath(*rest)
        if file.is_file() and file in inside(file.parent):
            named.setdefault(by_name[first], []).append(file)
    return named


def is_open(path: Path) -> bool:
    """Whether a path is a folder that may contain cases."""
    hidden = path.name[0] == "." or _NO_RESULTS.fullmatch(path.name)
    return path.is_dir() and not hidden


def _nearest(folder: Path, samples_in: SamplesIn) -> list[Path]:
    """The files of samples in a folder, or in the nearest ones below it."""
    level = [folder]
    for _ in range(_DEEPEST + 1):
        files = [file for one in level for file in samples_in(one)]
        if not files:
            listed = [file for one in level for file in _lists_in(one)]
            files = [frame for file in listed for frame in frames_of(file)]
        if files:
            return files
        inside = (path for one in level for path in sorted(one.iterdir()))
        level = [path for path in inside if is_open(path)]
    return []


def _lists_in(folder: Path) -> list[Path]:
    inside = sorted(folder.iterdir())
    return [path for path in inside if path.suffix.lower() in lists.SUFFIXES]


def _check_empty(
    root: Path, found: Mapping[Path, Sequence[Path]], rows: Collection[str]
) -> None:
    """Refuses folders without samples that have a row; tells of those that seem cases.

    Args:
      root: folder of the folders.
      found: files of samples in each folder.
      rows: names of the rows of its table.

    Raises:
      FileNotFoundError: for the former.
    """
    empty = [folder for folder, files in found.items() if not files]
    named = [folder for folder in empty if folder.name in rows]
    bad = named or [folder for folder in empty if conversion.way_in(folder)]
    if not bad:
        return
    what = f"{len(bad)} of {len(found)} folders in {root} have no file that is read: "
    what += f"{_some(folder.name for folder in bad)}.{conversion.way_in(bad[0])}"
    if named:
        raise FileNotFoundError(
            f"{what} {cases.TABLE} has rows for them; convert their results, or "
            "remove the rows."
        )
    warnings.warn(f"{what} They are skipped.", stacklevel=2)


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def _one(root: Path, folder: Path, files: list[Path], *, named: bool) -> Path:
    """The sample of a case: its only file, or that of the last time.

    Args:
      root: folder of the folder.
      folder: of the case.
      files: of samples, in the folder or below it.
      named: whether a table says that the folder is one case.

    Raises:
      ValueError: if nothing says that the files are times of one case.
    """
    above = {
        parent for folder in _parents(files) for parent in (folder, *folder.parents)
    }
    above = {parent for parent in above if parent.is_relative_to(folder)}
    kept = _last_listed(files, above, own_names=False)
    if len(kept) > 1:
        labels = [file.stem for file in kept]
        if len(set(labels)) == 1:  # folders of times
            labels = [file.parent.name for file in kept]
        matches = [_NUMBERED.fullmatch(label) for label in labels]
        stems = {match[1] if match else None for match in matches}
        numbered = len(stems) == 1 and None not in stems
        if stems <= {folder.name} or (named and numbered):
            numbers = [float(match[2]) for match in matches if match]
            return kept[numbers.index(max(numbers))]
        inside = [file.relative_to(folder).as_posix() for file in kept]
        table = root / cases.TABLE
        patterns = [name.replace(folder.name, "*") for name in inside]
        one = (p for p in patterns if len(fnmatch.filter(inside, p)) == 1)
        pattern = root / "*" / next(one, patterns[0])
        row = f"add a row for the folder to {table}, or " if numbered else ""
        raise ValueError(
            f"{folder} has {len(kept)} sample files, including {inside[0]} and "
            f"{inside[1]}, and it is unknown whether they are time steps of one "
            f"case. If they are, {row}list them in a .pvd file. To read one of them, "
            f"pass '{pattern}', or name it in the column file of {table}, "
            f"{folder.name}/{inside[0]}. If each is a sample, pass '{root}/*'."
        )
    return kept[0]


def _parents(files: Iterable[Path]) -> set[Path]:
    return {file.parent for file in files}


def latest(files: list[Path]) -> list[Path]:
    """Keeps the last of the files that a time list names, such as `case.vtm.series`.

    A list is one of times if all its files share its name. If files have rows in the
    table beside them, all are kept.

    Args:
      files: files of a data set.

    Returns:
      The files without earlier times. A warning lists the omitted ones.

    Raises:
      ValueError: if a list is damaged.
    """
    if len(files) < 2:
        return files
    kept = _last_listed(files, _parents(files), own_names=True)
    _tell(set(files) - set(kept), kept)
    return kept


def _last_listed(
    files: list[Path], folders: Iterable[Path], *, own_names: bool
) -> list[Path]:
    """Leaves out all but the last of the files of each list in some folders.

    Of files that a table names, those are kept in place of the last one.

    Args:
      files: of samples.
      folders: of lists.
      own_names: whether lists count only if their files are called as they are.
    """
    dropped: set[Path] = set()
    for folder in folders:
        rows = cases.names_in(folder)
        for one in _lists_in(folder):
            # case.vtm.series lists case_0.vtm; beam.pvd of ccx2paraview beam.1.vtu.
            stem = one.name.split(".")[0] + "." * (one.suffix.lower() == ".pvd")
            if own_names and not any(file.name.startswith(stem) for file in files):
                continue
            listed = frames_of(one)
            if own_names and not all(file.name.startswith(stem) for file in listed):
                continue
            ordered = [file for file in listed if file in files]
            kept = [file for file in ordered if file.name in rows] or ordered[-1:]
            dropped.update(set(ordered).difference(kept))
    return [file for file in files if file not in dropped]


def frames_of(path: Path) -> list[Path]:
    """Returns the files that a list names, ordered by time.

    Args:
      path: a `.pvd` or `.series` file.

    Raises:
      ValueError: if it is damaged.
    """
    ordered = sorted(lists.frames(path), key=lambda frame: frame[0])
    return [path.parent / name for _, names in ordered for name in names]


def last_of(path: Path) -> Path:
    """Returns the file of the last time that a list names.

    Args:
      path: a `.pvd` or `.series` file.

    Returns:
      The file; if the frame has several pieces, the list itself.

    Raises:
      FileNotFoundError: if the file is missing.
      ValueError: if the list is damaged, or the file is not in its folder.
    """
    frames = lists.frames(path)
    _, names = last = max(frames, key=lambda frame: frame[0])
    file = path
    if len(names) == 1:
        file = lists.beside(path, names[0], (Path(names[0]).suffix,), "frames")
    if not lists.is_inside(path, file):
        limits.check_link(file)
        raise FileNotFoundError(
            f"{path}: {names[0][:80]!r}, its last frame, is missing; restore it, or "
            "remove it from the list."
        )
    frames.remove(last)
    earlier = [path.parent / name for _, names in frames for name in names]
    _tell(earlier, [file])
    return file


def _tell(earlier: Collection[Path], kept: Sequence[Path]) -> None:
    """Warns of files that are earlier times of cases."""
    if not earlier:
        return
    first = min(earlier)
    last = next((file for file in kept if file.parent == first.parent), kept[0])
    warnings.warn(
        f"Steady cases are read at their last time, such as {last}: {len(earlier)} "
        f"files of earlier times are skipped, such as {first.name}. Use --time for "
        f"transient fields, or add a row for another time to {cases.TABLE}.",
        stacklevel=2,
    )


def places(roots: Iterable[Path], found: Sequence[Path]) -> dict[Path, Path]:
    """Returns the subfolder of the output for each file.

    Args:
      roots: given folders, files and patterns.
      found: files that were found there.

    Returns:
      For a file in a folder of cases, the name of its case's folder. For others
      `Path()`, unless two files have the same name: then the folders in which they
      differ.
    """
    folders = [root for root in roots if root.is_dir()]
    placed: dict[Path, Path] = {}
    for file in found:
        tops = [root for root in folders if root in file.parents]
        plain = file.stem == cgns.stem(file)  # samples of PLAID have their own names
        inside = file.parent.relative_to(tops[0]).parts if tops and plain else ()
        placed[file] = Path(*inside[:1])
    if not _differ(placed):
        common = Path(os.path.commonpath([file.parent for file in found]))
        inner = {file: file.parent.relative_to(common) for file in found}
        placed = {file: Path(*path.parts[:1]) for file, path in inner.items()}
        placed = placed if _differ(placed) else inner
    return placed


def _differ(placed: Mapping[Path, Path]) -> bool:
    """Whether no two results have one name."""
    names = {folder / cgns.stem(file) for file, folder in placed.items()}
    return len(names) == len(placed)
