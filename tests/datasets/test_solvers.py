"""What the solvers write today is what is kept of them, and a run on it end to end."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import jax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from tests import sessions

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')

SOLVERS = Path(__file__).parent / "solvers"
flat = pytest.mark.filterwarnings("ignore:.*one cell thick along")


@flat
@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("foamToVTK") is None, reason="no OpenFOAM here")
@pytest.mark.parametrize(
    ("script", "cases"), [("polyhedra", ["dual", "snappy"]), ("cylinder", ["layer"])]
)
def test_openfoam_writes_such_files(script, cases, tmp_path):
    made = SOLVERS / f"make_{script}.sh"
    subprocess.run(["sh", made, tmp_path], check=True, capture_output=True)
    for case in cases:
        (written,) = (tmp_path / case / "VTK").glob("*.vtm")
        options = files.ReadOptions(location="cells", need_target=False)
        (kept,), (new,) = (
            files.read(path, options) for path in (SOLVERS / f"{case}.vtm", written)
        )
        assert_allclose(new.mesh_points, kept.mesh_points, atol=1e-3)
        volumes = kept.quadrature_weights
        assert_allclose(new.quadrature_weights, volumes, rtol=1e-2)


@pytest.mark.nightly
def test_a_run_on_polyhedra_predicts_on_the_mesh_of_the_solver(tmp_path):
    """From folders of cases with patches and a table to files that pyvista reads."""
    from opjax.learn.cli import predict, train

    cases = tmp_path / "cases"
    for i in range(6):
        shutil.copytree(SOLVERS / "dual", cases / f"case_{i}/dual")
        shutil.copy(SOLVERS / "dual.vtm", cases / f"case_{i}")
        mesh = pyvista.read(SOLVERS / "dual/internal.vtu")
        mesh.cell_data["T"] *= i + 1
        mesh.save(cases / f"case_{i}/dual/internal.vtu")
    rows = [f"case_{i},{i}" for i in range(6)]
    (cases / "cases.csv").write_text("\n".join(["case,load", *rows, ""]))
    config = dataclasses.replace(
        train.PRESETS["smoke"],
        train=str(cases),
        location="cells",
        target_names="T",
        scalar_names="load",
        boundary_names="inlet,walls",
        geometry="normals,distance",
        quantities="mean:T@inlet,integral:T",
        num_epochs=1,
        width=8,
    )
    with sessions.lenient():
        with jax.enable_x64(False):
            train.run(config, workdir=tmp_path / "run")
        given = {"input": str(cases), "output": tmp_path / "out"}
        predict.run(predict.PredictOptions(tmp_path / "run", **given))
    (path,) = (tmp_path / "out").glob("case_3*/*.vtu")
    found, mesh = pyvista.read(path), pyvista.read(SOLVERS / "dual/internal.vtu")
    assert found.cell_data["prediction_T"].shape == (mesh.n_cells,)
    assert_array_equal(found.celltypes, mesh.celltypes)
    volumes = (m.compute_cell_sizes().cell_data["Volume"] for m in (found, mesh))
    assert_array_equal(*volumes)
