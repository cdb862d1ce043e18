"""Operators in time: rollouts against loops, training that resumes, prediction."""

import dataclasses
import json
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import learn
from opjax.datasets import heat
from opjax.files import ReadOptions, series_writing
from opjax.files.series import SeriesSplits, read_series
from opjax.learn.cli import predict, predict_series, train
from opjax.learn.config.time import MODES
from opjax.learn.predict import in_time, trained
from opjax.learn.predict.description import Stepping
from opjax.learn.predict.stepping import Step
from opjax.learn.run.metrics_file import MetricsWriter
from opjax.learn.run.sources import make_batches
from opjax.learn.tasks import time as tasks
from opjax.learn.tasks import time_evaluation
from opjax.normalize import Normalizer
from opjax.samples import Sample, Series
from opjax.samples.normalizers import encode
from tests import refused, sessions
from tests.learn.tiny import QUICK, run_predict
from tests.refused import value_error
from tests.selection import by_day

DRAWN = True  # tests/figures.py

TINY = dataclasses.replace(
    train.PRESETS["quick"],
    width=8,
    num_layers=1,
    num_heads=2,
    num_basis=4,
    num_epochs=2,
    batch_size=2,
    equal_parameters=False,
    checkpoint_every=1,
    num_buckets=1,
)


@pytest.fixture(autouse=True)
def single():
    """Programs train in single precision, as the commands do."""
    with sessions.user():
        yield


def by_night(*given):
    """A case that runs at night."""
    return pytest.param(*given, marks=pytest.mark.nightly)


def config(**changes):
    return dataclasses.replace(TINY, **({"time": "one_step"} | changes))


def decaying(count=6, frames=8, rate=0.5, **given):
    """Fields that decay at a rate of their own at every point, `u_t = -rate k u`."""
    found = []
    for i in range(count):
        rng = np.random.default_rng(i)
        n = int(rng.integers(5, 9))
        points = rng.uniform(size=(n, 2))
        times = 0.1 * np.arange(frames - i % 2)
        first = rng.uniform(1, 2, size=(n, 1))
        values = first * np.exp(-rate * times)[:, None, None]
        arrays = (points, times, values)
        points, _, values = (array.astype(np.float32) for array in arrays)
        found.append(Series(points, times, values, name=f"case {i}", **given))
    return found


def splits_of(found):
    return SeriesSplits(
        found[:-2], found[-2:-1], found[-1:], "", channels={"target": ("u",)}
    )


def sample_of(bucket, row=0):
    """A sample of a bucket, as a model sees it."""
    return {k: a[0] for k, a in bucket.encode(bucket.read([row])).items()}


def write(place, series):
    """Writes the frames of a series to a `.pvd` file."""
    with series_writing.pvd(place, "flow", series, ["u"]) as write_frame:
        for frame in zip(series.times, series.values, strict=True):
            write_frame(*frame)


def finished(chosen, task, model, folder):
    """An operator without training, as loaded."""
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(chosen)))
    task.evaluate(model, folder)
    trained.finish(folder, {})
    return learn.load(folder, own_model=QUICK)


class Decay(nnx.Module):
    """The exact increment of the fields of `decaying` over 0.1, encoded."""

    def __init__(self, factor):
        self.factor = nnx.Param(jnp.float32(factor))

    def __call__(self, mesh_points, features, *, time=None, **_):
        return self.factor[...] * features[:, -1:] * (1.0 if time is None else time)


class Encoded(nnx.Module):
    """The increment `factor * u`, from what the models of a task see and say."""

    def __init__(self, task, factor):
        self.factor = nnx.Param(jnp.float32(factor))
        self.seen, self.said = (
            nnx.data([jnp.asarray(part, jnp.float32) for part in task.extra[name]])
            for name in ("features", "target")
        )

    def __call__(self, mesh_points, features, *, time=None, **_):
        (mean, std), (shift, scale) = self.seen, self.said
        u = features[:, -1:] * std[None, -1:] + mean[None, -1:]
        return (self.factor[...] * u - shift[None]) / scale[None]


def plain(how):
    """Normalisers of the fields that evolve that change nothing."""
    return plain_of(how.history * how.channels, how.channels)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("increments", [True, False])
def test_frames_are_those_of_a_loop(mode, increments):
    how = Stepping(mode, 2, 1, increments, 0.1, 0.5)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5, 2)).astype(np.float32)
    sample = {"mesh_points": np.ones((5, 2), np.float32), "features": features}
    lags = np.array([0.1, 0.2, 0.4], np.float32)
    found = Step(how, plain(how)).frames(Decay(-0.5), sample, jnp.asarray(lags))
    last, before, expected = features[:, 1:], 0.0, []
    for lag in lags:
        size = (lag - before) / 0.5 if mode in ("time_conditional", "one_shot") else 1
        value = -0.5 * last * size
        frame = last + value if increments else value
        if mode != "one_shot":
            last, before = frame, lag
        expected.append(frame)
    assert_allclose(found, expected, rtol=1e-5)


