"""Scaled products against attention that is divided in every call."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from opjax import nn, schwarz, training
from opjax.nn.schwarz.factors import SchwarzAttention
from tests.nn.schwarz.test_calibration import MODELS


@pytest.fixture(params=["global", "by hand", "three levels"])
def model(request):
    return MODELS[request.param]()


def divided(model, f, num_points=None):
    """The output with `Q K^T / sqrt(n d_k)` in every block, block by block."""
    if not isinstance(model, SchwarzAttention):
        n, rank = model.key.shape
        scale = ((num_points or n) * rank) ** -0.5
        return scale * model.query[...] @ (model.key[...].T @ f)
    total = np.zeros(f.shape)
    if model.coarse is not None:
        space = model.coarse_space
        inner = divided(model.coarse, schwarz.coarse_restrict(f, space), num_points)
        total = total + schwarz.coarse_prolong(inner, space)
    cover = model.cover
    for i, n in enumerate(cover.sizes):
        rows = np.asarray(cover.indices)[i, :n]
        roots = np.sqrt(np.asarray(cover.weights)[i, :n])[:, None]
        rank = min(model.key.shape[-1], n)
        query, key = (x[...][i, :n, :rank] for x in (model.query, model.key))
        scale = ((num_points or n) * rank) ** -0.5
        local = roots * (scale * query @ (key.T @ (roots * f[rows])))
        total = jnp.asarray(total).at[rows].add(local)
    return total


def points(model):
    return model.cover.num_points if hasattr(model, "cover") else model.key.shape[0]


@pytest.mark.nightly
@pytest.mark.parametrize("num_points", [None, 100])
def test_outputs_are_those_of_divided_attention(model, num_points, rng):
    f = rng.normal(size=(points(model), 2))
    scaled, sizes = nn.schwarz.scale_products(model, num_points=num_points)
    assert jax.tree.structure(scaled) == jax.tree.structure(model)
    assert jax.tree.structure(sizes) == jax.tree.structure(model)
    expected = divided(model, f, num_points)
    np.testing.assert_allclose(scaled(f), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.nightly
@jax.numpy_dtype_promotion("standard")  # for Optax
def test_adam_trains_it_as_attention_that_is_divided(rng):
    n, rank = 6, 2
    model = nn.schwarz.LowRankAttention(n, rank=rank, rngs=nnx.Rngs(3))
    f, u = rng.normal(size=(2, n, 4))
    scaled, sizes = nn.schwarz.scale_products(model)
    adam = optax.adam(0.1, eps=0.0)

    def train(loss, params, optimizer):
        state = optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(jax.grad(loss)(params), state, params)
            params = optax.apply_updates(params, updates)
        return params

    folded = optax.chain(adam, training.scale_updates(sizes))
    found: Any = train(lambda m: jnp.sum((m(f) - u) ** 2), scaled, folded)

    def called(factors):
        query, key = factors
        return jnp.sum((query @ (key.T @ f) / np.sqrt(n * rank) - u) ** 2)

    factors: Any = train(called, (model.query[...], model.key[...]), adam)
    expected = factors[0] @ factors[1].T / np.sqrt(n * rank)
    np.testing.assert_allclose(found.query[...] @ found.key[...].T, expected, rtol=1e-5)


def test_no_points_are_refused():
    with pytest.raises(ValueError, match="num_points=0 must be positive"):
        nn.schwarz.scale_products(MODELS["global"](), num_points=0)
