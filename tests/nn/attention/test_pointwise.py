"""Attention among points: formulas in NumPy, symmetries, masks and errors."""

import math
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import nn
from opjax.nn.attention.pointwise import ATTENTIONS
from tests import oracles, refused
from tests.nn.parameters import all_finite, built_once, evaluate
from tests.oracles import replaced
from tests.selection import by_day

N, C, HEADS, P = 9, 6, 2, 2
D = C // HEADS
# Every attention and every normalisation, of keys with values and with queries.
PAIRS = [
    ("galerkin", None),
    ("galerkin", "layer"),
    ("linear", "instance"),
    ("fourier", "instance"),
    ("softmax", "layer"),
    ("intention", "layer"),
]


LANDMARKS, RANDOM, PROJECTED = 4, 16, 3
APPROXIMATE = {
    "performer": partial(nn.attention.PerformerAttention, num_features=RANDOM, seed=3),
    "nystrom": partial(nn.attention.NystromAttention, num_landmarks=LANDMARKS),
    "linformer": partial(
        nn.attention.LinformerAttention, num_points=N, num_projected=PROJECTED
    ),
}
RIDGE = 0.3
INTENTION = {"intention": partial(nn.attention.IntentionAttention, ridge=RIDGE)}
LAYERS = ATTENTIONS | APPROXIMATE | INTENTION
approximate = pytest.mark.parametrize("attention", APPROXIMATE)
layers = pytest.mark.parametrize(
    "attention", by_day(LAYERS, ["galerkin", "performer", "intention"])
)


def off_start(module):
    """Parameters away from their small and repeated initial values."""

    def enlarge(leaf):
        noise = np.sin(1 + 7 * np.arange(leaf.size)).reshape(leaf.shape)
        return jnp.asarray(np.asarray(leaf) + 0.5 * noise, float)

    return jax.tree.map(enlarge, module)


@built_once
def make(attention="galerkin", **options):
    options = {"num_heads": HEADS, "point_dim": P} | options
    return off_start(LAYERS[attention](C, rngs=nnx.Rngs(0), **options))


@pytest.fixture
def data(rng):
    return rng.normal(size=(N, C)), rng.uniform(size=(N, P))


def arrays(layer):
    """The parameters in the order of the arguments of `written_out`."""
    maps = (layer.query, layer.key, layer.value, layer.out)
    out = [leaf[...] for m in maps for leaf in (m.kernel, m.bias)]
    for norm in (layer.key_norm, layer.partner_norm):
        if norm is not None:
            out += [norm.scale[...], norm.bias[...]]
    return out


def assigned(layer, parameters):
    layer = jax.tree.map(lambda p: p, layer)
    parameters = [nnx.Param(p) for p in parameters]
    for linear in (layer.query, layer.key, layer.value, layer.out):
        linear.kernel, linear.bias = parameters.pop(0), parameters.pop(0)
    for norm in (layer.key_norm, layer.partner_norm):
        if norm is not None:
            norm.scale, norm.bias = parameters.pop(0), parameters.pop(0)
    return layer


def normalized(x, weights, normalization, scale, bias, epsilon):
    if normalization == "layer":
        rows = [(r - r.mean()) / math.sqrt(r.var() + epsilon) for r in x]
        return np.stack(rows) * scale + bias
    columns = []
    for column in x.T:
        mean = np.average(column, weights=weights)
        variance = np.average((column - mean) ** 2, weights=weights)
        columns.append((column - mean) / math.sqrt(variance + epsilon))
    return np.stack(columns, axis=1) * scale + bias


def attended(attention, q, k, v, w):
    n, d = k.shape
    if attention == "softmax":
        return oracles.softmax_attention(q, k, v, w)
    if attention == "fourier":
        rows = [sum(w[j] * (a @ k[j]) * v[j] for j in range(n)) for a in q]
        return np.stack(rows) / math.sqrt(d)
    if attention == "intention":
        system = k.T @ np.diag(w) @ k + RIDGE * np.eye(d)
        return q @ np.linalg.solve(system, k.T @ np.diag(w) @ v)
    if attention == "linear":
        q = oracles.softmax_rows(q)
        e = w[:, None] * np.exp(k)
        k = e / e.sum(axis=0)
        return (
            np.stack([a @ sum(np.outer(k[j], v[j]) for j in range(n)) for a in q]) / n
        )
    return np.stack([a @ sum(w[j] * np.outer(k[j], v[j]) for j in range(n)) for a in q])