def test_without_history_a_frame_is_a_function_of_what_is_constant_and_the_time():
    """Whether the step encodes the constant fields, or they are encoded before it."""
    how = Stepping("one_shot", 0, 1, False, 0.1, 0.5)
    features = np.random.default_rng(0).normal(size=(5, 1)).astype(np.float32)
    normalizer = Normalizer(jnp.asarray([2.0]), jnp.asarray([3.0]))
    sample = {"mesh_points": np.ones((5, 2), np.float32)}
    lags = jnp.asarray([0.0, 0.1, 0.5])
    encoded = (features - 2) / 3
    inside, before = (
        Step(how, known).frames(Decay(-0.5), {**sample, "features": seen}, lags)
        for known, seen in (({"features": normalizer}, features), ({}, encoded))
    )
    expected = [-0.5 * encoded * size for size in (0.0, 0.2, 1.0)]
    assert_allclose(before, expected, rtol=1e-6)
    assert_allclose(inside, expected, rtol=1e-5)


class Rated(nnx.Module):
    """The increment of fields that decay at the rate that is their scalar, plain."""

    def __call__(self, mesh_points, features, *, time=None, **_):
        return -features[:, -1:] * features[:, :1] * (1.0 if time is None else time)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", by_day(MODES, day=["one_step"]))
def test_scalars_are_constant_features_in_every_mode(mode):
    """Of frames, and of the model in training, whose scalars are normalised."""
    rates = np.linspace(0.1, 0.9, 6)
    found = [
        one._replace(scalars={"rate": float(rate)})
        for one, rate in zip(decaying(), rates, strict=True)
    ]
    task = tasks.rollouts(config(time=mode), splits_of(found))
    normalizer = task.extra["scalars"]
    windows = [one for bucket in task.train for one in bucket.found]
    values = [float(one.scalars[0]) for one in windows]
    assert set(values) == set(rates[:-2].tolist())
    assert_allclose(normalizer.mean, [np.mean(values)], rtol=1e-5)
    assert_allclose(normalizer.std, [np.std(values, ddof=1)], rtol=1e-5)
    (bucket,) = task.test
    one = sample_of(bucket)
    expected = (np.float32(rates[-1]) - normalizer.mean) / normalizer.std
    assert_allclose(one["scalars"], expected, rtol=1e-5)
    how = Stepping(mode, 1, 1, True, 0.1, 0.5)
    known = {k: v for k, v in one.items() if k not in ("target", "lags")}
    lags = jnp.asarray([0.1, 0.2, 0.4])
    frames = Step(how, plain(how)).frames(Rated(), known, lags)
    seen, before, first = one["features"], 0.0, one["features"]
    for frame, lag in zip(frames, lags, strict=True):
        size = (lag - before) / 0.5 if how.timed else 1.0
        seen = seen * (1 - one["scalars"] * size)
        assert_allclose(frame, seen, rtol=1e-4)
        if mode == "one_shot":
            seen = first
        else:
            before = lag
    assert np.isfinite(
        float(jax.jit(task.metric)(task.build(config(time=mode), nnx.Rngs(0)), one))
    )


@pytest.mark.nightly
@pytest.mark.parametrize("kind", by_day(["npz", "pvd"], day=["npz"]))
def test_scalars_from_files_to_a_report(kind, tmp_path):
    """Of an untrained operator; the table has the scalars, and what are the tests."""
    for part, count in (("data", 5), ("new", 1)):
        lines = ["file,rate,split"]
        (tmp_path / part).mkdir()
        for i, series in enumerate(decaying(count)):
            place = tmp_path / part / f"case_{i}"
            if kind == "npz":
                arrays = {"mesh_points": series.mesh_points, "times": series.times}
                np.savez(place, **arrays, u=series.values)
            else:
                write(place, series)
            name = f"case_{i}" + (".npz" if kind == "npz" else "")
            rate = i + 1 if part == "data" else 1000
            lines.append(f"{name},{rate},{['train', 'validation', 'test'][min(i, 2)]}")
        (tmp_path / part / "cases.csv").write_text("\n".join(lines))
    chosen = config(
        train=str(tmp_path / "data"),
        target_names="u",
        scalar_names="rate",
        scalar_modulation=True,
        batch_size=1,
    )
    task, folder = train.make_task(chosen), tmp_path / "run"
    folder.mkdir()
    found = finished(chosen, task, task.build(chosen, nnx.Rngs(0)), folder)
    assert found.description.names["scalars"] == ["rate"]
    with pytest.warns(
        UserWarning, match="The scalar rate is 1000 .*, and 1 to 1 in tr"
    ):
        run_predict(folder, tmp_path / "new", tmp_path / "out", steps=3)
    (row,) = json.loads((tmp_path / "out" / "report.json").read_text())
    assert row["scalars"] == {"rate": 1000}
    assert row["scalars_outside"] == 1
    name = "case_0" if kind == "npz" else "case_0/flow"
    assert np.load(tmp_path / "out" / f"{name}.npz")["rate"] == 1000
    bare = decaying(1)[0]
    with value_error(r"has the scalars \[\], but .* with \['rate'\]"):
        found.rollout(bare, 2)


