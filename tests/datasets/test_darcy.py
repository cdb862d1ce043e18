import importlib
import logging

import h5py
import jax
import numpy as np
import pytest
import scipy.io

from opjax.datasets import darcy
from opjax.problems import darcy as problem

SMALL = {"num_points": 21, "stride": 4}
TRAIN, TEST = (f"piececonst_r21_N1024_smooth{i}" for i in (1, 2))


@pytest.fixture
def pairs(rng):
    """Returns coefficients and solutions of five samples at 21 x 21 points."""
    return rng.normal(size=(2, 5, 21, 21)).astype(np.float32)


def read(folder, **changes):
    arguments = {"num_points": 21, "stride": 5, "num_train": 3, "num_test": 2}
    return darcy.load(folder, **(arguments | changes))


def write_matlab_73(path, coeff, sol):
    with h5py.File(path, "w", userblock_size=512) as file:
        file["coeff"], file["sol"] = coeff.T, sol.T
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")


def test_generated_samples_solve_the_problem(tmp_path):
    data = darcy.generate(2, seed=3, cache_dir=tmp_path, **SMALL)
    assert {key: value.dtype for key, value in data.items()} == {
        "coeff": np.float32,
        "sol": np.float32,
        "residual": np.float64,
    }
    assert data["coeff"].shape == data["sol"].shape == (2, 6, 6)
    assert data["residual"].max() < 2e-9
    for i in range(2):
        sample = problem.sample(jax.random.fold_in(jax.random.key(3), i), **SMALL)
        np.testing.assert_array_equal(data["coeff"][i], sample.coefficient)
        np.testing.assert_allclose(data["sol"][i], sample.solution, rtol=1e-6)


def test_a_smaller_data_set_is_the_start_of_a_larger_one(tmp_path):
    few, many = (darcy.generate(n, seed=0, cache_dir=tmp_path, **SMALL) for n in (2, 5))
    for key, value in few.items():
        np.testing.assert_array_equal(many[key][:2], value)


def test_the_same_seed_gives_the_same_bits_and_another_seed_other_samples(tmp_path):
    first, again, other = (
        darcy.generate(3, seed=seed, cache_dir=tmp_path / folder, **SMALL)
        for seed, folder in ((0, "a"), (0, "b"), (1, "a"))
    )
    for key, value in first.items():
        np.testing.assert_array_equal(again[key], value)
    assert (first["coeff"] != other["coeff"]).any()


def test_settings_of_the_caller_do_not_matter(tmp_path):
    expected = darcy.generate(2, seed=0, cache_dir=tmp_path / "a", **SMALL)
    with jax.enable_x64(False), jax.threefry_partitionable(False):
        actual = darcy.generate(2, seed=0, cache_dir=tmp_path / "b", **SMALL)
    for key, value in expected.items():
        np.testing.assert_array_equal(actual[key], value)


def test_time_and_residual_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        darcy.generate(1, seed=0, cache_dir=tmp_path, **SMALL)
    assert "ms each" in caplog.text
    assert "largest residual" in caplog.text


def test_samples_that_miss_the_tolerance_are_reported(tmp_path, caplog):
    # Rounding errors alone leave a larger residual than asked for.
    with caplog.at_level(logging.WARNING):
        darcy.generate(1, seed=0, tolerance=1e-18, cache_dir=tmp_path, **SMALL)
    assert "1 samples miss the tolerance" in caplog.text


@pytest.mark.parametrize("suffix", [".mat", ".npz"])
def test_saved_pairs_are_loaded(suffix, pairs, tmp_path):
    coeff, sol = pairs
    darcy.save(tmp_path / f"{TRAIN}{suffix}", coeff, sol)
    darcy.save(tmp_path / f"{TEST}{suffix}", -coeff, -sol)
    train, test = read(tmp_path)
    assert train["sol"].dtype == np.float32
    np.testing.assert_array_equal(train["coeff"], coeff[:3, ::5, ::5])
    np.testing.assert_array_equal(train["sol"], sol[:3, ::5, ::5])
    np.testing.assert_array_equal(test["coeff"], -coeff[:2, ::5, ::5])
    np.testing.assert_array_equal(test["sol"], -sol[:2, ::5, ::5])
    assert len(list(tmp_path.iterdir())) == 2


def test_generated_and_published_data_are_interchangeable(tmp_path):
    data = darcy.generate(3, seed=0, cache_dir=tmp_path, **SMALL)
    for i in (1, 2):
        path = tmp_path / f"piececonst_r6_N1024_smooth{i}.mat"
        darcy.save(path, data["coeff"], data["sol"])
    train, _ = read(tmp_path, num_points=6, stride=1)
    for key in ("coeff", "sol"):
        np.testing.assert_array_equal(train[key], data[key])


def test_matlab_73_files_and_folders_of_the_same_name_are_read(pairs, tmp_path):
    for stem in (TRAIN, TEST):
        (tmp_path / stem).mkdir()
        write_matlab_73(tmp_path / stem / f"{stem}.mat", *pairs)
    train, test = read(tmp_path)
    np.testing.assert_array_equal(train["coeff"], pairs[0, :3, ::5, ::5])
    np.testing.assert_array_equal(test["sol"], pairs[1, :2, ::5, ::5])