def written_out(attention, normalization, epsilon):
    def oracle(x, points, w, *parameters):
        wq, bq, wk, bk, wv, bv, wo, bo, *norms = parameters
        merged = []
        for h in range(HEADS):
            head = slice(h * D, (h + 1) * D)
            parts = {
                "query": (x @ wq + bq)[:, head],
                "key": (x @ wk + bk)[:, head],
                "value": (x @ wv + bv)[:, head],
            }
            linear = ("galerkin", "linear", "intention")
            partner = "value" if attention in linear else "query"
            if normalization is not None:
                for name, i in (("key", 0), (partner, 2)):
                    affine = norms[i][h], norms[i + 1][h]
                    parts[name] = normalized(
                        parts[name], w, normalization, *affine, epsilon
                    )
            q, k, v = (np.hstack([points, part]) for part in parts.values())
            merged.append(attended(attention, q, k, v, w))
        return np.hstack(merged) @ wo + bo

    return oracle


@pytest.mark.parametrize(("attention", "normalization"), PAIRS)
def test_values_and_gradients_equal_the_formula(rng, data, attention, normalization):
    epsilon = 1e-2
    layer = make(attention, normalization=normalization, epsilon=epsilon)

    def function(x, points, weights, *parameters):
        given = {"mesh_points": points, "quadrature_weights": weights}
        return assigned(layer, parameters)(x, **given)

    oracle = written_out(attention, normalization, epsilon)
    parameters = [np.asarray(p) for p in arrays(layer)]
    args = (*map(np.asarray, data), rng.uniform(0.5, 1.5, N), *parameters)
    oracles.check_value(jax.jit(function), oracle, args)
    # Gradients of shifts that cancel vanish; those of the data see every operation.
    oracles.check_gradient(
        lambda *a: function(*a, *map(jnp.asarray, args[3:])),
        lambda *a: oracle(*a, *args[3:]),
        args[:3],
    )


@layers
def test_weights_are_one_over_the_number_of_points_by_default(data, attention):
    x, points = data
    layer = make(attention, normalization="instance")
    uniform = evaluate(
        layer, x, mesh_points=points, quadrature_weights=np.full(N, 1 / N)
    )
    assert_allclose(evaluate(layer, x, mesh_points=points), uniform, rtol=1e-10)


@pytest.mark.parametrize(("attention", "normalization"), by_day(PAIRS, PAIRS[1::3]))
def test_masked_points_are_removed_points(rng, data, attention, normalization):
    x, points = data
    layer = make(attention, normalization=normalization)
    weights = replaced(rng.uniform(0.5, 1.5, N), np.s_[6:], 0)

    def loss(x, mask):
        kept = slice(None) if mask else slice(6)
        out = layer(x[kept], mesh_points=points[kept], quadrature_weights=weights[kept])
        return jnp.sum(jnp.sin(out[:6])), out[:6]

    differentiate = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
    masked_gradient, masked = differentiate(x, True)
    gradient, removed = differentiate(x, False)
    assert_allclose(masked, removed, rtol=1e-10, atol=1e-12)
    assert_allclose(masked_gradient, gradient, rtol=1e-9, atol=1e-12)


@layers
def test_all_points_masked_is_finite(data, attention):
    x, points = data
    layer = make(attention, normalization="instance")
    out = evaluate(layer, x, mesh_points=points, quadrature_weights=np.zeros(N))
    assert np.all(np.isfinite(out))


