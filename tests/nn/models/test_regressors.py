"""Few-shot regressors; their formulas are compared with the reference in golden/."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from experiments import sinusoid_regressors
from tests import refused
from tests.nn.parameters import all_finite
from tests.selection import by_day

TINY = {
    "attention": (sinusoid_regressors.SoftmaxAttentionRegressor, {"num_heads": 2}),
    "funcattn": (
        sinusoid_regressors.FunctionalRegressor,
        {"num_basis": 3, "ridge": 1e-2},
    ),
    "cross_validated": (sinusoid_regressors.CrossValidatedRegressor, {"num_basis": 3}),
    "intention": (
        sinusoid_regressors.IntentionRegressor,
        {"num_heads": 2, "ridge": 1e-2},
    ),
    "linear_attention": (sinusoid_regressors.LinearAttentionRegressor, {}),
    "transolver": (
        sinusoid_regressors.TransolverRegressor,
        {"num_basis": 3, "num_heads": 2},
    ),
}
METHODS = pytest.mark.parametrize(
    "method", by_day(TINY, ["funcattn", "intention", "transolver"])
)


def build(method, features=8, **options):
    cls, given = TINY[method]
    return cls(features, **(given | options), rngs=nnx.Rngs(0))


def tiny(method, **options):
    """A model in float64 whose features are of the order of one."""
    model = jax.eval_shape(lambda: build(method, **options))
    leaves, structure = jax.tree.flatten(model)
    random = np.random.default_rng(1)
    leaves = [0.6 * random.normal(size=leaf.shape) for leaf in leaves]
    return jax.tree.unflatten(structure, map(jnp.asarray, leaves))


@jax.jit
def predict(model, *task, weights=None):
    return model(*task, context_weights=weights)


@pytest.fixture
def task(rng):
    """Returns context points and values and query points."""
    return tuple(rng.normal(size=(n, 1)) for n in (5, 5, 4))


@METHODS
def test_masked_observations_are_as_if_absent(method, task):
    model, (x, y, queries) = tiny(method), task
    weights = jnp.asarray([1.0, 1, 1, 0, 0])
    padded = [jnp.where(weights[:, None] > 0, a, jnp.nan) for a in (x, y)]
    actual = predict(model, *padded, queries, weights=weights)
    assert_allclose(actual, predict(model, x[:3], y[:3], queries), rtol=1e-9)


@pytest.mark.nightly
@METHODS
def test_an_observation_of_weight_two_counts_twice(method, task):
    model, (x, y, queries) = tiny(method), task
    weights = jnp.asarray([1.0, 1, 1, 1, 2])
    twice = [jnp.concatenate([a, a[-1:]]) for a in (x, y)]
    actual = predict(model, x, y, queries, weights=weights)
    assert_allclose(actual, predict(model, *twice, queries), rtol=1e-9)


@pytest.mark.nightly
@METHODS
def test_the_order_of_observations_is_irrelevant(method, task):
    model, (x, y, queries) = tiny(method), task
    expected = predict(model, x, y, queries)
    assert np.ptp(expected) > 1e-6
    assert_allclose(predict(model, x[::-1], y[::-1], queries), expected, rtol=1e-9)


@METHODS
def test_one_observation_gives_finite_values_and_gradients(method, task):
    x, y, queries = task

    def total(model):
        return jnp.sum(model(x[:1], y[:1], queries))

    value, gradient = jax.jit(jax.value_and_grad(total))(tiny(method))
    assert np.isfinite(value)
    assert all_finite(gradient)


@pytest.mark.nightly
@METHODS
def test_batches_are_vmap_and_single_precision_is_kept(method, task):
    model, other = tiny(method), tuple(0.5 * a for a in task)
    batch = [jnp.stack(pair) for pair in zip(task, other, strict=True)]
    batched = jax.jit(jax.vmap(model))(*batch)
    assert_allclose(batched, [predict(model, *task), predict(model, *other)], rtol=1e-9)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (model, task))
    predicted = predict(single[0], *single[1])
    assert predicted.dtype == jnp.float32
    assert_allclose(predicted, batched[0], rtol=5e-3, atol=1e-3)


def test_shared_and_separate_encoders_of_intention_differ(task):
    separate, shared = tiny("intention", shared_encoder=False), tiny("intention")
    shared.key = separate.key
    assert np.any(predict(separate, *task) != predict(shared, *task))
    separate.query = separate.key
    assert_allclose(predict(separate, *task), predict(shared, *task))


def test_functional_attention_without_ridge_fits_the_coefficients(task):
    model, (x, y, queries) = tiny("funcattn", ridge=0.0), task
    key, value = map(np.asarray, jax.jit(type(model).tokens)(model, x, y, None))
    fitted, *_ = np.linalg.lstsq(key, value)
    expected = np.asarray(model.encoder(queries)) @ fitted
    assert_allclose(predict(model, *task), expected, rtol=1e-6)


@pytest.mark.nightly
def test_a_learned_ridge_starts_as_the_fixed_one(task):
    fixed, learned = tiny("funcattn"), tiny("funcattn", learn_ridge=True)
    start = build("funcattn", ridge=1e-2, learn_ridge=True)
    assert_allclose(start.ridge, 1e-2, rtol=1e-6)
    assert len(jax.tree.leaves(learned)) == len(jax.tree.leaves(fixed)) + 1
    # Random leaves differ in their order; the fixed model gets those of the other.
    for name in ("encoder", "scores", "temperature"):
        setattr(fixed, name, getattr(learned, name))
    fixed.fixed_ridge = float(learned.ridge)
    expected = predict(fixed, *task)
    assert_allclose(predict(learned, *task), expected, rtol=1e-12)

    def total(logit):
        key, value = learned.tokens(*task[:2], None)
        query, ridge = learned.encoder(task[2]), jax.nn.sigmoid(logit)
        system = (1 - ridge) * key.T @ key + ridge * np.eye(key.shape[1])
        return jnp.sum(query @ jnp.linalg.solve(system, key.T @ value))

    own = jax.jit(jax.grad(lambda model: jnp.sum(model(*task))))(learned)
    wanted = jax.jit(jax.grad(total))(learned.ridge_logit[...])
    assert_allclose(own.ridge_logit[...], wanted, rtol=1e-8)


def test_the_cross_validated_ridge_minimises_the_score_of_the_observed_points(task):
    model, (x, y, queries) = tiny("cross_validated"), task
    key, value = map(np.asarray, jax.jit(type(model).tokens)(model, x, y, None))
    observed, query = np.asarray(model.encoder(x)), np.asarray(model.encoder(queries))

    def score(ridge):  # the definition, with the dense matrix of the fit
        system = key @ key.T + ridge * np.eye(3)
        left = np.eye(8) - key.T @ np.linalg.solve(system, key)
        return np.sum((left @ observed.T) ** 2) / np.trace(left) ** 2

    largest = np.linalg.norm(key, 2) ** 2
    grid = largest * np.geomspace(1e-6, 10, 4001)
    ridge = grid[np.argmin([score(r) for r in grid])]
    expected = query @ key.T @ np.linalg.solve(key @ key.T + ridge * np.eye(3), value)
    assert_allclose(predict(model, *task), expected, rtol=2e-2)


# the start


COUNTS = {
    "attention": (256, {"num_heads": 4}, 593_409),
    "funcattn": (128, {"num_basis": 8}, 50_825),
    "cross_validated": (128, {"num_basis": 8}, 50_825),
    "intention": (1000, {"num_heads": 8}, 3_005_000),
    "linear_attention": (128, {}, 99_713),
    "transolver": (256, {"num_basis": 8, "num_heads": 8}, 199_945),
}
UNIFORM = ("attention", "linear_attention", "transolver")


@functools.cache
def published(method):
    features, options, _ = COUNTS[method]
    return jax.jit(lambda: build(method, features, **options))()


@pytest.mark.nightly
@METHODS
def test_the_published_sizes_have_the_published_parameters(method):
    leaves = jax.tree.leaves(published(method))
    assert sum(leaf.size for leaf in leaves) == COUNTS[method][-1]
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "scale"), [("funcattn", 0.01), ("intention", 0.02)])
def test_small_normal_kernels_and_zero_biases(method, scale):
    for leaf in jax.tree.leaves(published(method)):
        if leaf.ndim == 2:
            assert np.std(leaf) == pytest.approx(scale, rel=0.2)
        elif leaf.ndim == 1:
            assert not np.any(leaf)


@pytest.mark.nightly
@pytest.mark.parametrize("method", UNIFORM)
def test_uniform_kernels_and_biases(method):
    model = published(method)
    encoder = model.encoder if method == "transolver" else model.key
    for layer in [*encoder.hidden, encoder.out]:
        bound = layer.kernel.shape[0] ** -0.5
        for leaf in (layer.kernel[...], layer.bias[...]):
            assert 0.9 * bound < np.max(np.abs(leaf)) <= bound
    if method == "transolver":
        kernel = np.asarray(model.scores.kernel[...])
        assert_allclose(kernel.T @ kernel, np.eye(8), atol=1e-5)
    if method == "attention":
        bound = (6 / 1024) ** 0.5
        assert 0.99 * bound < np.max(np.abs(model.kernel[...])) <= bound
        assert not np.any(model.bias[...])
        assert not np.any(model.out.bias[...])


# bad input


@pytest.mark.parametrize("method", ["attention", "intention"])
def test_heads_must_divide_the_features(method):
    with pytest.raises(ValueError, match="num_heads=3 must divide features=8"):
        build(method, num_heads=3)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("funcattn", {"ridge": 1.5}, "ridge=1.5 must be at most 1"),
        ("funcattn", {"ridge": -1.0}, "ridge=-1.0 must be non-negative"),
        ("funcattn", {"ridge": 0.0, "learn_ridge": True}, "ridge=0.0 must be between"),
        ("intention", {"ridge": -1.0}, "ridge=-1.0 must be non-negative"),
        ("funcattn", {"num_basis": 0}, "num_basis=0 must be positive"),
        ("transolver", {"num_heads": 0}, "num_heads=0 must be positive"),
    ],
)
def test_bad_sizes_are_refused(method, options, message):
    with pytest.raises(ValueError, match=message):
        build(method, **options)


@METHODS
def test_observations_that_do_not_match_are_refused(method, task):
    model, (x, y, queries) = tiny(method), task
    refused.each(
        (
            lambda: model(x, y[:4], queries),
            r"context_points \(5, 1\), context_values \(4",
        ),
        (lambda: model(x[None], y[None], queries[None]), "use `jax.vmap` for batches"),
        (lambda: model(x, y.astype(int), queries), "context_values has dtype int"),
        (
            lambda: model(x, y, queries, context_weights=np.ones(4)),
            r"context_weights \(4,\)",
        ),
    )
