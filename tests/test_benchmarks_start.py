"""The benchmark of the start sees what scale-free ridges are for."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import start
from opjax import nn
from tests.builders import small_operator

POINTS = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (40, 2)), jnp.float32)


def make(unit):
    return small_operator(
        feature_dim=0,
        attention=partial(
            nn.BasisAttention,
            num_heads=2,
            basis=partial(nn.bases.SoftmaxBasis, num_heads=2, num_basis=6),
            mixer=partial(nn.mixers.FunctionalMap, ridge_unit=unit),
        ),
    )


def loss(model, batch):
    predicted = jax.jit(jax.vmap(model))(batch["mesh_points"])
    return jnp.mean((predicted - batch["target"]) ** 2)


@pytest.mark.nightly
def test_the_published_ridge_swamps_the_map_and_the_scale_free_one_does_not():
    sample = {"mesh_points": POINTS, "target": jnp.sin(POINTS[:, :1])}
    one, mean = (start.measure(make(unit), loss, sample)[0] for unit in ("one", "mean"))
    assert one["ridge"] == 0.5 > 50 * one["eigenvalue"]
    np.testing.assert_allclose(mean["ridge"], mean["eigenvalue"] / 2, rtol=1e-5)
    assert mean["eigenvalue"] == one["eigenvalue"]
    assert mean["map"] > 10 * one["map"]
    assert mean["attention"] > 5 * one["attention"]
    assert mean["gradient"] > 5 * one["gradient"]
