"""Mixers: their maps against the pure functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax
from opjax import nn
from tests.nn.attention.layers import BASIS, MIXERS, WIDTH, enlarged

PURE = {
    "functional": lambda q, k, v: opjax.transport(
        q, k, v, ridge=opjax.Convex(jax.nn.sigmoid(1.0))
    ),
    "functional_gcv": lambda q, k, v: opjax.transport(
        q, k, v, ridge=opjax.gcv_ridge(k.T, q.T)
    ),
    "softmax": opjax.softmax_attention,
    "galerkin": lambda q, k, v: opjax.galerkin_attention(q, k, v) / BASIS,
    "modes": lambda q, k, v: opjax.mode_gains(q, k) * v,
    "identity": lambda q, k, v: v,
}


def mixer_of(name, **options):
    if name == "functional":
        options = {"ridge_logit": 0.25} | options
    return enlarged(MIXERS[name](WIDTH, num_heads=3, rngs=nnx.Rngs(0), **options))


@pytest.fixture
def coefficients(rng):
    return rng.normal(size=(BASIS, WIDTH))


@pytest.mark.parametrize("name", MIXERS)
def test_mixers_are_the_pure_functions_of_linear_maps(coefficients, name):
    mixer = mixer_of(name)
    maps = mixer.query, mixer.key, mixer.value
    q, k, v = (coefficients @ linear.kernel[...] for linear in maps)
    expected = PURE[name](q, k, v)
    assert_allclose(mixer(coefficients), expected, rtol=1e-10)


@pytest.mark.parametrize("name", [name for name in MIXERS if name != "modes"])
def test_mixers_apply_their_matrix_to_the_values(coefficients, name):
    mixer = mixer_of(name)
    moved = mixer.matrix(coefficients) @ mixer.value(coefficients)
    expected = mixer(coefficients)
    assert_allclose(moved, expected, rtol=1e-9, atol=1e-12)


def test_methods_take_the_ridge_of_a_head(coefficients):
    shared = mixer_of("functional", ridge_logit=0.25)
    heads = mixer_of("functional", ridge_logit=0.25, ridge_per_head=True)
    assert shared.own() is None
    ridge = heads.own()
    assert_allclose(ridge, np.full(3, 1 / (1 + np.exp(-1))), rtol=1e-7)
    one = jnp.asarray(ridge)[0]
    for method in ("__call__", "matrix", "condition_number"):
        expected = getattr(shared, method)(coefficients)
        actual = getattr(heads, method)(coefficients, one)
        assert_allclose(actual, expected, rtol=1e-10)


def test_a_fixed_ridge_is_that_of_the_logit_and_no_parameter(coefficients):
    learned = mixer_of("functional", ridge_logit=0.25)
    options = {"num_heads": 3, "ridge_logit": 1.0, "rngs": nnx.Rngs(0)}
    fixed = enlarged(nn.mixers.FixedRidgeMap(WIDTH, **options))  # not the logit
    for method in ("__call__", "matrix", "condition_number"):
        expected = getattr(learned, method)(coefficients)
        actual = getattr(fixed, method)(coefficients)
        assert_allclose(actual, expected, rtol=1e-7)
    assert len(jax.tree.leaves(fixed)) == len(jax.tree.leaves(learned)) - 1


@pytest.mark.parametrize("name", MIXERS)
def test_kernels_start_small_or_from_their_fan_in(name):
    def sizes(**options):
        mixer = MIXERS[name](16, num_heads=3, rngs=nnx.Rngs(0), **options)
        return [float(np.max(np.abs(m.kernel[...]))) for m in (mixer.query, mixer.key)]

    assert all(size < 0.1 for size in sizes())
    assert all(0.2 < size <= 0.25 for size in sizes(fan_in_init=True))


def test_gradients_of_the_cross_validated_map_hold_the_ridge(coefficients):
    mixer = mixer_of("functional_gcv")
    q, k = mixer.query(coefficients), mixer.key(coefficients)
    ridge = opjax.gcv_ridge(k.T, q.T)

    def held(coefficients):
        maps = mixer.query, mixer.key, mixer.value
        q, k, v = (coefficients @ linear.kernel[...] for linear in maps)
        return q @ k.T @ jnp.linalg.solve(k @ k.T + ridge * np.eye(BASIS), v)

    expected = jax.jit(jax.grad(lambda c: jnp.sum(held(c) ** 2)))(coefficients)
    actual = jax.jit(jax.grad(lambda c: jnp.sum(mixer(c) ** 2)))(coefficients)
    assert_allclose(actual, expected, rtol=1e-8)
    number = mixer.condition_number(coefficients)
    system = k @ k.T + ridge * np.eye(BASIS)
    assert_allclose(number, np.linalg.cond(system), rtol=1e-8)


def in_units(ridge_logit=0.25, **options):
    return mixer_of("functional", ridge_unit="mean", ridge_logit=ridge_logit, **options)


def solved(q, k, v, ridge):
    """The map with its ridge in the mean eigenvalue, in numpy."""
    gram = k @ k.T
    unit = np.mean(np.linalg.eigvalsh(gram))
    return (
        q @ k.T @ np.linalg.solve((1 - ridge) * gram + ridge * unit * np.eye(len(k)), v)
    )


def test_the_ridge_is_a_share_of_the_mean_eigenvalue(coefficients):
    mixer, ridge = in_units(), 1 / (1 + np.exp(-1.0))
    kernels = [f.kernel[...] for f in (mixer.query, mixer.key, mixer.value)]
    q, k, v = (np.asarray(coefficients @ kernel) for kernel in kernels)
    expected = solved(q, k, v, ridge)
    assert_allclose(mixer(coefficients), expected, rtol=1e-6)
    expected = solved(q, k, np.eye(len(k)), ridge)
    assert_allclose(mixer.matrix(coefficients), expected, rtol=1e-6)
    gram = k @ k.T
    system = (1 - ridge) * gram + ridge * np.trace(gram) / len(k) * np.eye(len(k))
    found = mixer.condition_number(coefficients)
    assert_allclose(found, np.linalg.cond(system), rtol=1e-6)


def test_gradients_of_the_map_hold_its_unit(coefficients):
    mixer, step = in_units(), 1e-5
    rng = np.random.default_rng(1)
    weights, direction = rng.normal(size=(2, *coefficients.shape))

    def value(t):
        return jnp.sum(weights * mixer(coefficients + t * direction))

    expected = (value(step) - value(-step)) / (2 * step)
    assert_allclose(jax.jit(jax.grad(value))(0.0), expected, rtol=1e-7)


@pytest.mark.parametrize("scale", [1e-2, 1e2])
def test_the_map_does_not_depend_on_the_scale_of_features(coefficients, scale):
    mixer = in_units()
    expected = mixer.matrix(coefficients)
    found = mixer.matrix(scale * coefficients)
    assert_allclose(found, expected, rtol=1e-4)
    published = mixer_of("functional")
    ratio = published.matrix(scale * coefficients) / published.matrix(coefficients)
    assert np.max(np.abs(ratio - 1)) > 0.1


def test_the_start_is_a_map_rather_than_nearly_zero(coefficients):
    """Kernels of deviation 0.02, as every model starts."""
    coefficients = coefficients.astype(jnp.float32)
    sizes = [
        np.linalg.norm(
            nn.mixers.FunctionalMap(
                WIDTH, num_heads=3, ridge_unit=unit, rngs=nnx.Rngs(0)
            )(coefficients)
        )
        / np.linalg.norm(0.02 * WIDTH**0.5 * coefficients)  # of the values
        for unit in ("one", "mean")
    ]
    assert sizes[0] < 0.02
    assert 0.2 < sizes[1] < 2


def test_coefficients_of_no_size_have_finite_gradients():
    mixer = in_units()
    zero = np.zeros((BASIS, WIDTH))

    def total(c):
        return jnp.sum(mixer(c))

    value, gradient = jax.jit(jax.value_and_grad(total))(zero)
    assert value == 0
    assert np.isfinite(gradient).all()


def test_unknown_units_are_refused():
    with pytest.raises(ValueError, match="choose from 'one', 'mean'"):
        nn.mixers.FunctionalMap(4, num_heads=1, ridge_unit="two", rngs=nnx.Rngs(0))
