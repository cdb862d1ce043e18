"""Which files are the frames of a case, and of which times they are.

Nothing but the frames of a folder is read for a `.pvd` file in it: names with `..`,
absolute ones and links out of the folder are refused.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import limits
from opjax.files.formats import Paths
from opjax.files.vtk import lists

SUFFIXES = (".npz", ".h5", ".pvd", ".vtu")
_NUMBER = re.compile(r"(\d+)$")


def find_cases(paths: Paths) -> list[Path]:
    """Lists the files and folders of cases, in the order of their names.

    Raises:
      FileNotFoundError: if a path does not exist or holds no case.
      ValueError: if a file is of an unknown format.
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)  # pyright: ignore
    found = {case for path in listed for case in _cases_of(Path(path).expanduser())}
    if not found:
        raise FileNotFoundError("No series were given; name a folder or files.")
    return sorted(found)


def _cases_of(root: Path) -> list[Path]:
    if root.is_file():
        if root.suffix.lower() not in SUFFIXES:
            raise ValueError(
                f"{root} has the unknown suffix {root.suffix!r}; series are .npz, .h5 "
                "or .pvd files, or folders of numbered .vtu files."
            )
        return [root]
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is no file and no folder.")
    inside = [path for path in root.iterdir() if path.name[0] != "."]
    for suffix in (".npz", ".h5", ".pvd"):
        if files := [p for p in inside if p.suffix.lower() == suffix]:
            return files
    if any(p.suffix.lower() == ".vtu" for p in inside):
        return [root]
    folders = [path for path in inside if path.is_dir()]
    cases = [case for folder in folders for case in _cases_of(folder)]
    if not cases:
        raise FileNotFoundError(
            f"The folder {root} has no series: .npz, .h5 or .pvd files, or folders of "
            "numbered .vtu files."
        )
    return cases


class Listed(NamedTuple):
    """A frame: its file, and its time where that is known."""

    file: Path
    time: float | None


def listed(case: Path) -> Iterator[Listed]:
    """Lists the frames of a folder, of a `.pvd` file, or of a single `.vtu` file."""
    if case.suffix.lower() == ".pvd":
        yield from _of_list(case)
    elif case.is_file():
        yield Listed(case, None)
    else:
        files = [p for p in case.iterdir() if p.suffix.lower() == ".vtu"]
        files = [p for p in files if p.name[0] != "."]
        known = dict(zip(files, numbers(case, files), strict=True))
        ordered = sorted(files, key=lambda file: known[file])
        _check_gaps(case, ordered, [known[file] for file in ordered])
        for file in ordered:
            yield Listed(file, None)


def numbers(case: Path, files: list[Path]) -> list[int]:
    """Numbers at the end of the names of files."""
    if len(files) == 1:
        return [0]
    found = [_NUMBER.search(file.stem) for file in files]
    for file, match in zip(files, found, strict=True):
        if match is None:
            raise ValueError(
                f"{case}: {file.name} has no number at the end of its name, as frames "
                "of a series have; number the files, or give a .pvd file."
            )
    return [int(match[1][:18]) for match in found if match]


def _check_gaps(case: Path, files: list[Path], numbers: list[int]) -> None:
    """Raises ValueError unless numbers follow each other at one distance."""
    steps = np.diff(numbers)
    if len(steps) and (steps != steps.min()).any():
        i = int(np.argmax(steps != steps.min()))
        raise ValueError(
            f"{case}: after {files[i].name}, {files[i + 1].name} follows, but numbers "
            f"are {steps.min()} apart elsewhere: frames are missing; add them, or give "
            "a .pvd file with the times of those that there are."
        )


def _of_list(path: Path) -> list[Listed]:
    """Reads a `.pvd` file; of the names of files, only those of its own folder."""
    found: list[Listed] = []
    root = lists.read(path, "Collection")
    for element in root.findall("Collection/DataSet"):
        file, time = element.get("file", ""), element.get("timestep", "")
        frame = lists.beside(path, file, (".vtu",), "frames")
        if not lists.is_inside(path, frame):
            raise ValueError(
                f"{path}: frame {len(found)}, {file[:80]!r}, is missing; restore it, "
                "or take it out of the list."
            )
        try:
            found.append(Listed(frame, float(time)))
        except ValueError:
            raise limits.damaged(path, f"frame {len(found)} has no time") from None
    if not found:
        raise limits.damaged(path, "it lists no frames")
    return found
