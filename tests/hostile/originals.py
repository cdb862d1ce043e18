"""Valid files of every format, small, from a seed."""

import io
import json
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def arrays(seed: int) -> dict[str, np.ndarray]:
    """Returns the arrays of a sample on triangles."""
    rng = np.random.default_rng(seed)
    points = rng.random((12, 2)).astype(np.float32)
    return {
        "mesh_points": points,
        "features": rng.normal(size=(12, 2)).astype(np.float32),
        "target": rng.normal(size=12),
        "quadrature_weights": rng.random(12).astype(np.float32),
        "cells": np.stack([np.arange(10), np.arange(1, 11), np.arange(2, 12)], axis=1),
    }


def marked(seed: int) -> dict[str, np.ndarray]:
    """Returns the same arrays with a named boundary."""
    return arrays(seed) | {"boundary_wall": np.arange(12) if seed % 2 else _MASK}


_MASK = np.ones(12, bool)


def npz(seed: int) -> bytes:
    """An archive of arrays, deflated every other time."""
    file = io.BytesIO()
    (np.savez_compressed if seed % 2 else np.savez)(file, **marked(seed))
    return file.getvalue()


def npy(seed: int) -> bytes:
    """One array, of samples along axis 0."""
    file = io.BytesIO()
    rng = np.random.default_rng(seed)
    np.save(file, rng.random((5, 12, 2)).astype(["<f4", "<f8", ">f4"][seed % 3]))
    return file.getvalue()


def mat5(seed: int) -> bytes:
    """Arrays as MATLAB 5 to 7 write them, compressed every other time."""
    from scipy import io as scipy_io

    file = io.BytesIO()
    content = {"other": np.eye(3), "u": np.random.default_rng(seed).random((5, 12, 2))}
    scipy_io.savemat(file, content, do_compression=bool(seed % 2))
    return file.getvalue()


def mat73(seed: int) -> bytes:
    """Arrays as MATLAB 7.3 writes them: HDF5 behind 512 bytes."""
    import h5py

    file = io.BytesIO()
    with h5py.File(file, "w", userblock_size=512) as content:
        content["other"] = np.eye(3)
        content.create_dataset(
            "u",
            data=np.random.default_rng(seed).random((2, 12, 5)),
            chunks=(1, 6, 5),
            compression="gzip" if seed % 2 else None,
        )
    start = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    return start.ljust(512, b"\0") + file.getvalue()[512:]


def h5(seed: int) -> bytes:
    """A sample, or a group for each of two."""
    import h5py

    file = io.BytesIO()
    with h5py.File(file, "w") as content:
        groups = [content]
        if seed % 3 == 0:
            groups = [content.create_group(name) for name in ("one", "two")]
        for group in groups:
            for name, array in marked(seed).items():
                group.create_dataset(
                    name,
                    data=array,
                    chunks=True if seed % 2 else None,
                    compression="gzip" if seed % 4 == 1 else None,
                    fletcher32=seed % 4 == 3,
                )
    return file.getvalue()


def _mesh(seed: int) -> Any:
    import pyvista

    given = arrays(seed)
    space = np.pad(given["mesh_points"], ((0, 0), (0, 1)))
    mesh = pyvista.UnstructuredGrid({5: given["cells"]}, space)
    mesh.point_data["features"] = given["features"]
    mesh.point_data["target"] = given["target"]
    mesh.point_data["boundary_wall"] = np.ones(12, np.uint8)
    mesh.cell_data["boundary"] = np.arange(10) % 3
    return mesh


def _vtk_bytes(writer: Any) -> bytes:
    writer.WriteToOutputStringOn()
    writer.Write()
    return writer.GetOutputString().encode("latin-1")


def vtu(seed: int) -> bytes:
    """A mesh as XML: text, base64 or appended, compressed or not."""
    from vtkmodules import vtkIOXML

    writer = vtkIOXML.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(_mesh(seed))
    writer.SetDataMode(seed % 3)
    writer.SetEncodeAppendedData(True)
    names = ("ZLib", "None", "LZ4", "None", "LZMA", "ZLib")
    getattr(writer, f"SetCompressorTypeTo{names[seed % 6]}")()
    return _vtk_bytes(writer)


