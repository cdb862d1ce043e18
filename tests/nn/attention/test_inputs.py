"""A forgotten `jax.vmap` and wrong channels are said by the layer, not by XLA."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from opjax import nn
from tests.selection import by_day

F, H, K, N = 8, 2, 4, 12
HEADS = {"num_heads": H}
LAYERS = {
    "FunctionalAttention": {"num_basis": K},
    "PhysicsAttention": {"num_basis": K},
    "OrthogonalAttention": {"num_basis": K},
    "FlareAttention": {"num_latents": K},
    "GalerkinAttention": {"point_dim": 2},
    "FourierAttention": {"point_dim": 2},
    "LinearAttention": {"point_dim": 2},
    "SoftmaxAttention": {"point_dim": 2},
    "attention.IntentionAttention": {"point_dim": 2},
    "attention.MeanAttention": {},
    "attention.EfficientAttention": {},
    "attention.PerformerAttention": {"point_dim": 2, "num_features": K},
    "attention.NystromAttention": {"point_dim": 2, "num_landmarks": K},
    "attention.NystromformerAttention": {"num_landmarks": K},
}


def make(name):
    module = nn
    for part in name.split("."):
        module = getattr(module, part)
    return module(F, **HEADS, **LAYERS[name], rngs=nnx.Rngs(0))


@pytest.mark.parametrize("name", by_day(LAYERS, list(LAYERS)[::3]))
@pytest.mark.parametrize("shape", [(3, N, F), (N, F - 1), (F,)])
def test_what_is_not_one_sample_with_its_channels_is_refused(name, shape):
    layer, x = make(name), jnp.zeros(shape, jnp.float32)
    given = (
        {"mesh_points": jnp.zeros((N, 2), jnp.float32)}
        if "point_dim" in LAYERS[name]
        else {}
    )
    with pytest.raises(ValueError, match=rf"expected \(n, {F}\).*jax.vmap"):
        jax.eval_shape(lambda: layer(x, **given))
    x = jnp.zeros((3, N, F), jnp.float32)
    found = jax.eval_shape(lambda: jax.vmap(lambda one: layer(one, **given))(x))
    assert found.shape == x.shape


def test_a_pointwise_layer_names_its_channels():
    x = jnp.zeros((2, N, F), jnp.float32)
    for layer in (
        nn.layers.Linear(F, 3, rngs=nnx.Rngs(0)),
        nn.layers.FanInLinear(F, 3, rngs=nnx.Rngs(0)),
        nn.MLP(F, F, 3, rngs=nnx.Rngs(0)),
    ):
        assert layer(x).shape == (2, N, 3)
        with pytest.raises(
            ValueError, match=f"must have {F} channels along the last axis"
        ):
            layer(x[..., 1:])
