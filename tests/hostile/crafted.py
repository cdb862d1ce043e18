"""Files that are made to do harm, by format: what no mutation would find."""

import functools
import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from tests.hostile import originals as made
from tests.hostile.mutations import Rng, pick

_HUGE = [(10**12,), (2**62, 4), (10**6, 10**6), (2**64,), (-1, 5), (-(2**63),)]
_HUGE += [(0, 2**63), (10**4,), ("a",), 7, (1.5,), (True, 12, 2), (12, 2, 10**9)]
_DTYPES = ["<f4", "|O", "<f999999999", "<U1000000000", "|V8", "<c16", "|S0", ">M8[s]"]
_DTYPES += [[("a", "<f4"), ("b", "|O")], "__import__('os').system('touch x')", 3, ""]
_DTYPES += ["<f4,<f4", "(1000000000,)<f4", [("a", [("b", "<f8")] * 3)], "float32"]


def npy(rng: Rng) -> bytes:
    """A header that lies, of any type and shape."""
    shape = pick(rng, _HUGE) if rng.random() < 0.6 else (5, 12, 2)
    descr = pick(rng, _DTYPES) if rng.random() < 0.6 else "<f4"
    header = made.header(shape, descr)
    what = rng.random()
    if what < 0.1:
        header = header.replace("{", "{" + "'a':" + "(" * 9000 + ")" * 9000 + ",")
    elif what < 0.15:
        header = "(" * 30_000 + ")" * 30_000
    elif what < 0.2:
        return made.pickled()
    elif what < 0.25:
        header = "__import__('pathlib').Path('executed').touch()"
    return made.npy_bytes(np.ones((5, 12, 2), np.float32), header)


def npz(rng: Rng) -> bytes:
    """Archives with names of other places, bombs, pickles and nested archives."""
    good = {f"{k}.npy": _saved(v) for k, v in made.arrays(0).items()}
    choice = int(rng.integers(8))
    if choice < 3:
        name = pick(rng, list(good))
        return made.archive(good | {name: npy(rng)}, deflate=bool(rng.integers(2)))
    if choice == 3:
        evil = ("../../escaped.npy", "/tmp/escaped.npy", "a/../../b.npy", "\\x.npy")
        return made.archive(good | {name: good["target.npy"] for name in evil})
    if choice == 4:  # a bomb: half a gigabyte of zeros
        return _bomb()
    if choice == 5:
        return made.archive({"mesh_points.npy": made.archive(good)})
    if choice == 6:
        return made.archive({f"{i}.npy": b"" for i in range(3000)})
    return made.archive(good) + made.archive({"mesh_points.npy": made.pickled()})


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@functools.cache
def _bomb() -> bytes:
    """An archive of an eighth of a megabyte, with 128 times a megabyte of zeros."""
    start = made.npy_bytes(np.zeros(0, np.float32), made.header((2**25,)))
    good = {f"{k}.npy": _saved(v) for k, v in made.arrays(0).items()}
    return made.archive(good | {"target.npy": start + bytes(2**27)}, deflate=True)


def h5(rng: Rng) -> bytes:
    """Arrays elsewhere, without end, of objects; groups in a circle."""
    file = io.BytesIO()
    with h5py.File(file, "w") as content:
        name = pick(rng, ("u", "target", "mesh_points"))
        if rng.random() < 0.7:
            for key, array in made.arrays(0).items():
                content[key] = array
        if name in content:
            del content[name]
        pick(rng, _H5)(content, name)
    return file.getvalue()


def _virtual(content: Any, name: str) -> None:
    layout = h5py.VirtualLayout((12,), "f4")
    layout[:] = h5py.VirtualSource("/tmp/other.h5", "u", (12,))
    content.create_virtual_dataset(name, layout)


def _lengths(content: Any, name: str) -> None:
    array = content.create_dataset(name, (12,), h5py.vlen_dtype("f8"))
    array[0] = np.arange(5.0)


def _circle(content: Any, name: str) -> None:
    content.create_group(name)
    content[name]["again"] = content["/"]
    content["soft"] = h5py.SoftLink("/soft")


def _scalar(content: Any, name: str) -> None:
    content[name] = 1.0
    content["nothing"] = h5py.Empty("f4")


def _value(value: Any) -> Callable[[Any, str], None]:
    return lambda content, name: content.__setitem__(name, value)