def test_unused_arrays_of_the_published_files_are_left_alone(pairs, tmp_path):
    coeff, sol = pairs.astype(float)
    arrays = {"coeff": coeff, "sol": sol, "Kcoeff": np.full((5, 2), np.nan)}
    for stem in (TRAIN, TEST):
        scipy.io.savemat(tmp_path / f"{stem}.mat", arrays)
    np.testing.assert_array_equal(read(tmp_path)[0]["sol"], pairs[1, :3, ::5, ::5])


def test_a_stride_that_does_not_reach_the_end_is_cut_as_published(pairs, tmp_path):
    for stem in (TRAIN, TEST):
        darcy.save(tmp_path / f"{stem}.npz", *pairs)
    train, _ = read(tmp_path, stride=6)
    np.testing.assert_array_equal(train["coeff"], pairs[0, :3, ::6, ::6])
    assert train["coeff"].shape == (3, 4, 4)


def test_a_missing_file_is_named_with_its_source(tmp_path):
    with pytest.raises(FileNotFoundError, match="smooth1.mat") as info:
        darcy.load(tmp_path)
    for part in (str(tmp_path), "1UnbQh2WWc6knEHbLn", "leaving out --data_dir"):
        assert part in str(info.value)


@pytest.mark.parametrize("kind", [".mat", ".npz", "7.3"])
def test_a_damaged_file_is_named(kind, pairs, tmp_path):
    path = tmp_path / f"{TRAIN}{'.npz' if kind == '.npz' else '.mat'}"
    (write_matlab_73 if kind == "7.3" else darcy.save)(path, *pairs)
    path.write_bytes(path.read_bytes()[: 2 * path.stat().st_size // 3])
    with pytest.raises(ValueError, match=f"Cannot read .*{TRAIN}.*incomplete.*Drive"):
        read(tmp_path)


def test_pickled_objects_are_refused(tmp_path):
    np.savez(tmp_path / f"{TRAIN}.npz", coeff=np.array([object()]))
    with pytest.raises(ValueError, match="Cannot read.*allow_pickle=False"):
        read(tmp_path)


@pytest.mark.parametrize("kind", ["5", "7.3", ".npz"])
def test_a_missing_array_is_named(kind, pairs, tmp_path):
    path = tmp_path / f"{TRAIN}{'.npz' if kind == '.npz' else '.mat'}"
    if kind == "5":
        scipy.io.savemat(path, {"a": pairs[0], "u": pairs[1]})
    elif kind == "7.3":
        with h5py.File(path, "w") as file:
            file["a"], file["u"] = pairs
    else:
        np.savez(path, a=pairs[0], u=pairs[1])
    with pytest.raises(ValueError, match=r"\['a', 'u'\], expected .*, 21, 21\).*Drive"):
        read(tmp_path)


def test_wrong_contents_are_named(pairs, tmp_path):
    path = tmp_path / f"{TRAIN}.npz"
    darcy.save(path, *pairs)
    with pytest.raises(ValueError, match="5 samples, 6 were asked for.*num_validation"):
        read(tmp_path, num_train=6)
    darcy.save(path, *pairs[:, :, :6, :6])
    with pytest.raises(ValueError, match=r"\(5, 6, 6\), expected \(samples, 21, 21\)"):
        read(tmp_path)
    pairs[1, 1, 0, 0] = pairs[1, 2, 5, 5] = np.inf
    darcy.save(path, *pairs)
    with pytest.raises(ValueError, match=r"sol in .* 2 values .* 2 samples.*\[1, 2\]"):
        read(tmp_path)
    np.savez(path, coeff=pairs[0].astype(str), sol=pairs[1])
    with pytest.raises(ValueError, match="coeff in .* dtype <U"):
        read(tmp_path)


def test_a_missing_library_is_named_with_its_extra(pairs, tmp_path, monkeypatch):
    def refuse(name, *args):
        raise ImportError(name)

    darcy.save(tmp_path / f"{TRAIN}.mat", *pairs)
    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ImportError, match=r"needs scipy.*opjax\[experiments\]"):
        read(tmp_path)
    write_matlab_73(tmp_path / f"{TRAIN}.mat", *pairs)
    with pytest.raises(ImportError, match=r"needs h5py.*opjax\[experiments\]"):
        read(tmp_path)


def test_a_failed_save_leaves_the_old_file(pairs, tmp_path, monkeypatch):
    path = tmp_path / f"{TRAIN}.npz"
    path.write_text("old")

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        darcy.save(path, *pairs)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_arguments_are_named_in_the_error(pairs, tmp_path):
    with pytest.raises(ValueError, match="stride=5 must divide.*168"):
        darcy.generate(1, seed=0, num_points=169, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="num_samples"):
        darcy.generate(0, seed=0, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="seed"):
        darcy.generate(1, seed=-1, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="num_test"):
        darcy.load(tmp_path, num_test=0)
    with pytest.raises(ValueError, match=r"\(5, 21, 21\) and sol \(4, 21, 21\)"):
        darcy.save(tmp_path / "x.npz", pairs[0], pairs[1, 1:])
    with pytest.raises(ValueError, match="'.mat' or '.npz'"):
        darcy.save(tmp_path / "x.pkl", *pairs)
