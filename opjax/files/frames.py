"""The files of the frames of a case, and their times.

A `.pvd` file may name only frames in its folder: names with `..`, absolute paths and
links out of the folder raise an error.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import conversion, folders, formats, hdf5, limits
from opjax.files.formats import Paths
from opjax.files.vtk import foreign, lists, xdmf

LISTS = lists.SUFFIXES
# That a list may name, or a folder hold. Of several, the first ones list the others.
FRAMES = (".pvtu", ".vtu", ".vtm", ".vtk", ".vtp", ".vti", ".vtr", ".vts")
MESHES = (*LISTS, *foreign.TIMED, *FRAMES)  # cases of meshes, beside folders
SUFFIXES = (".npz", *hdf5.SUFFIXES, *MESHES)
# A time after a blank of some kind, `u_0.25` or `u_t1.5e-3`; `case2.0003` has a number.
_TIME = re.compile(r"(?:^|[ _=-])[tT]?(\d+\.\d+(?:[eE][+-]?\d+)?)$")
_WHOLE = re.compile(r"(?:^|[ _=-])[tT]?(\d+(?:[eE][+-]?\d+)?)$")
_NUMBER = re.compile(r"(\d+)$")
_FIRST = re.compile(r"^(\d+)(?![\d.])")


def find_cases(paths: Paths) -> list[Path]:
    """Lists the files and folders of cases, sorted by name.

    Raises:
      FileNotFoundError: if a path does not exist or contains no case.
      ValueError: if the format of a file is unknown.
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)  # pyright: ignore
    cases = {case for path in listed for case in _cases_of(Path(path).expanduser())}
    if not cases:
        raise FileNotFoundError("No series were passed; name a folder or files.")
    return sorted(_joined(cases))


def _joined(cases: set[Path]) -> set[Path]:
    """Replaces frames of one list, as a pattern finds them, by that list."""
    frames = {case for case in cases if case.suffix.lower() in FRAMES}
    for folder in {frame.parent for frame in frames if frame.is_file()}:
        inside = sorted(folder.iterdir())
        for path in (path for path in inside if path.suffix.lower() in LISTS):
            named = frames.intersection(folders.frames_of(path))
            if len(named) > 1:
                cases = (cases - named) | {path}
    return cases


def _cases_of(root: Path) -> list[Path]:
    if root.is_file():
        if root.suffix.lower() not in SUFFIXES:
            raise ValueError(
                f"{root} has the unknown suffix {root.suffix!r}; series are .npz, .h5, "
                ".pvd, .vtu.series or .vtm.series files, or folders of numbered .vtu "
                f"or .vtm files.{conversion.way(root)}"
            )
        return [root]
    limits.check_link(root)
    if not root.is_dir():
        matches = formats.matching(root)
        if matches:
            return [case for match in matches for case in _cases_of(match)]
        raise FileNotFoundError(
            f"{root}: no such file or folder, and no file matches the pattern."
        )
    cases = _in_folder(root)
    if not cases:
        raise FileNotFoundError(
            f"The folder {root} has no series: .npz, .h5, .pvd, .vtu.series or "
            ".vtm.series files, or folders of numbered .vtu or .vtm files."
            f"{conversion.way_in(root)}"
        )
    return cases


def _in_folder(root: Path) -> list[Path]:
    """The cases in a folder, or in the folders in it; none if there are none."""
    inside = xdmf.whole([path for path in root.iterdir() if path.name[0] != "."])
    for suffixes in ((".npz",), hdf5.SUFFIXES, (".pvd",), (".series",), foreign.TIMED):
        if files := [p for p in inside if p.suffix.lower() in suffixes]:
            for file in files:
                limits.check_link(file)
            return files
    if frames_in(root):
        return [root]
    return [
        case for path in inside if folders.is_open(path) for case in _in_folder(path)
    ]


def frames_in(folder: Path) -> list[Path]:
    """The files of frames in a folder, all of one format, sorted by name.

    If there are several formats, the format that refers to the others is used: `.vtm`
    lists `.vtp` surfaces.
    """
    inside = [path for path in sorted(folder.iterdir()) if path.name[0] != "."]
    inside = [path for path in inside if not path.name.startswith("log.")]
    for suffix in FRAMES:
        if files := [
            p for p in inside if p.suffix.lower() == suffix and not p.is_dir()
        ]:
            return files
    return []