def _array(*shape: Any, **options: Any) -> Callable[[Any, str], None]:
    return lambda content, name: content.create_dataset(name, *shape, **options)


_H5 = [
    _array((10**12,), "f4", chunks=(10**6,), compression="gzip"),
    _array((100,), "f4", external=[("/etc/passwd", 0, 400)]),
    _virtual,
    _array(data=["a"] * 12, dtype=h5py.string_dtype()),
    _lengths,
    _array(data=np.zeros(12, [("a", "f4"), ("b", "i8", (3,))])),
    _circle,
    _value(h5py.ExternalLink("/etc/passwd", "/u")),
    _scalar,
    _array(data=np.zeros(12, np.complex64)),
    _value(np.dtype("f8")),  # a named type, no array
]


def mat73(rng: Rng) -> bytes:
    """The same behind MATLAB's header."""
    start = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    return start.ljust(512, b"\0") + h5(rng)


def mat5(rng: Rng) -> bytes:
    """Cells, objects, functions and numbers without end, compressed or not."""
    from scipy import io as scipy_io

    choice = int(rng.integers(5))
    file = io.BytesIO()
    if choice == 0:
        cell = np.empty((1, 3), object)
        cell[:] = [[1.0, "text", np.eye(2)]]
        scipy_io.savemat(file, {"u": cell})
        return file.getvalue()
    if choice == 1:
        scipy_io.savemat(file, {"u": {"a": 1.0, "b": {"c": "deep"}}})
        return file.getvalue()
    shapes = [(2**31 - 1, 2**31 - 1), (10**6, 10**6), (-1, 5), (2**31 - 1,) * 4]
    shape = pick(rng, shapes)
    data = int(rng.choice([0, 8, 2**28, 2**31, 2**32 - 8]))
    inner = struct.pack("<IIII", 6, 8, int(rng.choice([6, 7, 12, 16, 17, 99])), 0)
    inner += struct.pack(f"<II{len(shape)}i", 5, 4 * len(shape), *shape)
    inner += b"" if len(shape) % 2 == 0 else bytes(4)
    inner += struct.pack("<HH4s", 1, 1, b"u") + struct.pack("<II", 9, data)
    inner += bytes(2**20 if choice == 4 else 64)
    body = struct.pack("<II", 14, int(rng.choice([len(inner), 2**32 - 8]))) + inner
    if rng.random() < 0.7:
        packed = zlib.compress(body + (bytes(2**26) if choice == 3 else b""))
        body = struct.pack("<II", 15, len(packed)) + packed
    start = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    return start + body


_LAUGHS = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(10))
_XML = [
    f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "ha">{_LAUGHS}]>'
    '<VTKFile type="UnstructuredGrid">&a9;</VTKFile>',
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    '<VTKFile type="UnstructuredGrid"><UnstructuredGrid>&x;</UnstructuredGrid>'
    "</VTKFile>",
    '<?xml version="1.0"?><!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><VTKFile/>',
    "<a>" * 100_000,
    "<a>" * 100_000 + "</a>" * 100_000,
    '<VTKFile type="UnstructuredGrid"><UnstructuredGrid><Piece NumberOfPoints="'
    '100000000000" NumberOfCells="0"/></UnstructuredGrid></VTKFile>',
    '<VTKFile type="ImageData"><ImageData WholeExtent="0 99999 0 99999 0 99999" '
    'Origin="0 0 0" Spacing="1 1 1"><Piece Extent="0 99999 0 99999 0 99999"/>'
    "</ImageData></VTKFile>",
    '<VTKFile type="vtkMultiBlockDataSet"><vtkMultiBlockDataSet><DataSet index="0" '
    'file="/etc/passwd"/></vtkMultiBlockDataSet></VTKFile>',
]


def xml(rng: Rng) -> bytes:
    """Entities, depth, and sizes without end."""
    return pick(rng, _XML).encode()


