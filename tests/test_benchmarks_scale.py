"""The benchmark of large meshes measures the same step in every mode."""

import numpy as np
import pytest

from benchmarks import scale, streamed

SIZES = {"points": 500, "steps": 1, "layers": 1, "features": 8, "heads": 2}
SIZES |= {"bases": 32, "chunk_size": 50, "storage_dtype": "float32"}


@pytest.mark.nightly
def test_modes_differ_in_memory_only():
    dense, chunked = (scale.measure(mode, SIZES) for mode in ("dense", "chunked"))
    assert chunked["loss"] == pytest.approx(dense["loss"], rel=1e-5)
    assert chunked["bytes_per_point"] < dense["bytes_per_point"]
    narrow = scale.measure("chunked", SIZES | {"storage_dtype": "float16"})
    assert narrow["loss"] == chunked["loss"]
    assert narrow["bytes_per_point"] < chunked["bytes_per_point"]
    assert 0 < chunked["step_seconds"] < 60
    assert chunked["peak_mib"] > 50


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("every", "storage_dtype", "stored"),
    [(0, "float32", 0), (1, "float32", 32), (1, "bfloat16", 16)],
)
def test_the_mesh_of_a_stream_is_in_a_file(every, storage_dtype, stored, tmp_path):
    sizes = SIZES | {"store_every": every, "scratch": str(tmp_path)}
    found = scale.measure("streamed", sizes | {"storage_dtype": storage_dtype})
    assert found["bytes_per_point"] == stored
    assert 0 < found["loss"] < 2
    assert not list(tmp_path.iterdir())


def test_memory_bounds_the_time_of_a_step_from_below():
    wide = SIZES | {"points": 10, "layers": 2}
    assert scale.inputs_of_layers(wide) == 2 * 10 * 3 * 8 * 4
    assert scale.inputs_of_layers(wide | {"storage_dtype": "bfloat16"}) == 960
    assert 1e8 < scale.copy_bandwidth(2**20) < 1e12


def test_meshes_are_written_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "PIECE", 7)
    mesh = streamed.write_mesh(tmp_path, 23)
    points, target = (np.asarray(mesh[name]) for name in ("mesh_points", "target"))
    assert points.shape == (23, 3)
    assert len(np.unique(points)) == 69
    np.testing.assert_allclose(target, np.sin(5 * points[:, :1]), atol=1e-6)
