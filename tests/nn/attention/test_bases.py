"""Basis modules: their functions from the equations, and what they refuse."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from tests import oracles
from tests.nn.attention.layers import (
    BASES,
    BASIS,
    FEATURES,
    HATS,
    HEADS,
    WAVES,
    WIDTH,
    enlarged,
    numpy,
)
from tests.oracles import replaced

N = 20


def basis_of(name, **options):
    basis = BASES[name](FEATURES, num_heads=HEADS, rngs=nnx.Rngs(0), **options)
    return enlarged(basis)


@pytest.fixture
def x(rng):
    return rng.normal(size=(N, FEATURES))


@pytest.fixture
def points(rng):
    return rng.uniform(size=(N, 1))


def projected(basis, x):
    """Columns of the projection, `2 h d` of them, or `h d`."""
    p = numpy(basis)
    return np.asarray(x) @ p.projection.kernel[...] + p.projection.bias[...]


@pytest.mark.parametrize("temperature", [0.02, 0.7, 40.0])
def test_softmax_functions_are_softmaxes_of_scores(x, temperature):
    basis = basis_of("softmax")
    basis.temperature[...] = jnp.array([0.3, temperature, 1.0])
    values, phi = basis(x)
    columns, p = projected(basis, x), numpy(basis)
    for head, tau in enumerate([0.3, np.clip(temperature, 0.1, 5.0), 1.0]):
        own = slice(head * WIDTH, (head + 1) * WIDTH)
        scores = columns[:, FEATURES:][:, own] @ p.score_kernel[...]
        expected = oracles.softmax_rows(scores + p.score_bias[...], tau)
        assert_allclose(phi[head], expected, rtol=1e-9)
        assert_allclose(values[head], columns[:, own], rtol=1e-9)


def test_temperatures_without_bounds_are_not_clipped(x):
    bounded, free = basis_of("softmax"), basis_of("softmax", temperature_bounds=None)
    for basis in (bounded, free):
        basis.temperature[...] = np.full(HEADS, 7.0)
    hot = free(x)[1]
    assert float(np.max(np.abs(bounded(x)[1] - hot))) > 1e-3
    bounded.temperature_bounds = (0.1, 7.0)
    assert_allclose(bounded(x)[1], hot, rtol=1e-12)


def test_indicators_are_one_where_softmax_functions_are_largest(x):
    phi, soft = (np.asarray(basis_of(name)(x)[1]) for name in ("indicator", "softmax"))
    assert_array_equal(phi, soft == soft.max(axis=2, keepdims=True))


def test_orthonormal_functions_have_the_span_of_others(x, rng):
    w = replaced(rng.uniform(0.5, 1.5, N), 3, 0)
    values, q = basis_of("orthonormal")(x, quadrature_weights=w)
    raw_values, raw = basis_of("softmax")(x)
    assert_array_equal(values, raw_values)
    for head in range(HEADS):
        weighted = np.asarray(w)[:, None] * q[head]
        assert_allclose(q[head].T @ weighted, np.eye(BASIS), atol=1e-9)
        back = q[head] @ (weighted.T @ raw[head])
        inside = np.asarray(w) > 0
        assert_allclose(back[inside], raw[head][inside], atol=1e-9)


@pytest.mark.parametrize(("name", "functions"), [("fourier", WAVES), ("hat", HATS)])
def test_fixed_functions_are_the_same_for_all_heads(x, points, name, functions):
    basis = basis_of(name)
    values, phi = basis(x, mesh_points=points)
    for head in range(HEADS):
        assert_array_equal(phi[head], functions(points))
        own = slice(head * WIDTH, (head + 1) * WIDTH)
        expected = projected(basis, x)[:, own]
        assert_allclose(values[head], expected, rtol=1e-9)
    given = basis_of("given")(x, basis_functions=functions(points))[1]
    assert_array_equal(given, phi)


@pytest.mark.parametrize("name", ["softmax", "hat"])
def test_coordinates_are_channels_of_the_projections_only(x, points, name):
    basis = basis_of(name, point_dim=1)
    plain = basis_of(name)
    with_coordinates = jnp.concatenate([x, points], axis=1)
    columns = projected(basis, with_coordinates)
    values, phi = basis(x, mesh_points=points)
    assert basis.projection.kernel.shape[0] == FEATURES + 1
    assert plain.projection.kernel.shape[0] == FEATURES
    for head in range(HEADS):
        own = slice(head * WIDTH, (head + 1) * WIDTH)
        assert_allclose(values[head], columns[:, own], rtol=1e-9)
    if name == "softmax":
        p = numpy(basis)
        scores = columns[:, FEATURES : FEATURES + WIDTH] @ p.score_kernel[...]
        expected = oracles.softmax_rows(scores + p.score_bias[...], 2.0)
        assert_allclose(phi[0], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        (None, ValueError, "mesh_points None do not match .* point_dim=2"),
        (np.ones((N, 1)), ValueError, r"mesh_points \(20, 1\) .* point_dim=2"),
        (np.ones((N + 1, 2)), ValueError, r"x \(20, 12\), mesh_points \(21, 2\)"),
        (np.ones((N, 2), int), TypeError, "mesh_points has dtype int64"),
    ],
)
def test_coordinates_that_do_not_fit_are_named(x, points, error, message):
    with pytest.raises(error, match=message):
        basis_of("softmax", point_dim=2)(x, mesh_points=points)


def test_a_basis_without_coordinates_does_not_look_at_them(x, points):
    basis = basis_of("softmax")
    assert_array_equal(basis(x, mesh_points=points)[1], basis(x)[1])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["softmax", "given"])
@pytest.mark.parametrize("grid_shape", [(20,), (4, 5), (2, 2, 5)])
def test_grids_of_every_dimension_see_neighbours(x, rng, name, grid_shape):
    basis = basis_of(name, grid_shape=grid_shape)
    given = {"basis_functions": np.ones((N, BASIS))} if name == "given" else {}
    order = rng.permutation(N)
    values, phi = basis(x, **given)
    assert values.shape == (HEADS, N, WIDTH)
    assert phi.shape == (HEADS, N, BASIS)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(phi))
    turned = basis(x[order], **given)[0]
    assert float(np.max(np.abs(turned - values[:, order]))) > 1e-3


@pytest.mark.parametrize("grid_shape", [None, (4, 5)])
def test_a_basis_without_biases_is_one_with_zero_biases(x, grid_shape):
    basis = basis_of("softmax", use_bias=False, grid_shape=grid_shape)
    plain = basis_of("softmax", grid_shape=grid_shape)
    assert basis.projection.bias is None
    assert basis.score_bias is None
    plain.projection.kernel = basis.projection.kernel
    plain.score_kernel = basis.score_kernel
    plain.projection.bias[...] = jnp.zeros_like(plain.projection.bias[...])
    plain.score_bias[...] = np.zeros(BASIS)
    for a, b in zip(basis(x), plain(x), strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_head_can_have_a_width_of_its_own(x):
    basis = basis_of("softmax", head_features=7)
    assert basis(x)[0].shape == (HEADS, N, 7)
    with pytest.raises(ValueError, match="head_features=0 must be positive"):
        basis_of("softmax", head_features=0)


@pytest.mark.parametrize("name", [name for name in BASES if name != "given"])
def test_functions_are_given_only_to_a_basis_without_its_own(x, points, name):
    with pytest.raises(ValueError, match="no functions of its own"):
        basis_of(name)(x, mesh_points=points, basis_functions=np.ones((N, BASIS)))


@pytest.mark.parametrize("shape", [None, (N, BASIS + 1), (N - 1, BASIS)])
def test_given_functions_must_fit(x, shape):
    functions = None if shape is None else np.ones(shape)
    message = r"basis_functions .* must have shape \(20, 5\)"
    with pytest.raises(ValueError, match=message):
        basis_of("given")(x, basis_functions=functions)


def test_functions_of_coordinates_need_them(x):
    with pytest.raises(ValueError, match="pass mesh_points"):
        basis_of("hat")(x)


def test_functions_that_are_not_so_many_are_named(x, points):
    few = partial(opjax.hat_basis, num_nodes=BASIS - 1)
    basis = basis_of("hat", functions=few)
    with pytest.raises(ValueError, match=r"\(20, 4\) must have shape \(20, 5\)"):
        basis(x, mesh_points=points)


def test_fewer_points_than_orthonormal_functions_are_refused(x):
    with pytest.raises(ValueError, match="4 points support at most 4"):
        basis_of("orthonormal")(x[:4])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("softmax", {"num_basis": 0}, "num_basis=0 must be positive"),
        ("hat", {"num_basis": 0}, "num_basis=0 must be positive"),
        ("softmax", {"temperature": 0.0}, "temperature=0.0 must be positive"),
    ],
)
def test_impossible_bases_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        basis_of(name, **options)


@pytest.mark.parametrize("name", BASES)
def test_heads_must_divide_the_features(name):
    with pytest.raises(ValueError, match="num_heads=5 must divide features=12"):
        BASES[name](FEATURES, num_heads=5, rngs=nnx.Rngs(0))