def test_errors_of_steps_are_from_true_frames():
    """Of a step that halves the older of two frames of two channels; a loop."""

    class Half(nnx.Module):
        def __call__(self, mesh_points, features, *, time=None, **_):
            return features[:, 4:] * features[:, :2]

    how = Stepping("one_step", 2, 2, True, 0.1, 0.1)
    rng = np.random.default_rng(0)
    frames = rng.uniform(1, 2, size=(6, 5, 2)).astype(np.float32)
    weights = rng.uniform(size=5).astype(np.float32)
    constant = np.full((5, 1), -0.5, np.float32)
    sample = {
        "mesh_points": np.ones((5, 2), np.float32),
        "features": np.concatenate([*frames[:2], constant], axis=1),
        "target": np.concatenate(frames[2:], axis=1),
        "quadrature_weights": weights,
    }

    def found(sample):
        return time_evaluation.step_errors(Step(how, plain_of(5, 2)), Half(), sample)

    expected = []
    for t in range(2, 6):
        wrong = frames[t - 1] - 0.5 * frames[t - 2] - frames[t]
        norms = [np.sum(weights[:, None] * a**2) for a in (wrong, frames[t])]
        expected.append(np.sqrt(norms[0] / norms[1]))
    assert_allclose(jax.jit(found)(sample), expected, rtol=1e-5)


def plain_of(features, target):
    """Normalisers of so many channels that change nothing."""
    unit = {"features": features, "target": target}
    return {
        name: Normalizer(jnp.zeros(size, jnp.float32), jnp.ones(size, jnp.float32))
        for name, size in unit.items()
    }


def test_an_exact_step_has_no_error_and_persistence_has():
    """The metric of a rollout."""
    task = tasks.rollouts(config(), splits_of(decaying()))
    (bucket,) = task.test
    one = sample_of(bucket)
    error, exact = jax.jit(task.metric), Encoded(task, np.exp(-0.05) - 1)
    assert error(exact, one) < 1e-5
    still = error(Encoded(task, 0.0), one)
    steps = np.arange(1, 7)
    assert float(still) == pytest.approx(np.mean(np.exp(0.05 * steps) - 1), rel=1e-4)


@pytest.mark.parametrize("padded", [False, True])
def test_repeated_frames_of_shorter_series_do_not_count(padded):
    longer, shorter = decaying(2)
    longer = longer._replace(values=longer.values + 1)
    found = [longer, shorter] if padded else [shorter]
    splits = splits_of([*decaying(3), longer, shorter])._replace(test=found)
    task = tasks.rollouts(config(), splits)
    (bucket,) = task.test
    one = sample_of(bucket, len(found) - 1)
    value = jax.jit(task.metric)(Encoded(task, 0.0), one)
    expected = np.mean(np.exp(0.05 * np.arange(1, 7)) - 1)
    assert float(value) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "validated", "tested"),
    [
        ({}, 7, 6),
        ({"rollout_steps": 5}, 5, 5),
        ({"validation_steps": 2}, 2, 6),
        ({"validation_steps": 3, "rollout_steps": 5}, 3, 5),
    ],
)
def test_validation_rolls_out_as_far_as_asked(changes, validated, tested):
    task = tasks.rollouts(config(**changes), splits_of(decaying()))
    for (bucket,), steps in [(task.validation, validated), (task.test, tested)]:
        assert bucket.read([0])["lags"].shape == (1, steps)


def test_steps_of_a_validation_that_there_is_not_are_refused():
    splits = splits_of(decaying())._replace(validation=[])
    with value_error("validation_steps=2 has no effect without"):
        tasks.rollouts(config(validation_steps=2), splits)