@pytest.mark.parametrize(("attention", "normalization"), PAIRS)
def test_permuting_the_points_permutes_the_output(rng, data, attention, normalization):
    x, points = data
    order = rng.permutation(N)
    layer = make(attention, normalization=normalization)
    expected = evaluate(layer, x, mesh_points=points)[order]
    permuted = evaluate(layer, x[order], mesh_points=points[order])
    assert_allclose(permuted, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize("attention", by_day(LAYERS, list(LAYERS)[::3]))
def test_transforms_and_single_precision(data, attention):
    layer = make(attention)

    def function(x, points):
        cast = jax.tree.map(lambda p: p.astype(x.dtype), layer)
        return cast(x, mesh_points=points)

    oracles.check_transforms(function, data, rtol32=1e-3)


def test_heads_without_coordinates_have_their_own_width(data):
    layer = nn.GalerkinAttention(C, num_heads=HEADS, rngs=nnx.Rngs(0))
    assert layer.out.kernel.shape == (C, C)
    x, points = (a.astype(jnp.float32) for a in data)
    found = evaluate(layer, x)
    assert found.shape == (N, C)
    # It does not look at coordinates, which models give to all layers.
    assert_array_equal(evaluate(layer, x, mesh_points=points), found)


def pure(attention, layer):
    """The pure function of a head, `f(q, k, v, w)`."""
    if attention == "performer":
        directions = opjax.orthogonal_random_features(jax.random.key(3), RANDOM, D + P)
        return lambda q, k, v, w: opjax.performer_attention(
            q, k, v, projection_matrix=directions, key_weights=w
        )
    if attention == "nystrom":
        return lambda q, k, v, w: opjax.nystrom_attention(
            q, k, v, num_landmarks=LANDMARKS, query_weights=w, key_weights=w
        )
    # Weights only mask: the learned projections are sums over the points.
    return lambda q, k, v, w: opjax.linformer_attention(
        q,
        k,
        v,
        key_projection=layer.key_projection[...],
        value_projection=layer.value_projection[...],
        key_weights=None if w is None else jnp.where(w > 0, 1.0, 0.0),
    )


@pytest.mark.nightly
@approximate
@pytest.mark.parametrize("masked", by_day([False, True], day=[True]))
def test_approximate_softmaxes_are_the_pure_functions(rng, data, attention, masked):
    x, points = data
    layer = make(attention)
    weights = replaced(rng.uniform(0.5, 1.5, N), np.s_[7:], 0) if masked else None
    given = {"mesh_points": points, "quadrature_weights": weights}
    heads = zip(*layer.head_inputs(x, **given), strict=True)
    function = pure(attention, layer)
    merged = jnp.concatenate([function(*head, weights) for head in heads], axis=1)
    y = evaluate(layer, x, **given)
    assert_allclose(y, layer.out(merged), rtol=1e-9, atol=1e-11)

    def loss(layer, x):
        return jnp.sum(jnp.sin(layer(x, **given)[:7]))

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(layer, x)
    assert all_finite(gradients)
    if masked:
        junk = replaced(x, np.s_[7:], 5.0)
        assert_allclose(evaluate(layer, junk, **given)[:7], y[:7], rtol=1e-9)
        assert_array_equal(gradients[1][7:], 0)
    # Queries are normalised, values are not: Cao's softmax attention.
    softmax = make("softmax")
    for a, b in zip(
        layer.head_inputs(x, **given), softmax.head_inputs(x, **given), strict=True
    ):
        assert_array_equal(a, b)


@pytest.mark.nightly
def test_more_random_features_are_closer_to_softmax_attention(data):
    x, points = data

    def output(attention, **options):
        init = jax.nn.initializers.normal(0.5)
        options = {"num_heads": HEADS, "point_dim": P, "kernel_init": init} | options
        layer = attention(C, rngs=nnx.Rngs(0), **options)
        layer = jax.tree.map(lambda p: jnp.asarray(p, float), layer)
        return evaluate(layer, x, mesh_points=points)

    exact = output(nn.SoftmaxAttention)
    scale = float(np.max(np.abs(exact - jnp.mean(exact, axis=0, keepdims=True))))

    def error(num_features):
        estimate = output(nn.attention.PerformerAttention, num_features=num_features)
        return float(np.max(np.abs(estimate - exact))) / scale

    assert error(4096) < 0.2 < 0.4 < error(16)


@pytest.mark.nightly
@approximate
def test_masked_points_are_removed_points_but_for_linformer(rng, data, attention):
    x, points = data
    layer, weights = make(attention), rng.uniform(0.5, 1.5, 6)
    padded = np.pad(weights, (0, N - 6))
    masked = evaluate(layer, x, mesh_points=points, quadrature_weights=padded)
    if attention == "linformer":
        with pytest.raises(ValueError, match=r"key \(6, 5\), key_projection \(9, 3\)"):
            layer(x[:6], mesh_points=points[:6], quadrature_weights=weights)
        return
    removed = evaluate(layer, x[:6], mesh_points=points[:6], quadrature_weights=weights)
    assert_allclose(masked[:6], removed, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("attention", "option"),
    [
        ("performer", "num_features"),
        ("nystrom", "num_landmarks"),
        ("linformer", "num_points"),
        ("linformer", "num_projected"),
    ],
)
def test_numbers_must_be_positive(attention, option):
    with pytest.raises(ValueError, match=f"{option}=0 must be positive"):
        make(attention, **{option: 0})


@layers
def test_there_is_no_basis(data, attention):
    with pytest.raises(ValueError, match="does not use a basis"):
        make(attention)(data[0], mesh_points=data[1], basis=object())


@pytest.mark.parametrize(("width", "scale", "diagonal"), [(40, 1e-2, 3e-2), (40, 1, 0)])
def test_the_projections_start_near_a_multiple_of_the_identity(width, scale, diagonal):
    keys = jax.random.split(jax.random.key(0), 20)
    init = nn.layers.initializers.diagonal_xavier(scale, diagonal)
    weights = np.stack([init(key, (width, width)) for key in keys])
    assert weights.dtype == np.float32
    random = (weights - diagonal * np.eye(width)) / scale
    bound = math.sqrt(3 / width)
    assert 0.99 * bound < np.max(np.abs(random)) <= bound * (1 + 1e-5)
    assert np.std(random) == pytest.approx(width**-0.5, rel=0.01)
    assert np.mean(random) == pytest.approx(0, abs=5e-3)
    layer = nn.GalerkinAttention(width, num_heads=4, rngs=nnx.Rngs(0))
    assert np.trace(layer.key.kernel[...]) / width == pytest.approx(1e-2, rel=0.1)


test_bad_options_are_named = refused.options(
    make,
    [
        ({"num_heads": 4}, "num_heads=4 must divide features=6"),
        ({"normalization": "batch"}, "normalization='batch' is unknown"),
        ({"epsilon": 0.0}, "epsilon=0.0 must be positive"),
        ({"point_dim": -1}, "point_dim=-1 must be non-negative"),
    ],
)


@pytest.mark.parametrize(
    ("shape", "point_dim", "match"),
    [
        (None, P, r"mesh_points None must have shape \(9, 2\) .* point_dim=2"),
        ((N, 3), P, r"\(9, 3\) must have shape \(9, 2\)"),
        ((N + 1, P), P, r"\(10, 2\) must have shape \(9, 2\)"),
    ],
)
def test_coordinates_that_do_not_fit_are_named(data, shape, point_dim, match):
    points = None if shape is None else np.ones(shape)
    with pytest.raises(ValueError, match=match):
        make(point_dim=point_dim)(data[0], mesh_points=points)


def test_weights_of_other_points_are_named(data):
    x, points = data
    with pytest.raises(ValueError, match="points"):
        make()(x, mesh_points=points, quadrature_weights=np.ones(N - 1))


def test_integer_coordinates_are_refused(data):
    with pytest.raises(TypeError, match="mesh_points has dtype int"):
        make()(data[0], mesh_points=np.ones((N, P), int))


def test_only_square_matrices_have_a_diagonal():
    refused.each(
        (
            lambda: nn.layers.initializers.diagonal_xavier()(jax.random.key(0), (3, 4)),
            r"shape=\(3, 4\) must be square",
        ),
        (lambda: nn.layers.initializers.diagonal_xavier(diagonal=-1), "diagonal=-1"),
    )


def test_intention_of_few_points_is_that_of_more_without_weight(rng):
    layer, few, more = make("intention", num_heads=1), 4, 12
    x, points = rng.normal(size=(more, C)), rng.uniform(size=(more, P))
    weights = np.where(np.arange(more) < few, rng.uniform(0.5, 1.5, more), 0)

    def loss(layer, x, points, weights):
        given = {"mesh_points": points, "quadrature_weights": weights}
        return jnp.sum(jnp.sin(layer(x, **given)[:few]))

    both = jax.jit(jax.value_and_grad(loss))
    padded = both(layer, *map(jnp.asarray, (x, points, weights)))
    alone = both(layer, *(jnp.asarray(a[:few]) for a in (x, points, weights)))
    chex.assert_trees_all_close(alone, padded, rtol=1e-9, atol=1e-12)
    system = jax.make_jaxpr(loss)(layer, x[:few], points[:few], weights[:few])
    assert f"f64[{few},{few}]" in str(system)  # not that of eight channels
