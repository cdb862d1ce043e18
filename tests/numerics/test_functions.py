"""Projections, solves and maps against oracles in double precision, by hypothesis.

With `c = (s_max^2 + r) / (s_min^2 + r)` the condition number of the system with the
ridge `r`, and `e` the unit roundoff of the arithmetic (that of single precision for
half), errors stay below

    200 e c + 4 e_result,    relative to the largest coefficient,

as long as `200 e c < 0.1`; beyond, solutions stay finite wherever the ridge is above
the roundoff of the system.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import opjax

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

SHAPES = [(1, 1, 1), (3, 5, 2), (12, 4, 2)]  # points, functions, channels: k > n, too
DTYPES = ["float16", "bfloat16", "float32", "float64"]
KINDS = ["random", "coincident", "constant", "rank one", "no function"]
SETTINGS = hypothesis.settings(
    max_examples=60, deadline=None, derandomize=True, database=None
)


def made(kind: str, seed: int, shape: tuple[int, int, int]) -> tuple[np.ndarray, ...]:
    """Values, a basis and weights, some of them zero."""
    n, k, d = shape
    rng = np.random.default_rng(seed)
    basis, values = rng.uniform(0, 1, (n, k)), rng.normal(size=(n, d))
    weights = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.5, 1.5, n))
    if kind == "coincident":
        basis, values = np.repeat(basis[:1], n, 0), np.repeat(values[:1], n, 0)
    elif kind == "constant":
        basis, values = np.ones_like(basis), np.ones_like(values)
    elif kind == "rank one":
        basis = basis[:, :1] * basis[:1]
    elif kind == "no function":
        basis[:, 0] = 0.0
    return values, basis, weights


def exponent(dtype: str) -> float:
    """Largest power of ten of values: those of half precision end at 65504."""
    return 3.0 if dtype == "float16" else 30.0


@pytest.mark.nightly
@SETTINGS
@hypothesis.given(
    st.sampled_from(DTYPES),
    st.sampled_from(SHAPES),
    st.sampled_from(KINDS),
    st.sampled_from(["mean", "pseudo_inverse"]),
    st.integers(0, 2**16),
    st.floats(-1, 1),
    st.floats(-12, 6),
)
def test_projections_are_within_stated_bounds(
    dtype, shape, kind, method, seed, scale, ridge
):
    scale, ridge = 10 ** (scale * exponent(dtype)), 10**ridge
    if dtype in ("float16", "bfloat16"):
        scale = max(scale, 1e-3)  # smaller values are subnormal, or zero
    values, basis, weights = made(kind, seed, shape)
    given = [
        np.asarray(jnp.asarray(a, dtype)) for a in (scale * values, basis, weights)
    ]
    found = opjax.project(
        *map(jnp.asarray, given[:2]),
        quadrature_weights=jnp.asarray(given[2]),
        projection=opjax.Means() if method == "mean" else opjax.LeastSquares(ridge),
    )
    assert found.dtype == dtype
    f, phi, w = (np.asarray(a, np.float64) for a in given)
    right, gram = phi.T @ (w[:, None] * f), phi.T @ (w[:, None] * phi)
    one = float(jnp.finfo(dtype).eps)
    work = min(one, float(jnp.finfo("float32").eps))
    if method == "mean":
        unit = w.sum() / max((w > 0).sum(), 1) if w.any() else 1.0
        expected = right / (phi.T @ w + 1e-5 * unit)[:, None]
        condition, work = 1.0, one
    else:
        squares = np.clip(np.linalg.eigvalsh(gram), 0, None)
        condition = (squares.max() + ridge) / (squares.min() + ridge)
        expected = np.linalg.solve(gram + ridge * np.eye(len(gram)), right)
    actual = np.asarray(found, np.float64)
    if 200 * work * condition < 0.1:
        size = np.abs(f).max() if method == "mean" else np.abs(expected).max()
        bound = (200 * work * condition + 4 * one) * max(size, np.abs(expected).max())
        assert np.abs(actual - expected).max() <= bound + float(jnp.finfo(dtype).tiny)
    elif ridge > 100 * work * gram.max():
        assert np.isfinite(actual).all()


@SETTINGS
@hypothesis.given(
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([(1, 1), (5, 2), (3, 7)]),
    st.booleans(),
    st.integers(0, 2**16),
    st.floats(-12, 6),
)
@pytest.mark.nightly
def test_functional_maps_and_their_gradients_are_within_stated_bounds(
    dtype, shape, repeated, seed, ridge
):
    """The map vanishes as the ridge grows, and never exceeds `|Q| / (2 sqrt(r))`."""
    ridge = 10**ridge
    query, key = np.random.default_rng(seed).normal(size=(2, *shape)).astype(dtype)
    if repeated:
        key[:] = key[:1]
    value, gradient = MAP(jnp.asarray(query), jnp.asarray(key), ridge)
    q, k = query.astype(np.float64), key.astype(np.float64)
    system = k @ k.T + ridge * np.eye(shape[0])
    eigenvalues = np.clip(np.linalg.eigvalsh(k @ k.T), 0, None) + ridge
    condition = eigenvalues.max() / eigenvalues.min()
    if 200 * np.finfo(dtype).eps * condition > 0.1:
        return
    expected = np.linalg.solve(system, k @ q.T).T
    size = np.abs(expected).max()
    bound = 200 * np.finfo(dtype).eps * condition * size + np.finfo(dtype).tiny
    assert np.abs(np.asarray(value) - expected).max() <= bound
    assert np.isfinite(gradient).all()
    largest = np.linalg.norm(q, 2) / (2 * np.sqrt(ridge))
    assert np.linalg.norm(value, 2) <= 1.1 * largest + 1e-6


@jax.jit
def MAP(query, key, ridge):  # noqa: N802 - compiled once for each shape
    def value(key):
        return opjax.functional_map(query, key, ridge=ridge)

    found, pull = jax.vjp(value, key)
    return found, pull(found)[0]


def test_a_ridge_of_cross_validation_is_positive_for_zeros():
    """Found by the layers: a subnormal weight, and then a division by zero."""
    zeros = jnp.zeros((4, 3), jnp.float32)
    ridge = opjax.gcv_ridge(zeros, zeros)
    assert ridge > jnp.finfo(jnp.float32).tiny
    moved = opjax.transport(zeros, zeros, zeros, ridge=ridge)
    np.testing.assert_array_equal(moved, zeros)


def test_gradients_of_means_do_not_depend_on_the_unit_of_the_weights(rng):
    """Found by the layers: squares of masses of 1e-30 are zero in single precision."""
    values, basis = rng.normal(size=(6, 2)), rng.uniform(0.1, 1, (6, 3))

    def total(basis, weights):
        means = opjax.project(
            single(values), basis, projection=opjax.Means(), quadrature_weights=weights
        )
        return jnp.sum(means**2)

    def single(array):
        return jnp.asarray(array, jnp.float32)

    gradient = jax.jit(jax.grad(total))
    expected = gradient(single(basis), single(np.ones(6)))
    actual = gradient(single(basis), single(np.full(6, 1e-30)))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
