import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.datasets import _generated, plasticity
from opjax.problems import plasticity as problem
from tests.refused import value_error

SMALL = {"num_points": (7, 4), "travel": 1.0}


@pytest.fixture
def arrays(rng):
    """Returns five dies at 6 nodes, and motions of 6 x 3 nodes in 4 frames."""
    nodes = np.moveaxis(problem.reference_mesh((6, 3)), 0, -1)[None, :, :, None]
    displacement = rng.normal(size=(5, 6, 3, 4, 2)) * 0.1
    motion = np.concatenate([nodes + displacement, displacement], axis=-1)
    return {"input": rng.uniform(size=(5, 6)), "output": motion}


def write(folder, arrays, *, name="plas_N987_T20"):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **arrays)


def read(folder, **changes):
    arguments = {"num_train": 3, "num_test": 1}
    return plasticity.load(folder, **(arguments | changes))


@pytest.mark.parametrize("name", ["plas_N987_T20", "buri_plas_N987_time"])
@pytest.mark.parametrize("folder", ["", "plasticity"])
def test_first_and_last_samples_are_read(name, folder, arrays, tmp_path):
    write(tmp_path / folder, arrays, name=name)
    train, test = read(tmp_path)
    for found, rows in ((train, slice(3)), (test, slice(4, 5))):
        dies, motions = arrays["input"][rows], arrays["output"][rows]
        assert len(found) == len(dies)
        for sample, die, motion in zip(found, dies, motions, strict=True):
            assert sample.grid_shape == (6, 3)
            target = sample.target.reshape(6, 3, 4, 4)
            assert_array_equal(target, motion.astype(np.float32))
            features = sample.features.reshape(6, 3)
            for j in range(3):
                assert_array_equal(features[:, j], die.astype(np.float32))


def test_points_belong_to_the_nodes_and_published_ones_do_not(arrays, tmp_path):
    write(tmp_path, arrays)
    nodes = np.moveaxis(problem.reference_mesh((6, 3)), 0, -1).reshape(-1, 2)
    # Up to the scale and the sense of the axes.
    corner, size = np.array([0.35, 14.9]), np.array([50.0, 15.0])
    points = read(tmp_path)[0][0].mesh_points
    assert points.dtype == np.float32
    assert_allclose(corner - size * points, nodes, atol=1e-4)
    published = read(tmp_path, coordinates="published")[0][0].mesh_points
    assert np.abs(corner - size * published - nodes).max() > 5
    # The published code: a mesh of the axes with y first, flattened.
    x, y = np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 3))
    assert_allclose(published, np.c_[x.ravel(), y.ravel()], rtol=1e-6)
    assert sorted(map(tuple, published)) == sorted(map(tuple, points))


def test_generated_samples_are_solutions_of_the_problem(tmp_path):
    (sample,) = plasticity.generate(1, seed=3, cache_dir=tmp_path, **SMALL)
    with _generated.keys(3):  # as the generator: one compilation for both
        key = jax.random.fold_in(jax.random.key(3), 0)
        drawn = problem.sample(key, amplitude=3.0, **SMALL)
    target = sample.target.reshape(7, 4, 20, 4)
    assert_allclose(target, drawn.motion, atol=1e-4)
    assert_allclose(sample.features.reshape(7, 4)[:, 0], drawn.die, atol=1e-6)


@pytest.mark.parametrize("suffix", [".mat", ".npz"])
def test_saved_samples_are_loaded_again(suffix, arrays, tmp_path):
    samples = plasticity.to_samples(arrays["input"], arrays["output"])
    plasticity.save(tmp_path, samples, name=f"plas_N987_T20{suffix}")
    train, test = read(tmp_path, num_train=4)
    for before, after in zip(samples, train + test, strict=True):
        for name in ("mesh_points", "features", "target"):
            assert_array_equal(getattr(before, name), getattr(after, name))


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("output", lambda a: np.swapaxes(a, 2, 3), "axes or channels"),
        ("output", lambda a: np.swapaxes(a, 1, 2), r"expected \(5, 6, any, any, 4\)"),
        ("output", lambda a: a[..., :2], r"expected \(5, 6, any, any, 4\)"),
        ("output", lambda a: a[:4], r"expected \(5, 6, any, any, 4\)"),
        ("input", lambda a: a.T, "output"),
        ("input", lambda a: a[:, 0], r"expected \(any, any\)"),
        ("output", lambda a: np.where(a == a[1, 2, 1, 0, 3], np.nan, a), "non-finite"),
    ],
)
def test_damaged_files_are_refused(key, change, message, arrays, tmp_path):
    write(tmp_path, arrays | {key: change(arrays[key])})
    with value_error(message):
        read(tmp_path)


def test_missing_files_and_too_few_samples_are_reported(arrays, tmp_path):
    with pytest.raises(FileNotFoundError, match="1YBuaoTdOSr"):
        read(tmp_path)
    write(tmp_path, arrays)
    with value_error("5 samples"):
        read(tmp_path, num_test=3)


def test_bad_arguments_are_refused(arrays, tmp_path):
    with value_error("coordinates='other'"):
        plasticity.generate(1, seed=0, coordinates="other", cache_dir=tmp_path)
    with value_error("at least 2"):
        plasticity.generate(1, seed=0, num_points=(1, 4), cache_dir=tmp_path)
    with value_error("travel=0"):
        plasticity.generate(1, seed=0, travel=0, cache_dir=tmp_path)
    sample = plasticity.to_samples(arrays["input"], arrays["output"])[0]
    with value_error("one structured grid"):
        plasticity.save(tmp_path, [sample._replace(grid_shape=None)])
    with value_error("features and a target"):
        plasticity.save(tmp_path, [sample._replace(target=None)])


def test_collapsing_elements_are_reported(tmp_path):
    with pytest.raises(FloatingPointError, match="travel=40"):
        plasticity.generate(
            1, seed=0, num_points=(7, 4), travel=40.0, cache_dir=tmp_path
        )
