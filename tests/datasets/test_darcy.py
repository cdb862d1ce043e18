import importlib
import logging

import h5py
import jax
import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import _generated, darcy
from opjax.problems import darcy as problem
from tests.refused import value_error

SMALL = {"num_points": 21, "stride": 4}
TRAIN, TEST = (f"piececonst_r21_N1024_smooth{i}" for i in (1, 2))


@pytest.fixture
def pairs(rng):
    """Returns coefficients and solutions of five samples at 21 x 21 points."""
    return rng.normal(size=(2, 5, 21, 21)).astype(np.float32)


def save(path, coeff, sol):
    darcy.save(path, darcy.to_samples(coeff, sol))


def read(folder, **changes):
    arguments = {"num_points": 21, "stride": 5, "num_train": 3, "num_test": 2}
    return darcy.load(folder, **(arguments | changes))


def write_matlab_73(path, coeff, sol):
    with h5py.File(path, "w", userblock_size=512) as file:
        file["coeff"], file["sol"] = coeff.T, sol.T
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one.features, other.features)
        assert_array_equal(one.target, other.target)
        assert_array_equal(one.mesh_points, other.mesh_points)
        assert one.grid_shape == other.grid_shape


def test_generated_samples_solve_the_problem(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        data = darcy.generate(2, seed=3, cache_dir=tmp_path, **SMALL)
    assert "miss the tolerance" not in caplog.text
    samples.check(data)
    for i, found in enumerate(data):
        with _generated.keys(3):  # as the generator: one compilation for both
            key = jax.random.fold_in(jax.random.key(3), i)
            options = SMALL | {"dtype": "float64", "tolerance": 1e-9}
            sample = problem.sample(key, **options)
        assert sample.residual < 2e-9
        assert found.grid_shape == (6, 6)
        assert found.features.dtype == found.target.dtype == np.float32
        coefficient, solution = (np.ravel(field)[:, None] for field in sample[:2])
        assert_array_equal(found.features, coefficient)
        assert_allclose(found.target, solution, rtol=1e-6)


def test_samples_are_views_that_share_their_points(pairs):
    found = darcy.to_samples(*pairs)
    assert all(sample.mesh_points is found[0].mesh_points for sample in found)
    points = found[0].mesh_points.reshape(21, 21, 2)
    assert_allclose(points[2, 20], [0.1, 1.0])
    (stacked,) = samples.stack(found)
    assert np.shares_memory(stacked["features"], pairs[0])
    assert np.shares_memory(stacked["target"], pairs[1])
    assert stacked["mesh_points"].strides[0] == 0
    assert_array_equal(stacked["target"], pairs[1].reshape(5, 441, 1))
    (part,) = samples.stack(found[2:4])
    assert_array_equal(part["features"], pairs[0, 2:4].reshape(2, 441, 1))
    (turned,) = samples.stack(found[::-1])
    assert_array_equal(turned["target"], stacked["target"][::-1])


def test_samples_that_miss_the_tolerance_are_reported(tmp_path, caplog):
    # Rounding errors alone leave a larger residual than asked for.
    with caplog.at_level(logging.INFO):
        darcy.generate(1, seed=0, tolerance=1e-18, cache_dir=tmp_path, **SMALL)
    for said in ("1 samples miss the tolerance", "ms each", "largest residual"):
        assert said in caplog.text


@pytest.mark.parametrize("suffix", [".mat", ".npz"])
def test_saved_pairs_are_loaded(suffix, pairs, tmp_path):
    coeff, sol = pairs
    save(tmp_path / f"{TRAIN}{suffix}", coeff, sol)
    save(tmp_path / f"{TEST}{suffix}", -coeff, -sol)
    train, test = read(tmp_path)
    assert train[0].target.dtype == np.float32
    same(train, darcy.to_samples(coeff[:3, ::5, ::5], sol[:3, ::5, ::5]))
    same(test, darcy.to_samples(-coeff[:2, ::5, ::5], -sol[:2, ::5, ::5]))
    assert len(list(tmp_path.iterdir())) == 2


def test_matlab_73_files_and_folders_of_the_same_name_are_read(pairs, tmp_path):
    for stem in (TRAIN, TEST):
        (tmp_path / stem).mkdir()
        write_matlab_73(tmp_path / stem / f"{stem}.mat", *pairs)
    train, test = read(tmp_path)
    same(train, darcy.to_samples(*pairs[:, :3, ::5, ::5]))
    same(test, darcy.to_samples(*pairs[:, :2, ::5, ::5]))


def test_unused_arrays_of_the_published_files_are_left_alone(pairs, tmp_path):
    coeff, sol = pairs.astype(float)
    arrays = {"coeff": coeff, "sol": sol, "Kcoeff": np.full((5, 2), np.nan)}
    for stem in (TRAIN, TEST):
        scipy.io.savemat(tmp_path / f"{stem}.mat", arrays)
    same(read(tmp_path)[0], darcy.to_samples(*pairs[:, :3, ::5, ::5]))


def test_a_stride_that_does_not_reach_the_end_is_cut_as_published(pairs, tmp_path):
    for stem in (TRAIN, TEST):
        save(tmp_path / f"{stem}.npz", *pairs)
    train, _ = read(tmp_path, stride=6)
    same(train, darcy.to_samples(*pairs[:, :3, ::6, ::6]))
    assert train[0].grid_shape == (4, 4)


def test_a_missing_file_is_named_with_its_source(tmp_path):
    with pytest.raises(FileNotFoundError, match="smooth1.mat") as info:
        darcy.load(tmp_path)
    for part in (str(tmp_path), "1UnbQh2WWc6knEHbLn", "omit --data_dir"):
        assert part in str(info.value)


@pytest.mark.parametrize("kind", [".mat", ".npz", "7.3"])
def test_a_damaged_file_is_named(kind, pairs, tmp_path):
    path = tmp_path / f"{TRAIN}{'.npz' if kind == '.npz' else '.mat'}"
    (write_matlab_73 if kind == "7.3" else save)(path, *pairs)
    path.write_bytes(path.read_bytes()[: 2 * path.stat().st_size // 3])
    with value_error(f"Cannot read .*{TRAIN}.*incomplete.*Drive"):
        read(tmp_path)


def test_pickled_objects_are_refused(tmp_path):
    np.savez(tmp_path / f"{TRAIN}.npz", coeff=np.array([object()]))
    with value_error("Cannot read.*pickled Python objects"):
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
    with value_error(r"\['a', 'u'\], expected 'coeff'.*Drive"):
        read(tmp_path)


def test_wrong_contents_are_named(pairs, tmp_path):
    path = tmp_path / f"{TRAIN}.npz"
    save(path, *pairs)
    with value_error("5 samples, but 6 were requested.*num_validation"):
        read(tmp_path, num_train=6)
    save(path, *pairs[:, :, :6, :6])
    with value_error(r"\(5, 6, 6\), expected \(any, 21, 21\)"):
        read(tmp_path)
    pairs[1, 1, 0, 0] = pairs[1, 2, 5, 5] = np.inf
    save(path, *pairs)
    with value_error(r"sol in .* 2 non-finite values in 2 samples.*\[1, 2\]"):
        read(tmp_path)
    np.savez(path, coeff=pairs[0].astype(str), sol=pairs[1])
    with value_error("coeff in .* dtype <U"):
        read(tmp_path)


def test_a_missing_library_is_named_with_its_extra(pairs, tmp_path, monkeypatch):
    def refuse(name, *args):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
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
        save(path, *pairs)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_arguments_are_named_in_the_error(pairs, tmp_path):
    with value_error("stride=5 must divide.*168"):
        darcy.generate(1, seed=0, num_points=169, cache_dir=tmp_path)
    with value_error("num_test"):
        darcy.load(tmp_path, num_test=0)
    with value_error(r"\(5, 21, 21\) and sol has shape \(4, 21, 21\)"):
        darcy.to_samples(pairs[0], pairs[1, 1:])
    with value_error("'.mat' or '.npz'"):
        save(tmp_path / "x.pkl", *pairs)
