import logging

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import pipe
from opjax.datasets.requests import Request
from opjax.problems import pipe as problem
from tests.refused import value_error


@pytest.fixture
def made(rng):
    """Returns seven samples with all channels on a 5 x 3 mesh."""
    x, y = np.meshgrid(np.arange(5.0), np.arange(3.0), indexing="ij")
    points = np.stack([x, y], axis=-1) + 0.1 * rng.normal(size=(7, 5, 3, 2))
    return [
        samples.Sample(
            mesh_points=p.reshape(15, 2).astype(np.float32),
            target=rng.normal(size=(15, 3)).astype(np.float32),
            grid_shape=(5, 3),
        )
        for p in points
    ]


def test_generated_samples_solve_the_problem(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        data = pipe.generate(
            2, seed=3, num_elements=3, channels=pipe.CHANNELS, cache_dir=tmp_path
        )
    samples.check(data)
    assert "s each" in caplog.text
    for i, sample in enumerate(data):
        key = jax.random.fold_in(jax.random.key(3), i)
        flow = problem.solve(problem.random_centreline(key), num_elements=3)
        assert sample.grid_shape == (7, 7)
        assert sample.mesh_points.dtype == sample.target.dtype == np.float32
        expected = np.concatenate([flow.velocity, flow.pressure[..., None]], axis=-1)
        assert_allclose(sample.target, expected.reshape(-1, 3), atol=1e-7)
        assert_allclose(
            sample.mesh_points, flow.mesh_points.reshape(-1, 2), rtol=1e-6, atol=1e-6
        )


def test_a_stride_keeps_every_second_point(tmp_path):
    (whole,), (half,) = (
        pipe.generate(1, seed=0, num_elements=2, stride=n, cache_dir=tmp_path)
        for n in (1, 2)
    )
    assert half.grid_shape == (3, 3)
    assert_array_equal(half.target[4], whole.target[12])


@pytest.mark.parametrize("folder", ["", "pipe"])
def test_saved_samples_are_loaded_in_the_split_of_transolver(folder, made, tmp_path):
    pipe.save(tmp_path / folder, made)
    train, test = pipe.load(tmp_path, num_train=3, num_test=2)
    for found, index in zip([*train, *test], range(5), strict=True):
        assert_array_equal(found.mesh_points, made[index].mesh_points)
        assert_array_equal(found.target, made[index].target[:, :1])
        assert found.features is None
        assert found.grid_shape == (5, 3)
    _, test = pipe.load(tmp_path, num_train=3, num_test=2, channels=("p", "v"))
    assert_array_equal(test[0].target, made[3].target[:, [2, 1]])


def test_the_split_of_functional_attention_takes_the_last_samples(made, tmp_path):
    pipe.save(tmp_path, made)
    _, test = pipe.load(tmp_path, num_train=3, num_test=2, split="functional")
    for found, index in zip(test, (5, 6), strict=True):
        assert_array_equal(found.features, made[index].mesh_points)
        assert_array_equal(found.target, made[index].target[:, :1])
        grid = found.mesh_points.reshape(5, 3, 2)
        assert_array_equal(grid[1, 2], [0.25, 1])


def test_the_published_axes_are_expected(made, tmp_path):
    pipe.save(tmp_path, made)
    shapes = {
        letter: np.load(tmp_path / f"Pipe_{letter}.npy").shape for letter in "XYQ"
    }
    assert shapes == {"X": (7, 5, 3), "Y": (7, 5, 3), "Q": (7, 3, 5, 3)}
    for letter in "XYQ":
        path = tmp_path / f"Pipe_{letter}.npy"
        np.save(path, np.load(path).swapaxes(-1, -2))
    with value_error("swap the axes"):
        pipe.load(tmp_path, num_train=3, num_test=2)
    np.save(tmp_path / "Pipe_Q.npy", np.zeros((7, 3, 5, 3)))
    with value_error(r"\(7, 3, 5, 3\), expected \(7, 3, 3, 5\)"):
        pipe.load(tmp_path, num_train=3, num_test=2)


def test_own_samples_have_the_points_of_either_split(tmp_path):
    asked = Request(1, 0, 1, cache_dir=tmp_path)
    one, other = (
        pipe.splits(asked, num_elements=2, split=split) for split in pipe.SPLITS
    )
    assert (one.validation, other.validation) == ([], [])
    for mine, theirs in zip(
        one.train + one.test, other.train + other.test, strict=True
    ):
        assert_array_equal(theirs.features, mine.mesh_points)
        assert_array_equal(theirs.target, mine.target)
        assert_array_equal(theirs.mesh_points[[0, -1]], [[0, 0], [1, 1]])
    with value_error("split='last' is unknown"):
        pipe.splits(asked, split="last")


def test_wrong_arguments_and_missing_files_are_named_in_the_error(made, tmp_path):
    with pytest.raises(FileNotFoundError, match="(?s)Pipe_X.npy.*1YBuaoTdOSr"):
        pipe.load(tmp_path)
    pipe.save(tmp_path, made)
    with value_error("7 samples"):
        pipe.load(tmp_path)
    with value_error("split='last' is unknown"):
        pipe.load(tmp_path, split="last")
    with value_error("channels="):
        pipe.load(tmp_path, channels=("u", "w"))
    with value_error("channels='u' must be a sequence"):
        pipe.generate(1, seed=0, channels="u", cache_dir=tmp_path)
    with value_error("num_elements"):
        pipe.generate(1, seed=0, num_elements=0, cache_dir=tmp_path)
    with value_error("stride=3 must divide num_points - 1 = 4"):
        pipe.generate(1, seed=0, num_elements=2, stride=3, cache_dir=tmp_path)
    with value_error(r"target \(15, 1\), expected"):
        pipe.save(tmp_path, [made[0], made[1]._replace(target=np.zeros((15, 1)))])
    with value_error("no grid_shape"):
        pipe.save(tmp_path, [made[0]._replace(grid_shape=None)])
