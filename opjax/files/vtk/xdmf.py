"""XDMF: a text file that describes meshes and fields, with arrays in other files."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from opjax.files import limits
from opjax.files.vtk import lists
from opjax.files.vtk.mesh import VtkMesh

SUFFIXES = (".xdmf", ".xmf")
_HDF = (".h5", ".hdf5", ".hdf")
_BINARY = (".bin", ".raw", ".dat")


def arrays_of(path: Path) -> list[Path]:
    """Lists the files that an XDMF file names.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged, or names files that are missing or outside its
        folder.
    """
    names = dict.fromkeys(_named(path))
    for file in names:
        if not lists.is_inside(path, file):
            raise ValueError(
                f"{path} stores its arrays in {file.name}, which is missing; copy "
                "it to the same folder."
            )
    return list(names)


def _named(path: Path) -> Iterator[Path]:
    root = lists.tree(path)
    if root.tag != "Xdmf":
        raise limits.damaged(path, f"it is {root.tag}, not Xdmf")
    for element in root.iter():
        if element.get("href"):
            raise limits.damaged(path, "it includes other documents")
        if element.tag != "DataItem":
            continue
        text, form = (element.text or "").strip(), element.get("Format", "XML").upper()
        if form in ("HDF", "HDF5"):
            yield lists.beside(path, text.partition(":")[0], _HDF, "arrays")
        elif form == "BINARY":
            yield lists.beside(path, text, _BINARY, "arrays")
        elif form != "XML":
            raise limits.damaged(path, f"arrays in the format {form[:20]}")


def companion_of(path: Path) -> Path | None:
    """Returns the XDMF file in the folder that refers to a file of arrays, if any."""
    for suffix in SUFFIXES:
        for other in sorted(path.parent.glob(f"*{suffix}")):
            if other.stem == path.stem or path.name in other.read_text(errors="ignore"):
                return other
    return None


def whole(files: Sequence[Path]) -> list[Path]:
    """Removes array files of an XDMF file that is among the files."""
    texts = [one for one in files if one.suffix.lower() in SUFFIXES]
    named = {file for one in texts for file in _named(one)}
    return [one for one in files if one not in named]


def united(named: Sequence[tuple[str, VtkMesh]]) -> list[tuple[str, VtkMesh]]:
    """Combines blocks on one mesh into one block with all fields.

    FEniCS writes one block for the mesh, and one for each field on it.
    """
    (name, first), *others = named
    keys = ("points", "offsets", "corners", "types")
    for _, mesh in others:
        pairs = [(getattr(first, key), getattr(mesh, key)) for key in keys]
        if not all(np.array_equal(*pair) for pair in pairs):
            return list(named)
    data = {}
    for key in ("point_data", "cell_data"):
        each = [getattr(mesh, key) for _, mesh in named]
        arrays = {k: array for one in each for k, array in one.arrays.items()}
        misfits = {k: rows for one in each for k, rows in one.misfits.items()}
        data[key] = dataclasses.replace(each[0], arrays=arrays, misfits=misfits)
    return [(name, dataclasses.replace(first, **data))]
