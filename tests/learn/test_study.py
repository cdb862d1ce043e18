"""The task that benchmark programs share: padding, buckets, resuming, models."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import samples
from opjax.learn import (
    DataOptions,
    FreshTask,
    ModelOptions,
    Program,
    RunOptions,
    Splits,
    Task,
    TrainingOptions,
)
from opjax.learn.cli.study import Tasks
from opjax.learn.predict import prediction
from opjax.learn.registry import operators
from opjax.learn.tasks import supervised
from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.model_data import Encoding
from opjax.samples import Sample
from opjax.samples.normalizers import encode
from tests import refused
from tests.refused import value_error


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    pass


TINY = Config(
    models=("functional",),
    num_train=8,
    width=8,
    num_heads=2,
    num_layers=1,
    num_basis=4,
    num_landmarks=4,
    num_epochs=2,
    num_buckets=2,
)


def make(rng, n, dtype=np.float32, **changes):
    points = rng.uniform(size=(n, 2)).astype(dtype)
    features = rng.normal(size=(n, 1)).astype(dtype)
    target = np.sin(3 * points[:, :1]) + features
    return Sample(points, target.astype(dtype), features)._replace(**changes)


def splits(rng, counts=(5, 6, 7, 11, 12, 5, 6, 12)):
    train = [make(rng, n) for n in counts]
    return Splits(train, train[:3], train[3:6], "made up")


def numpy(bucket):
    return {name: np.asarray(values) for name, values in bucket.items()}


# On any mesh, of any number of points.
_ANY_MESH = [
    name
    for name, entry in operators.REGISTRY.items()
    if not entry.grid_axes and not entry.fixed_points
]


@pytest.mark.nightly
@pytest.mark.parametrize("name", _ANY_MESH)
def test_padded_equals_unpadded_in_value_and_gradient(rng, name):
    config = dataclasses.replace(TINY, models=(name,))
    data = splits(rng)
    sample = make(rng, 9, np.float64)
    task = supervised.regression(config, data, encoding=Encoding(points=True))
    model = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.float64), task.build(config, nnx.Rngs(0))
    )
    extra = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), task.extra)

    @jax.jit
    def loss_and_gradient(bucket):
        def loss(model, sample):
            values = prediction.predict_sample(extra, model, sample)
            error = values - sample["target"]
            n = error.shape[0]
            weights = sample.get("quadrature_weights", jnp.full(n, 1 / n))
            return jnp.sum(weights[:, None] * error**2)

        return jax.value_and_grad(loss)(model, bucket)

    plain = encode(samples.stack([sample])[0], extra)
    plain = {k: v[0] for k, v in plain.items()}
    arrays = samples.pad(sample, 16)
    padded = encode(arrays, extra)
    value, gradient = loss_and_gradient(plain)
    other, other_gradient = loss_and_gradient(padded)
    assert_allclose(other, value, rtol=1e-10)
    for one, two in zip(
        jax.tree.leaves(other_gradient), jax.tree.leaves(gradient), strict=True
    ):
        assert_allclose(one, two, rtol=1e-7, atol=1e-9)


@pytest.mark.nightly
def test_the_task_of_padded_samples_is_that_of_single_ones(rng):
    data = splits(rng)
    task = supervised.regression(TINY, data)
    model = task.build(TINY, nnx.Rngs(0))
    metric = jax.jit(task.metric)
    found = [
        float(metric(model, {k: v[row] for k, v in bucket.items()}))
        for bucket in map(numpy, task.train)
        for row in range(len(bucket["target"]))
    ]
    one_by_one = []
    for sample in data.train:
        bucket = encode(samples.stack([sample])[0], task.extra)
        single = {k: v[0] for k, v in numpy(bucket).items()}
        one_by_one.append(float(metric(model, single)))
    assert_allclose(sorted(found), sorted(one_by_one), rtol=2e-5)


@pytest.mark.parametrize("fresh", [False, True])
def test_models_share_a_task_only_for_its_data(fresh):
    made = []

    def make_task(config, cache_dir):
        made.append(config)
        return FreshTask(loss=len, draw=len) if fresh else Task(train=(), loss=len)

    tasks = Tasks(make_task, None)
    one, other = (dataclasses.replace(TINY, models=(m,)) for m in ("flare", "lno"))
    first = tasks(one)
    assert tasks(dataclasses.replace(one, seeds=(7,))) is first
    assert (tasks(other) is first) == (not fresh)
    assert tasks(dataclasses.replace(other, width=6)) is not first
    assert len(made) == 2 + fresh


def test_there_may_be_no_validation_samples(rng):
    found = splits(rng)._replace(validation=[])
    assert supervised.regression(TINY, found).validation == ()
    with value_error("test samples: The data set is empty"):
        supervised.regression(TINY, found._replace(test=[]))


def test_the_loss_may_be_a_mean_and_normalisers_of_every_point(rng):
    grid = [make(rng, 12, grid_shape=(4, 3)) for _ in range(6)]
    found = Splits(grid, [], grid[:2], "made up")
    total, task = (
        supervised.regression(
            TINY, found, encoding=Encoding(pointwise=True), loss=Loss(mean=mean)
        )
        for mean in (False, True)
    )
    batch = jax.tree.map(lambda x: x[:2], task.train[0])

    def model(points, features):
        return jnp.zeros((12, 1), jnp.float32)

    ratio = total.loss(model, batch) / task.loss(model, batch)
    assert_allclose(ratio, TINY.batch_size)
    values = np.stack([sample.target for sample in grid])
    assert_allclose(task.extra["target"].mean, values.mean(axis=0), 1e-5)
    std = values.std(axis=0) + 1e-5
    assert_allclose(task.extra["target"].std, std, rtol=1e-5)
    encoded = task.train[0]["features"]
    assert_allclose(encoded.mean(axis=0), 0, atol=1e-5)


@pytest.mark.nightly
def test_a_run_compiles_once_per_bucket_and_resumes_with_the_same_bits(rng, tmp_path):
    data = splits(rng)
    traced = []

    def make_task(config, cache_dir):
        task = supervised.regression(config, data)

        def loss(model, batch):
            traced.append(batch["target"].shape)
            return task.loss(model, batch)

        return dataclasses.replace(task, loss=loss)

    def run(config, *, make_task=make_task, workdir):
        return Program("trial", {"quick": TINY}, make_task).run(config, workdir=workdir)

    rule = {"optimizer": "muon", "average_decay": 0.5}
    config = dataclasses.replace(TINY, num_epochs=6, checkpoint_every=1, **rule)
    reference = run(config, workdir=tmp_path / "whole")
    assert reference["relative_l2"] > 0
    # Every epoch has batches of both buckets, and traces none of them again.
    traces = collections.Counter(traced)
    assert len(traces) == 2
    assert max(traces.values()) < config.num_epochs

    class Killed(Exception):
        pass

    def killed_task(config, cache_dir):
        task = make_task(config, cache_dir)
        calls = []

        def metric(model, sample):
            return task.metric(model, sample)

        def evaluate(model, folder):
            calls.append(1)
            raise Killed

        return dataclasses.replace(task, metric=metric, evaluate=evaluate)

    with pytest.raises(Killed):
        run(config, make_task=killed_task, workdir=tmp_path / "killed")
    again = run(config, workdir=tmp_path / "killed")
    for key in ("relative_l2", "validation", "relative_l2_worst"):
        assert again[key] == reference[key]


test_bad_configurations_are_refused_at_once = refused.settings(
    TINY,
    [
        ({"width": 9}, "must divide width=9"),
        ({"batch_size": 9}, "must be at most num_train=8"),
        ({"microbatch": 3}, "must divide batch_size=2"),
        ({"seeds": (0, 0)}, "seeds=0,0 contains 0 twice"),
        ({"seeds": (0, -1)}, "seeds=-1 must be finite and at least 0"),
        ({"models": ("a", "a")}, "models=a,a contains a twice"),
        ({"models": ()}, "models is empty"),
        ({"beta1": 0.8}, "has no effect while beta1 is cycled"),
        ({"projection": "sum"}, "unknown; choose from mean, transpose"),
        ({"optimizer": "sgd"}, "unknown; choose from adamw, muon"),
        ({"average_decay": 1.0}, "average_decay=1.0 must be"),
    ],
)


def test_bad_samples_name_their_split(rng):
    data = splits(rng)
    bad = [data.test[0]._replace(target=data.test[0].target * np.nan)]
    with value_error("test samples: sample 0: target has"):
        supervised.regression(TINY, data._replace(test=bad))
    with value_error("validation samples have no targets"):
        supervised.regression(
            TINY, data._replace(validation=[data.test[0]._replace(target=None)])
        )
    other = [make(rng, 5, features=None)]
    with value_error("train has .* test has .*same channels"):
        supervised.regression(TINY, data._replace(test=other))
