import pathlib

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import training
from tests import refused
from tests.selection import by_day

GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "onecycle.npz")
OPTIONS = {
    "clipped": {"peak": 0.05, "clip_norm": 1.0},
    "fixed": {
        "peak": 0.1,
        "pct_start": 0.1,
        "div_factor": 1e4,
        "final_div_factor": 1e3,
        "cycle_momentum": False,
    },
}


class Model(nnx.Module):
    def __init__(self, *, rngs, dtype=jnp.float64):
        self.first = nnx.Linear(3, 4, rngs=rngs, param_dtype=dtype, dtype=dtype)
        self.last = nnx.Linear(4, 1, rngs=rngs, param_dtype=dtype, dtype=dtype)
        self.offset = jnp.arange(2)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))[..., 0]


def loss(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 3))
    return {"x": x, "y": np.sin(x.sum(1))}


@pytest.fixture
def model():
    return Model(rngs=nnx.Rngs(0))


def leaves(tree):
    def plain(x):
        key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if key else x)

    return [plain(x) for x in jax.tree.leaves(tree)]


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(leaves(a), leaves(b), strict=True):
        assert_array_equal(x, y)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", by_day([jnp.float64, jnp.float32], [jnp.float64]))
def test_the_trajectory_is_that_of_torch(name, dtype):
    matrix, targets = (GOLDEN[k].astype(dtype) for k in ("matrix", "targets"))

    def objective(m, target):
        residual = matrix @ m["x"] - target
        return 0.5 * jnp.sum(residual**2) + jnp.sum(jnp.cos(3 * m["b"]))

    options = dict(OPTIONS[name])
    rule = training.adamw_onecycle(
        options.pop("peak"), 50, weight_decay=0.05, **options
    )
    step = jax.jit(training.make_step(objective, rule))
    state = training.init({k: jnp.asarray(GOLDEN[k], dtype) for k in "xb"}, rule)
    rows = []
    for target in targets:
        state, m = step(state, target)
        rate = optax.tree.get(state.optimizer_state, "learning_rate")
        beta = optax.tree.get(state.optimizer_state, "beta1")
        rows.append([rate, beta, m["loss"], m["gradient_norm"]])
        rows[-1] += [*state.model["x"], *state.model["b"]]
    assert state.model["x"].dtype == dtype
    tolerance = 1e-12 if dtype == jnp.float64 else 2e-5
    assert_allclose(np.array(rows), GOLDEN[name], atol=tolerance, rtol=1e-11)


def numpy_onecycle(i, peak, total, pct, div, final):
    turn, end, low = pct * total - 1, total - 1, peak / div
    if i <= turn:
        a, b, t = low, peak, i / turn
    else:
        a, b, t = peak, low / final, (i - turn) / (end - turn)
    return b + (a - b) / 2 * (1 + np.cos(np.pi * t))


@pytest.mark.parametrize("total", [1, 7, 1000])
@pytest.mark.parametrize("pct", [0.25, 0.3])
def test_onecycle_is_the_published_formula(total, pct):
    schedule = training.onecycle(2.0, total, pct_start=pct)
    expected = [numpy_onecycle(i, 2.0, total, pct, 25.0, 1e4) for i in range(total)]
    found = jax.jit(schedule)(np.arange(total + 6))
    assert_allclose(found[:total], expected, rtol=1e-9)
    assert found[total + 5] == found[total - 1]


def test_onecycle_starts_peaks_and_ends_where_it_should():
    rate, beta = training.onecycle(1.0, 10), training.onecycle_momentum(10)
    found = jax.jit(lambda step: (rate(step), beta(step)))(np.array([0, 2, 9]))
    assert_allclose(found[0], [0.04, 1.0, 4e-6], rtol=1e-10)
    assert_allclose(found[1], [0.95, 0.85, 0.95], rtol=1e-10)
    # A warm-up of no length: torch divides by zero, here the first step is the peak.
    assert training.onecycle(1.0, 10, pct_start=0.1)(0) == 1.0


def test_scaled_updates_are_multiples_of_the_sizes():
    sizes = {"a": jnp.float32(0.5), "b": jnp.array([1.0, 3.0], jnp.float32)}
    updates = {"a": jnp.ones((2, 2), jnp.float32), "b": jnp.full(2, 2, jnp.float32)}
    rule = training.scale_updates(sizes)
    out, _ = jax.jit(rule.update)(updates, rule.init(updates))
    assert_array_equal(out["a"], np.full((2, 2), 0.5, np.float32))
    assert_array_equal(out["b"], np.array([2, 6], np.float32))
    with pytest.raises(ValueError, match="structure|mismatch|keys"):
        rule.update({"a": updates["a"]}, rule.init(updates))