class Listed(NamedTuple):
    """A frame.

    Attributes:
      file: file that contains the frame.
      time: time of the frame, if known.
      step: index of the frame in the file, if the file has several.
    """

    file: Path
    time: float | None
    step: int | None = None


def listed(case: Path) -> Iterator[Listed]:
    """Lists the frames of a folder, a list of files, or a single `.vtu` file."""
    if case.suffix.lower() in LISTS:
        yield from _of_list(case)
    elif case.suffix.lower() in foreign.TIMED:
        times = foreign.times(case)
        yield from (Listed(case, time, step) for step, time in enumerate(times))
        if not times:
            yield Listed(case, None)
    elif case.is_file():
        yield Listed(case, None)
    else:
        files = frames_in(case)
        for file in files:
            limits.check_link(file)
        times = dict(zip(files, numbers(case, files), strict=True))
        ordered = sorted(files, key=lambda file: times[file])
        if all(number.is_integer() for number in times.values()):
            _check_gaps(case, ordered, [times[file] for file in ordered])
        for file in ordered:
            yield Listed(file, None)


def numbers(case: Path, files: list[Path]) -> list[float]:
    """Times or numbers in file names: at the end, or otherwise at the start.

    Decimal numbers are times, `u_0.0, u_0.5, u_1`; integers count the frames.

    Raises:
      ValueError: if a name contains no number, or two names contain the same number.
    """
    if len(files) == 1:
        return [0.0]
    stems = [file.stem for file in files]
    timed = any(_TIME.search(stem) for stem in stems)
    kinds = [_NUMBER, _FIRST]
    if timed:
        kinds = [re.compile(f"{_TIME.pattern}|{_WHOLE.pattern}"), *kinds]
    times: list[float] = []
    for kind in kinds:
        matches = [kind.search(stem) for stem in stems]
        if all(matches):
            parts = [next(filter(None, m.groups())) for m in matches if m]
            times = [float(part[:30]) for part in parts]
            break
    if not times:
        bad = next(file for file in files if not _NUMBER.search(file.stem))
        raise ValueError(
            f"{case}: {bad.name} has no number at the end of its name, but the "
            "frames of a series need one; number the files, or pass a .pvd file."
        )
    if len(set(times)) < len(times):
        first = next(n for n in times if times.count(n) > 1)
        pairs = zip(files, times, strict=True)
        same = [file.name for file, number in pairs if number == first]
        raise ValueError(
            f"{case}: {same[0]} and {same[1]} have the same number, {first:g}, but "
            "a folder must contain the frames of only one series. Put each series "
            "into a separate folder, or pass .pvd files."
        )
    return times


def _check_gaps(case: Path, files: list[Path], numbers: list[float]) -> None:
    """Raises ValueError unless numbers follow each other at one distance."""
    steps = np.diff(numbers)
    if len(steps) and (steps != steps.min()).any():
        i = int(np.argmax(steps != steps.min()))
        raise ValueError(
            f"{case}: {files[i + 1].name} follows {files[i].name}, but numbers are "
            f"{steps.min():g} apart elsewhere, so frames are missing; add them, or "
            "pass a .pvd file with the times of the existing frames."
        )


def _of_list(path: Path) -> list[Listed]:
    """The frames that a list names; of the names of files, only those of its folder."""
    known = lists.frames(path)
    if any(len(names) > 1 for _, names in known):
        return [Listed(path, time, step) for step, (time, _) in enumerate(known)]
    return [
        Listed(_frame(path, number, name), time)
        for number, (time, (name,)) in enumerate(known)
    ]


def _frame(path: Path, number: int, name: str) -> Path:
    """The file of a frame that a list names."""
    suffix = Path(name).suffix.lower()
    frame = lists.beside(
        path, name, (suffix if suffix in FRAMES else ".vtu",), "frames"
    )
    if not lists.is_inside(path, frame):
        limits.check_link(frame)
        raise ValueError(
            f"{path}: frame {number}, {name[:80]!r}, is missing; restore it, or "
            "remove it from the list."
        )
    return frame