def polyhedra(seed: int) -> bytes:
    """Boxes that are given by their faces, as VTK 9.4 lists them or as before."""
    import pyvista
    from vtkmodules import vtkIOXML

    from opjax.files.vtk import vtu_write, xml_files

    rng = np.random.default_rng(seed)
    boxes = pyvista.ImageData(dimensions=(3, 3, 3)).cast_to_unstructured_grid()
    cells: list[int] = []
    for box in boxes.cell:
        pixels = [face.point_ids for face in box.faces]  # whose last two are crossed
        faces = [[4, a, b, d, c] for a, b, c, d in pixels]
        stream = [len(faces), *(number for face in faces for number in face)]
        cells += [len(stream), *stream]
    mesh = pyvista.UnstructuredGrid(cells, [42] * boxes.n_cells, boxes.points)
    mesh.point_data["features"] = rng.random((27, 2))
    mesh.point_data["target"] = rng.random(27)
    mesh.point_data["boundary_wall"] = np.ones(27, np.uint8)
    writer = vtkIOXML.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(mesh)
    writer.SetDataMode(seed % 2)
    content = _vtk_bytes(writer)
    if seed % 3:
        return content
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.vtu"
        path.write_bytes(content)
        vtu_write.write(path, xml_files.read(path, 2**20), {})
        return path.read_bytes()


def vtk(seed: int) -> bytes:
    """A mesh, surface or grid in the legacy format, text or binary, old or new."""
    import pyvista
    from vtkmodules import vtkIOLegacy

    mesh: Any = _mesh(seed)
    if seed % 4 == 2:
        mesh = mesh.extract_surface(algorithm="dataset_surface")
    elif seed % 4 == 3:
        image = pyvista.ImageData(dimensions=(3, 4, 1))
        image.point_data["target"] = np.arange(12.0)
        kinds = (image, image.cast_to_structured_grid())
        mesh = (*kinds, image.cast_to_rectilinear_grid())[seed // 4 % 3]
    writer = vtkIOLegacy.vtkDataSetWriter()
    writer.SetInputData(mesh)
    writer.SetFileVersion(42 if seed % 3 else 51)
    if seed % 2:
        writer.SetFileTypeToBinary()
    with tempfile.TemporaryDirectory() as folder:
        writer.SetFileName(str(Path(folder, "a.vtk")))
        writer.Write()
        return Path(folder, "a.vtk").read_bytes()


def vtp(seed: int) -> bytes:
    """A surface as XML."""
    from vtkmodules import vtkIOXML

    writer = vtkIOXML.vtkXMLPolyDataWriter()
    writer.SetInputData(_mesh(seed).extract_surface(algorithm="dataset_surface"))
    writer.SetDataMode(seed % 3)
    writer.SetEncodeAppendedData(True)
    return _vtk_bytes(writer)


def of_vtk(kind: str) -> Callable[[int], bytes]:
    """A grid with a field, as VTK writes it."""

    def write(seed: int) -> bytes:
        import pyvista
        from vtkmodules import vtkIOExodus

        mesh = pyvista.ImageData(dimensions=(3 + seed % 3, 3, 2))
        mesh["target"] = np.random.default_rng(seed).random(mesh.n_points)
        mesh.cell_data["target"] = np.arange(mesh.n_cells, dtype=float)
        cast = {
            "vtr": mesh.cast_to_rectilinear_grid,
            "vts": mesh.cast_to_structured_grid,
        }
        if kind != "vti":
            mesh = cast.get(kind, mesh.cast_to_unstructured_grid)()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"a.{kind}")
            if kind == "exo":
                writer = vtkIOExodus.vtkExodusIIWriter()
                writer.SetInputData(mesh)
                writer.SetFileName(str(path))
                writer.Write()
            elif kind == "vtkhdf":
                mesh.save(path)
            else:
                mesh.save(path, binary=bool(seed % 2))
            return path.read_bytes()

    return write


