import h5py
import jax
import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_allclose

from opjax import samples
from opjax.datasets import darcy_notch
from opjax.problems import darcy_notch as problem
from tests.refused import value_error

pytest.importorskip("skfem")
SMALL = {"num_columns": 4, "num_points": 6}
SPLIT = {"num_train": 2, "num_test": 1}


@pytest.fixture(scope="module", params=["mesh", "grid"])
def pairs(request, tmp_path_factory):
    """Returns the layout and five samples."""
    folder = tmp_path_factory.mktemp("cache")
    arguments = {"seed": 3, "layout": request.param, "cache_dir": folder, **SMALL}
    return request.param, darcy_notch.generate(5, **arguments)


def same(first, second):
    for one, two in zip(first, second, strict=True):
        assert one.grid_shape == two.grid_shape
        for name in ("mesh_points", "features", "target"):
            assert_allclose(
                getattr(one, name), getattr(two, name), rtol=1e-6, atol=1e-7
            )


def test_generated_samples_solve_the_problem(pairs):
    layout, found = pairs
    samples.check(found)
    points = found[0].mesh_points.astype(float)
    operator = problem.operator(None if layout == "mesh" else points, num_columns=4)
    x = np.linspace(0, 1, 101)
    for i, sample in enumerate(found):
        key = jax.random.fold_in(jax.random.key(3), i)
        values = np.asarray(problem.boundary_values(key))
        assert_allclose(sample.target[:, 0], operator(values), atol=1e-4)
        expected = np.interp(points[:, 0], x, values)
        assert_allclose(sample.features[:, 0], expected, atol=1e-4)
        assert sample.target.dtype == sample.features.dtype == np.float32


def test_features_are_the_solution_on_the_boundary(pairs):
    layout, found = pairs
    sample = found[0]
    x, y = sample.mesh_points.T
    bottom = y == 0
    assert bottom.sum() == (6 if layout == "grid" else 10)
    assert_allclose(sample.features[bottom], sample.target[bottom], atol=1e-6)
    if layout == "grid":
        assert sample.grid_shape == (6, 6)
        assert_allclose(x[:6], np.linspace(0, 1, 6), atol=1e-7)
    else:
        assert sample.cells.max() == len(x) - 1


def test_saved_samples_are_loaded_first_and_last_ones_apart(pairs, tmp_path):
    layout, found = pairs
    path = darcy_notch.save(tmp_path, found)
    train, test = darcy_notch.load(tmp_path, layout=layout, stride=1, **SPLIT)
    same(train, found[:2])
    same(test, found[-1:])
    arrays = {k: v for k, v in scipy.io.loadmat(path).items() if k[0] != "_"}
    path.unlink()
    np.savez(path.with_suffix(".npz"), **arrays)
    same(darcy_notch.load(tmp_path, layout=layout, stride=1, **SPLIT)[0], train)
    path.with_suffix(".npz").unlink()
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array.T
    same(darcy_notch.load(tmp_path, layout=layout, stride=1, **SPLIT)[0], train)


def test_published_names_and_shapes(tmp_path, rng):
    """Files as published, but small."""
    xx, yy = rng.uniform(size=(2, 7, 1))
    mesh = {
        "x_bc": np.linspace(0, 1, 5),
        "f_bc": rng.normal(size=(4, 5)),
        "xx": xx,
        "yy": yy,
        "u_field": rng.normal(size=(4, 7)),
    }
    scipy.io.savemat(tmp_path / "Darcy_Triangular.mat", mesh)
    train, _ = darcy_notch.load(tmp_path, **SPLIT)
    assert_allclose(train[1].mesh_points, np.hstack([xx, yy]), rtol=1e-6)
    assert_allclose(train[1].target[:, 0], mesh["u_field"][1], rtol=1e-6)
    expected = np.interp(xx[:, 0], mesh["x_bc"], mesh["f_bc"][1])
    assert_allclose(train[1].features[:, 0], expected, rtol=1e-5)

    side = np.linspace(0, 1, 5)
    y, x = np.broadcast_arrays(side[:, None], side)
    values = rng.normal(size=(2, 4, 5, 5))
    grid = {
        "boundCoeff": values[0],
        "coord_x": np.broadcast_to(x, (4, 5, 5)),
        "coord_y": np.broadcast_to(y, (4, 5, 5)),
        "sol": values[1],
    }
    path = tmp_path / "Darcy_Triangular_FNO.mat"
    scipy.io.savemat(path, grid)
    _, test = darcy_notch.load(tmp_path, layout="grid", **SPLIT)
    assert test[0].grid_shape == (3, 3)
    assert_allclose(test[0].mesh_points[:4, 0], [0, 0.5, 1, 0])
    assert_allclose(test[0].mesh_points[:4, 1], [0, 0, 0, 0.5])
    expected = values[1, 3, ::2, ::2].ravel()
    assert_allclose(test[0].target[:, 0], expected, rtol=1e-6)

    scipy.io.savemat(path, {k: v.swapaxes(1, 2) for k, v in grid.items()})
    with value_error("axes may be in another order"):
        darcy_notch.load(tmp_path, layout="grid", **SPLIT)
    mesh["u_field"] = mesh["u_field"].T
    scipy.io.savemat(tmp_path / "Darcy_Triangular.mat", mesh)
    with value_error(r"u_field .*\(7, 4\), expected \(4, 7\)"):
        darcy_notch.load(tmp_path, **SPLIT)


def test_papers_divide_the_samples_as_published(pairs, tmp_path):
    layout, found = pairs
    many = (found * 400)[:2000]
    darcy_notch.save(tmp_path, many)
    parts = darcy_notch.load(tmp_path, layout=layout)
    assert tuple(map(len, parts)) == (1000, 100)
    parts = darcy_notch.load(tmp_path, layout=layout, num_train=1900)
    assert tuple(map(len, parts)) == (1900, 100)


def test_wrong_files_and_arguments_are_named(pairs, tmp_path):
    layout, found = pairs
    with pytest.raises(FileNotFoundError, match="(?s)Darcy_Triangular.*TapasTripura"):
        darcy_notch.load(tmp_path, layout=layout)
    darcy_notch.save(tmp_path, found)
    with value_error("has 5 samples; num_train=1000"):
        darcy_notch.load(tmp_path, layout=layout)
    with value_error("layout='cloud' is unknown"):
        darcy_notch.load(tmp_path, layout="cloud")
    with value_error("layout='cloud' is unknown"):
        darcy_notch.generate(1, seed=0, layout="cloud", cache_dir=tmp_path)
    with value_error("num_points=1"):
        darcy_notch.generate(1, seed=0, num_points=1, cache_dir=tmp_path)
    moved = found[1]._replace(mesh_points=found[1].mesh_points + 1)
    with value_error("points as the first one"):
        darcy_notch.save(tmp_path, [found[0], moved])
    with value_error("no samples"):
        darcy_notch.save(tmp_path, [])
