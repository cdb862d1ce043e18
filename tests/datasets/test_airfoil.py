import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import _generated, airfoil
from opjax.problems import airfoil as problem
from tests.refused import value_error

SMALL = airfoil.Solver(num_airfoil=16, num_wake=4, num_radial=8, tolerance=0.02)


@pytest.fixture
def made(rng):
    """Returns six samples with all channels, on meshes of 25 x 9 points."""
    displacements = 0.05 * rng.uniform(-1, 1, size=(6, 8))
    return [
        samples.Sample(
            mesh_points=np.float32(SMALL.mesh(d)).reshape(-1, 2),
            target=rng.normal(size=(225, 5)).astype(np.float32),
            grid_shape=(25, 9),
        )
        for d in displacements
    ]


def test_generated_samples_solve_the_problem(tmp_path):
    data = airfoil.generate(
        2, seed=3, channels=airfoil.CHANNELS, cache_dir=tmp_path, solver=SMALL
    )
    samples.check(data)
    with _generated.keys(3):  # as the generator: one compilation for both
        key = jax.random.fold_in(jax.random.key(3), 1)
        mesh = SMALL.mesh(problem.random_displacements(key))
        mesh = mesh.astype(np.float32)
        flow = problem.solve(mesh, num_wake=4, tolerance=0.02)
    mesh = np.asarray(mesh)
    assert float(flow.residual) <= 0.02
    assert data[1].grid_shape == (25, 9)
    assert_allclose(data[1].mesh_points, mesh.reshape(-1, 2))
    found = np.asarray(data[1].target).reshape(25, 9, 5)
    assert_allclose(found[..., 0], flow.density, atol=1e-6)
    assert_allclose(found[..., 1:3], flow.velocity, atol=1e-6)
    assert_allclose(found[..., 3], flow.pressure, atol=1e-6)
    assert_allclose(found[..., 4], flow.mach, atol=1e-6)
    first = airfoil.generate(1, seed=3, cache_dir=tmp_path, solver=SMALL)[0]
    assert_array_equal(first.target, np.asarray(data[0].target)[:, 4:])


@pytest.mark.parametrize("folder", ["", "naca", "airfoil/naca"])
def test_saved_samples_are_loaded_next_to_each_other(folder, made, tmp_path):
    airfoil.save(tmp_path / folder, made)
    train, test = airfoil.load(tmp_path, num_train=3, num_test=2)
    for found, expected in zip([*train, *test], made[:5], strict=True):
        assert_array_equal(found.mesh_points, expected.mesh_points)
        assert_array_equal(found.target, expected.target[:, 4:])
        assert found.grid_shape == (25, 9)
    train, _ = airfoil.load(tmp_path, num_train=1, num_test=1, channels=("u", "v"))
    assert_array_equal(train[0].target, made[0].target[:, 1:3])


def test_the_published_axes_are_expected(made, tmp_path):
    airfoil.save(tmp_path, made)
    paths = {letter: tmp_path / f"NACA_Cylinder_{letter}.npy" for letter in "XYQ"}
    shapes = {letter: np.load(path).shape for letter, path in paths.items()}
    assert shapes == {"X": (6, 25, 9), "Y": (6, 25, 9), "Q": (6, 5, 25, 9)}
    for path in paths.values():
        np.save(path, np.load(path).swapaxes(-1, -2))
    with value_error("must run around the airfoil"):
        airfoil.load(tmp_path, num_train=3, num_test=2)
    np.save(paths["Q"], np.zeros((6, 3, 9, 25)))
    with value_error(r"\(6, 3, 9, 25\), expected \(6, 5, 9, 25\)"):
        airfoil.load(tmp_path, num_train=3, num_test=2)


def test_wrong_arguments_and_missing_files_are_named_in_the_error(made, tmp_path):
    with pytest.raises(FileNotFoundError, match="(?s)NACA_Cylinder_X.npy.*1YBuaoT"):
        airfoil.load(tmp_path)
    airfoil.save(tmp_path, made)
    with value_error("6 samples"):
        airfoil.load(tmp_path)
    with value_error("channels="):
        airfoil.load(tmp_path, channels=("lift",))
    with value_error("must lie between 1e-5 and 1"):
        airfoil.Solver(tolerance=1e-7)
    odd = airfoil.Solver(num_airfoil=7)
    with value_error("num_airfoil=7 must be even"):
        airfoil.generate(1, seed=0, cache_dir=tmp_path, solver=odd)