def test_a_rollout_that_blows_up_has_a_large_error_and_no_nan():
    task = tasks.rollouts(config(), splits_of(decaying()))
    (bucket,) = task.test
    one = sample_of(bucket)
    metric = jax.jit(lambda factor: task.metric(Encoded(task, factor), one))
    for factor in (1e30, np.nan):
        assert float(metric(np.float32(factor))) == time_evaluation.LARGEST_ERROR


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        by_night({"time": "one_step"}, 1),
        ({"time": "unrolled", "unroll": 3}, 3),
        by_night({"time": "unrolled", "unroll": 3, "unroll_gradient": "last"}, 3),
        by_night({"time": "time_conditional", "unroll": 2}, 1),
        by_night({"time": "one_shot"}, 1),
    ],
)
def test_the_loss_is_the_mean_error_of_the_frames(changes, steps):
    """And its gradient vanishes for an exact step, in whichever mode."""
    chosen = config(models=(QUICK,), **changes)
    task = tasks.rollouts(chosen, splits_of(decaying()))
    (bucket, *_) = task.train
    physical = bucket.read([0, 1])
    batch = bucket.encode(physical)
    assert batch["lags"].shape == (2, steps)
    model = task.build(chosen, nnx.Rngs(0))
    value, gradient = jax.jit(jax.value_and_grad(task.loss))(model, batch)
    how = in_time_of(chosen, task)
    frames = jax.jit(Step(how, task.extra).frames)
    expected = 0.0
    for row in range(2):
        one = {name: array[row] for name, array in batch.items()}
        one |= {name: physical[name][row] for name in ("features", "target")}
        predicted = frames(model, one, jnp.asarray(one["lags"]))
        target = np.moveaxis(one["target"].reshape(len(one["target"]), -1, 1), 1, 0)
        weights = one.get("quadrature_weights", np.ones(len(one["target"])))
        square = np.sum(weights[:, None] * (predicted - target) ** 2, axis=(1, 2))
        errors = np.sqrt(square / np.sum(weights[:, None] * target**2, axis=(1, 2)))
        expected += errors[-1] if chosen.unroll_gradient == "last" else errors.mean()
    assert float(value) == pytest.approx(expected, rel=1e-4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def in_time_of(chosen, task):
    longest = {"time_conditional": 0.2, "one_shot": 0.7}.get(chosen.time, 0.1)
    return Stepping(chosen.time, chosen.history, 1, True, 0.1, longest)


def test_normalisers_are_those_of_states_and_increments():
    found = decaying()
    task = tasks.rollouts(config(history=2), splits_of(found))
    steps = np.concatenate([np.diff(s.values, axis=0)[1:].ravel() for s in found[:-2]])
    assert_allclose(task.extra["target"].mean, [steps.mean()], rtol=1e-4)
    assert_allclose(task.extra["target"].std, [steps.std()], rtol=1e-4)
    assert task.extra["features"].mean.shape == (2,)


def test_noise_is_drawn_for_frames_and_not_for_what_is_constant():
    """The loss changes, but not what a model sees of a field of zeros and ones."""
    found = [
        one._replace(features=np.float32(np.arange(len(one.mesh_points))[:, None] % 2))
        for one in decaying()
    ]
    names = {"target": ("u",), "features": ("k",)}
    splits, seen = splits_of(found)._replace(channels=names), []
    task = tasks.rollouts(config(input_noise=0.1), splits)
    (bucket, *_) = task.train
    batch = bucket.encode(bucket.read([0, 1]))

    class Watched(nnx.Module):
        def __call__(self, mesh_points, features, *, time=None, **_):
            jax.debug.callback(seen.append, features[:, -1])
            return 0 * features[:, :1]

    losses, constants = [], []
    for given in ({}, {"key": jax.random.key(0)}):
        losses.append(float(jax.jit(task.loss)(Watched(), batch, **given)))
        jax.effects_barrier()
        constants.append(np.unique(np.concatenate(seen)))
        seen.clear()
    assert losses[0] != losses[1]
    assert_array_equal(*constants)


@pytest.mark.nightly
def test_noise_is_drawn_from_the_key_alone():
    chosen = config(input_noise=0.1)
    task = tasks.rollouts(chosen, splits_of(decaying()))
    assert task.needs_key
    (bucket, *_) = task.train
    batch = bucket.encode(bucket.read([0, 1]))
    model = task.build(chosen, nnx.Rngs(0))
    key = jax.random.key(0)
    clean, *noisy = (
        float(task.loss(model, batch, **({} if k is None else {"key": k})))
        for k in (None, key, key, jax.random.key(1))
    )
    assert noisy[0] == noisy[1] != noisy[2]
    assert clean not in noisy


test_options_without_a_meaning_are_refused = refused.settings(
    config(),
    [
        ({"time": "none", "history": 2}, "history=2 has no effect with time=none"),
        ({"time": "none", "validation_steps": 2}, "validation_steps=2 has no effect"),
        (
            {"time": "one_step", "unroll": 2},
            "unroll=2 has no effect with time=one_step",
        ),
        (
            {"time": "one_shot", "unroll_gradient": "last"},
            "unroll_gradient=last has no effect with time=one_shot",
        ),
        ({"time": "sometimes"}, "time='sometimes' is unknown"),
        (
            {"unroll_schedule": (1, 2)},
            "unroll_schedule=1,2 has no effect with time=one_step",
        ),
        (
            {"time": "unrolled", "unroll": 2, "unroll_schedule": (1, 2)},
            "unroll=2 has no effect with unroll_schedule=1,2",
        ),
        *(
            ({"time": "unrolled", "unroll_schedule": stages}, "two or more increasing")
            for stages in [(4, 1), (2,), (0, 2), ("1", "2")]
        ),
        (
            {"time": "unrolled", "unroll_schedule": (1, 2, 3)},
            "unroll_schedule has 3 stages, more than num_epochs=2",
        ),
        ({"stacked": True}, "stacked has no effect with time=one_step"),
        ({"stream_points": 5}, "stream_points has no effect with time=one_step"),
    ],
)


def test_what_does_not_suit_a_mode_is_named():
    short = decaying(frames=3)
    with value_error("No training series has 1 frames followed by 4"):
        tasks.rollouts(config(time="unrolled"), splits_of(short))
    found = decaying()
    times = found[0].times.copy()
    times[4:] += 0.1
    found[0] = found[0]._replace(times=times)
    with value_error("case 0: frame 4 is 0.2 after frame 3"):
        tasks.rollouts(config(), splits_of(found))
    # Intervals may differ where the model is told the time.
    tasks.rollouts(config(time="time_conditional"), splits_of(found))
    chosen = config(time="one_shot", models=("orthogonal_network",))
    alike = [s._replace(mesh_points=found[0].mesh_points) for s in found[:1] * 6]
    task = tasks.rollouts(chosen, splits_of(alike))
    with value_error("orthogonal_network' has no time"):
        task.build(chosen, nnx.Rngs(0))


@pytest.mark.parametrize("epochs", [2, 3, 5])
def test_stages_have_equal_shares_of_the_epochs_and_the_same_batches(epochs):
    def batches(**changes):
        chosen = config(time="unrolled", num_epochs=epochs, **changes)
        task = tasks.rollouts(chosen, splits_of(decaying()))
        source = make_batches(task, task.settings(chosen))
        assert source.total == epochs * source.per_epoch
        wanted = [(bucket.read(rows), rows) for bucket, rows in source._wanted(0)]
        return wanted, source.per_epoch

    staged, per_epoch = batches(unroll_schedule=(1, 3))
    whole, _ = batches(unroll=3)
    assert len(staged) == len(whole) == epochs * per_epoch
    for number, ((one, rows), (other, same)) in enumerate(
        zip(staged, whole, strict=True)
    ):
        steps = 1 if number // per_epoch < epochs / 2 else 3
        assert_array_equal(rows, same)
        assert one["lags"].shape == (2, steps)
        for name in ("lags", "target"):
            assert_array_equal(one[name], other[name][..., :steps])
        for name in one.keys() - {"lags", "target"}:
            assert_array_equal(one[name], other[name])


def test_a_schedule_compiles_a_step_for_every_stage_that_is_left(tmp_path, monkeypatch):
    chosen = config(time="unrolled", unroll_schedule=(1, 2), num_epochs=2)
    found = [s._replace(mesh_points=s.mesh_points[:5]) for s in decaying()]
    found = [s._replace(values=s.values[:, :5]) for s in found]
    task = tasks.rollouts(chosen, splits_of(found))
    source = make_batches(task, task.settings(chosen))
    compiled = []
    monkeypatch.setattr(
        source, "_compile", lambda one, state, bucket, order: compiled.append(bucket)
    )
    for step, stages in ((0, 2), (source.per_epoch - 1, 2), (source.per_epoch, 1)):
        compiled.clear()
        source.prepare(None, step)
        assert compiled == [one for (one,) in (task.earlier[0], task.train)][-stages:]


@pytest.mark.nightly
@pytest.mark.parametrize("stages", [{"unroll": 2}, {"unroll_schedule": (1, 2)}])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_stopped_training_continues_bit_for_bit(tmp_path, monkeypatch, stages, rows):
    """Before, at and after the change of the stage."""
    chosen = config(time="unrolled", input_noise=0.01, num_epochs=4, **stages)
    splits = splits_of(decaying())

    def fit(folder):
        task = tasks.rollouts(chosen, splits)
        model = task.build(chosen, nnx.Rngs(0))
        return learn.fit(task, model, task.settings(chosen), folder=folder)

    whole = fit(tmp_path / "whole")
    write = MetricsWriter.write

    def stop(self, row):
        write(self, row)
        if self.rows == rows:
            raise InterruptedError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(MetricsWriter, "write", stop)
        with pytest.raises(InterruptedError):
            fit(tmp_path / "killed")
    resumed = fit(tmp_path / "killed")
    chex.assert_trees_all_equal(whole.model, resumed.model)
    errors = [
        [row["validation"] for row in found.history] for found in (whole, resumed)
    ]
    assert errors[0] == errors[1]


@pytest.mark.nightly
def test_from_frames_on_a_mesh_to_an_animation(tmp_path):
    """A folder of `.pvd` series in, training, a rollout out, opened by PyVista."""
    pyvista = pytest.importorskip("pyvista")
    cells = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 4]])
    for i, series in enumerate(decaying(6)):
        case = series._replace(cells=cells)
        place = tmp_path / "data" / f"case_{i}"
        write(place, case)
    chosen = config(
        train=str(tmp_path / "data"), target_names="u", time="unrolled", unroll=2
    )
    result = train.run(chosen, workdir=tmp_path / "run")
    assert 0 < result["relative_l2"] < time_evaluation.LARGEST_ERROR
    assert result["persistence"] > 0
    new = tmp_path / "new" / "part"
    with series_writing.pvd(
        new, "part", decaying(1)[0]._replace(cells=cells), ["u"]
    ) as w:
        w(2.0, decaying(1)[0].values[0])
    with pytest.warns(UserWarning, match="The rollout reaches 1.2, and the longest"):
        said = run_predict(tmp_path / "run", new, tmp_path / "out", steps=12, gif=True)
    assert said["samples"] == 1
    reader = pyvista.get_reader(tmp_path / "out" / "part" / "part.pvd")
    assert_allclose(reader.time_values, 2 + 0.1 * np.arange(13))
    archive = np.load(tmp_path / "out" / "part.npz")
    assert archive["prediction_u"].shape == (13, decaying(1)[0].num_points)
    for step in (0, 12):
        reader.set_active_time_point(step)
        (block,) = reader.read()
        assert_array_equal(block["prediction_u"], archive["prediction_u"][step])
        assert block.n_cells == 3
    assert (tmp_path / "out" / "part.gif").read_bytes().startswith(b"GIF8")
    # What was written is a series again.
    (again,), _ = read_series(
        tmp_path / "out" / "part", ReadOptions(target="prediction_u")
    )
    assert_array_equal(again.values[..., 0], archive["prediction_u"])


