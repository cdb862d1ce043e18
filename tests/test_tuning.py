"""Fine-tuning of any pytree model: frozen parts and low-rank updates."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import training
from opjax.training import tuning

KEY = jax.random.key(0)


@pytest.fixture
def model():
    """A perceptron of two layers; its matrices have 8 x 12 and 12 x 6 entries."""
    return nnx.List(
        [
            nnx.Linear(8, 12, rngs=nnx.Rngs(0), param_dtype=jnp.float64),
            nnx.Linear(12, 6, rngs=nnx.Rngs(1), param_dtype=jnp.float64),
        ]
    )


def predicted(model, x):
    first, last = tuning.merged(model)
    return last(jnp.tanh(first(x)))


def loss(model, x):
    return jnp.sum((predicted(model, x) - 1) ** 2)


def trained(model, steps=3, optimizer=None):
    optimizer = optimizer or training.muon(0.02, weight_decay=0.01)
    step = jax.jit(training.make_step(loss, optimizer))
    state = training.init(model, optimizer)
    for _ in range(steps):
        state, metrics = step(state, jnp.ones((4, 8)))
        assert metrics["finite"]
    return state


def test_parameters_are_named_by_their_path(model):
    assert list(tuning.named(model)) == ["0.bias", "0.kernel", "1.bias", "1.kernel"]
    assert tuning.matrices(model) == {"0.kernel", "1.kernel"}


def test_a_low_rank_update_starts_with_the_same_predictions(model):
    found = tuning.tuned(model, dict.fromkeys(tuning.matrices(model), 2), key=KEY)
    x = jax.random.normal(KEY, (5, 8), float)
    assert all(isinstance(part, tuning.Factors) for part in found.parts.values())
    assert_array_equal(predicted(found, x), predicted(model, x))


@pytest.mark.parametrize("stack", [(), (3,)])
def test_factors_of_full_rank_reach_any_matrix(stack):
    rng = np.random.default_rng(0)
    first, wanted = rng.normal(size=(2, *stack, 5, 4))
    down, singular, up = np.linalg.svd(wanted - first, full_matrices=False)
    parts = {"kernel": tuning.Factors(down * singular[..., None, :], up)}
    found = tuning.Tuned(tuning.Frozen({"kernel": first}), parts)
    assert_allclose(tuning.merged(found)["kernel"], wanted, atol=1e-12)


def test_an_update_has_the_rank_of_its_factors(model):
    found = tuning.tuned(model, {"0.kernel": 2}, key=KEY)
    model_after = tuning.merged(trained(found).model)
    change = np.asarray(model_after[0].kernel[...] - model[0].kernel[...])
    assert np.linalg.matrix_rank(change) == 2


def test_frozen_parts_keep_every_bit_and_have_no_optimizer_state(model):
    found = tuning.tuned(model, {"1.bias": 0, "0.kernel": 2}, key=KEY)
    state = trained(found)
    before, after = (tuning.named(m) for m in (model, tuning.merged(state.model)))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"1.bias", "0.kernel"}
    assert tuning.num_trained(found) == 6 + 2 * (8 + 12)
    assert tuning.num_parameters(found) == 8 * 12 + 12 + 12 * 6 + 6
    adam = training.init(found, training.adamw(0.1, weight_decay=0.0)).optimizer_state
    sizes = [leaf.size for leaf in jax.tree.leaves((adam.mean, adam.square))]
    assert sum(sizes) == 2 * tuning.num_trained(found)


def test_training_all_parameters_of_a_tuned_model_is_ordinary_training(model):
    optimizer = training.adamw(0.01, weight_decay=0.01)
    every = tuning.tuned(model, dict.fromkeys(tuning.named(model), 0), key=KEY)
    found = tuning.merged(trained(every, optimizer=optimizer).model)
    expected = trained(model, optimizer=optimizer).model
    chex.assert_trees_all_close(found, expected, rtol=1e-12)


def test_a_matrix_no_larger_than_its_factors_is_trained_as_a_whole(model):
    ranks = {"0.kernel": 4, "1.kernel": 4, "1.bias": 4}
    parts = tuning.tuned(model, ranks, key=KEY).parts
    assert isinstance(parts["0.kernel"], tuning.Factors)  # 80 of 96 entries
    assert parts["1.kernel"].shape == (12, 6)  # factors would have 72
    assert parts["1.bias"].shape == (6,)


@pytest.mark.parametrize("ranks", [{}, {"0.weight": 0}, {"0.kernel": -1}])
def test_unknown_parameters_and_negative_ranks_are_refused(model, ranks):
    with pytest.raises(ValueError, match="0.bias, 0.kernel|rank"):
        tuning.tuned(model, ranks, key=KEY)
