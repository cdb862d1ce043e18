import logging

import h5py
import jax
import numpy as np
import pytest

from opjax.datasets import burgers
from opjax.problems import burgers as problem

SMALL = {"num_points": 24, "stride": 3}


@pytest.fixture
def pairs(rng):
    """Returns initial states and solutions of seven samples at 24 points."""
    return rng.normal(size=(2, 7, 24))


def read(folder, **changes):
    arguments = SMALL | {"num_train": 3, "num_test": 2}
    return burgers.load(folder, **(arguments | changes))


def direct_derivative(values, *, endpoint=False):
    """One difference at a time; with an endpoint, point 0 and the last are the same."""
    n = len(values)
    out = np.empty(n)
    for i in range(n):
        before, after = i - 1, (i + 1) % n
        if endpoint:
            before, after = (n - 2 if i == 0 else i - 1), (1 if i == n - 1 else i + 1)
        out[i] = (values[after] - values[before]) / (2 / n)
    return out


@pytest.mark.parametrize("endpoint", [False, True])
def test_derivative_is_a_difference_of_neighbours(endpoint, rng):
    values = rng.normal(size=(3, 5))
    actual = burgers.derivative(values, endpoint=endpoint)
    expected = [direct_derivative(row, endpoint=endpoint) for row in values]
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert burgers.derivative(values.astype(np.float32)).dtype == np.float64


def test_derivative_of_a_wave_converges_with_second_order():
    def error(num_points):
        x = 2 * np.pi * burgers.positions(num_points)[:, 0].astype(float)
        return np.abs(burgers.derivative(np.sin(x)) - 2 * np.pi * np.cos(x)).max()

    assert np.log2(error(32) / error(64)) == pytest.approx(2, abs=0.02)


def test_positions_are_the_same_on_all_grids_unless_published_ones_are_asked_for():
    fine, coarse = burgers.positions(12), burgers.positions(4)
    np.testing.assert_array_equal(fine[::3], coarse)
    assert coarse.dtype == np.float32
    published = burgers.positions(4, endpoint=True)
    np.testing.assert_allclose(published, np.arange(4)[:, None] / 3, rtol=1e-6)