def test_an_unclipped_gradient_passes_and_a_large_one_has_the_given_norm():
    rule = training.adamw_onecycle(1.0, 5, weight_decay=0.0, clip_norm=2.0)
    assert len(rule.init({"w": jnp.ones(3)})) == 2
    clip = training.clip_gradient_norm(2.0)
    clipped = jax.jit(lambda g: clip.update(g, clip.init(g)))
    for scale in (0.1, 100.0):
        out, _ = clipped({"w": np.array([3.0, 4.0]) * scale})
        assert_allclose(np.linalg.norm(out["w"]), min(5 * scale, 2.0), rtol=1e-5)


def test_a_chain_is_that_of_optax():
    rules = training.clip_gradient_norm(0.5), training.adamw(1e-2, weight_decay=0.1)
    ours, theirs = training.chain(*rules), optax.chain(*rules)
    params, g = {"w": np.array([1.0, 2.0])}, {"w": np.array([3.0, 4.0])}

    @jax.jit
    def first(params, g):
        both = ours, theirs
        return [rule.update(g, rule.init(params), params) for rule in both]

    for _ in range(2):
        (found, state), (expected, other) = first(params, g)
        assert jax.tree.structure(state) == jax.tree.structure(other)
        for a, b in zip(
            *map(jax.tree.leaves, ((found, state), (expected, other))), strict=True
        ):
            assert_array_equal(a, b)


@pytest.mark.parametrize(
    "rule", by_day([training.adamw, training.muon], [training.muon])
)
def test_numbers_of_an_optimizer_are_arguments_of_its_program(rule, model, data):
    """Other rates, lengths and decays: the same program, and the right numbers."""

    def optimizer(scale, total):
        rate = training.onecycle(1e-2 * scale, total, div_factor=10.0 * scale)
        beta = training.onecycle_momentum(total, pct_start=0.2 * scale)
        inner = rule(rate, b1=beta, weight_decay=0.1 * scale, b2=0.99, eps=1e-7 * scale)
        inner = training.chain(training.clip_gradient_norm(scale), inner)
        return training.averaged(inner, 0.5 / scale)

    def make(rule):
        return training.make_step(loss, rule)

    texts = []
    for scale, total in ((1.0, 10), (2.0, 30)):
        own = optimizer(scale, total)
        state, program = training.init(model, own), training.jit_with(own, make)
        texts.append(program.lower(state, data).as_text())
        found, expected = program(state, data), jax.jit(make(own))(state, data)
        for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
            if jnp.issubdtype(a.dtype, jnp.floating):
                assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert texts[0] == texts[1]


def test_integer_and_key_leaves_are_carried_unchanged(model, data):
    rule = training.adamw_onecycle(1e-2, 5, weight_decay=0.1)
    state = training.init(model, rule)
    after, _ = jax.jit(training.make_step(loss, rule))(state, data)
    assert type(after.model) is Model
    assert_array_equal(after.model.offset, model.offset)
    assert_array_equal(
        *(jax.random.key_data(m.dropout.rngs.key[...]) for m in (after.model, model))
    )
    assert not np.array_equal(after.model.first.kernel[...], model.first.kernel[...])
    assert int(after.step) == 1


@pytest.mark.parametrize("on_device_scan", [False, True])
def test_an_epoch_equals_its_steps(model, data, on_device_scan):
    rule = training.adamw_onecycle(1e-2, 5, weight_decay=0.1)
    order = training.sample_order(0, 0, 10, 2)
    epoch = training.make_epoch(loss, rule, on_device_scan=on_device_scan)
    state, history = epoch(training.init(model, rule), data, order)
    expected = training.init(model, rule)
    step = jax.jit(training.make_step(loss, rule))
    losses = []
    for rows in order:
        expected, m = step(expected, jax.tree.map(lambda x, r=rows: x[r], data))
        losses.append(m["loss"])
    assert_allclose(history["loss"], losses, rtol=1e-12)
    for a, b in zip(leaves(state), leaves(expected), strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-14)
    assert training.first_non_finite(history) is None
    assert model(data["x"]).shape == (10,), "donation must not delete the caller's"


@pytest.mark.parametrize("on_device_scan", [False, True])
def test_the_state_before_a_nan_survives_it(model, data, on_device_scan):
    rule = training.adamw_onecycle(1e-2, 5, weight_decay=0.1, clip_norm=1.0)
    data["y"][5] = np.nan
    order = np.arange(10).reshape(5, 2)
    epoch = training.make_epoch(loss, rule, on_device_scan=on_device_scan)
    state, history = epoch(training.init(model, rule), data, order)
    good, _ = epoch(training.init(model, rule), data, order[:2])
    assert training.first_non_finite(history) == 2
    assert np.isnan(history["loss"][2])
    assert int(state.step) == 2
    assert_equal(state, good)


