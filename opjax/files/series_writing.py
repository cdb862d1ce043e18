"""Writing series frame by frame, in bounded memory."""

import contextlib
import dataclasses
import shutil
import zipfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

import numpy as np
from numpy.lib import format as npy

from opjax._files import OnePath, replacing
from opjax.files import npz
from opjax.files.topology import spread
from opjax.files.vtk import fields as vtk_fields
from opjax.files.vtk import layers
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from opjax.samples import Series
from opjax.samples.fields import by_name, channels_of

# What frames are given to, one after the other: the time, and values `(n, c)`.
Writer = Callable[[float, np.ndarray], None]


@contextlib.contextmanager
def pvd(
    folder: OnePath,
    name: str,
    series: Series,
    names: Sequence[str],
    *,
    mesh: VtkMesh | None = None,
    location: str = "points",
) -> Generator[Writer]:
    """Writes frames as `.vtu` files, and a `.pvd` file that ParaView animates.

    Args:
      folder: folder for `name_0000.vtu`, ... and, at the end, `name.pvd`; created if
        missing.
      name: base name of the files.
      series: series that provides the mesh and cells.
      names: names of the channels; channels of the same name become one field.
      mesh: mesh that replaces the points and cells of the series.
      location: `"cells"` if the points of the series are the centres of its cells.

    Raises:
      OSError: if a file cannot be written.
      ValueError: if the points or cells do not fit a VTK file.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    root = Element("VTKFile", type="Collection", version="1.0")
    listed = SubElement(root, "Collection")
    count = 0
    located = _located(name, mesh, location)

    def write(time: float, values: np.ndarray) -> None:
        nonlocal count
        file = f"{name}_{count:04d}.vtu"
        fields = by_name(values, names)
        with replacing(folder / file) as path:
            if mesh is None:
                vtk_fields.create(path, _mesh_arrays(series) | fields)
            else:
                vtk_fields.extend(path, path, mesh, located(fields), location)
        SubElement(listed, "DataSet", timestep=repr(float(time)), part="0", file=file)
        count += 1

    yield write
    indent(root)
    with replacing(folder / f"{name}.pvd") as path:
        ElementTree(root).write(path, xml_declaration=True, encoding="utf-8")


def _located(name: str, mesh: VtkMesh | None, location: str) -> Callable[[Any], Any]:
    """What gives fields the rows of all cells of a mesh, where they are at cells."""
    if mesh is None or location == "points":
        return lambda fields: fields
    arrays = vtk_fields.MeshArrays(mesh, {"mesh_points": mesh.points})
    return lambda fields: {k: spread(arrays, f, name) for k, f in fields.items()}


def mesh_of(
    file: Path,
    max_bytes: int,
    *,
    point_dim: int | None = None,
    step: int | None = None,
) -> VtkMesh:
    """Reads the mesh of a frame, without its point data and cell data.

    Args:
      file: the file.
      max_bytes: maximum size of an array.
      point_dim: as for `layers.flattened`.
      step: index of the frame, if the file has several.
    """
    mesh = layers.flattened(file, vtk_fields.load(file, max_bytes, step), point_dim)
    if mesh.layer is not None:
        layer = mesh.layer._replace(solid=_alone(mesh.layer.solid))
        mesh = dataclasses.replace(mesh, layer=layer)
    return _alone(mesh)


def _alone(mesh: VtkMesh) -> VtkMesh:
    data = {f"{place}_data": NamedArrays() for place in ("point", "cell", "field")}
    return dataclasses.replace(mesh, **data)


@contextlib.contextmanager
def archive(
    path: OnePath,
    series: Series,
    names: Sequence[str],
    times: np.ndarray,
    *,
    on_grid: bool = False,
) -> Generator[Writer]:
    """Writes frames to an `.npz` file: `times`, and fields `(t, n)` or `(t, n, c)`.

    Scalars of the series are written too.

    Args:
      path: path of the file, which is created when the animation is complete.
      series: series whose mesh is written, too.
      names: names of the channels, all of one field.
      times: times of all frames.
      on_grid: write fields `(t, h, w)` on the grid of the series, without points.

    Raises:
      OSError: if the file cannot be written.
      ValueError: if the number of frames differs from the number of times.
    """
    channels = channels_of(names)
    grid = series.grid_shape if on_grid and series.grid_shape else None
    shape = grid or (series.num_points,)
    tails = {k: (len(c),) if len(c) > 1 else () for k, c in channels.items()}
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(replacing(Path(path)))
        # One field goes straight into the archive; of several, all but the first wait.
        parts = {k: temporary.with_suffix(f".{i}") for i, k in enumerate(channels)}
        files = {}
        for part in parts.values():
            stack.callback(part.unlink, missing_ok=True)
        for key, part in parts.items():
            files[key] = stack.enter_context(open(part, "wb"))
        count = 0

        def write(time: float, values: np.ndarray) -> None:
            nonlocal count
            count += 1
            for key, chosen in channels.items():
                files[key].write(np.ascontiguousarray(values[:, chosen]).tobytes())

        yield write
        if count != len(times):
            raise ValueError(
                f"{path}: {count} frames were passed, expected {len(times)}."
            )
        arrays = {} if grid else _mesh_arrays(series)
        arrays |= {k: np.asarray(v) for k, v in (series.scalars or {}).items()}
        npz.add(temporary, arrays | {"times": np.asarray(times)})
        for key, file in files.items():
            file.close()
            whole = (len(times), *shape, *tails[key])
            _add_file(temporary, key, parts[key], whole, series.values.dtype)


def _add_file(
    archive: Path, name: str, source: Path, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """Adds the bytes of a file to an archive as an array."""
    header: dict[str, Any] = {
        "descr": npy.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    with (
        zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as opened,
        opened.open(f"{name}.npy", "w", force_zip64=True) as member,
        open(source, "rb") as file,
    ):
        npy.write_array_header_2_0(member, header)
        shutil.copyfileobj(file, member, 2**20)


def _mesh_arrays(series: Series) -> dict[str, np.ndarray]:
    arrays = {
        "mesh_points": series.mesh_points,
        "quadrature_weights": series.quadrature_weights,
        "cells": series.cells,
        "grid_shape": series.grid_shape,
    }
    return {k: np.asarray(array) for k, array in arrays.items() if array is not None}