def test_generated_samples_solve_the_problem(tmp_path):
    data = burgers.generate(2, seed=3, cache_dir=tmp_path, **SMALL)
    assert {key: (v.dtype, v.shape) for key, v in data.items()} == {
        key: (np.float32, (2, 8)) for key in ("a", "u", "u_x")
    }
    for i in range(2):
        key = jax.random.fold_in(jax.random.key(3), i)
        a, u = map(np.asarray, problem.sample(key, num_points=24))
        np.testing.assert_allclose(data["a"][i], a[::3], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(data["u"][i], u[::3], rtol=1e-6, atol=1e-7)
        expected = direct_derivative(u)[::3]
        np.testing.assert_allclose(data["u_x"][i], expected, rtol=1e-5, atol=1e-6)


def test_a_smaller_data_set_is_the_start_of_a_larger_one(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        few, many = (
            burgers.generate(n, seed=0, cache_dir=tmp_path, **SMALL) for n in (2, 4)
        )
    for key, value in few.items():
        np.testing.assert_array_equal(many[key][:2], value)
    assert "ms each" in caplog.text


def test_settings_of_the_caller_do_not_matter_but_seed_and_endpoint_do(tmp_path):
    expected = burgers.generate(2, seed=0, cache_dir=tmp_path / "a", **SMALL)
    with jax.enable_x64(False), jax.threefry_partitionable(False):
        actual = burgers.generate(2, seed=0, cache_dir=tmp_path / "b", **SMALL)
    for key, value in expected.items():
        np.testing.assert_array_equal(actual[key], value)
    other = burgers.generate(2, seed=1, cache_dir=tmp_path, **SMALL)
    assert (other["a"] != expected["a"]).any()
    ends = burgers.generate(2, seed=0, endpoint=True, cache_dir=tmp_path, **SMALL)
    assert (ends["u_x"][:, 0] != expected["u_x"][:, 0]).all()
    np.testing.assert_array_equal(ends["u_x"][:, 1:-1], expected["u_x"][:, 1:-1])


@pytest.mark.parametrize("kind", [".mat", ".npz", "7.3"])
@pytest.mark.parametrize("endpoint", [False, True])
def test_saved_pairs_are_loaded_first_and_last_samples_apart(
    kind, endpoint, pairs, tmp_path
):
    a, u = pairs
    path = tmp_path / f"burgers_data_R10{'.npz' if kind == '.npz' else '.mat'}"
    if kind == "7.3":
        with h5py.File(path, "w") as file:
            file["a"], file["u"] = a.T, u.T
    else:
        burgers.save(path, a, u)
    train, test = read(tmp_path, endpoint=endpoint)
    u_x = np.array([direct_derivative(row, endpoint=endpoint) for row in u])
    for data, samples in ((train, slice(3)), (test, slice(-2, None))):
        assert {array.dtype for array in data.values()} == {np.dtype(np.float32)}
        np.testing.assert_array_equal(data["a"], a[samples, ::3].astype(np.float32))
        np.testing.assert_array_equal(data["u"], u[samples, ::3].astype(np.float32))
        np.testing.assert_allclose(data["u_x"], u_x[samples, ::3], rtol=1e-5)


def test_generated_and_published_data_are_interchangeable(tmp_path):
    data = burgers.generate(4, seed=0, num_points=24, cache_dir=tmp_path)
    burgers.save(tmp_path / "burgers_data_R10.npz", data["a"], data["u"])
    train, test = read(tmp_path, stride=1, num_test=1)
    for key in ("a", "u", "u_x"):
        joined = np.concatenate([train[key], test[key]])
        np.testing.assert_allclose(joined, data[key], rtol=1e-4, atol=1e-5)


def test_a_missing_file_is_named_with_its_source(tmp_path):
    with pytest.raises(FileNotFoundError, match="Burgers.*") as info:
        burgers.load(tmp_path)
    for part in (str(tmp_path), "burgers_data_R10.mat", "1UnbQh2WWc6knEHbLn"):
        assert part in str(info.value)


def test_wrong_contents_are_named(pairs, tmp_path):
    path = tmp_path / "burgers_data_R10.npz"
    burgers.save(path, *pairs)
    with pytest.raises(ValueError, match="7 samples, 8 were asked for"):
        read(tmp_path, num_train=6)
    with pytest.raises(ValueError, match=r"\(7, 24\), expected \(samples, 48\)"):
        read(tmp_path, num_points=48)
    pairs[1, 6, 0] = np.nan
    burgers.save(path, *pairs)
    with pytest.raises(ValueError, match=r"u in .* 1 values .* 1 samples.*\[6\]"):
        read(tmp_path)
    np.savez(path, coeff=pairs[0])
    with pytest.raises(ValueError, match=r"\['coeff'\], expected \('a', 'u'\)"):
        read(tmp_path)


def test_wrong_arguments_are_named_in_the_error(pairs, tmp_path):
    with pytest.raises(ValueError, match="stride=5 must divide num_points=24"):
        burgers.generate(1, seed=0, num_points=24, stride=5, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="stride=5 must divide"):
        read(tmp_path, stride=5)
    with pytest.raises(ValueError, match="num_samples"):
        burgers.generate(0, seed=0, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="seed"):
        burgers.generate(1, seed=-1, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="num_test"):
        read(tmp_path, num_test=0)
    with pytest.raises(ValueError, match=r"\(7, 24\) and u \(6, 24\)"):
        burgers.save(tmp_path / "x.npz", pairs[0], pairs[1, 1:])
    with pytest.raises(ValueError, match=r"\(2,\), expected \(..., n\)"):
        burgers.derivative([1.0, 2.0])
    with pytest.raises(ValueError, match="num_points"):
        burgers.positions(0)
