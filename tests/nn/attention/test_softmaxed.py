"""Layers of GNOT and ONO: formulas in NumPy, several inputs, masks and errors."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from tests import oracles, refused
from tests.nn.parameters import built_once, enlarged
from tests.selection import by_day

N, C, HEADS = 9, 6, 2
D = C // HEADS
LAYERS = {
    "normalized": nn.attention.NormalizedAttention,
    "mean": nn.attention.MeanAttention,
    "efficient": nn.attention.EfficientAttention,
    "shared_norm": nn.attention.SharedNormAttention,
    "nystromformer": nn.attention.NystromformerAttention,
}
SMALL = {"nystromformer": {"num_landmarks": 4, "filter_size": 3}}
layers = pytest.mark.parametrize("name", by_day(LAYERS, ["mean", "shared_norm"]))


@built_once
def make(name, **options):
    options = {"num_heads": HEADS} | SMALL.get(name, {}) | options
    return enlarged(LAYERS[name](C, rngs=nnx.Rngs(0), **options))


@pytest.fixture
def x(rng):
    return rng.normal(size=(N, C))


def mapped(linear, x):
    y = x @ np.asarray(linear.kernel)
    return y if linear.bias is None else y + np.asarray(linear.bias)


def layer_norm(x, norm):
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(
        x.var(axis=1, keepdims=True) + 1e-5
    )
    return x * np.asarray(norm.scale)[0] + np.asarray(norm.bias)[0]


def attended(name, layer, q, k, v, w, h):
    """One head, with weights of mean one."""
    soft = oracles.softmax_rows
    if name == "normalized":
        kernel = soft(q) @ soft(k).T * w
        return soft(q) + kernel @ v / kernel.sum(axis=1, keepdims=True)
    if name == "mean":
        return soft(q) + soft(q) @ soft(k).T @ (w[:, None] * v) / len(v)
    if name == "efficient":
        e = w[:, None] * np.exp(k)
        return soft(q) / np.sqrt(D) @ (e / e.sum(axis=0)).T @ v
    if name == "shared_norm":
        k, v = layer_norm(k, layer.key_norm), layer_norm(v, layer.partner_norm)
        return q @ k.T @ (w[:, None] * v) / len(v)
    raise NotImplementedError(name)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [name for name in LAYERS if name != "nystromformer"])
def test_layers_equal_their_formula(name, weighted, x, rng):
    layer = make(name)
    w = rng.uniform(0.5, 1.5, N) if weighted else np.ones(N)
    given = {"quadrature_weights": jnp.asarray(w)} if weighted else {}
    q, k, v = (mapped(m, np.asarray(x)) for m in (layer.query, layer.key, layer.value))
    merged = []
    for h in range(HEADS):
        own = slice(h * D, (h + 1) * D)
        head = (q[:, own], k[:, own], v[:, own])
        merged.append(attended(name, layer, *head, w / w.mean(), h))
    expected = mapped(layer.out, np.hstack(merged))
    actual = jax.jit(lambda layer, x: layer(x, **given))(layer, x)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


def test_nystromformer_is_nystrom_attention_and_a_convolution(x):
    """With zeros before the points, and the start of all heads together."""
    layer = make("nystromformer")
    zeros = np.zeros((3, C))  # nine points and four segments of three
    padded = np.vstack([zeros, np.asarray(x)])
    q, k, v = (mapped(m, padded) for m in (layer.query, layer.key, layer.value))

    def softmax(a, b):
        return oracles.softmax_rows(a @ b.T / np.sqrt(D))

    heads = [slice(h * D, (h + 1) * D) for h in range(HEADS)]
    means = [[a[:, o].reshape(4, 3, D).mean(axis=1) for a in (q, k)] for o in heads]
    between = [softmax(*pair) for pair in means]
    start = max(a.sum(axis=1).max() for a in between)
    start *= max(a.sum(axis=0).max() for a in between)
    merged, eye = [], np.eye(4)
    filters = np.asarray(layer.filters)
    for own, (ql, kl), a, f in zip(heads, means, between, filters, strict=True):
        z = a.T / start
        for _ in range(6):
            y = a @ z
            z = z @ (13 * eye - y @ (15 * eye - y @ (7 * eye - y))) / 4
        out = softmax(q[:, own], kl) @ z @ softmax(ql, k[:, own]) @ v[:, own]
        columns = [np.convolve(column, f[::-1], mode="same") for column in v[:, own].T]
        merged.append(out + np.stack(columns, axis=1))
    expected = mapped(layer.out, np.hstack(merged)[3:])
    actual = jax.jit(lambda layer, x: layer(x))(layer, x)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


@layers
def test_masked_points_change_nothing(name, x):
    layer = make(name)
    keep = np.array([0, 1, 3, 4, 6, 7])
    weights = np.zeros(N)
    weights[keep] = 2.0

    @jax.jit
    def energy_and_gradient(layer, x, weights):
        def energy(layer):
            y = layer(x, quadrature_weights=weights)
            return jnp.sum(jnp.where(weights[:, None] > 0, y, 0) ** 2)

        return jax.value_and_grad(energy)(layer)

    padded = energy_and_gradient(layer, x, jnp.asarray(weights))
    short = energy_and_gradient(layer, x[keep], np.ones(len(keep)))
    chex.assert_trees_all_close(padded, short, rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
@layers
def test_batches_single_precision_and_bad_input(name, x):
    layer = make(name)
    batch = jnp.stack([x, 2 * x])
    batched = jax.jit(jax.vmap(layer))(batch)
    single = jax.tree.map(lambda p: p.astype(jnp.float32), layer)
    output = jax.jit(lambda layer, x: layer(x))(single, batch[1].astype(jnp.float32))
    assert output.dtype == jnp.float32
    assert_allclose(output, batched[1], rtol=2e-3, atol=1e-3)
    refused.each(
        (lambda: layer(x, basis=nn.bases.SoftmaxBasis), "does not use a basis"),
        (lambda: make(name, num_heads=4), "num_heads=4 must divide features=6"),
    )


def test_only_last_projections_have_biases_where_published_so():
    for name, layer in LAYERS.items():
        biased = name in ("normalized", "mean")
        found = layer(C, num_heads=HEADS, rngs=nnx.Rngs(0))
        assert (found.query.bias is not None) == biased
        assert found.out.bias is not None
        assert float(jnp.std(found.query.kernel[...])) < 0.04  # the trunk's start
    torch = nn.attention.NormalizedAttention(
        C, num_heads=HEADS, kernel_init=None, rngs=nnx.Rngs(0)
    )
    assert float(jnp.std(torch.query.bias[...])) > 0.1


def test_several_input_functions_add_up(x, rng):
    layer = enlarged(
        nn.attention.NormalizedCrossAttention(
            C, num_heads=HEADS, num_inputs=2, rngs=nnx.Rngs(0)
        )
    )
    functions = [rng.normal(size=(n, C)) for n in (5, 7)]
    weights = [None, rng.uniform(0.5, 1.5, 7)]
    actual = jax.jit(lambda x, f: layer(x, f, input_weights=weights))(x, functions)
    q, merged = mapped(layer.query, np.asarray(x)), []
    pairs = [
        [mapped(m[i], np.asarray(f)) for m in (layer.keys, layer.values)]
        for i, f in enumerate(functions)
    ]
    for h in range(HEADS):
        own = slice(h * D, (h + 1) * D)
        soft = oracles.softmax_rows(q[:, own])
        out = soft
        for (k, v), w in zip(pairs, weights, strict=True):
            kernel = soft @ oracles.softmax_rows(k[:, own]).T
            kernel = kernel if w is None else kernel * np.asarray(w)
            out = out + kernel @ v[:, own] / kernel.sum(axis=1, keepdims=True)
        merged.append(out)
    expected = mapped(layer.out, np.hstack(merged))
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)
    with pytest.raises(
        ValueError, match="1 inputs and 1 input_weights .* layer with 2"
    ):
        layer(x, functions[:1])


def test_impossible_filters_are_refused():
    refused.each(
        (lambda: make("nystromformer", filter_size=4), "filter_size=4 must be odd"),
        (
            lambda: make("nystromformer", num_landmarks=0),
            "num_landmarks=0 must be positive",
        ),
    )
