"""The benchmark of large meshes measures the same step in every mode."""

import pytest

from benchmarks import scale

SIZES = {"points": 500, "steps": 1, "layers": 1, "features": 8, "heads": 2}
SIZES |= {"bases": 32, "chunk_size": 50}


def test_modes_differ_in_memory_only():
    dense, chunked = (scale.measure(mode, SIZES) for mode in ("dense", "chunked"))
    assert chunked["loss"] == pytest.approx(dense["loss"], rel=1e-5)
    assert chunked["bytes_per_point"] < dense["bytes_per_point"]
    assert 0 < chunked["step_seconds"] < 60
    assert chunked["peak_mib"] > 50
