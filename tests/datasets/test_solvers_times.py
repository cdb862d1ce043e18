"""Frames of OpenFOAM by foamToVTK and foamToEnsight, see solvers/make_times.sh."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import files
from opjax.files.series import read_series

pytest.importorskip("pyvista", reason="needs opjax[vtk]")
pytestmark = pytest.mark.filterwarnings("ignore:.*are one cell thick along z")
TIMES = Path(__file__).parent / "solvers" / "times"
OPTIONS = files.ReadOptions(target="p,U", location="cells", boundary_names="lid")


def test_frames_of_vtk_and_of_ensight_are_the_same():
    found = [read_series(TIMES / kind, OPTIONS).series for kind in ("VTK", "EnSight")]
    ((vtk,), (ensight,)) = found
    assert vtk.num_points == 16
    assert_allclose(vtk.times, [0, 0.25, 0.5])
    assert_allclose(ensight.times, vtk.times)
    assert_allclose(ensight.mesh_points, vtk.mesh_points, atol=1e-7)
    assert_allclose(ensight.values, vtk.values, rtol=1e-5, atol=1e-7)
    assert np.abs(vtk.values[2]).max() > 0.1
    for series in (vtk, ensight):  # cells at the lid, which moves
        lid = series.features[:, 0] == 1
        assert lid.sum() == 4
        assert (series.mesh_points[lid, 1] > 0.08).all()


def test_a_steady_case_is_its_last_time(tmp_path):
    for case in "ab":
        for kind in ("VTK", "EnSight"):
            folder = tmp_path / kind / f"case_{case}" / kind
            shutil.copytree(TIMES / kind, folder)
    samples = []
    for kind, said in (
        ("VTK", "4 files of earlier times"),
        ("EnSight", "at the last time"),
    ):
        with pytest.warns(UserWarning, match=said):
            samples.append(files.read(tmp_path / kind, OPTIONS))
    for vtk, ensight in zip(*samples, strict=True):
        assert_allclose(vtk.target, ensight.target, rtol=1e-5, atol=1e-7)
        assert "cavity_10.vtm" in vtk.name
