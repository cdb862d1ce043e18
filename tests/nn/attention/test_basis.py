"""Attention in a basis: every basis, projection and mixer, and their symmetries."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from opjax.nn.attention import columns as columns_of
from opjax.nn.attention.heads import merge_heads
from tests import refused
from tests.nn.attention.layers import (
    BASES,
    BASIS,
    FEATURES,
    HEADS,
    MIXERS,
    PAIRS,
    PROJECTIONS,
    SOFTMAX,
    arguments,
    assert_close,
    make,
    numpy,
    single,
)
from tests.nn.parameters import all_finite, evaluate
from tests.selection import by_day

N, PADDING = 12, 4
# Every basis with every projection, by one mixer; every mixer, in one basis. The ridge
# of cross-validation is a constant for gradients, which differences are not.
CHOICES = [(*pair, "functional") for pair in PAIRS]
CHOICES += [("softmax", "means", m) for m in MIXERS if not m.startswith("functional")]
choices = pytest.mark.parametrize(("basis", "projection", "mixer"), CHOICES)


@pytest.fixture
def x(rng):
    return rng.normal(size=(N + PADDING, FEATURES))


@pytest.fixture
def points(rng):
    return rng.uniform(size=(N + PADDING, 1))


@pytest.fixture
def weights(rng):
    """Returns weights of the points; the last ones have none."""
    positive = rng.uniform(0.5, 1.5, N) / N
    return np.concatenate([positive, np.zeros(PADDING)])


def coefficients(basis, projection, values, phi, w):
    """Projects by loops over the basis functions, or by one least-squares problem."""
    inner = np.stack([np.sum((w * p)[:, None] * values, axis=0) for p in phi.T])
    if projection == "inner_products":
        return inner
    if projection == "means":
        unit = np.mean(w[w > 0])
        return inner / np.array([np.sum(w * p) + 1e-5 * unit for p in phi.T])[:, None]
    squares = np.array([[np.sum(w * p * q) for q in phi.T] for p in phi.T])
    ridge = 1e-2 * np.trace(squares) / BASIS
    return np.linalg.solve(squares + ridge * np.eye(BASIS), inner)


def mixed(mixer, q, k, v, logit):
    """What the mixers make of coefficients, from their equations."""
    if mixer == "identity":
        return v
    if mixer == "galerkin":
        return q @ (k.T @ v) / BASIS
    if mixer == "softmax":
        e = np.exp(q @ k.T / np.sqrt(q.shape[1]))
        return e @ v / e.sum(axis=1, keepdims=True)
    if mixer == "modes":
        e = np.exp(np.tanh(q * k / np.sqrt(BASIS)))
        return v + e / e.sum(axis=0) * v
    a = 1 / (1 + np.exp(-logit))
    system = (1 - a) * k @ k.T + a * np.eye(BASIS)
    return q @ k.T @ np.linalg.solve(system, v)


def oracle(layer, choice, x, w, given):
    """The layer from its equations, head by head."""
    basis, projection, mixer = choice
    values, phi = evaluate(layer.basis, x, quadrature_weights=w, **given)
    p = numpy(layer)
    logit = p.mixer.ridge_logit[...] if mixer == "functional" else None
    outputs = []
    for head in range(HEADS):
        c = coefficients(basis, projection, values[head], phi[head], np.asarray(w))
        q, k, v = (
            c @ m.kernel[...] for m in (p.mixer.query, p.mixer.key, p.mixer.value)
        )
        outputs.append(phi[head] @ mixed(mixer, q, k, v, logit))
    return np.concatenate(outputs, axis=1) @ p.out.kernel[...] + p.out.bias[...]


@pytest.mark.parametrize(
    ("basis", "projection", "mixer"), by_day(CHOICES, CHOICES[::4])
)
def test_the_layer_with_its_symmetries(basis, projection, mixer, x, points, weights):
    layer = make(basis, mixer, projection)
    given = arguments(basis, x, points)
    cotangent = np.cos(np.arange(1.0, N * FEATURES + 1)).reshape(N, FEATURES)

    @jax.jit
    def run(layer, x, weights, given, back):
        def loss(layer, x):
            y = layer(x, quadrature_weights=weights, **given)
            return jnp.sum(y[back][:N] * cotangent), y

        return jax.value_and_grad(loss, (0, 1), has_aux=True)(layer, x)

    order = np.arange(N + PADDING)
    (_, y), gradients = numpy(run(layer, x, weights, given, order))
    assert y.shape == x.shape
    expected = oracle(layer, (basis, projection, mixer), x, weights, given)
    assert_allclose(y[:N], expected[:N], rtol=1e-8, atol=1e-10)
    # Padded equals not padded.
    inside = jax.tree.map(lambda a: a[:N], given)
    actual = evaluate(layer, x[:N], quadrature_weights=weights[:N], **inside)
    assert_allclose(actual, y[:N], rtol=1e-8, atol=1e-10)
    assert all_finite(gradients)
    assert_array_equal(gradients[1][N:], 0)
    # In another order, padding in between.
    shuffled = np.random.default_rng(1).permutation(N + PADDING)
    turned = jax.tree.map(lambda a: a[shuffled], (x, weights, given))
    back = np.argsort(shuffled)
    (_, permuted), turned_gradients = numpy(run(layer, *turned, back))
    assert_allclose(permuted[back][:N], y[:N], rtol=1e-7, atol=1e-9)
    assert_close(turned_gradients[0], gradients[0], rtol=1e-6, atol=1e-8)
    check_gradients(gradients[0], basis, mixer)


def check_gradients(gradient, basis, mixer):
    """Only what a layer uses, and what is learned, has a gradient."""
    maps = gradient.mixer
    for linear in (maps.query, maps.key):
        assert np.any(linear.kernel[...] != 0) == (mixer != "identity")
    assert np.any(maps.value.kernel[...] != 0)
    if mixer == "functional":
        assert maps.ridge_logit[...] != 0
    own = gradient.basis.inner if basis == "orthonormal" else gradient.basis
    if basis in ("softmax", "indicator", "orthonormal"):
        assert np.any(own.score_kernel[...] != 0) == (basis != "indicator")


@pytest.mark.nightly
def test_every_basis_with_every_mixer_in_float32(x, points):
    x, points = x.astype(jnp.float32), points.astype(jnp.float32)
    outputs = {}
    for basis, mixer in itertools.product(BASES, MIXERS):
        layer = single(make(basis, mixer))
        y = evaluate(layer, x, **arguments(basis, x, points))
        assert (y.shape, y.dtype) == (x.shape, jnp.float32)
        assert np.all(np.isfinite(y))
        outputs[basis, mixer] = np.asarray(y)
    for a, b in itertools.combinations(outputs, 2):
        scale = np.max(np.abs(outputs[a]))
        assert np.max(np.abs(outputs[a] - outputs[b])) > 1e-2 * scale, (a, b)


def test_projections_differ(x):
    outputs = [evaluate(make(projection=name), x) for name in PROJECTIONS]
    for a, b in itertools.combinations(outputs, 2):
        assert np.max(np.abs(a - b)) > 1e-3


@pytest.mark.parametrize("projection", ["means", "inner_products", "least_squares"])
def test_weights_are_one_over_the_number_of_points_by_default(x, projection):
    layer, n = make(projection=projection), len(x)
    uniform = evaluate(layer, x, quadrature_weights=np.full(n, 1 / n))
    assert_allclose(evaluate(layer, x), uniform, rtol=1e-9, atol=1e-11)


def test_duplicated_points_change_nothing_with_halved_weights(x):
    layer, n = make(), len(x)
    once = evaluate(layer, x, quadrature_weights=np.full(n, 1 / n))
    doubled = np.concatenate([x, x])
    twice = evaluate(layer, doubled, quadrature_weights=np.full(2 * n, 0.5 / n))
    # The offset of the means counts points, hence the looser tolerance.
    assert_allclose(twice[:n], once, rtol=2e-5, atol=1e-6)


def test_vmap_changes_nothing(x):
    layer = make()
    batch = np.stack([x, 2 * x, x - 1])
    expected = np.stack([evaluate(layer, sample) for sample in batch])
    assert_allclose(jax.jit(jax.vmap(layer))(batch), expected, rtol=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("mixer", ["functional", "softmax"])
def test_float32_is_close(x, mixer):
    layer = make(mixer=mixer)
    output = evaluate(single(layer), x.astype(jnp.float32))
    assert_allclose(output, evaluate(layer, x), rtol=1e-3, atol=1e-4)


def test_a_shared_basis_is_the_owned_one(x):
    layer = make()
    shared = nn.BasisAttention(FEATURES, num_heads=HEADS, basis=None, rngs=nnx.Rngs(1))
    shared.mixer, shared.out = layer.mixer, layer.out
    found = evaluate(shared, x, basis=layer.basis)
    assert_array_equal(found, evaluate(layer, x))
    refused.each(
        (lambda: shared(x), "Pass `basis` only to a layer .* basis=None"),
        (
            lambda: layer(x, basis=layer.basis),
            "Pass `basis` only to a layer .* basis=None",
        ),
    )


@pytest.mark.parametrize(
    "mixer", by_day(["functional", "softmax", "galerkin", "identity"], ["functional"])
)
@pytest.mark.parametrize("basis", BASES)
def test_inspection_reproduces_the_call(basis, mixer, x, points):
    layer, given = make(basis, mixer), arguments(basis, x, points)
    seen = layer.inspect(x, **given)
    w = np.full(len(x), 1 / len(x))
    values, phi = layer.basis(x, quadrature_weights=w, **given)
    assert_array_equal(seen.query_basis, phi)
    c = jnp.einsum("hnk,hnd->hkd", phi, values) / len(x)
    if layer.basis.one_sign:
        c = c / (phi.mean(1) + 1e-5 / len(x))[:, :, None]
    moved = seen.functional_map @ layer.mixer.value(c)
    expected = layer.out(merge_heads(phi @ moved))
    assert_allclose(layer(x, **given), expected, rtol=1e-8, atol=1e-10)


def test_maps_of_softmax_attention_are_averages(x):
    maps = make(mixer="softmax").inspect(x).functional_map
    assert_allclose(jnp.sum(maps, axis=2), 1, rtol=1e-12)


def test_condition_numbers_use_the_ridge_of_every_head(x):
    layer = per_head()
    layer.mixer.ridge_logit[...] = jnp.array([-1.0, 0.0, 2.0])

    @jax.jit
    def keys_of(layer):
        values, phi = layer.basis(x)
        means = jnp.einsum("hnk,hnd->hkd", phi, values)
        return layer.mixer.key(means / (phi.sum(1) + 1e-5)[:, :, None])

    numbers_of = jax.jit(lambda layer, x: layer.condition_numbers(x))
    keys, actual = np.asarray(keys_of(layer)), numbers_of(layer, x)
    for head, a in enumerate(1 / (1 + np.exp(-np.array([-1.0, 0.0, 2.0])))):
        system = (1 - a) * keys[head] @ keys[head].T + a * np.eye(BASIS)
        assert_allclose(actual[head], np.linalg.cond(system), rtol=1e-9)
    numbers = numbers_of(single(layer), x.astype(jnp.float32))
    assert numbers.dtype == jnp.float32
    assert_allclose(numbers, actual, rtol=1e-4)
    with pytest.raises(ValueError, match="SoftmaxMap does not solve a linear system"):
        make(mixer="softmax").condition_numbers(x)


def per_head():
    layer = nn.FunctionalAttention(
        FEATURES,
        num_heads=HEADS,
        num_basis=BASIS,
        ridge_per_head=True,
        rngs=nnx.Rngs(0),
    )
    return jax.tree.map(lambda p: jnp.asarray(p, float) * 4, layer)


def test_every_head_can_have_a_ridge_of_its_own(x):
    layer, shared = per_head(), make()
    layer.mixer.ridge_logit = nnx.Param(jnp.asarray([-2.0, 0.0, 1.0]))
    inspect = jax.jit(lambda layer: layer.inspect(x).functional_map)
    maps = inspect(layer)
    layer.out.kernel = shared.out.kernel = nnx.Param(np.eye(FEATURES))
    columns = np.split(evaluate(layer, x), HEADS, axis=1)
    for head, logit in enumerate([-2.0, 0.0, 1.0]):
        shared.mixer.ridge_logit = nnx.Param(jnp.asarray(logit))
        expected = np.split(evaluate(shared, x), HEADS, axis=1)[head]
        assert_allclose(columns[head], expected, rtol=1e-9)
        assert_allclose(maps[head], inspect(shared)[head], rtol=1e-9, atol=1e-12)

    # Chunks know the ridges, too.
    @jax.jit
    def in_chunks(layer):
        here, weights = layer.local(x.T, {}), np.ones(len(x))
        totals = jnp.sum(weights), jnp.sum(weights)
        mixed = layer.combine(layer.sums(here, weights).added, totals)
        return columns_of.linear(layer.out, layer.spread(mixed, here)).T

    assert_allclose(in_chunks(layer), evaluate(layer, x), rtol=1e-9)


@pytest.mark.parametrize("entries", [0, 2**20])
def test_heads_one_by_one_or_together_are_the_same(x, monkeypatch, entries):
    layer, w = make(), np.full(len(x), 1 / len(x))
    expected = oracle(layer, ("softmax", "means", "functional"), x, w, {})

    def loss(layer):
        y = layer(x)
        return jnp.sum(y**2), y

    gradient, _ = jax.jit(jax.grad(loss, has_aux=True))(layer)
    monkeypatch.setattr(nn.attention.heads, "_ENTRIES_IN_CACHE", entries)
    found, y = jax.jit(jax.grad(loss, has_aux=True))(layer)
    assert_allclose(y, expected, rtol=1e-9)
    assert ("scan" in str(jax.make_jaxpr(layer)(x))) == (entries == 0)
    assert_close(found, gradient, atol=1e-12)


def test_fan_in_starts_are_uniform_within_their_bounds():
    def mixer(width, **options):
        return nn.mixers.FunctionalMap(width, fan_in_init=True, **options)

    layer = nn.BasisAttention(
        48, num_heads=3, basis=SOFTMAX, mixer=mixer, fan_in_init=True, rngs=nnx.Rngs(0)
    )
    query, out = layer.mixer.query, layer.out
    for kernel, bound in ((query.kernel, 1 / 4), (out.kernel, 48**-0.5)):
        assert 0.95 * bound < float(np.max(np.abs(kernel[...]))) <= bound
    assert float(np.max(np.abs(layer.out.bias[...]))) > 0


def test_means_need_functions_of_one_sign(x, points):
    for basis in ("fourier", "given", "orthonormal"):
        layer = make(basis, projection="means")
        with pytest.raises(ValueError, match="needs basis functions of one sign"):
            layer(x, **arguments(basis, x, points))


def test_orthonormal_functions_are_not_evaluated_in_chunks():
    obstacle = make("orthonormal").obstacle("chunks")
    assert "OrthonormalBasis depend on all points" in obstacle


def test_mode_gains_have_no_map(x):
    with pytest.raises(ValueError, match="no single map between coefficients"):
        make(mixer="modes").inspect(x)


def test_heads_must_divide_the_features():
    with pytest.raises(ValueError, match="num_heads=5 must divide features=12"):
        nn.BasisAttention(FEATURES, num_heads=5, basis=None, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.ones(3), ValueError, r"quadrature_weights \(3,\), x \(16, 12\)"),
        (np.ones((16, 1)), ValueError, r"quadrature_weights has shape \(16, 1\)"),
        (-np.ones(16), ValueError, "must be non-negative"),
        (np.ones(16, int), TypeError, "quadrature_weights has dtype int64"),
    ],
)
def test_weights_that_do_not_fit_are_named(x, weights, error, message):
    layer = make()
    for call in (layer, layer.inspect):
        with pytest.raises(error, match=message):
            call(x, quadrature_weights=weights)


class Ridge:
    """A projection of a user."""

    needs_gram, needs_one_sign, weights_cancel = True, False, False

    def __call__(self, moments):
        return moments.least_squares(ridge=0.3)


def test_a_projection_of_ones_own_gets_the_gram_matrix_it_needs(x, weights):
    layer = nn.BasisAttention(
        FEATURES,
        num_heads=HEADS,
        basis=SOFTMAX,
        mixer=nn.mixers.IdentityMap,
        projection=Ridge(),
        rngs=nnx.Rngs(0),
    )
    layer = jax.tree.map(lambda leaf: leaf.astype(x.dtype), layer)
    y = evaluate(layer, x, quadrature_weights=weights)
    values, phi = (np.asarray(a)[:, :N] for a in layer.basis(x))
    w, inside = np.asarray(weights)[:N], []
    for f, p in zip(values, phi, strict=True):
        fit = np.linalg.solve(
            p.T @ (w[:, None] * p) + 0.3 * np.eye(BASIS), p.T @ (w[:, None] * f)
        )
        inside.append(p @ (fit @ np.asarray(layer.mixer.value.kernel[...])))
    expected = layer.merge(jnp.asarray(np.stack(inside)))
    assert_allclose(y[:N], expected, rtol=1e-9, atol=1e-12)
    assert not layer.equal_weights_cancel()


@pytest.mark.parametrize(
    ("projection", "words"),
    [
        ("mean", r"'mean' is a string, .*opjax.Means\(\), .*InnerProducts"),
        (lambda moments: moments.integrals, "no needs_gram, needs_one_sign, weights"),
    ],
)
def test_names_and_plain_functions_are_no_projections(projection, words):
    with pytest.raises(TypeError, match=words):
        nn.BasisAttention(
            FEATURES,
            num_heads=HEADS,
            basis=SOFTMAX,
            projection=projection,
            rngs=nnx.Rngs(0),
        )
