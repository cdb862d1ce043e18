"""Training on points that are drawn anew in every step."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import learn, samples, training
from opjax.learn.cli import train
from opjax.learn.run import points, stages
from opjax.learn.run.batches import ArrayBatches
from opjax.learn.run.fitting import fit
from opjax.learn.run.loop import Loop
from opjax.learn.run.settings import Settings
from opjax.learn.tasks import points as drawn
from opjax.learn.tasks.supervised import regression
from opjax.learn.tasks.task import Task
from opjax.samples import Sample, Splits
from tests import refused
from tests.refused import value_error
from tests.selection import by_day


@pytest.fixture
def sample(rng):
    """Returns nine points of unequal weights, the last two of them padding."""
    weights = np.append(rng.uniform(0.5, 2, 7), [0, 0]).astype(np.float32)
    found = rng.normal(size=(9, 2)).astype(np.float32)
    target = np.sin(found.sum(axis=1, keepdims=True))
    return {"mesh_points": found, "target": target, "quadrature_weights": weights}


def squared(model, sample):
    """The weighted sum of squared errors of a linear model."""
    error = sample["mesh_points"] @ model - sample["target"]
    return jnp.sum(sample["quadrature_weights"][:, None] * error**2)


def test_weights_of_drawn_points_are_those_of_numpy(sample):
    draw = jax.jit(
        lambda key: samples.draw_points(sample, key, num_points=3, unbiased=True)
    )
    for seed in range(5):
        drawn = draw(jax.random.key(seed))
        found = np.asarray(drawn["mesh_points"])
        same = (found[:, None] == sample["mesh_points"][None]).all(axis=-1)
        rows = np.argmax(same, axis=1)
        assert len(set(rows)) == 3
        assert max(rows) < 7
        expected = sample["quadrature_weights"][rows] * np.float32(7 / 3)
        assert_allclose(drawn["quadrature_weights"], expected, rtol=1e-6)


@pytest.mark.parametrize("num_points", [3, 8])
def test_sums_over_drawn_points_and_their_gradients_are_unbiased(sample, num_points):
    model = jnp.array([[0.3], [-0.8]], jnp.float32)

    @jax.jit
    @jax.vmap
    def look(key):
        few = samples.draw_points(sample, key, num_points=num_points, unbiased=True)
        return jax.value_and_grad(squared)(model, few)

    values, gradients = look(jax.random.split(jax.random.key(0), 20_000))
    x, y, w = (np.asarray(sample[k], np.float64) for k in sample)
    error = x @ np.asarray(model, np.float64) - y
    expected = [np.sum(w[:, None] * error**2), 2 * x.T @ (w[:, None] * error)]
    for found, known in zip([values, gradients], expected, strict=True):
        found = np.asarray(found, np.float64)
        spread = found.std(axis=0) / np.sqrt(len(found)) + 1e-6
        assert np.all(np.abs(found.mean(axis=0) - known) < 5 * spread)


def test_draws_of_a_loss_differ_from_sample_to_sample_and_from_key_to_key(sample):
    batch = {name: np.stack([array] * 4) for name, array in sample.items()}

    def points_seen(model, few, key):
        del key
        assert few["mesh_points"].shape == (4, 3, 2)
        return few["mesh_points"]

    few = points.drawn(points_seen, True, 1 / 3)
    first, second = (few(None, batch, jax.random.key(seed)) for seed in (0, 1))
    assert len({np.asarray(part).tobytes() for part in [*first, *second]}) == 8
    assert_array_equal(first, few(None, batch, jax.random.key(0)))


def test_a_share_of_one_is_the_loss_itself():
    assert points.drawn(squared, False, 1.0) is squared


def test_number_of_points_is_rounded_up_and_not_by_rounding():
    counts = [points.number(*pair) for pair in [(0.1, 30), (0.25, 10), (1.0, 7)]]
    assert counts == [3, 3, 7]
    assert points.number(0.001, 5) == 1


@pytest.mark.parametrize("num_epochs", [3, 7, 12])
def test_stages_have_equal_parts_of_the_epochs(num_epochs):
    found = [stages.value_at("abc", epoch, num_epochs) for epoch in range(num_epochs)]
    lengths = [found.count(value) for value in "abc"]
    assert found == sorted(found)
    assert max(lengths) - min(lengths) <= 1


def test_stages_without_an_epoch_are_refused():
    with value_error("3 stages and epoch=0 do not fit"):
        stages.value_at("abc", 0, 2)
    with value_error("epoch=2"):
        stages.value_at("ab", 2, 2)


def toy(sample, traced=None, sizes=(9, 12)):
    """A linear model on two sizes of mesh; counts how often its loss is traced."""

    def padded(size):
        rows = np.minimum(np.arange(size), 8)
        found = {name: np.stack([array[rows]] * 4) for name, array in sample.items()}
        found["target"] = (
            found["target"] + np.arange(4.0, dtype=np.float32)[:, None, None]
        )
        return found

    def loss(model, batch):
        if traced is not None:
            traced.append(batch["mesh_points"].shape[1])
        return jnp.sum(training.over_samples(lambda one: squared(model, one))(batch))

    return Task(
        train=tuple(map(padded, sizes)),
        loss=loss,
        metric=squared,
        validation=(padded(9),),
        draws_points=True,
    )


def settings(**changes):
    """Four epochs of four steps, or others."""
    return Settings(
        num_epochs=4,
        batch_size=2,
        optimizer=lambda steps: training.adamw(0.01, weight_decay=0.0),
        checkpoint_every=1,
        scan=False,
        **changes,
    )


START = np.array([[0.1], [0.2]], np.float32)


class Killed(BaseException):
    """Ends a run from outside."""


def same(one, other):
    """Whether two runs have the same bits."""
    assert_array_equal(one.model, other.model)
    assert_array_equal(one.losses, other.losses)
    assert_array_equal(one.best_model, other.best_model)


@pytest.mark.nightly
@pytest.mark.parametrize("steps", [6, 8])
def test_a_run_that_is_killed_at_a_change_of_stage_ends_with_the_same_bits(
    sample, tmp_path, monkeypatch, steps
):
    given = settings(train_points=(0.25, 1.0), steps_per_call=2)
    whole = fit(toy(sample), START, given, folder=tmp_path / "whole")
    save = Loop.save_if_due

    def killed(self, *, now=False):
        del now
        save(self, now=True)
        if self.step == steps:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "save_if_due", killed)
        with pytest.raises(Killed):
            fit(toy(sample), START, given, folder=tmp_path / "cut")
    same(fit(toy(sample), START, given, folder=tmp_path / "cut"), whole)


@pytest.mark.nightly
def test_one_program_is_compiled_for_each_share_and_size(sample, tmp_path):
    traced = []
    given = settings(train_points=(0.25, 1 / 3, 0.25, 1.0))
    fit(toy(sample, traced), START, given, folder=tmp_path)
    assert sorted(traced) == [3, 3, 3, 4, 9, 12]


def test_a_run_that_goes_on_compiles_what_is_left(sample):
    found = ArrayBatches(toy(sample), settings(train_points=(0.25, 1.0)))
    assert len(found._calls(0)) == 4
    assert [program.share for program, *_ in found._calls(8)] == [1.0, 1.0]


def test_all_points_are_the_run_without_shares(sample, tmp_path):
    plain = fit(toy(sample), START, settings(), folder=tmp_path / "plain")
    given = settings(train_points=(1.0,))
    same(fit(toy(sample), START, given, folder=tmp_path / "all"), plain)


@pytest.mark.nightly
def test_few_points_are_another_run_validated_on_all(sample, tmp_path):
    plain = fit(toy(sample), START, settings(), folder=tmp_path / "plain")
    given = settings(train_points=(0.5,))
    few = fit(toy(sample), START, given, folder=tmp_path / "few")
    assert np.any(few.model != plain.model)
    (bucket,) = toy(sample).validation
    each = [
        squared(few.best_model, {k: v[i] for k, v in bucket.items()}) for i in range(4)
    ]
    assert few.best_metric == pytest.approx(float(np.mean(each)), rel=1e-5)


def config(**changes):
    """A small configuration."""
    given = {"width": 8, "num_layers": 1, "num_heads": 2, "num_basis": 4}
    return dataclasses.replace(
        train.PRESETS["smoke"], **{"num_epochs": 2, "train": "a", **given, **changes}
    )


test_options_that_mean_nothing_are_refused = refused.settings(
    config(),
    [
        ({"train_points": (0.0,)}, "train_points=0.0 must be finite and above 0"),
        ({"train_points": (0.5, 1.5)}, "train_points=1.5 must be"),
        ({"train_points": (0.5, 0.5, 1.0)}, "more entries than num_epochs=2"),
        ({"full_points": 0.1}, "full_points=0.1 has no effect without train_points"),
        (
            {"train_points": (0.5,), "stream_points": 64, "num_buckets": 0},
            "has no effect with stream_points=64",
        ),
    ],
)


def splits(rng, shape=None, num_points=36, **changes):
    """Three samples."""
    found = rng.uniform(size=(num_points, 2)).astype(np.float32)
    one = Sample(found, found[:, :1], found, grid_shape=shape)._replace(**changes)
    return Splits([one] * 2, [one], [one], "three samples")


@pytest.mark.parametrize(
    ("changes", "shape", "message"),
    [
        ({"models": ("fno",)}, (6, 6), "models='fno' needs the whole grid"),
        ({"models": ("linformer",)}, None, "models='linformer' needs a fixed number"),
        ({"convolution": True}, (6, 6), "add --noconvolution"),
        ({"train_points": (0.02,)}, None, "leaves 0.72 of the 36 points"),
        (
            {"models": ("orthogonal",), "train_points": (0.1,)},
            None,
            "leaves 3.6 of the 36 points of the smallest training mesh, but at least 4",
        ),
    ],
)
def test_models_that_need_all_points_are_refused_by_name(rng, changes, shape, message):
    given = config(
        **{"train_points": (0.25, 1.0), "equal_parameters": False, **changes}
    )
    with value_error(message):
        regression(given, splits(rng, shape))


def test_losses_and_targets_that_need_all_points_are_refused(rng):
    given = config(train_points=(0.5,))
    with value_error("loss or the model of this program"):
        regression(
            given, splits(rng), loss=learn.Loss(own=lambda prediction, sample: 0)
        )
    with value_error("normalised by itself"):
        regression(given, splits(rng), encoding=learn.Encoding(pointwise=True))
    task = dataclasses.replace(regression(given, splits(rng)), draws_points=False)
    with value_error("train_points=0.5 has no effect"):
        task.settings(given)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    by_day(["functional", "transolver", "galerkin", "flare"], day=["functional"]),
)
def test_operators_learn_from_drawn_points(rng, name, tmp_path):
    given = config(train_points=(0.25, 1.0), models=(name,), num_epochs=4, batch_size=2)
    task = regression(given, splits(rng))
    model = task.build(given, nnx.Rngs(0))
    found = fit(task, model, task.settings(given), folder=tmp_path)
    assert np.all(np.isfinite([row["train_loss"] for row in found.history]))


def test_above_one_is_a_number_of_points():
    assert points.number(512, 4000) == 512
    assert points.number(512, 300) == 300
    assert points.number(1.0, 300) == 300


def test_the_last_epochs_see_all_points(sample):
    given = settings(train_points=(3,), full_points=0.25)
    found = ArrayBatches(toy(sample), given)
    shares = [
        found.program(epoch * found.per_epoch).share
        for epoch in range(given.num_epochs)
    ]
    last = points.full_epochs(0.25, given.num_epochs)
    assert last >= 1
    assert shares == [3] * (given.num_epochs - last) + [1.0] * last


def test_padding_costs_nothing_where_a_number_of_points_is_drawn():
    counts = [100, 140, 180, 400]
    every = types.SimpleNamespace(num_epochs=100, batch_size=2)
    some = types.SimpleNamespace(**vars(every), train_points=(0.25,))
    few = types.SimpleNamespace(**vars(every), train_points=(50,), full_points=0.1)
    steps = types.SimpleNamespace(**vars(every), num_steps=400)
    found = [drawn.epochs_of(one, counts) for one in (every, some, few, steps)]
    assert found == [100, 25, 10, 200]
