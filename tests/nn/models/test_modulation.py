"""Norms that depend on scalars: the plain model at the start, later one of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax.nn.models import Modulation, constant_features
from tests import refused
from tests.builders import transformer
from tests.nn.attention.layers import enlarged
from tests.nn.parameters import built_once, evaluate
from tests.oracles import replaced

SMALL = {"features": 8, "num_layers": 2, "num_heads": 2, "num_basis": 4}
SIZES = {"point_dim": 2, "feature_dim": 3, "out_features": 1}


@built_once
def make(scalar_dim, **options):
    given = SIZES | SMALL | options
    return transformer(scalar_dim=scalar_dim, rngs=nnx.Rngs(0), **given)


def trained(**options):
    """A model whose modulation is not at zero any more."""
    model = enlarged(make(2, **options), 3)
    out = model.modulation.out
    shape, dtype = out.kernel[...].shape, out.kernel[...].dtype
    out.kernel[...] = 0.1 * jax.random.normal(jax.random.key(1), shape, dtype)
    return model


@pytest.fixture
def sample(rng):
    points, values = rng.uniform(size=(20, 2)), rng.normal(size=(20, 1))
    scalars = rng.normal(size=2)
    features = constant_features(values, scalars, 20)
    return points, features, scalars


def test_the_model_starts_as_the_one_without_modulation(sample):
    points, features, _ = sample
    plain, modulated = enlarged(make(0), 3), enlarged(make(2), 3)
    assert plain.modulation is None
    found = evaluate(modulated, points, features)
    assert_array_equal(found, evaluate(plain, points, features))


def test_norms_are_scaled_and_shifted_as_the_formula_says(sample):
    _, _, scalars = sample
    model = trained()
    modulation, s = model.modulation, np.asarray(scalars)
    hidden, out = modulation.hidden, modulation.out
    h = s @ np.asarray(hidden.kernel[...]) + np.asarray(hidden.bias[...])
    h = h / (1 + np.exp(-h))
    parts = h @ np.asarray(out.kernel[...]) + np.asarray(out.bias[...])
    parts = parts.reshape(2, 2, 2, 8)
    special = model.specialized(scalars)
    for i, name in enumerate(("attention_norm", "mlp_norm")):
        before, after = (getattr(m.blocks, name) for m in (model, special))
        scale = np.asarray(before.scale[...]) * (1 + parts[i, 0])
        assert_allclose(after.scale[...], scale, rtol=1e-6)
        bias = np.asarray(before.bias[...]) + parts[i, 1]
        assert_allclose(after.bias[...], bias, rtol=1e-6, atol=1e-7)
    assert special.modulation is None
    assert model.modulation is modulation  # the model itself is as it was


def test_a_specialized_model_is_the_model_at_its_scalars(sample):
    points, features, scalars = sample
    model = trained()
    found = evaluate(model, points, features)
    special = model.specialized(scalars)
    assert_allclose(evaluate(special, points, features), found, rtol=1e-6)
    other = replaced(features, np.s_[:, 1:], features[:, 1:] + 1)
    assert jnp.abs(evaluate(model, points, other) - found).max() > 1e-3


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{}, {"rematerialize": True}, {"chunk_size": 8}])
def test_gradients_are_those_of_finite_differences(sample, options):
    points, features, scalars = sample
    model = trained(**options)

    @jax.jit
    def loss(s, kernel):
        graph, state = nnx.split(model)
        state["modulation"]["out"]["kernel"] = state["modulation"]["out"][
            "kernel"
        ].replace(kernel)
        given = constant_features(features[:, :1], s, 20)
        return jnp.sum(nnx.merge(graph, state)(points, given) ** 2)

    kernel = jnp.asarray(model.modulation.out.kernel[...], scalars.dtype)
    of_s, of_kernel = jax.jit(jax.grad(loss, argnums=(0, 1)))(scalars, kernel)
    step = 1e-3
    ahead = jnp.array([step, 0])
    slope = (loss(scalars + ahead, kernel) - loss(scalars - ahead, kernel)) / (2 * step)
    assert_allclose(of_s[0], slope, rtol=2e-2)
    way = of_kernel / jnp.linalg.norm(of_kernel)
    slope = loss(scalars, kernel + step * way) - loss(scalars, kernel - step * way)
    expected = jnp.linalg.norm(of_kernel)
    assert_allclose(slope / (2 * step), expected, rtol=2e-2)


def test_under_vmap_every_sample_has_scalars_of_its_own(sample):
    points, features, _ = sample
    model = trained()
    several = jnp.stack(
        [features, replaced(features, np.s_[:, 1:], features[:, 1:] + 1)]
    )
    found = jax.jit(jax.vmap(lambda f: model(points, f)))(several)
    for one, given in zip(found, several, strict=True):
        assert_allclose(one, evaluate(model, points, given), atol=1e-5)


@pytest.mark.nightly
def test_chunks_inspection_and_masked_points_see_the_scalars(sample):
    points, features, scalars = sample
    model = trained()
    whole = evaluate(model, points, features)
    parts = model(points, features, chunk_size=8)
    assert_allclose(parts, whole, atol=1e-5)
    seen = model.inspect(points, features)
    special = model.specialized(scalars).inspect(points, features)
    jax.tree.map(assert_array_equal, seen, special)


def test_float32_stays(sample):
    points, features, _ = (x.astype(jnp.float32) for x in sample)
    model = make(2)
    assert evaluate(model, points, features).dtype == jnp.float32


def test_bad_sizes_are_refused(sample):
    points, features, scalars = sample
    refused.each(
        (lambda: make(4), "scalar_dim=4 must be between"),
        (lambda: make(0).specialized(scalars), "without scalar_dim"),
        (lambda: make(2)(points), "scalar_dim=2"),
        (lambda: make(2).specialized(scalars[:1]), "channels"),
        (lambda: Modulation(0, 8, 2, rngs=nnx.Rngs(0)), "scalar_dim"),
    )
