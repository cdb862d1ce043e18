"""Kernels that keep the variance of features from layer to layer."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from tests.builders import small_operator

LAYERS = 3


def transformer(**options):
    return small_operator(
        feature_dim=0,
        features=32,
        num_layers=LAYERS,
        attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=8),
        **options,
    )


def kernels(model):
    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {"/".join(map(str, path)): np.asarray(value[...]) for path, value in flat}


def rank(features):
    """Number of directions that the features of points vary in, weighed by how much."""
    values = np.linalg.svd(features - features.mean(axis=0), compute_uv=False)
    return values.sum() ** 2 / (values**2).sum()


def encoded(model):
    points = jax.random.normal(jax.random.key(1), (400, 2), jnp.float32)
    return np.asarray(model.encode(points, None), np.float64)


@pytest.mark.nightly
def test_kernels_have_the_deviations_of_the_formula():
    found = kernels(nn.unit_variance(transformer(time_embedding=True)))
    sizes = {name: np.sqrt(np.mean(value**2)) for name, value in found.items()}
    expected = {
        "encoder/hidden/0/kernel": 2**-0.5,
        "encoder/out/kernel": 64**-0.5,
        "time_embedding/out/kernel": 32**-0.5,
        "blocks/attention/mixer/query/kernel": 16**-0.5,
        "blocks/attention/out/kernel": (2 * LAYERS * 32) ** -0.5,
        "blocks/mlp/hidden/0/kernel": 32**-0.5,
        "blocks/mlp/out/kernel": (2 * LAYERS * 32) ** -0.5,
    }
    for name, size in expected.items():
        assert_allclose(sizes[name], size, rtol=1e-6, err_msg=name)


def test_only_scales_of_kernels_of_encoder_and_blocks_change():
    before, after = kernels(transformer()), kernels(nn.unit_variance(transformer()))
    for name, value in before.items():
        scaled = name.endswith("kernel") and "basis" not in name
        if scaled and not name.startswith("decoder"):
            ratio = after[name] / value
            assert_allclose(ratio, ratio.flat[0], rtol=1e-5, err_msg=name)
            assert abs(ratio.flat[0] - 1) > 0.1
        else:
            assert_array_equal(after[name], value, err_msg=name)


def test_features_of_the_plane_leave_the_linear_range():
    published, scaled = encoded(transformer()), encoded(nn.unit_variance(transformer()))
    assert rank(published) < 2.3
    assert rank(scaled) > 3
    assert published.std() < 0.01
    assert 0.2 < scaled.std() < 1


@pytest.mark.nightly
def test_branches_add_as_much_variance_as_there_is_at_most():
    model = nn.unit_variance(transformer())
    points = jax.random.normal(jax.random.key(1), (400, 2), jnp.float32)
    z = first = model.encode(points, None)
    for layer in range(LAYERS):
        block = jax.tree.map(lambda x, i=layer: x[i], model.blocks)
        z = block(z)
    assert 1 < jnp.mean(z**2) / jnp.mean(first**2) < 3


def test_models_without_encoder_and_blocks_are_refused():
    with pytest.raises(ValueError, match="no encoder and no blocks"):
        nn.unit_variance(nn.MLP(2, 3, 1, rngs=nnx.Rngs(0)))
