"""Decoders of the Galerkin transformer."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from tests import refused
from tests.nn.parameters import enlarged


def silu(x):
    return x / (1 + np.exp(-x))


def spectral_decoder(**options):
    options = {"features": 4, "grid_shape": (16,), "modes": 3} | options
    return enlarged(nn.layers.SpectralDecoder(2, 1, rngs=nnx.Rngs(0), **options))


@pytest.mark.parametrize("last_activation", [False, True])
@pytest.mark.parametrize("point_dim", [0, 1])
def test_the_spectral_decoder_is_the_chain_of_its_parts(
    rng, last_activation, point_dim
):
    decoder = spectral_decoder(point_dim=point_dim, last_activation=last_activation)
    x, points = rng.normal(size=(16, 2)), np.linspace(0, 1, 16)[:, None]
    given = {"mesh_points": points} if point_dim else {}
    y = decoder.lift(jnp.concatenate([x, points], axis=1)) if point_dim else x
    for i, layer in enumerate(decoder.layers):
        y = layer.convolution(y) + layer.skip(y)
        y = silu(y) if i == 0 or last_activation else y
    (hidden,) = decoder.perceptron.hidden
    expected = decoder.perceptron.out(silu(hidden(y)))
    assert_allclose(decoder(x, **given), expected, rtol=1e-10)
    assert hidden.kernel.shape == (4, 16)


def test_one_linear_spectral_layer_commutes_with_refinement():
    decoder = spectral_decoder(num_layers=1, last_activation=False)

    def signal(n):
        x = 2 * np.pi * np.arange(n)[:, None] / n
        return jnp.asarray(np.hstack([np.cos(x) + 1, np.sin(2 * x)]))

    coarse = decoder(signal(16))
    fine = decoder(signal(32), grid_shape=(32,))
    assert_allclose(fine[::2], coarse, rtol=1e-10)


def test_the_pointwise_decoder_is_the_chain_of_its_parts(rng):
    decoder = nn.layers.PointwiseDecoder(
        2, 3, features=4, num_layers=2, point_dim=2, rngs=nnx.Rngs(0)
    )
    decoder = enlarged(decoder)
    x, points = (rng.normal(size=(7, 2)) for _ in range(2))
    y = decoder.lift(jnp.concatenate([x, points], axis=1))
    for layer in decoder.perceptron.hidden:
        y = silu(layer(y))
    expected = decoder.perceptron.out(y)
    assert_allclose(decoder(x, mesh_points=points), expected, rtol=1e-10)


@pytest.mark.parametrize("point_dim", [0, 2])
def test_coordinates_of_a_decoder_that_do_not_fit_are_named(point_dim):
    decoder = nn.layers.PointwiseDecoder(
        2, 1, features=4, point_dim=point_dim, rngs=nnx.Rngs(0)
    )
    with pytest.raises(ValueError, match=r"mesh_points \(7, 3\) do not fit"):
        decoder(np.ones((7, 2)), mesh_points=np.ones((7, 3)))


def test_bad_decoders_are_named():
    refused.each(
        (lambda: spectral_decoder(activation="sine"), "activation='sine'"),
        (lambda: spectral_decoder(num_layers=0), "num_layers=0 must be positive"),
        (lambda: spectral_decoder(modes=(20,)), "modes"),
        (
            lambda: nn.layers.PointwiseDecoder(
                2, 1, features=4, num_layers=0, rngs=nnx.Rngs(0)
            ),
            "num_layers=0 must be positive",
        ),
    )
