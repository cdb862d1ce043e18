import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import elasticity
from opjax.problems import elasticity as problem
from tests.refused import value_error

pytest.importorskip("skfem")
SMALL = {"num_around": 8, "num_across": 1}


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Returns five cells of 72 points."""
    return elasticity.generate(
        5, seed=3, cache_dir=tmp_path_factory.mktemp("c"), **SMALL
    )


def test_generated_samples_solve_the_problem(cells):
    samples.check(cells)
    mesh = problem.reference_mesh(**SMALL)
    for i, cell in enumerate(cells):
        modes = problem.void_modes(jax.random.fold_in(jax.random.key(3), i))
        solution = problem.solve(problem.morphed_mesh(mesh, np.asarray(modes)))
        assert_allclose(cell.mesh_points, solution.points, rtol=1e-6)
        expected = problem.von_mises(solution.stress)
        assert_allclose(cell.target[:, 0], expected, rtol=1e-5)
        assert cell.features is None
        assert cell.target.dtype == cell.mesh_points.dtype == np.float32


def test_the_default_has_as_many_points_as_the_published_set(tmp_path):
    (sample,) = elasticity.generate(1, seed=0, cache_dir=tmp_path)
    assert sample.mesh_points.shape == (972, 2)
    assert sample.target.shape == (972, 1)
    assert 130 < sample.target.mean() < 280


@pytest.mark.parametrize("folder", ["elasticity/Meshes", "Meshes", "elasticity", "."])
def test_saved_samples_are_loaded_first_and_last_ones_apart(folder, cells, tmp_path):
    elasticity.save(tmp_path / "all", cells)
    source = tmp_path / "all/elasticity/Meshes"
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        file.rename(tmp_path / folder / file.name)
    train, test = elasticity.load(tmp_path, num_train=2, num_test=1)
    assert (len(train), len(test)) == (2, 1)
    for one, two in zip(train + test, cells[:2] + cells[-1:], strict=True):
        assert_array_equal(one.mesh_points, two.mesh_points)
        assert_array_equal(one.target, two.target)


def test_files_have_the_published_axes(cells, tmp_path):
    elasticity.save(tmp_path, cells)
    folder = tmp_path / "elasticity/Meshes"
    points = np.load(folder / "Random_UnitCell_XY_10.npy")
    assert points.shape == (72, 2, 5)
    assert np.load(folder / "Random_UnitCell_sigma_10.npy").shape == (72, 5)
    for axes, message in (((2, 1, 0), "swap axes 0 and 2"), ((2, 0, 1), "expected")):
        np.save(folder / "Random_UnitCell_XY_10.npy", points.transpose(axes))
        with value_error(message):
            elasticity.load(tmp_path, num_train=2, num_test=1)


def test_wrong_files_and_arguments_are_named(cells, tmp_path):
    with pytest.raises(FileNotFoundError, match="Meshes/Random_UnitCell_XY_10.npy"):
        elasticity.load(tmp_path)
    elasticity.save(tmp_path, cells)
    with value_error("has 5 samples; num_train=5"):
        elasticity.load(tmp_path, num_train=5, num_test=1)
    path = tmp_path / "elasticity/Meshes/Random_UnitCell_sigma_10.npy"
    np.save(path, np.load(path)[:, :4])
    with value_error(r"\(72, 4\), expected \(72, 5\)"):
        elasticity.load(tmp_path, num_train=2, num_test=1)
    with value_error("equal for all"):
        elasticity.save(tmp_path, [cells[0], samples.Sample(*np.ones((2, 3, 2)))])
    with value_error("equal for all"):
        elasticity.save(tmp_path, [])
