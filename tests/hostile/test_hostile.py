"""Broken files of every format end in success or a documented error."""

import ast
import json
import re
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_array_equal

from opjax.datasets import _arrays, _off
from opjax.files import limits, variables
from opjax.learn.cli import train
from opjax.learn.run import folder
from tests import hostile
from tests.datasets.reading import refused
from tests.hostile import originals, readers, supervisor
from tests.refused import value_error

pytest.importorskip("pyvista", reason="needs opjax[vtk]")
pytest.importorskip("flatbuffers", reason="needs opjax[export]")
ROOT = Path(__file__).parents[2]
# Files of a format here; `python -m tests.hostile` reads 2,000.
FILES = {"vtu": 25, "vtp": 25, "polyhedra": 25, "checkpoint": 8, "exported": 30}
FILES["cas"] = 8  # some keep VTK busy until its time is up


@pytest.fixture(scope="module")
def tallies():
    found = []
    for count in (25, 8, 30, 60):
        names = [n for n in readers.FORMATS if FILES.get(n, 60) == count]
        found += supervisor.run(7, files=count, names=names)
    return {tally.name: tally for tally in found}


@pytest.mark.nightly
def test_no_broken_file_of_any_format_escapes(tallies):
    assert {
        name: tally.escapes for name, tally in tallies.items() if tally.escapes
    } == {}
    assert {name: tally.files for name, tally in tallies.items()} == {
        name: FILES.get(name, 60) for name in readers.FORMATS
    }


@pytest.mark.nightly
def test_most_broken_files_are_refused_and_some_are_read(tallies):
    """So the files are broken, and readers do not refuse everything."""
    for tally in tallies.values():
        assert tally.refused > 0.2 * tally.files, tally
    assert sum(tally.ok for tally in tallies.values()) > 20


def test_the_time_is_kept():
    begin = time.monotonic()
    assert hostile.run(0, begin - 1.0) == (0, 0)


# `arenas` sets an option of the C library, and reads no file.
_LET_IN = {"arenas.py": {"ctypes"}}
BAD_READER = """
import os, pickle, signal, sys
import numpy as np
from tests.hostile import readers, worker
sys.argv[1] = '{"seed": 0, "jobs": [["bad", 0, 12]]}'
def bad(path):
    kind = path.read_bytes()[0]
    if kind == 1: raise ValueError("no file is named")
    if kind == 2: open(sys.argv[2], "w").close()
    if kind == 3: os.kill(os.getpid(), signal.SIGSEGV)
    if kind == 4: np.ones(2**26)
    if kind == 5: pickle.loads(pickle.dumps(np.dtype("f8")))
readers.FORMATS["bad"] = readers.Format("a", lambda seed: bytes([6]), (), (bad,))
worker._broken = lambda chosen, originals, key: bytes([key[-1] % 6])
worker.main()
"""