@pytest.mark.nightly
def test_frames_on_disk_train_to_the_same_bits(tmp_path):
    for i, series in enumerate(decaying(6)):
        case = tmp_path / "data" / f"case_{i}"
        write(case, series)
    models = []
    for stream in (False, True):
        chosen = config(
            train=str(tmp_path / "data"),
            target_names="u",
            stream_samples=stream,
            num_epochs=1,
        )
        task = train.make_task(chosen)
        model = task.build(chosen, nnx.Rngs(0))
        fitted = learn.fit(
            task, model, task.settings(chosen), folder=tmp_path / str(stream)
        )
        models.append(fitted.model)
    chex.assert_trees_all_equal(*models)


@pytest.fixture(scope="module")
def operator(tmp_path_factory):
    """An untrained operator of one step, as loaded."""
    folder = tmp_path_factory.mktemp("operator")
    with jax.enable_x64(False):
        chosen = config(models=(QUICK,))
        task = tasks.rollouts(chosen, splits_of(decaying()))
        return finished(chosen, task, task.build(chosen, nnx.Rngs(0)), folder)


def test_a_prediction_is_the_rollout_of_the_evaluation(operator):
    series = decaying(1)[0]
    lags = in_time.lags_of(operator, 5)
    found = np.stack(list(in_time.frames(operator, series, lags)))
    how = operator.stepping
    arrays = {"mesh_points": series.mesh_points}
    sample = encode(arrays, {"mesh_points": operator.normalizers["mesh_points"]})
    sample["features"] = series.values[0]
    frames = jax.jit(Step(how, operator.normalizers).frames)
    expected = frames(operator.model, sample, jnp.asarray(lags, jnp.float32))
    assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_function_of_an_operator_in_time_is_a_step_of_its_rollout(operator):
    series = decaying(1)[0]
    (expected,) = operator.rollout(series, 1)
    seen = series.seen(range(operator.stepping.history))
    frame = jax.jit(operator.function)(operator.parameters, *operator.arguments(seen))
    assert_allclose(frame, expected, rtol=1e-4, atol=1e-5)


