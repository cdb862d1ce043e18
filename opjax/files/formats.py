"""The formats of your own data: finding files, and opening one of any format."""

import glob
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from opjax.files import cgns, hdf5, npz, stacking
from opjax.files.npz import Groups
from opjax.files.vtk import fields

SURFACES = (".vtp", ".stl", ".ply")
BLOCKS = (".vtm",)
SUFFIXES = (".npz", ".h5", ".vtu", ".vtk", ".cgns", *BLOCKS, *SURFACES)
OnePath = str | os.PathLike[str]
Paths = OnePath | Sequence[OnePath]


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
      FileNotFoundError: if a path does not exist or a folder or pattern has no file.
      ValueError: if a format is unknown or there are several.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    found = sorted({file for path in listed for file in _files_of(path, stacked)})
    if not found:
        raise FileNotFoundError("No files were given; name a folder or files.")
    formats = Counter(file.suffix.lower() for file in found)
    if len(formats) > 1:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in formats.items())
        raise ValueError(
            f"A data set has one format, but {found[0].parent} and the other paths "
            f"have {counts} files; name those of one format, '*{found[0].suffix}'."
        )
    return found


def _files_of(path: OnePath, stacked: bool) -> list[Path]:
    root = Path(path).expanduser()
    if stacked and stacking.is_folder(root):
        return [root]
    if root.is_dir():
        files = [f for f in root.iterdir() if f.is_file() and f.name[0] != "."]
        known = [f for f in files if f.suffix.lower() in SUFFIXES]
        # Surfaces and lists of blocks beside meshes are what they were made of.
        for others in (SURFACES, BLOCKS):
            known = [f for f in known if f.suffix.lower() not in others] or known
        known = known or cgns.samples(root)
        if not known:
            suffixes = sorted({f.suffix or f.name for f in files})[:8]
            raise FileNotFoundError(
                f"The folder {root} has no {', '.join(SUFFIXES)} files, but "
                f"{len(files)} others {suffixes}; samples are files directly in it."
            )
        return known
    if root.exists():
        check_suffix(root)
        return [root]
    matches = [Path(match) for match in glob.glob(str(root))]
    if not matches:
        raise FileNotFoundError(f"{root} is no file and no folder, and matches none.")
    return [file for match in matches for file in _files_of(match, stacked)]


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
            f"{', '.join(SUFFIXES)} files.{_way(path)}"
        )


# Formats that other libraries convert, by suffix: what to type, of a file `{0}`.
_MESHIO = "pip install meshio; meshio convert {0} {1}.vtu"
_PYVISTA = "in Python, pyvista.read('{0}').cast_to_unstructured_grid().save('{1}.vtu')"
_WAYS = {
    **dict.fromkeys((".msh", ".inp", ".bdf", ".med", ".xdmf", ".e", ".exo"), _MESHIO),
    **dict.fromkeys((".vtr", ".vts", ".obj"), _PYVISTA),
    **dict.fromkeys((".foam",), f"{_PYVISTA} after .combine()"),
    ".csv": "in Python, numpy.savez('{1}.npz', mesh_points=..., u=...) of its columns",
    ".mat": "in Python, numpy.savez('{1}.npz', **scipy.io.loadmat('{0}')), renamed",
    ".pt": "in Python, numpy.savez('{1}.npz', **arrays) of torch.load('{0}')",
}


def _way(path: Path) -> str:
    """How to convert a file of another format; empty if we know of no way."""
    way = _WAYS.get(path.suffix.lower())
    return f" To convert it: {way.format(path.name, path.stem)}." if way else ""


def opened(
    file: Path,
    *,
    max_bytes: int,
    point_dim: int | None = None,
    quadrature: bool = False,
    group: str | None = None,
    stacked: bool = False,
) -> AbstractContextManager[Groups]:
    """Opens a file, or one group of it; arguments as for `read`."""
    suffix = file.suffix.lower()
    if stacked:
        return stacking.open_stacked(file, max_bytes)
    if suffix == ".npz":
        return npz.open_npz(file, max_bytes)
    if suffix == ".h5":
        return hdf5.open_hdf5(file, max_bytes, group=group)
    return fields.open_vtk(file, max_bytes, point_dim=point_dim, quadrature=quadrature)