_LEGACY = [
    "DATASET UNSTRUCTURED_GRID\nPOINTS 100000000000 float\n1 2 3\n",
    "DATASET UNSTRUCTURED_GRID\nPOINTS   1000000000\tfloat\n0 0 0\n",
    "DATASET UNSTRUCTURED_GRID\npoints 1000000000 float\n0 0 0\n",
    "DATASET UNSTRUCTURED_GRID\nPOINTS 1 float\n0 0 0\nCELLS 1000000000 4000000000\n1 "
    "0\n",
    "DATASET UNSTRUCTURED_GRID\nPOINTS 2 float\n0 0 0 1 1 1\nCELLS 1 3\n2 0 900000000\n"
    "CELL_TYPES 1\n3\n",
    "DATASET STRUCTURED_POINTS\nDIMENSIONS 100000 100000 100000\nORIGIN 0 0 0\n"
    "SPACING 1 1 1\n",
    "DATASET RECTILINEAR_GRID\nDIMENSIONS 1000000000 2 2\nX_COORDINATES 1000000000 f\n",
    "DATASET POLYDATA\nPOINTS 1 float\n0 0 0\nPOINT_DATA 1000000000\n"
    "SCALARS a float\n1",
    "DATASET UNSTRUCTURED_GRID\nPOINTS 1 float\n0 0 0\nPOINT_DATA 1\n"
    "SCALARS a float 1000000000\nLOOKUP_TABLE default\n1\n",
    "DATASET UNSTRUCTURED_GRID\nPOINTS 1 float\n0 0 0\nPOINT_DATA 1\nFIELD f 1\n"
    "a 1000000 1000000 float\n1\n",
    "DATASET UNSTRUCTURED_GRID\nFIELD f 1000000000\n",
    "FIELD f 1\na 1000000 100000 double\n1 2 3\n",
    "DATASET GRAPH\n",
]


def legacy(rng: Rng) -> bytes:
    """Sizes without end, and other kinds of data."""
    kind = pick(rng, ("ASCII", "BINARY"))
    text = pick(rng, _LEGACY)
    return f"# vtk DataFile Version 4.2\nmade\n{kind}\n{text}".encode()


_FLUENT = [
    "(10 (0 1 ffffffff 0 3))\n(12 (0 1 1 0 0))\n(13 (0 1 1 0 0))\n",
    "(10 (1 1 2 1 3)(\n0 0 0\n))\n(12 (1 1 ffffff 1 4)())\n",
    "(13 (2 1 1 2 0)(\n4 1 2 3 ffffffff 1 0\n))\n(12 (1 1 1 1 4)())\n",
    "(13 (2 1 7fffffff 2 0)(\n7fffffff 1 2 3 4 1 0\n))\n",
    "(12 (1 1 3 1 0)(\n9 -1 ffffffff))\n",
    "(10 (1 5 1 1 3)(\n0 0 0\n))\n",
    "(39 (1 fluid " + "a" * 100_000 + ")())\n",
    "(" * 100_000,
    "(3010 (1 1 10 1 3)(\n\x00\x01",
    "(2013 (2 1 10 2 0)(\nEnd of Binary Section   2013)\n",
]


def fluent(rng: Rng) -> bytes:
    """Counts without end, faces of points and cells that are not there, depth."""
    picks = rng.integers(len(_FLUENT), size=2)
    return "".join(['(0 "made")\n(2 3)\n', *(_FLUENT[int(i)] for i in picks)]).encode()


def off(rng: Rng) -> bytes:
    """Numbers of vertices without end, and numbers that are none."""
    texts = ["OFF 1000000000000 1 0 1 2 3", f"OFF {'9' * 5000} 0 0", "OFF", ""]
    texts += ["OFF ² 0 0 1 2 3", "OFF 1 1 0 0 0 0 3 0 0 99999999999999999999"]
    texts += ["OFF 1 0 0 1e999 nan 0x1p3", "OFF 1 0 0 1_0 2 3", "OFF 3 0 0 " + "1 " * 9]
    texts += [f"OFF 1 {'1' * 30} 0 0 0 0", "OFF 2 1 0 " + "0 " * 6 + "3 -1 0 1"]
    return pick(rng, texts).encode()


def labels(rng: Rng) -> bytes:
    """Numbers with too many digits, and of other alphabets."""
    texts = ["9" * 5000, "99999999999999999999", "1_0", "٣", "1.0", "", "\ufeff1"]
    return pick(rng, texts).encode()


def config(rng: Rng) -> bytes:
    """JSON that is no object, without end, or of digits."""
    texts = ["[" * 200_000, '{"a":' * 200_000, "9" * 10_000, "null", "[]", '"']
    texts += [f'{{"seeds": [{"1" * 9000}]}}', '{"num_layers": 1e999}']
    texts += ['{"models": ["builtins:exec"]}']
    texts += [json.dumps({"train": "\0"}), json.dumps({"models": {"a": 1}})]
    return pick(rng, texts).encode()