def test_what_an_operator_cannot_do_is_named(operator, tmp_path):
    with value_error("time_step=0.2, but the operator .* 0.1 apart"):
        in_time.lags_of(operator, 5, 0.2)
    with value_error("steps=0 and time_step=0.1 must be positive"):
        in_time.lags_of(operator, 0)
    with pytest.warns(UserWarning, match="reaches 5, and the longest series 0.7"):
        in_time.lags_of(operator, 50)
    wrong = decaying(1)[0]
    wrong = wrong._replace(values=np.concatenate([wrong.values] * 2, axis=2))
    with value_error("2 transient channels, .* with 1"):
        in_time.frames(operator, wrong, np.array([0.1]))
    heat.write_series(tmp_path / "new", 1)
    with value_error("pass the number of --steps"):
        run_predict(operator.folder, tmp_path / "new", tmp_path / "out")
    with value_error("time steps cannot be exported"):
        path = tmp_path / "a.opjax"
        predict.run(
            predict.PredictOptions(operator.folder, export=path, own_model=QUICK)
        )
    huge = operator._replace(
        model=jax.tree.map(lambda x: np.asarray(x) * np.float32(np.nan), operator.model)
    )
    with value_error("case 0 is not finite from step 1 on"):
        list(in_time.frames(huge, decaying(1)[0], np.array([0.1])))


