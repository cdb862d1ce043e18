import dataclasses
import json

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from experiments import navier_stokes
from opjax.datasets import navier_stokes as dataset
from tests import refused


def model(function):
    """Turns a function of the ten frames into an operator."""
    return jax.tree_util.Partial(lambda points, frames: function(frames))


newest = model(lambda frames: frames[:, -1:])
oldest = model(lambda frames: frames[:, :1])
doubled = model(lambda frames: 2 * frames[:, -1:])


@pytest.fixture
def sample(rng):
    flow = dataset.to_samples(rng.normal(size=(1, 4, 4, 20)))[0]
    names = "mesh_points", "features", "target"
    return {name: getattr(flow, name) for name in names}


def norms(array):
    return np.linalg.norm(array, axis=0)


def test_training_steps_start_from_true_frames(sample):
    frames = np.concatenate([sample["features"], sample["target"]], axis=1)
    expected = norms(frames[:, 9:19] - frames[:, 10:]) / norms(frames[:, 10:])
    actual = navier_stokes.step_errors(newest, sample)
    assert_allclose(actual, expected, rtol=1e-5)
    expected = norms(frames[:, :10] - frames[:, 10:]) / norms(frames[:, 10:])
    actual = navier_stokes.step_errors(oldest, sample)
    assert_allclose(actual, expected, rtol=1e-5)


def test_rollouts_go_on_from_their_own_frames(sample):
    actual = navier_stokes.rollout(doubled, sample)
    expected = sample["features"][:, -1:] * 2.0 ** np.arange(1, 11)
    assert_allclose(actual, expected, rtol=1e-6)
    # Each step reads the oldest frame of its window, so the input comes out again.
    actual = navier_stokes.rollout(oldest, sample)
    assert_array_equal(actual, sample["features"])


def test_the_loss_is_a_sum_and_the_metric_joins_all_frames(sample):
    batch = {name: np.stack([array, array]) for name, array in sample.items()}
    steps = navier_stokes.step_errors(newest, sample)
    expected = 2 * float(np.sum(np.asarray(steps)))
    assert float(navier_stokes.loss(newest, batch)) == pytest.approx(expected, rel=1e-5)
    difference = sample["features"] - sample["target"]
    expected = np.linalg.norm(difference) / np.linalg.norm(sample["target"])
    actual = float(navier_stokes.error(oldest, sample))
    assert actual == pytest.approx(expected, rel=1e-5)


test_bad_configurations_are_refused = refused.settings(
    navier_stokes.PRESETS["smoke"],
    [
        ({"stride": 3}, "stride=3 must divide"),
        ({"coordinates": "other"}, "coordinates='other'"),
    ],
)


def test_published_flows_are_split_in_three(tmp_path, rng):
    flows = dataset.to_samples(rng.normal(size=(8, 4, 4, 20)))
    dataset.save(tmp_path, flows)
    config = dataclasses.replace(
        navier_stokes.PRESETS["smoke"],
        data_dir=str(tmp_path),
        num_train=3,
        num_validation=2,
        num_test=1,
        file_stride=2,
    )
    splits = navier_stokes.load(config)
    assert str(tmp_path) in splits.source
    parts = (splits.train, flows[:3]), (splits.validation, flows[3:5])
    for found, expected in (*parts, (splits.test, flows[7:])):
        assert len(found) == len(expected)
        for sample, flow in zip(found, expected, strict=True):
            assert sample.grid_shape == (2, 2)
            assert sample.target is not None
            assert flow.target is not None
            fine = flow.target.reshape(4, 4, 10)[::2, ::2].reshape(4, 10)
            assert_array_equal(sample.target, fine)


@pytest.mark.nightly
def test_a_run_reports_and_draws_every_step(tmp_path, capsys):
    config = dataclasses.replace(
        navier_stokes.PRESETS["smoke"],
        num_train=2,
        num_validation=1,
        solver_points=16,
        stride=2,
        num_layers=1,
    )
    result = navier_stokes.run(
        config, workdir=tmp_path / "run", cache_dir=str(tmp_path)
    )
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    steps = [result[f"step_{t}"] for t in range(1, 11)]
    with np.load(tmp_path / "run/functional-0/predictions.npz") as stored:
        means = stored["series"].astype(np.float64).mean(axis=0)
        assert_allclose(steps, means, rtol=1e-6)
        assert stored["prediction_0"].shape == (64, 1)
    assert 0 < result["relative_l2"] < 2
    member = tmp_path / "run" / "functional-0" / "figures"
    for path in (member / "series.png", member / "fields.png"):
        assert path.stat().st_size > 500
    assert (tmp_path / "run" / "tables.md").stat().st_size > 500
