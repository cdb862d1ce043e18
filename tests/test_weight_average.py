import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from opjax import training

DECAY = 0.9


def loss(model, batch):
    return jnp.mean((model(batch["x"])[:, 0] - batch["y"]) ** 2)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(6, 3)), "y": rng.normal(size=6)}


def make(rule):
    model = nnx.Linear(3, 1, rngs=nnx.Rngs(0), param_dtype=jnp.float64)
    return training.init(model, rule), training.make_step(loss, rule)


def kernel(model):
    return np.asarray(model.kernel[...])


def test_the_average_is_the_weighted_mean_of_the_weights_of_all_steps(data):
    plain = optax.chain(optax.clip(1.0), training.adamw(0.1, weight_decay=0.0))
    state, step = make(training.averaged(plain, DECAY))
    other, follow = make(plain)
    assert np.array_equal(kernel(training.averaged_model(state)), kernel(state.model))
    seen = []
    for _ in range(7):
        state, _ = step(state, data)
        other, _ = follow(other, data)
        assert np.array_equal(kernel(state.model), kernel(other.model))
        seen.append(kernel(state.model))
        weights = DECAY ** np.arange(len(seen))[::-1]
        expected = np.tensordot(weights / weights.sum(), np.stack(seen), 1)
        found = kernel(training.averaged_model(state))
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert kernel(training.averaged_model(other)) is not None
    assert np.array_equal(kernel(training.averaged_model(other)), seen[-1])


def test_a_refused_update_leaves_the_average_as_it_was(data):
    state, step = make(training.averaged(optax.sgd(0.1), DECAY))
    state, _ = step(state, data)
    before = kernel(training.averaged_model(state))
    state, metrics = step(state, {**data, "y": data["y"] * np.nan})
    assert not metrics["finite"]
    assert np.array_equal(kernel(training.averaged_model(state)), before)


def test_without_memory_the_average_is_the_last_model(data):
    state, step = make(training.averaged(optax.sgd(0.1), 0.0))
    for _ in range(3):
        state, _ = step(state, data)
    assert np.array_equal(kernel(training.averaged_model(state)), kernel(state.model))


def test_replicas_have_averages_of_their_own():
    rule = training.averaged(optax.sgd(0.1), DECAY)
    params = jnp.asarray([[1.0, 2.0], [3.0, 5.0]], jnp.float32)
    state = jax.jit(jax.vmap(rule.init))(params)
    _, state = jax.jit(jax.vmap(rule.update))(jnp.ones_like(params), state, params)
    found = training.average_of(state, params)
    np.testing.assert_allclose(found, params - 0.1, rtol=1e-6)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(ValueError, match="decay"):
        training.averaged(optax.sgd(0.1), decay)


def test_parameters_are_asked_for():
    rule = training.averaged(optax.sgd(0.1), DECAY)
    with pytest.raises(ValueError, match="pass params"):
        rule.update(jnp.ones(2), rule.init(jnp.ones(2)))