def test_times_beyond_training_are_warned_of(operator):
    how = operator.stepping
    for mode, match in (
        ("one_shot", "time of 1 is"),
        ("time_conditional", "0.5 is ask"),
    ):
        timed = how._replace(mode=mode, longest=0.2)
        known = operator._replace(
            description=dataclasses.replace(
                operator.description, time=timed._replace(span=9.0)
            )
        )
        with pytest.warns(UserWarning, match=match):
            in_time.lags_of(known, 2, 0.5)


@pytest.mark.nightly
def test_series_in_memory_train_an_operator_that_rolls_out():
    chosen = dataclasses.replace(config(time="unrolled", unroll=2), num_epochs=1)
    found = learn.train(decaying(8), config=chosen)
    series = decaying(1)[0]
    frames = list(found.rollout(series, 3))
    assert [frame.shape for frame in frames] == [(series.num_points, 1)] * 3
    again = learn.train(splits_of(decaying(8)), config=chosen)
    assert again.description.time == found.description.time


def test_series_need_a_mode_and_a_mode_needs_series():
    with value_error("time='unrolled'"):
        learn.train(decaying(8), preset="smoke")
    samples = [make_sample(i) for i in range(8)]
    with value_error("time=one_step needs opjax.samples.Series"):
        learn.train(samples, preset="smoke", time="one_step")
    with value_error("test_fraction has no effect on Splits"):
        learn.train(splits_of(decaying(8)), time="one_step", test_fraction=0.3)


def make_sample(seed):
    values = np.random.default_rng(seed).uniform(size=(5, 4)).astype(np.float32)
    return Sample(values[:, :2], target=values[:, 2:3], features=values[:, 3:])


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "never"},
        {"history": 0},
        {"history": True},
        {"interval": "1"},
        {"longest": float("nan")},
        {"increments": 1},
        {"channels": None},
    ],
)
def test_a_damaged_description_is_refused(change, operator):
    time = operator.description.to_json()["time"] | change
    with value_error(rf"time.*{next(iter(change))}|in its time options"):
        Stepping.from_json(time)


def test_an_operator_in_time_is_not_called_on_samples(operator):
    for call in (operator, operator.field, operator.stream):
        with value_error("trained on series; call trained.rollout"):
            call(make_sample(0))


def test_samples_of_other_operators_have_no_steps(operator):
    bare = dataclasses.replace(operator.description, time=None)
    with value_error("not trained on series"):
        in_time.lags_of(operator._replace(description=bare), 3)


@pytest.mark.slow
def test_training_starts_from_an_operator_of_the_same_time(operator):
    same = config(models=(QUICK,), time="unrolled", unroll=2)
    task = tasks.rollouts(same, splits_of(decaying()), start=operator)
    model = task.build(same, nnx.Rngs(1))
    chex.assert_trees_all_equal(model, operator.model)
    with value_error("init_from: .* trained with time=one_step"):
        other = config(models=(QUICK,), history=2)
        tasks.rollouts(other, splits_of(decaying()), start=operator)


@pytest.mark.nightly
def test_memory_of_the_loss_hardly_grows_with_the_steps():
    """Gradients of eight unrolled steps take at most 1.5 times the memory of one."""

    def memory(unroll):
        chosen = config(time="unrolled", unroll=unroll, width=32, num_layers=4)
        rng = np.random.default_rng(0)
        points = rng.uniform(size=(256, 2)).astype(np.float32)
        values = rng.normal(size=(12, 256, 1)).astype(np.float32)
        series = [
            Series(points, np.arange(12.0), values, name=str(i)) for i in range(4)
        ]
        task = tasks.rollouts(chosen, splits_of(series))
        (bucket,) = task.train
        batch = bucket.encode(bucket.read([0]))
        model = task.build(chosen, nnx.Rngs(0))
        compiled = jax.jit(jax.grad(task.loss)).lower(model, batch).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(8) <= 1.5 * memory(1)