def test_weakly_typed_leaves_do_not_compile_the_second_epoch_again(data):
    traced = []

    def counted(model, batch):
        traced.append(model)
        return jnp.mean((batch["x"] @ model - batch["y"]) ** 2)

    rule = training.adamw_onecycle(1e-2, 4, weight_decay=0.1)
    epoch = training.make_epoch(counted, rule)
    state, _ = epoch(training.init(jnp.full(3, 0.5), rule), data, jnp.array([[0, 1]]))
    traces = len(traced)
    epoch(state, data, jnp.array([[2, 3]]))
    assert len(traced) == traces


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"b1": 1.0}, "b1=1.0 must satisfy 0 <= b1 < 1"),
        ({"b1": -0.1}, "b1=-0.1"),
        ({"b2": 1.0}, "b2=1.0 must satisfy 0 <= b2 < 1"),
        ({"eps": 0.0}, "eps=0.0 must be positive"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 must be non-negative"),
    ],
)
def test_bad_numbers_of_adamw_are_named_in_the_error(options, message):
    with pytest.raises(ValueError, match=message):
        training.adamw(1e-2, **{"weight_decay": 0.0, **options})


def test_adamw_without_memory_steps_along_the_sign_of_the_gradient():
    rule = training.adamw(0.5, weight_decay=0.0, b1=0.0, b2=0.0)
    params, gradient = np.zeros(3), np.array([2.0, -3.0, 1e-3])
    state, update = rule.init(params), jax.jit(rule.update)
    for _ in range(2):
        updates, state = update(gradient, state, params)
        assert_allclose(updates, -0.5 * np.sign(gradient), rtol=1e-4)


def test_a_finite_loss_with_an_infinite_gradient_is_not_applied():
    rule = training.adamw(1e-2, weight_decay=0.0)
    state = training.init({"w": jnp.zeros(2)}, rule)
    step = jax.jit(training.make_step(lambda m, _: jnp.sum(jnp.sqrt(m["w"])), rule))
    after, metrics = step(state, None)
    assert metrics["loss"] == 0
    assert not metrics["finite"]
    assert_equal(after, state)


def test_dropout_keys_depend_on_the_step_alone(data):
    def noisy(model, batch, *, key):
        noise = jax.random.normal(key)
        return jnp.sum(model["w"] ** 2) + 0 * batch["x"].sum(), {"noise": noise}

    rule = training.adamw(1e-2, weight_decay=0.0)
    step, key = jax.jit(training.make_step(noisy, rule)), jax.random.key(1)
    state = training.init({"w": jnp.ones(2)}, rule)
    after, first = step(state, data, key)
    _, again = step(state, data, key)
    _, second = step(after, data, key)
    assert first["noise"] == again["noise"] != second["noise"]


def test_the_sample_order_is_a_permutation_fixed_by_seed_and_epoch():
    order = training.sample_order(3, 7, 10, 5)
    assert sorted(np.ravel(order).tolist()) == list(range(10))
    assert_array_equal(order, training.sample_order(3, 7, 10, 5))
    jitted = jax.jit(lambda epoch: training.sample_order(3, epoch, 10, 5))(7)
    assert_array_equal(order, jitted)
    assert not np.array_equal(order, training.sample_order(3, 8, 10, 5))
    assert not np.array_equal(order, training.sample_order(4, 7, 10, 5))
    partial = np.ravel(training.sample_order(3, 7, 10, 4))
    assert partial.size == len(set(partial.tolist())) == 8


@pytest.mark.parametrize("batch_size", [1, 3, 10, 20])
def test_evaluation_does_not_depend_on_the_batch_size(model, data, batch_size):
    values = training.evaluate(loss, model, data, batch_size=batch_size)
    expected = (np.asarray(model(data["x"])) - data["y"]) ** 2
    assert_allclose(values, expected, rtol=1e-12)


def test_bad_options_are_refused_with_the_way_out():
    refused.each(
        (lambda: training.sample_order(0, 0, 3, 4), "smaller batch"),
        (lambda: training.onecycle(1.0, 0), "total_steps=0"),
        (lambda: training.onecycle(-1.0, 5), "peak=-1"),
        (lambda: training.onecycle_momentum(5, pct_start=2.0), "pct_start=2"),
        (lambda: training.clip_gradient_norm(0.0), "max_norm=0"),
        (
            lambda: training.init(
                {"w": jnp.arange(2)}, training.adamw(1.0, weight_decay=0)
            ),
            "no floating-point leaf",
        ),
    )
    with pytest.raises(TypeError, match="two real arrays"):
        training.init({"w": jnp.ones(2, complex)}, training.adamw(1.0, weight_decay=0))


