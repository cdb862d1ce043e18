"""Published flows over cars, DrivAerML and ShapeNet-Car: surfaces as samples.

The data are not included and cannot be generated: `drivaerml` and `shapenet_car` read
the published files, and report where they expect them. Features are the normals of the
surface, weights are its areas.

DrivAerML (CC-BY-SA, huggingface.co/datasets/neashton/drivaerml): 500 cars with about
nine million cells each, in `run_<i>/boundary_<i>.vtp`. Fields are cell data, so the
points of a sample are the centres of the cells.

ShapeNet-Car (nobuyuki-umetani.com/publication/mlcfd_data.zip): 889 cars with about
3,700 points each, in `training_data/param<j>/<name>/quadpress_smpl.vtk`, with the
pressure at the points. As in the literature, `param0` is the test set. Four folders
have no such file and are skipped.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opjax import samples
from opjax._files import OnePath
from opjax.datasets import _airfrans_files
from opjax.files import extras
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from opjax.quadrature import cell_weights
from opjax.samples import Sample

DRIVAERML = "huggingface.co/datasets/neashton/drivaerml"
SHAPENET = "nobuyuki-umetani.com/publication/mlcfd_data.zip"
FIELDS = ("pMeanTrim", "wallShearStressMeanTrim")
# VTK's numbers of cells.
_TRIANGLE, _POLYGON, _QUADRILATERAL = 5, 7, 9
_RUN = re.compile(r"run_([0-9]+)")


def drivaerml(
    data_dir: OnePath,
    *,
    num_train: int,
    num_test: int,
    fields: Sequence[str] = FIELDS,
) -> tuple[list[Sample], list[Sample]]:
    """Reads surfaces of DrivAerML, or files of `bodies.write` in its layout.

    There is no published split: the training samples are the first ones by number, the
    test samples the next ones.

    Args:
      data_dir: folder with subfolders `run_<i>`, each with `boundary_<i>.vtp`.
      num_train: number of training samples.
      num_test: number of test samples.
      fields: cell fields that are concatenated as the target.

    Returns:
      Training and test samples.

    Raises:
      FileNotFoundError: if there are too few files. The message states where they are
        expected.
      ImportError: if pyvista is missing.
      ValueError: if a file is damaged or lacks a field.

    References:
      Ashton et al., "DrivAerML", 2024 (arXiv:2408.11969).
    """
    root, numbers = Path(data_dir).expanduser(), []
    for folder in root.iterdir() if root.is_dir() else ():
        match = _RUN.fullmatch(folder.name)
        if match and (folder / f"boundary_{match[1]}.vtp").is_file():
            numbers.append(int(match[1]))
    paths = [root / f"run_{i}" / f"boundary_{i}.vtp" for i in sorted(numbers)]
    pattern = "run_<i>/boundary_<i>.vtp"
    _enough(root, paths, num_train + num_test, pattern, DRIVAERML)
    cases = [_cells(path, fields) for path in paths[: num_train + num_test]]
    samples.check(cases)
    return cases[:num_train], cases[num_train:]


def shapenet_car(
    data_dir: OnePath, *, num_train: int, num_test: int
) -> tuple[list[Sample], list[Sample]]:
    """Reads surfaces of ShapeNet-Car; the target is the pressure.

    Args:
      data_dir: folder with `training_data`, or this subfolder.
      num_train: number of training samples, the first ones of `param1` to `param8`.
      num_test: number of test samples, the first ones of `param0`.

    Returns:
      Training and test samples, sorted by the names of their folders.

    Raises:
      FileNotFoundError: if there are too few files. The message states where they are
        expected.
      ImportError: if pyvista is missing.
      ValueError: if a file is damaged or has no pressure.

    References:
      Umetani and Bickel, "Learning three-dimensional flow for interactive aerodynamic
      design", ACM Transactions on Graphics 37, 2018.
      Wu et al., "Transolver", ICML 2024 (arXiv:2402.02366), Sec. 4.2.
    """
    root = Path(data_dir).expanduser()
    if (root / "training_data").is_dir():
        root = root / "training_data"
    parts = []
    for numbers, count in (("[1-8]", num_train), ("0", num_test)):
        pattern = f"param{numbers}/*/quadpress_smpl.vtk"
        paths = sorted(root.glob(pattern))
        _enough(root, paths, count, pattern, SHAPENET)
        parts.append([_points(path) for path in paths[:count]])
    train, test = parts
    samples.check([*train, *test])
    return train, test


def _enough(
    root: Path, paths: Sequence[Path], count: int, wanted: str, source: str
) -> None:
    if len(paths) < count:
        raise FileNotFoundError(
            f"{root} has {len(paths)} files {wanted}, but {count} were requested "
            "(validation samples are training samples and count too). Get them "
            f"from {source}, or lower num_train and num_test."
        )


def _cells(path: Path, fields: Sequence[str]) -> Sample:
    """A sample at the middles of the cells of a surface."""
    pyvista = extras.optional("pyvista", path, extra="vtk")
    mesh = _open(path, DRIVAERML)
    kinds = set(np.unique(mesh.types).tolist())
    if other := kinds - {_TRIANGLE, _POLYGON, _QUADRILATERAL}:
        raise ValueError(
            f"{path} has cells of the VTK types {other}, expected polygons."
        )
    counted = np.insert(mesh.corners, mesh.offsets[:-1], np.diff(mesh.offsets))
    surface: Any = pyvista.PolyData(mesh.points, counted)
    sized = surface.compute_cell_sizes(length=False, volume=False)
    normals = surface.compute_normals(
        point_normals=False, consistent_normals=False, auto_orient_normals=False
    )
    return Sample(
        mesh_points=_single(surface.cell_centers().points),
        features=_single(normals.cell_data["Normals"]),
        target=_columns(mesh.cell_data, fields, path),
        quadrature_weights=_single(sized.cell_data["Area"]),
        name=path.stem,
    )


def _points(path: Path) -> Sample:
    """A sample at the points of a surface of triangles and quadrilaterals."""
    mesh = _open(path, SHAPENET)
    name = mesh.point_data.active.get("Scalars")
    if not name:
        raise ValueError(f"{path} has no scalar point data, expected the pressure.")
    cells = mesh.cells()
    if other := set(np.unique(mesh.types).tolist()) - {_TRIANGLE, _QUADRILATERAL}:
        raise ValueError(
            f"{path} has cells of the VTK types {other}, expected surface cells."
        )
    flat: list[np.ndarray] = [cells[_TRIANGLE]] if _TRIANGLE in cells else []
    for corners in ([0, 1, 2], [0, 2, 3]):
        if _QUADRILATERAL in cells:
            flat.append(cells[_QUADRILATERAL][:, corners])
    triangles = np.concatenate(flat)
    points = mesh.points.astype(np.float64)
    return Sample(
        mesh_points=_single(points),
        features=_single(_normals(points, triangles)),
        target=_columns(mesh.point_data, [name], path),
        quadrature_weights=_single(cell_weights(points, triangles)),
        cells=triangles,
        name=path.parent.name,
    )


def _normals(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Means of the normals of the triangles around every point, by area."""
    a, b, c = points[triangles].transpose(1, 0, 2)
    total = np.zeros_like(points)
    for corner in triangles.T:
        np.add.at(total, corner, np.cross(b - a, c - a))
    length = np.linalg.norm(total, axis=1, keepdims=True)
    return total / np.where(length > 0, length, 1)


def _open(path: Path, source: str) -> VtkMesh:
    """A mesh with cells."""
    mesh = _airfrans_files.open_mesh(path, source)
    if not mesh.num_cells:
        raise ValueError(
            f"{path} has no cells, so it is damaged; get it from {source}."
        )
    return mesh


def _columns(data: NamedArrays, fields: Sequence[str], path: Path) -> np.ndarray:
    """Returns fields beside each other, `(n, q)`."""
    arrays = data.arrays
    if missing := [name for name in fields if name not in arrays]:
        raise ValueError(
            f"{path} has the fields {sorted(arrays)}, but {missing} are missing."
        )
    columns = [np.reshape(arrays[name], (len(arrays[name]), -1)) for name in fields]
    return _single(np.concatenate(columns, axis=1))


def _single(array: Any) -> np.ndarray:
    return np.ascontiguousarray(array, np.float32)
