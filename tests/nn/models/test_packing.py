"""Features kept in 16 bits: rounding, and what it does to values and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from opjax.nn.models import packing
from opjax.precision import STORED_TYPES
from tests import refused
from tests.builders import small_operator
from tests.nn.attention.layers import enlarged
from tests.selection import by_day

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@pytest.mark.parametrize("storage_dtype", STORED_TYPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_rounded_to_the_nearest(storage_dtype, dtype, rng):
    z = rng.normal(size=(4, 3, 50)) * 10.0 ** rng.uniform(-4, 0, (4, 3, 50))
    z *= np.array([1e6, 1, 1e-6, 0])[:, None, None]  # beyond the range of float16
    z = z.astype(dtype)
    kept = jax.jit(partial(packing.pack, storage_dtype=storage_dtype, leading=1))(z)
    found = np.asarray(packing.unpack(kept, storage_dtype, dtype))
    assert (found.dtype, kept[0].dtype, kept[0].shape) == (dtype, np.uint16, z.shape)
    bound = np.abs(z)
    if storage_dtype == "float16":
        largest = np.abs(z).max(axis=(1, 2), keepdims=True)
        bound = np.maximum(bound, 2.0**-28 * largest)
        scale = 2.0 ** (15 - np.frexp(largest)[1])
        assert_array_equal(found, (z * scale).astype(np.float16) / scale)
    else:
        assert_array_equal(found, z.astype(jnp.bfloat16).astype(dtype))
    assert np.all(np.abs(found - z) <= ROUNDOFF[storage_dtype] * bound)


def build(storage_dtype=None, **keeps):
    attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
    model = small_operator(num_layers=3, attention=attention, **keeps)
    model = enlarged(model, 3)
    return nn.with_precision(model, nn.Precision(storage=storage_dtype))


def loss_and_gradient(model, points, features, target):
    def loss(model):
        return jnp.linalg.norm(model(points, features) - target)

    return jax.jit(jax.value_and_grad(loss))(model)


def distance(one, other):
    """Of two gradients, relative to the second."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    squares = np.array([(np.sum((a - b) ** 2), np.sum(b**2)) for a, b in pairs])
    return np.sqrt(np.divide(*squares.sum(axis=0)))


@pytest.fixture(scope="module")
def dense():
    """A sample with the loss and the gradient of all points, in float64."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(50, c)) for c in (2, 1, 1)]
    return arrays, *loss_and_gradient(build(), *arrays)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("storage_dtype", "keeps"),
    by_day(
        [
            ("bfloat16", {"chunk_size": 16}),
            ("float16", {"chunk_size": 16}),
            ("bfloat16", {"rematerialize": True}),
        ],
        day=[("bfloat16", {"chunk_size": 16})],
    ),
)
def test_losses_stay_and_gradients_change_by_unit_roundoffs(
    storage_dtype, keeps, dense
):
    arrays, value, expected = dense
    model = build(storage_dtype, **keeps)
    found = loss_and_gradient(model, *arrays)
    assert_allclose(found[0], value, rtol=1e-12)
    layers = 3
    assert 0 < distance(found[1], expected) < layers * ROUNDOFF[storage_dtype]


@pytest.mark.nightly
def test_narrow_features_take_less_memory():
    points = jax.ShapeDtypeStruct((4096, 2), jnp.float32)

    def temporary(storage_dtype):
        attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
        model = small_operator(
            feature_dim=0, features=16, num_layers=8, attention=attention, chunk_size=64
        )
        nn.with_precision(model, nn.Precision(storage=storage_dtype))

        def loss(model, points):
            return jnp.sum(model(points))

        compiled = jax.jit(jax.grad(loss)).lower(model, points).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes / (4096 * 16)

    wide, narrow = temporary(None), temporary("bfloat16")
    assert narrow < wide - 0.9 * 8 * 2  # bytes of a number, in front of each layer


def test_what_has_no_meaning_is_refused():
    for name in ("storage", "features"):
        with pytest.raises(ValueError, match=f"{name}='float8' must be one of bf"):
            nn.Precision(**{name: "float8"})
    with pytest.raises(ValueError, match="features='float16' must be one of bfloat16,"):
        nn.Precision(features="float16")
    narrow = nn.Precision(storage="bfloat16")
    refused.each(
        (
            lambda: nn.with_precision(build(), narrow),
            "without chunk_size or rematerialize",
        ),
        (
            lambda: nn.with_precision(nn.layers.LayerNorm(3), narrow),
            "A LayerNorm does not support Precision.*bfloat16",
        ),
    )