def test_gradients_in_parts_add_up_to_those_of_the_batch():
    model = {"w": jnp.arange(3.0), "count": jnp.int32(0)}
    batch = {"x": np.cos(np.arange(24.0)).reshape(8, 3), "y": np.arange(8.0)}

    def loss(model, batch):
        error = batch["x"] @ model["w"] - batch["y"]
        return jnp.sum(error**2), {"largest_sum": jnp.sum(error)}

    optimizer = training.adamw(1e-2, weight_decay=0.1)
    state = training.init(model, optimizer)
    whole, metrics = jax.jit(training.make_step(loss, optimizer))(state, batch)
    for microbatch in (1, 2, 8):
        step = jax.jit(training.make_step(loss, optimizer, microbatch=microbatch))
        parts, metrics_of_parts = step(state, batch)
        chex.assert_trees_all_close(parts, whole, rtol=1e-12)
        chex.assert_trees_all_close(metrics_of_parts, metrics, rtol=1e-12)
    with pytest.raises(ValueError, match="microbatch=3 must divide the number"):
        training.make_step(loss, optimizer, microbatch=3)(state, batch)


def test_parts_of_a_batch_draw_different_numbers():
    def loss(model, batch, *, key):
        return jnp.sum(model["w"]) * 0 + jax.random.uniform(key) * len(batch)

    optimizer = training.adamw(1e-2, weight_decay=0.0)
    state = training.init({"w": jnp.ones(2)}, optimizer)
    key, batch = jax.random.key(0), jnp.ones((2, 1))
    step = training.make_step(loss, optimizer, microbatch=1)

    @jax.jit
    def both(key):
        keys = jax.random.split(jax.random.fold_in(key, 0))
        expected = sum(jax.random.uniform(one) for one in keys)
        return step(state, batch, key)[1]["loss"], expected

    assert_allclose(*both(key), rtol=1e-12)


def test_batches_of_buckets_are_a_permutation_of_full_batches():
    sizes = [7, 4, 10]
    order = jax.jit(lambda seed, epoch: training.bucket_order(seed, epoch, sizes, 3))
    which, rows = order(3, 5)
    assert rows.shape == (2 + 1 + 3, 3)
    for bucket, size in enumerate(sizes):
        found = np.asarray(rows)[np.asarray(which) == bucket].ravel()
        assert len(set(found)) == len(found) == 3 * (size // 3)
        assert found.max() < size
    again = order(3, 5)
    assert_array_equal(again[0], which)
    assert_array_equal(again[1], rows)
    other = order(3, 6)
    assert not np.array_equal(other[1], rows)


def test_one_bucket_has_the_order_of_samples():
    (which, rows), order = jax.jit(
        lambda: (training.bucket_order(1, 2, [9], 4), training.sample_order(1, 2, 9, 4))
    )()
    assert_array_equal(rows, order)
    assert_array_equal(which, 0)


def test_no_bucket_of_a_seed_has_the_batches_of_another_seed():
    # As sets, since whole batches are shuffled.
    batches = []
    order = jax.jit(lambda seed: training.bucket_order(seed, 0, [32, 32, 32], 4))
    for seed in (0, 1, 2):
        which, rows = map(np.asarray, order(seed))
        for bucket in range(3):
            found = np.sort(rows[which == bucket], axis=1)
            batches.append(frozenset(map(tuple, found.tolist())))
    assert len(set(batches)) == 9


@pytest.mark.parametrize("sizes", [[], [5, 2]])
def test_buckets_smaller_than_a_batch_are_refused(sizes):
    with pytest.raises(ValueError, match="smallest bucket"):
        training.bucket_order(0, 0, sizes, 3)


@pytest.mark.parametrize("count", [1, 3])
def test_functions_of_samples_are_mapped_over_batches_of_any_size(rng, count):
    batch = {"x": rng.normal(size=(count, 5)), "y": rng.normal(size=(count, 2))}
    keys = jax.random.split(jax.random.key(0), count)

    def one(sample, key):
        assert sample["x"].shape == (5,)
        noise = jax.random.normal(key, (2,))
        return {"sum": jnp.sum(sample["x"] ** 2), "y": sample["y"] * noise}

    found = jax.jit(training.over_samples(one))(batch, keys)
    expected = jax.jit(jax.vmap(one))(batch, keys)
    jax.tree.map(assert_allclose, found, expected)