@pytest.mark.nightly
def test_a_reader_that_does_what_it_must_not_is_seen(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", BAD_READER, "", tmp_path / "outside"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [row["outcome"] for row in rows] == (["ok"] + ["escape"] * 5) * 2
    words = ["", "ValueError from", "writes", "status 11", "memory grew", "pickle.find"]
    for row, word in zip(rows, words * 2, strict=True):
        assert word in row["reason"], row


def test_nothing_is_unpickled_or_evaluated_and_xml_has_no_tree_of_a_file():
    """No call of what runs or trusts the contents of files, anywhere in opjax."""
    forbidden = {"eval", "exec", "__import__", "compile_command"}
    forbidden |= {"extractall", "iterparse", "ctypes"}
    modules = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    modules |= {"joblib", "tarfile", "requests", "ctypes", "http"}
    words = re.compile(rf"\b({'|'.join(forbidden | modules)}|allow_pickle)\b")
    for path in sorted((ROOT / "opjax").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if words.search(text) else ():
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names]
                names += [getattr(node, "module", "") or ""]
                found = modules & {n.split(".")[0] for n in names}
                assert found <= _LET_IN.get(path.name, set()), path
            elif isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                assert called not in forbidden, f"{path}: {called}"
                for word in node.keywords:
                    if word.arg == "allow_pickle":
                        assert ast.unparse(word.value) == "False", path


# What was found and mended, one test for each.


def test_archives_are_believed_to_hold_so_many_times_their_size(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", u=np.zeros(2**20))
    given = {"shape": (None,), "source": "x"}
    assert _arrays.read(tmp_path / "a.npz", "u", **given).shape == (2**20,)
    monkeypatch.setattr(limits, "EXPANDED_BYTES", 2**20)
    with value_error("it is damaged"):
        _arrays.read(tmp_path / "a.npz", "u", **given)
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file.create_dataset("u", (10**12,), "f4", chunks=(100,), compression="gzip")
    with value_error("it is damaged"):
        _arrays.read(tmp_path / "a.mat", "u", **given)


HEADERS = [
    originals.header((2**64, 2)),
    originals.header((-1, 5)),
    "{'descr': '<f4', 'shape': (" + "(" * 3000,
    "(" * 9000 + ")" * 9000,
]


@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_arrays_that_lie_are_refused(header, tmp_path):
    path = tmp_path / "target.npy"
    path.write_bytes(originals.npy_bytes(np.ones(4, np.float32), header))
    with value_error("Cannot read"):
        _arrays.read(path, shape=(None,), source="x")
    refused(tmp_path, "Cannot read", stacked=True)


def test_matlab_arrays_are_as_they_were_written(rng, tmp_path):
    arrays = {
        "a": rng.normal(size=(3, 4, 2)),
        "b": rng.integers(-5, 5, (4, 1)).astype(np.int16),
        "c": rng.normal(size=(1, 300_000)).astype(np.float32),
        "empty": np.zeros((0, 3)),
        "wide": rng.integers(0, 2**40, (2, 5)),
    }
    for compressed in (False, True):
        path = tmp_path / f"{compressed}.mat"
        scipy.io.savemat(path, arrays, do_compression=compressed)
        expected = scipy.io.loadmat(path)
        for name, array in arrays.items():
            found = variables.read_variable(path, name, source="x")
            assert_array_equal(found, expected[name])
            assert_array_equal(found, array)
            assert found.dtype == array.dtype
        with value_error(r"has the arrays \['a', 'b', 'c', 'empty'"):
            variables.read_variable(path, "absent", source="x")


def test_big_endian_matlab_arrays_and_small_elements(tmp_path):
    """As the format's document draws them."""
    inner = struct.pack(">IIII", 6, 8, 6, 0) + struct.pack(">IIii", 5, 8, 1, 2)
    inner += (
        struct.pack(">HH", 1, 1) + b"u\0\0\0" + struct.pack(">HHBBH", 2, 2, 7, 9, 0)
    )
    body = struct.pack(">II", 14, len(inner)) + inner
    start = b"MATLAB 5.0".ljust(124) + b"\x01\x00MI"
    (tmp_path / "a.mat").write_bytes(start + body)
    found = variables.read_variable(tmp_path / "a.mat", "u", source="x")
    assert_array_equal(found, [[7.0, 9.0]])
    assert found.dtype == np.float64


def test_matlab_files_that_end_scipys_process_are_refused(tmp_path):
    """Types that are none, lengths beyond the end, and compressed zeros."""
    head = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIii", 5, 8, 2**31 - 1, 9)
    head += struct.pack("<HH4s", 1, 1, b"u")
    start = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"
    for kind, size in ((9, 2**32 - 8), (99, 8), (14, 8)):
        inner = head + struct.pack("<II", kind, size) + bytes(2**20)
        body = struct.pack("<II", 14, len(inner)) + inner
        packed = zlib.compress(body)
        for data in (body, struct.pack("<II", 15, len(packed)) + packed):
            (tmp_path / "a.mat").write_bytes(start + data)
            with value_error("Cannot read"):
                _arrays.read(tmp_path / "a.mat", "u", shape=(None,), source="x")


def test_errors_of_hdf5_are_ours(tmp_path):
    path = tmp_path / "a.h5"
    content = bytearray(originals.h5(2))
    start = content.index(b"TREE")  # whose entries are the names of the arrays
    content[start : start + 4] = b"FREE"
    path.write_bytes(content)
    refused(path, "Cannot read .*a.h5")
    refused(path, "Cannot read .*a.h5", stacked=True)


def test_chunks_are_compressed_once_at_most(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["mesh_points"] = np.ones((12, 2))
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((12,))
        properties.set_deflate(9)
        properties.set_deflate(9)
        space, kind = h5py.h5s.create_simple((12,)), h5py.h5t.IEEE_F32LE
        h5py.h5d.create(file.id, b"target", kind, space, properties)
    refused(tmp_path / "a.h5", "compressed by the filters")


_MINUS_ONE = (
    '<VTKFile type="UnstructuredGrid"><UnstructuredGrid><Piece NumberOfPoints="-1"/>'
    "</UnstructuredGrid></VTKFile>"
)


def test_entities_depth_and_other_data_of_vtk_are_refused(tmp_path):
    path = tmp_path / "a.vtu"
    for text, message in (
        ('<!DOCTYPE a [<!ENTITY b "c">]><VTKFile/>', "entities"),
        ('<VTKFile type="PolyData">' + "<a>" * 50, "nested elements"),
        ('<VTKFile type="ImageData"/>', "contains 'ImageData'"),
        ('<VTKFile type="PolyData"/>', "contains 'PolyData'"),
        (_MINUS_ONE, "'-1'"),
    ):
        for encoding in ("utf-8", "utf-16"):
            path.write_bytes(text.encode(encoding))
            refused(path, message)


def test_numbers_of_too_many_digits_are_refused(tmp_path):
    path = tmp_path / "a.off"
    path.write_text(f"OFF {'9' * 5000} 0 0")
    with value_error(r"a\.off"):
        _off.read_vertices(path)
    path.write_text("9" * 30)
    with value_error(r"a\.off"):
        _off.read_labels(path, lowest=0, highest=9)


@pytest.mark.parametrize(
    "text",
    [
        '{"num_layers": "3"}',
        '{"seeds": 1}',
        '{"num_basis": 1e999}',
        '{"features": true}',
    ]
    + ['{"learning_rate": null}', "[" * 100_000, '{"num_epochs": 1%s}' % ("0" * 60)],
)
def test_configurations_of_other_types_are_refused(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with value_error(str(tmp_path)):
        folder.read_config(tmp_path, train.Config)