def test_the_demonstration_needs_no_files():
    found = train.load_series(config(train="demonstration"))
    assert isinstance(found, SeriesSplits)
    assert len(found.train) >= 10


@pytest.mark.nightly
def test_an_operator_that_is_trained_further_takes_the_steps_of_its_last_series(
    operator, tmp_path, capsys
):
    """Trained on frames 0.1 apart, then on frames 0.5 apart: the step is 0.5."""
    slow = [s._replace(times=5 * s.times) for s in decaying()]
    chosen = config(models=(QUICK,))
    task = tasks.rollouts(chosen, splits_of(slow), start=operator)
    assert "it has a time step of 0.5" in "".join(capsys.readouterr())
    found = finished(chosen, task, operator.model, tmp_path)
    how, before = (o.stepping for o in (found, operator))
    for name in ("interval", "longest", "span", "shortest"):
        assert getattr(how, name) == pytest.approx(5 * getattr(before, name))
    assert_allclose(in_time.lags_of(found, 3), [0.5, 1, 1.5])
    assert_allclose(in_time.lags_of(found, 2, 0.5), [0.5, 1])


def test_times_below_those_of_training_are_warned_of(operator):
    how = operator.stepping
    assert how.shortest == pytest.approx(0.1)
    for mode in ("one_shot", "time_conditional"):
        time = how._replace(mode=mode, span=9.0)
        known = operator._replace(
            description=dataclasses.replace(operator.description, time=time)
        )
        with pytest.warns(
            UserWarning, match=r"0\.001 is asked for, and 0\.1 is the sh"
        ):
            in_time.lags_of(known, 1, 0.001)
        stored = time._asdict()
        del stored["shortest"]  # as an earlier opjax wrote it
        assert Stepping.from_json(stored) == time._replace(shortest=0.0)


def test_series_that_are_there_twice_are_warned_of(tmp_path):
    heat.write_series(tmp_path / "a", 6)
    heat.write_series(tmp_path / "b", 6)  # the same
    chosen = config(train=str(tmp_path / "a"), test=str(tmp_path / "b"))
    with pytest.warns(UserWarning, match="6 series are duplicates: .*b.* equals"):
        train.load_series(chosen)


@pytest.mark.parametrize(
    ("mode", "options", "times", "words"),
    [
        ("one_step", {"steps": 2}, [0.1, 0.2], ""),  # with the error of one frame
        ("time_conditional", {"steps": 3}, [0.1, 0.25, 0.33], "its own later frames"),
        (
            "time_conditional",
            {"steps": 2, "time_step": 0.07},
            [0.07, 0.14],
            "no errors, because none of its 3 later frames .* --steps=3 without",
        ),
        ("one_shot", {"steps": 3}, [0.1, 0.25, 0.33], "own later frames, up to 0.33"),
    ],
)
@pytest.mark.filterwarnings("ignore:A time of")
def test_a_rollout_is_at_the_frames_of_its_series_where_steps_may_differ(
    mode, options, times, words, operator, tmp_path, capsys
):
    (series,) = decaying(1)
    arrays = {"mesh_points": series.mesh_points, "target": series.values[:4]}
    np.savez(tmp_path / "a.npz", times=[0.0, 0.1, 0.25, 0.33], **arrays)
    how = operator.stepping._replace(mode=mode)
    description = dataclasses.replace(operator.description, time=how)
    known = operator._replace(description=description)
    output = tmp_path / "out"
    (row,) = predict_series.predict(known, tmp_path / "a.npz", output, **options)
    assert_allclose(np.load(output / "a.npz")["times"], [0.0, *times])
    assert ("errors" in row) == (options["steps"] == 3 or mode == "one_step")
    assert re.search(words, capsys.readouterr().err)


def test_an_operator_of_equal_steps_tells_why_there_are_no_errors(
    operator, tmp_path, capsys
):
    (series,) = decaying(1)
    arrays = {"mesh_points": series.mesh_points, "target": series.values[:2]}
    np.savez(tmp_path / "a.npz", times=[0.0, 0.15], **arrays)
    predict_series.predict(operator, tmp_path / "a.npz", tmp_path / "out", steps=1)
    words = "its 1 later frames .* the operator supports only steps of 0.1"
    assert re.search(words, capsys.readouterr().err)