def cgns(seed: int) -> bytes:
    """A mesh as PLAID's library writes it, with a field called `target`."""
    import h5py

    archive = Path(__file__).parents[1] / "datasets/plaid/samples.tar.gz"
    with tarfile.open(archive) as content:
        name = f"sample_{seed % 4:09d}/meshes/mesh_000000000.cgns"
        member = content.extractfile(name)
        assert member is not None
        file = io.BytesIO(member.read())
    with h5py.File(file, "r+") as tree:
        for place in ("VertexFields/u", "CellCenterFields/p"):
            folder = place.partition("/")[0]
            tree.move(f"Base_2_2/Zone/{place}", f"Base_2_2/Zone/{folder}/target")
    return file.getvalue()


def stl(seed: int) -> bytes:
    """Triangles, as text every other time."""
    given = arrays(seed)
    corners = np.pad(given["mesh_points"], ((0, 0), (0, 1)))[given["cells"]]
    if seed % 2:
        rows = np.zeros(10, [("n", "<f4", 3), ("c", "<f4", (3, 3)), ("a", "<u2")])
        rows["c"] = corners
        return bytes(80) + struct.pack("<I", 10) + rows.tobytes()
    lines = ["solid a"]
    for one in corners.tolist():
        lines += ["facet normal 0 0 1", "outer loop"]
        lines += [f"vertex {x} {y} {z}" for x, y, z in one]
        lines += ["endloop", "endfacet"]
    return "\n".join([*lines, "endsolid a"]).encode()


def ply(seed: int) -> bytes:
    """A surface with a field: text, or binary in either order."""
    given = arrays(seed)
    order = ["ascii", "binary_little_endian", "binary_big_endian"][seed % 3]
    head = f"""ply
format {order} 1.0
comment a
element vertex 12
property float x
property float y
property float z
property double target
element face 10
property list uchar int vertex_indices
property uchar boundary
end_header
"""
    points = np.pad(given["mesh_points"], ((0, 0), (0, 1)))
    faces = given["cells"].tolist()
    faces[seed % 10] += [0] * (seed % 2)  # of different sizes every other time
    if order == "ascii":
        rows = [f"{x} {y} {z} 1.5" for x, y, z in points.tolist()]
        rows += [" ".join(map(str, [len(f), *f, 1])) for f in faces]
        return (head + "\n".join(rows) + "\n").encode()
    sign = "<" if order.endswith("little_endian") else ">"
    body = b"".join(struct.pack(f"{sign}3fd", *row, 1.5) for row in points)
    for face in faces:
        body += struct.pack(f"{sign}B{len(face)}iB", len(face), *face, 1)
    return head.encode() + body


def off(seed: int) -> bytes:
    """A surface of triangles as text."""
    given = arrays(seed)
    rows = [f"{x} {y} 0" for x, y in given["mesh_points"]]
    rows += ["3 " + " ".join(map(str, face)) for face in given["cells"]]
    return ("OFF\n12 10 0 # a comment\n" + "\n".join(rows) + "\n").encode()


def labels(seed: int) -> bytes:
    """Labels of vertices as text."""
    return " ".join(map(str, np.random.default_rng(seed).integers(0, 7, 40))).encode()


def config(seed: int) -> bytes:
    """The configuration of a run."""
    import dataclasses

    from opjax.learn.cli import train
    from opjax.learn.json_files import to_json

    values = dataclasses.asdict(train.Config(num_layers=1 + seed % 3))
    return json.dumps(to_json(values), indent=2).encode()


def npy_bytes(array: np.ndarray, header: str) -> bytes:
    """A `.npy` file with any header."""
    text = header.encode("latin-1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text))
    return start + text + array.tobytes()


def archive(members: dict[str, bytes], *, deflate: bool = False) -> bytes:
    """A zip file of any members."""
    file = io.BytesIO()
    how = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", how) as content:
        for name, data in members.items():
            content.writestr(name, data)
    return file.getvalue()


def header(shape: Any, descr: Any = "<f4", fortran: Any = False) -> str:
    """The header of a `.npy` file."""
    return repr({"descr": descr, "fortran_order": fortran, "shape": shape})


def pickled() -> bytes:
    """A `.npy` file that runs code when it is unpickled."""
    file = io.BytesIO()
    np.save(file, np.array([_Evil()], object), allow_pickle=True)
    return file.getvalue()


class _Evil:
    """Makes a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("unpickled"),)
