"""Fields of cells: centres and volumes in, predictions out, and what is refused."""

import dataclasses

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from tests import sessions
from tests.datasets.reading import read, read_one, refused
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')

POINTS = np.array(
    [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [0.5, 2], [3, 0.5]], float
)
CELLS = {9: [[0, 1, 4, 3], [1, 2, 5, 4]], 5: [[3, 4, 6], [2, 7, 5]]}


def mixed(path, *, lines=False):
    """Writes two squares and two triangles, and maybe two lines before them."""
    cells, types = [], []
    if lines:
        cells, types = [2, 0, 1, 2, 1, 2], [3, 3]
    for kind, listed in CELLS.items():
        for corners in listed:
            cells += [len(corners), *corners]
            types.append(kind)
    mesh = pyvista.UnstructuredGrid(cells, types, np.pad(POINTS, [(0, 0), (0, 1)]))
    mesh.cell_data["k"] = np.arange(1.0, mesh.n_cells + 1)
    mesh.cell_data["u"] = np.arange(2.0 * mesh.n_cells).reshape(-1, 2)
    mesh.point_data["p"] = np.arange(8.0)
    mesh.save(path)
    return mesh


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_samples_are_centres_with_areas_for_weights(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    mesh = mixed(path)
    sample = read_one(path, location="cells", features="k", target="u")
    sizes = mesh.compute_cell_sizes().cell_data["Area"]
    assert_allclose(sample.quadrature_weights, sizes, rtol=1e-6)
    centers = [[0.5, 0.5], [1.5, 0.5], [0.5, 4 / 3], [7 / 3, 0.5]]
    assert_allclose(sample.mesh_points, centers, rtol=1e-6)
    assert_array_equal(sample.features[:, 0], [1, 2, 3, 4])
    assert_array_equal(sample.target, mesh.cell_data["u"])
    assert sample.cells is None
    assert_allclose(sample.quadrature_weights.sum(), 3)


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
@pytest.mark.parametrize("lines", [False, True])
def test_predictions_become_cell_data_of_the_same_file(tmp_path, suffix, lines):
    path, copy, other = (tmp_path / f"{n}{suffix}" for n in "abc")
    mesh = mixed(path, lines=lines)
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    options = {"location": "cells", "features": "k", "target": "u"}
    with files.extended(path, copy, files.ReadOptions(**options)) as (each,):
        each.add(values, ["prediction", "prediction"])
    files.write(other, each.sample, values, location="cells")
    for file in (copy, other):
        found = pyvista.read(file)
        predicted = found.cell_data["prediction"]
        assert_array_equal(predicted[2 * lines :], values)
        assert np.isnan(predicted[: 2 * lines]).all()  # nothing is predicted on lines
        assert_array_equal(found.point_data["p"], mesh.point_data["p"])
        assert "prediction" not in found.point_data
        again = read_one(file, **options)
        assert_array_equal(again.target, each.sample.target)


def arrays(**changes):
    quads = np.array(CELLS[9])
    found = {"mesh_points": POINTS, "cells": quads, "k": np.ones(2)}
    return found | {"u": np.array([1.0, 2.0])} | changes


def test_arrays_with_one_row_for_each_cell(tmp_path):
    path, copy = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(path, **arrays())
    options = {"location": "cells", "features": "k", "target": "u"}
    with files.extended(path, copy, files.ReadOptions(**options)) as (each,):
        each.add(np.array([[3.0], [4.0]]))
    assert_allclose(each.sample.mesh_points, [[0.5, 0.5], [1.5, 0.5]])
    assert_allclose(each.sample.quadrature_weights, 1)
    assert_array_equal(np.load(copy)["prediction"], [3, 4])
    stored = files.stored(path, files.ReadOptions(**options))
    assert_array_equal(stored[0].target, each.sample.target)


def test_hexahedra_are_weighted_by_their_volumes(tmp_path):
    axes = [np.array([0.0, 1, 3]), np.array([0.0, 2]), np.array([0.0, 0.5, 1])]
    mesh = pyvista.RectilinearGrid(*axes).cast_to_unstructured_grid()
    mesh.cell_data["target"] = np.zeros(4)
    mesh.save(tmp_path / "a.vtu")
    sample = read_one(tmp_path / "a.vtu", location="cells")
    assert_allclose(sample.quadrature_weights, [1, 2, 1, 2])


def test_a_field_at_the_other_location_is_named_with_the_flag(tmp_path):
    path = tmp_path / "a.vtu"
    mixed(path)
    refused(path, r"a.vtu has 'u' as cell data.*=cells", target="u")
    refused(
        path, r"a.vtu has 'p' as point data.*leave out", location="cells", target="p"
    )
    refused(path, r"a.vtu has no array 'q'", location="cells", target="q")
    np.savez(tmp_path / "a.npz", **arrays())
    refused(tmp_path / "a.npz", r"a.npz: u has 2 rows.*=cells", target="u")
    np.savez(tmp_path / "a.npz", **arrays(u=np.ones(8)))
    refused(
        tmp_path / "a.npz",
        r"a.npz: u has shape \(8,\).*2 cells",
        location="cells",
        target="u",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cells": [[0, 1, 4, 3], [1, 5, 2, 4]]},
            "1 of 2 cells.*the first one is cell 1",
        ),
        ({"cells": [[0, 1, 2, 2], [0, 1, 4, 3]]}, "the first one is cell 0"),
        (
            {"cells": [[0, 1, 4, 9], [1, 2, 5, 4]]},
            "cells contain point indices from 0 to 9",
        ),
        ({"cells": np.ones((2, 7), int)}, "of linear cells in 2 dimensions"),
        ({"mesh_points": np.full((8, 2), np.nan)}, "non-finite"),
        ({"mesh_points": np.ones((8, 1))}, r"\(n, 2\) or \(n, 3\)"),
    ],
)
def test_bad_cells_are_refused_by_number(tmp_path, changes, message):
    np.savez(tmp_path / "a.npz", **arrays(**changes))
    refused(
        tmp_path / "a.npz",
        rf"a.npz.*{message}",
        location="cells",
        features="k",
        target="u",
    )


