"""ONNX files that rot on disk or in transfer: refused, never misread."""

import hashlib

import numpy as np
import pytest

from opjax import _formats, export, onnx_files

onnx = pytest.importorskip("onnx", reason="an extra, opjax[onnx]")
_END = len(onnx_files._end(b""))  # bytes of the checksum


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "operator.onnx"
    onnx_files.save(path, lambda points: 2 * points, export.Inputs(point_dim=2))
    return path.read_bytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "operator.onnx"


def resigned(content, **changes):
    """Changes the metadata of a file and signs it again; None removes an entry."""
    model = onnx.load_from_string(content[:-_END])
    entries = {entry.key: entry.value for entry in model.metadata_props} | changes
    del model.metadata_props[:]
    for name, value in entries.items():
        if value is not None:
            model.metadata_props.add(key=name, value=value)
    whole = model.SerializeToString()
    return whole + onnx_files._end(whole)


def test_whatever_bit_flips_or_end_is_missing_the_file_is_refused(path, content):
    rng = np.random.default_rng(2)
    for _ in range(200):
        damaged = bytearray(content)
        if rng.random() < 0.3:
            del damaged[rng.integers(len(damaged)) :]
        else:
            damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"operator\.onnx .*valid checksum"):
            onnx_files.metadata_of(path)


@pytest.mark.parametrize("other", [b"", b"text", bytes(_END), b"\n" * 1000])
def test_other_files_are_refused(path, other):
    path.write_bytes(other)
    with pytest.raises(ValueError, match="not an ONNX file of opjax"):
        onnx_files.metadata_of(path)


def test_the_checksum_of_another_content_is_refused(path, content):
    end = content[-_END:].replace(
        hashlib.sha256(content[:-_END]).hexdigest().encode(),
        hashlib.sha256(b"other").hexdigest().encode(),
    )
    path.write_bytes(content[:-_END] + end)
    with pytest.raises(ValueError, match="valid checksum"):
        onnx_files.metadata_of(path)


def test_later_formats_are_refused_with_both_numbers(path, content):
    path.write_bytes(resigned(content, opjax_format="7"))
    with pytest.raises(_formats.NewerFormatError, match="format 7 .* up to 1"):
        onnx_files.metadata_of(path)


@pytest.mark.parametrize("number", ["one", "-1", "1.5", "", None])
def test_what_is_no_format_number_is_refused(number, path, content):
    path.write_bytes(resigned(content, opjax_format=number))
    with pytest.raises(ValueError, match=r"operator\.onnx .*not a format number"):
        onnx_files.metadata_of(path)


@pytest.mark.parametrize("name", ["opjax_version", "provenance", "signature"])
def test_a_missing_entry_is_named(name, path, content):
    path.write_bytes(resigned(content, **{name: None}))
    with pytest.raises(ValueError, match=rf"operator\.onnx .*{name}"):
        onnx_files.metadata_of(path)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_provenance_that_is_no_object_is_refused(text, path, content):
    path.write_bytes(resigned(content, provenance=text))
    with pytest.raises(ValueError, match=r"operator\.onnx .*provenance"):
        onnx_files.metadata_of(path)


def test_content_that_is_no_model_is_refused(path):
    other = b"\xff" * 100
    path.write_bytes(other + onnx_files._end(other))
    with pytest.raises(ValueError, match=r"operator\.onnx .*damaged"):
        onnx_files.metadata_of(path)
