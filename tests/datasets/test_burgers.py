import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import _generated, burgers
from opjax.problems import burgers as problem
from tests.refused import value_error

SMALL = {"num_points": 24, "stride": 3}


@pytest.fixture
def pairs(rng):
    """Returns initial states and solutions of seven samples at 24 points."""
    return rng.normal(size=(2, 7, 24))


def read(folder, **changes):
    arguments = SMALL | {"num_train": 3, "num_test": 2}
    return burgers.load(folder, **(arguments | changes))


def same(found, a, u):
    assert len(found) == len(a) == len(u)
    for sample, initial, solution in zip(found, a, u, strict=True):
        assert_array_equal(sample.features[:, 0], np.float32(initial))
        assert_array_equal(sample.target[:, 0], np.float32(solution))
        assert sample.grid_shape == (len(initial),)


def test_positions_are_the_same_on_all_grids():
    fine, coarse = burgers.positions(12), burgers.positions(4)
    assert_array_equal(fine[::3], coarse)
    assert coarse.dtype == np.float32


def test_generated_samples_solve_the_problem(tmp_path):
    data = burgers.generate(2, seed=3, cache_dir=tmp_path, **SMALL)
    samples.check(data)
    for i, sample in enumerate(data):
        with _generated.keys(3):  # as the generator: one compilation for both
            key = jax.random.fold_in(jax.random.key(3), i)
            a, u = map(np.asarray, problem.sample(key, num_points=24))
        assert sample.features.dtype == sample.target.dtype == np.float32
        assert_allclose(sample.features[:, 0], a[::3], rtol=1e-6, atol=1e-7)
        assert_allclose(sample.target[:, 0], u[::3], rtol=1e-6, atol=1e-7)
        assert_array_equal(sample.mesh_points, burgers.positions(8))


def test_saved_pairs_are_loaded_first_and_last_samples_apart(pairs, tmp_path):
    a, u = pairs
    burgers.save(tmp_path / "burgers_data_R10.mat", burgers.to_samples(a, u))
    train, test = read(tmp_path)
    same(train, a[:3, ::3], u[:3, ::3])
    same(test, a[-2:, ::3], u[-2:, ::3])


def test_a_missing_file_is_named_with_its_source(tmp_path):
    with pytest.raises(FileNotFoundError, match="R10") as info:
        burgers.load(tmp_path)
    for part in (str(tmp_path), "burgers_data_R10.mat", "1UnbQh2WWc6knEHbLn"):
        assert part in str(info.value)


def test_wrong_contents_are_named(pairs, tmp_path):
    path = tmp_path / "burgers_data_R10.npz"
    burgers.save(path, burgers.to_samples(*pairs))
    with value_error("7 samples, but 8 were requested"):
        read(tmp_path, num_train=6)
    with value_error(r"\(7, 24\), expected \(any, 48\)"):
        read(tmp_path, num_points=48)
    pairs[1, 6, 0] = np.nan
    burgers.save(path, burgers.to_samples(*pairs))
    with value_error(r"u in .* 1 non-finite values in 1 samples.*\[6\]"):
        read(tmp_path)
    np.savez(path, coeff=pairs[0])
    with value_error(r"\['coeff'\], expected 'a'"):
        read(tmp_path)


def test_wrong_arguments_are_named_in_the_error(pairs, tmp_path):
    with value_error("stride=5 must divide num_points=24"):
        burgers.generate(1, seed=0, num_points=24, stride=5, cache_dir=tmp_path)
    with value_error("stride=5 must divide"):
        read(tmp_path, stride=5)
    with value_error("num_test"):
        read(tmp_path, num_test=0)
    with value_error(r"\(7, 24\) and u has shape \(6, 24\)"):
        burgers.to_samples(pairs[0], pairs[1, 1:])
    with value_error("num_points"):
        burgers.positions(0)