def test_tetrahedra_are_inside_out_only_against_others(tmp_path):
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], float)
    cells = np.array([[0, 2, 1, 3], [4, 1, 2, 3]])  # all mirrored
    given = {"mesh_points": points, "target": np.ones(2)}
    np.savez(tmp_path / "a.npz", cells=cells, **given)
    sample = read_one(tmp_path / "a.npz", location="cells")
    assert (sample.quadrature_weights > 0).all()
    np.savez(tmp_path / "a.npz", cells=[cells[0], cells[1, [1, 0, 2, 3]]], **given)
    refused(tmp_path / "a.npz", r"inverted.*the first one is cell 0", location="cells")


def test_meshes_without_linear_cells_are_refused(tmp_path, monkeypatch):
    mesh = pyvista.PolyData(np.pad(POINTS, [(0, 0), (0, 1)]))
    mesh.cast_to_unstructured_grid().save(tmp_path / "a.vtu")
    refused(
        tmp_path / "a.vtu",
        r"a.vtu has no cells: its mesh contains only points",
        location="cells",
        need_target=False,
    )
    corners = np.vstack([np.zeros(3), np.eye(3)])
    curved = pyvista.UnstructuredGrid([4, 0, 1, 2, 3], [41], corners)
    curved.save(tmp_path / "b.vtu")
    named = r"b.vtu has cells of the VTK types \[41\] \(VTK_CONVEX_POINT_SET\)"
    given = {"location": "cells", "need_target": False}
    with value_error(named) as error:
        read(tmp_path / "b.vtu", **given)
    monkeypatch.chdir(tmp_path)
    exec(str(error.value).split('"')[1], {})  # noqa: S102
    sample = read_one("b_linear.vtu", **given)
    assert sample.quadrature_weights.sum() == pytest.approx(1 / 6)
    np.savez(tmp_path / "c.npz", mesh_points=POINTS, target=np.ones(8))
    refused(tmp_path / "c.npz", r"c.npz has no array 'cells'", location="cells")


