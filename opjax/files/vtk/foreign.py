"""Meshes read by VTK in a separate process: images, Ensight, Exodus, XDMF.

If a file contains several times, one of them is read, by default the last one.
"""

import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import apart, extras, limits
from opjax.files.vtk import blocks, legacy, xdmf
from opjax.files.vtk.mesh import VtkMesh

_READERS = {
    ".vti": "vtkIOXML.vtkXMLImageDataReader",
    ".vtr": "vtkIOXML.vtkXMLRectilinearGridReader",
    ".vts": "vtkIOXML.vtkXMLStructuredGridReader",
    ".vtkhdf": "vtkIOHDF.vtkHDFReader",
    **dict.fromkeys((".case", ".encas"), "vtkIOEnSight.vtkGenericEnSightReader"),
    ".cas": "vtkIOGeometry.vtkFLUENTReader",
    **dict.fromkeys(xdmf.SUFFIXES, "vtkIOXdmf2.vtkXdmfReader"),
    **dict.fromkeys((".e", ".exo", ".ex2"), "vtkIOExodus.vtkExodusIIReader"),
}
SUFFIXES = tuple(_READERS)
_ENSIGHT, _EXODUS = (".case", ".encas"), (".e", ".exo", ".ex2")
_FLUENT = (".cas",)
_FACES = re.compile(r":(?!fluid$|solid$)[^:]*$")  # names of zones have their type
# Lines of values of a .dat file. VTK reads others as zero, and those behind them.
_VALUES = re.compile(rb"[\s\d.eE+-]*[\s)]*")
_TEXT, _BINARY = b"(300", (b"(2300", b"(3300")  # how sections of values begin
TIMED = (".vtkhdf", *_ENSIGHT, *_EXODUS, *xdmf.SUFFIXES)  # may have several times
_MAX_BYTES = 2**24
_OUTSIDE = re.compile(r"\s(\.\.[/\\]|[/\\]|[A-Za-z]:[/\\])\S+")


class _Answer(NamedTuple):
    """What the other process has read.

    Attributes:
      times: of the frames of the file; none where it has no times.
      named: blocks with their names.
    """

    times: list[float]
    named: list[tuple[str, VtkMesh]]


def read(path: Path, max_bytes: int, step: int | None = None) -> VtkMesh:
    """Reads a frame of a file as an unstructured mesh.

    Args:
      path: the file.
      max_bytes: maximum size of all arrays together.
      step: index of the frame. By default the last one, with a warning.

    Raises:
      ImportError: if VTK is missing.
      ValueError: if the file is damaged or too large, or names files outside its
        folder.
    """
    answer = _ask(path, max_bytes, -1 if step is None else step)
    if step is None and len(answer.times) > 1:
        warnings.warn(
            f"{path.suffix} files with several times are read at the last time. "
            "Use --time for transient fields.",
            stacklevel=2,
        )
    if len(answer.named) == 1:
        return answer.named[0][1]
    return blocks.assembled(path, answer.named, pieces=True)


def times(path: Path) -> list[float]:
    """Returns the times of the frames of a file; empty if it has no times.

    Raises:
      ImportError: if VTK is missing.
      ValueError: if the file is damaged.
    """
    return _ask(path, _MAX_BYTES, None).times


def _ask(path: Path, max_bytes: int, step: int | None) -> _Answer:
    extras.require("vtkmodules", path, extra="vtk")
    suffix = path.suffix.lower()
    if suffix in _ENSIGHT:
        _check_names(path)
    if suffix in _EXODUS:
        _check_writer(path)
    beside = [path.with_suffix(".dat")] if suffix in _FLUENT else []
    if beside and beside[0].is_file():
        _check_numbers(beside[0])
    beside = xdmf.arrays_of(path) if suffix in xdmf.SUFFIXES else beside
    request = {
        "reader": f"vtkmodules.{_READERS[suffix]}",
        "step": step,
        "times_only": step is None,
    }
    values, arrays = apart.ask(
        "read_blocks", path, request, max_bytes=max_bytes, beside=beside
    )
    with limits.reading(path):
        times = [float(time) for time in values["times"]]
        names = [str(name) for name in values.get("names", [])]
        kept = range(len(names))
        if suffix in _FLUENT:  # VTK makes solids of zones of faces, too
            kept = [i for i in kept if not _FACES.search(names[i])]
        names = [names[i] for i in kept]
        parts = [legacy.with_prefix(arrays, f"{i} ") for i in kept]
    if step is not None and not names:
        raise limits.damaged(path, "it has no mesh")
    if not np.isfinite(times).all():
        raise limits.damaged(path, "times that are not finite")
    is_xdmf = suffix in xdmf.SUFFIXES
    meshes = [legacy.mesh_of(path, part, misfits=is_xdmf) for part in parts]
    named = list(zip(names, meshes, strict=True))
    if is_xdmf and named:
        named = xdmf.united(named)
    return _Answer(times, named)


def _check_names(path: Path) -> None:
    """Raises ValueError for a case of Ensight with files outside of its folder."""
    if path.stat().st_size > _MAX_BYTES:
        raise limits.damaged(path, f"a text with more than {_MAX_BYTES} bytes")
    if outside := _OUTSIDE.search(path.read_text(errors="replace")):
        raise ValueError(
            f"{path} names {outside[0].strip()[:80]!r}, which is not in its folder; "
            "its files must be in the same folder or in subfolders."
        )


def _check_numbers(path: Path) -> None:
    """Raises ValueError for values in a text of Fluent that are no finite numbers."""
    inside = False
    with path.open("rb") as file:
        for line in file:
            if line.startswith(_BINARY):
                return
            if line.startswith(b"("):
                inside = line.startswith(_TEXT)
            elif inside and not _VALUES.fullmatch(line):
                value = line.strip()[:20].decode(errors="replace")
                raise limits.damaged(path, f"the value {value!r}")


def _check_writer(path: Path) -> None:
    """Raises ValueError for a file of meshio, of which VTK reads noise."""
    with path.open("rb") as file:
        if b"Created by meshio" in file.read(_MAX_BYTES):
            raise ValueError(
                f"{path} was written by meshio and is not valid Exodus. To convert "
                f"it: pip install meshio netCDF4; meshio convert {path.name} "
                f"{path.stem}.vtu."
            )