def test_a_sample_of_other_cells_is_not_written(tmp_path):
    mixed(tmp_path / "a.vtu")
    sample = read_one(tmp_path / "a.vtu", target="p")
    with value_error(r"has 4 cells, but the sample has 8 points"):
        files.write(tmp_path / "b.vtu", sample, np.ones((8, 1)), location="cells")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*same input as others")
def test_a_run_on_cells_predicts_cells(tmp_path):
    """Training, prediction and report on cell data, with features of the geometry."""
    from opjax.learn.cli import predict, train

    for i in range(6):
        (tmp_path / "data").mkdir(exist_ok=True)
        mesh = mixed(tmp_path / f"data/{i}.vtu")
        mesh.point_data["boundary_wall"] = (POINTS[:, 1] == 0).astype(np.uint8)
        mesh.cell_data["u"] *= i + 1
        mesh.save(tmp_path / f"data/{i}.vtu")
    config = dataclasses.replace(
        train.PRESETS["smoke"],
        train=str(tmp_path / "data"),
        location="cells",
        feature_names="k",
        target_names="u",
        boundary_names="wall",
        geometry="distance",
        num_epochs=1,
        width=8,
    )
    with sessions.lenient():
        with jax.enable_x64(False):
            train.run(config, workdir=tmp_path / "run")
        given = {"input": str(tmp_path / "data"), "output": tmp_path / "out"}
        result = predict.run(predict.PredictOptions(tmp_path / "run", **given))
        assert result["num_points"] == 4 * 6
        with value_error("location=cells, which needs whole"):
            predict.run(predict.PredictOptions(tmp_path / "run", **given, stream=True))
    found = pyvista.read(tmp_path / "out/3.vtu")
    assert found.cell_data["prediction_u"].shape == (4, 2)


def test_options_of_whole_meshes_are_refused_in_slices():
    from opjax.learn.cli import train

    with value_error("location=cells has no effect with stream_po"):
        train.Config(train="a", location="cells", stream_points=100)
    with value_error("geometry=.*unknown"):
        train.Config(train="a", geometry="curvature")


ONE_UNUSED = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [5, 5]])


@pytest.mark.parametrize("location", ["points", "cells"])
def test_cells_are_refused_with_the_way_out_and_read_after_it(location, tmp_path):
    """Indices from one, whose last point is in no cell; triangles padded with -1."""
    from_one = np.array([[1, 2, 3], [1, 3, 4]])
    padded = np.array([[0, 1, 2, 3], [1, 4, 2, -1]])
    options = {"location": location, "quadrature": location == "points"}
    rows = {"points": 5, "cells": 2}[location]

    def saved(cells):
        found = {"mesh_points": ONE_UNUSED, "target": np.ones(rows), "cells": cells}
        np.savez(tmp_path / "a.npz", **found)
        return tmp_path / "a.npz"

    for cells, area in ((from_one, 1), (padded, 3)):
        with value_error(r"a.npz: cells contain point indices .* save ") as error:
            read_one(saved(cells), **options)
        advice = str(error.value).split(" save ")[1].rstrip(".")
        mended = eval(advice, {"numpy": np, "cells": cells})  # noqa: S307
        sample = read_one(saved(mended), **options)
        assert sample.quadrature_weights.sum() == pytest.approx(area)
    message = "indices from -2 to 3, but there are points 0 to 4 only"
    refused(saved(padded - 1), message, **options)


def test_a_first_point_without_a_cell_is_no_mistake(tmp_path):
    points, cells = ONE_UNUSED[::-1], np.array([[4, 3, 2], [4, 2, 1]])
    path = tmp_path / "a.npz"
    np.savez(path, mesh_points=points, target=np.ones(5), cells=cells)
    assert read_one(path, quadrature=True).quadrature_weights[0] == 0


def test_padded_solids_are_refused_for_a_file_of_several_types(tmp_path):
    points = np.random.default_rng(0).uniform(size=(8, 3))
    cells = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, -1, -1, -1, -1]])
    path = tmp_path / "a.npz"
    np.savez(path, mesh_points=points, target=np.ones(8), cells=cells)
    refused(path, "Save cells of several types as .vtu")
