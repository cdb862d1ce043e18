import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

from opjax import metrics
from tests import refused
from tests.selection import by_day


def numpy_relative_l2(p, t, w=None):
    w = np.ones(len(p)) if w is None else w
    w = w.reshape(-1, *[1] * (p.ndim - 1))
    return np.sqrt(np.sum(w * (p - t) ** 2) / np.sum(w * t**2))


def numpy_gradient_error(p, t, shape):
    p, t = p.reshape(shape).copy(), t.reshape(shape)
    inside = np.zeros(shape, bool)
    inside[(slice(1, -1),) * len(shape)] = True
    p[~inside] = 0
    total = 0.0
    for axis in range(len(shape)):
        dp, dt = (
            np.diff(np.pad(f, 1), axis=axis)[(slice(None),) * axis + (slice(1, None),)]
            + np.diff(np.pad(f, 1), axis=axis)[(slice(None),) * axis + (slice(-1),)]
            for f in (p, t)
        )
        keep = tuple(slice(None) if a == axis else slice(1, -1) for a in range(p.ndim))
        total += np.linalg.norm((dp - dt)[keep]) / np.linalg.norm(dt[keep])
    return total


def numpy_flux_error(p, g, shape, h, a=None, relative_to="flux"):
    """Point by point, over inner points above and over all points below."""
    a = np.ones(shape) if a is None else a.reshape(shape)
    p, g = p.reshape(shape), g.reshape(*shape, -1)
    above, below = [], []
    for i in np.ndindex(shape):
        size = sum(g[i] ** 2)
        below.append((a[i] if relative_to == "energy" else a[i] ** 2) * size)
        if any(j in (0, n - 1) for j, n in zip(i, shape, strict=True)):
            continue
        above.append(0.0)
        for axis, step in enumerate(np.eye(len(shape), dtype=int)):
            slope = (p[tuple(i + step)] - p[tuple(i - step)]) / (2 * h)
            above[-1] += (a[i] * (slope - g[i][axis])) ** 2
    return np.sqrt(np.mean(above) / np.mean(below))


def numerical_gradient(f, x, h=1e-6):
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = h
        gradient[i] = (f(x + e) - f(x - e)) / (2 * h)
    return gradient


def differentiate(f, argnums=(0, 1)):
    """Value and gradients, compiled as one program."""
    return jax.jit(jax.value_and_grad(f, argnums=argnums))


@pytest.fixture
def pair():
    return np.random.default_rng(0).normal(size=(2, 12, 2))


@pytest.mark.parametrize("shape", [(9,), (12, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_relative_l2_matches_numpy_in_value_and_gradient(shape, weighted):
    rng = np.random.default_rng(1)
    p, t = rng.normal(size=(2, *shape))
    w = rng.uniform(0.5, 1, size=shape[0]) if weighted else None

    def f(p, t):
        return metrics.relative_l2(p, t, quadrature_weights=w)

    value, (of_prediction, of_target) = differentiate(f)(p, t)
    assert_allclose(value, numpy_relative_l2(p, t, w), rtol=1e-13)
    expected = numerical_gradient(lambda x: numpy_relative_l2(x, t, w), p)
    assert_allclose(of_prediction, expected, atol=1e-8)
    expected = numerical_gradient(lambda x: numpy_relative_l2(p, x, w), t)
    assert_allclose(of_target, expected, atol=1e-8)


def test_nan_padding_of_zero_weight_changes_neither_value_nor_gradient(pair):
    p, t = pair
    w = np.ones(15)
    w[12:] = 0
    padding = np.full((3, 2), np.nan)
    padded = [np.concatenate([x, padding]) for x in (p, t)]
    f = differentiate(metrics.relative_l2)
    value, gradients = f(*padded, quadrature_weights=w)
    expected_value, expected = f(p, t)
    assert_allclose(value, expected_value, rtol=1e-14)
    for gradient, e in zip(gradients, expected, strict=True):
        assert_allclose(gradient[:12], e, rtol=1e-12)
        assert_array_equal(gradient[12:], 0)


def test_exact_prediction_has_zero_error_and_zero_gradient(pair):
    for f in (
        metrics.relative_l2,
        lambda p, t: metrics.relative_gradient_error(
            p, t.reshape(12, 2), grid_shape=(3, 4)
        ),
    ):
        t = pair[1].copy().reshape(3, 4, 2)
        inside = np.zeros_like(t)
        inside[1:-1, 1:-1] = t[1:-1, 1:-1]
        inside = inside.reshape(12, 2)
        value, (gradient, _) = differentiate(f)(inside, inside)
        assert value == 0
        assert_array_equal(gradient, 0)


def test_scaling_both_fields_leaves_the_errors_unchanged(pair):
    p, t = pair
    for f, factor in (
        (metrics.relative_l2, 3),
        (functools.partial(metrics.relative_gradient_error, grid_shape=(3, 4)), 5),
    ):
        error = jax.jit(f)
        scaled = error(factor * p, factor * t)
        assert_allclose(scaled, error(p, t), rtol=1e-13)


@pytest.mark.parametrize("shape", [(7,), (4, 5), (3, 3, 4)])
def test_gradient_error_matches_numpy_in_value_and_gradient(shape):
    p, t = np.random.default_rng(2).normal(size=(2, np.prod(shape)))

    def f(p, t):
        return metrics.relative_gradient_error(p, t, grid_shape=shape)

    value, (of_prediction, of_target) = differentiate(f)(p, t)
    assert_allclose(value, numpy_gradient_error(p, t, shape), rtol=1e-12)
    expected = numerical_gradient(lambda x: numpy_gradient_error(x, t, shape), p)
    assert_allclose(of_prediction, expected, atol=1e-8)
    expected = numerical_gradient(lambda x: numpy_gradient_error(p, x, shape), t)
    assert_allclose(of_target, expected, atol=1e-8)


@pytest.mark.parametrize("shape", [(7,), (4, 5), (3, 3, 4)])
@pytest.mark.parametrize(
    "relative_to", by_day([None, "flux", "energy"], ["flux", "energy"])
)
def test_flux_error_matches_numpy_in_value_and_gradient(shape, relative_to):
    rng = np.random.default_rng(4)
    p, g = (
        rng.normal(size=np.prod(shape)),
        rng.normal(size=(np.prod(shape), len(shape))),
    )
    options = {"relative_to": relative_to} if relative_to else {}
    a = rng.uniform(0.5, 2, size=p.shape) if relative_to else np.ones_like(p)

    def f(p, g, a):
        given = a if relative_to else None
        return metrics.relative_flux_error(
            p, g, grid_shape=shape, spacing=0.3, coefficient=given, **options
        )

    def oracle(p, g, a):
        return numpy_flux_error(p, g, shape, 0.3, a, **options)

    value, gradients = differentiate(f, argnums=(0, 1, 2))(p, g, a)
    assert_allclose(value, oracle(p, g, a), rtol=1e-12)
    for i, x in enumerate((p, g, a)[: 3 if relative_to else 2]):

        def along(x, i=i):
            return oracle(*[x if i == j else y for j, y in enumerate((p, g, a))])

        assert_allclose(gradients[i], numerical_gradient(along, x), atol=1e-7)


def test_flux_error_of_the_differences_of_the_target_is_zero():
    field = np.random.default_rng(5).normal(size=(5, 6))
    g = np.stack(np.gradient(field, 0.2), axis=-1).reshape(30, 2)

    def f(p):
        return metrics.relative_flux_error(p, g, grid_shape=(5, 6), spacing=0.2)

    error = differentiate(f, argnums=0)
    value, gradient = error(np.zeros(30))
    assert value > 0.5
    assert np.abs(gradient).max() > 0
    for exact in (field.ravel(), field.ravel() + 3):
        assert_allclose(error(exact)[0], 0, atol=1e-14)
    _, zero = differentiate(
        lambda p: metrics.relative_flux_error(
            p, np.ones((5, 1)), grid_shape=(5,), spacing=1.0
        ),
        argnums=0,
    )(np.arange(5.0))
    assert_array_equal(zero, 0)


def test_flux_error_does_not_depend_on_the_scale_of_the_coefficient():
    rng = np.random.default_rng(6)
    p, g, a = rng.normal(size=12), rng.normal(size=(12, 2)), rng.uniform(1, 2, size=12)
    f = functools.partial(metrics.relative_flux_error, p, g, grid_shape=(3, 4))
    for relative_to, factor in (("flux", 1), ("energy", 2)):
        error = jax.jit(functools.partial(f, spacing=0.1, relative_to=relative_to))
        one, two = (error(coefficient=c * a) for c in (1, 4))
        assert_allclose(factor * one, two, rtol=1e-13)


def test_gradient_error_of_a_target_without_gradient_is_not_finite(pair):
    f = functools.partial(metrics.relative_gradient_error, grid_shape=(3, 4))
    zero = np.zeros((12, 2))
    assert f(pair[0], zero) == np.inf
    assert np.isnan(f(zero, zero))


def test_gradient_error_ignores_the_boundary_of_the_prediction_only(pair):
    p, t = (x.reshape(3, 4, 2) for x in pair)
    q, s = p.copy(), t.copy()
    q[0], s[0] = 7, 7

    def f(p, t):
        flat = (x.reshape(12, 2) for x in (p, t))
        return metrics.relative_gradient_error(*flat, grid_shape=(3, 4))

    assert f(q, t) == f(p, t)
    assert f(p, s) != f(p, t)


@pytest.mark.nightly
def test_metrics_batch_under_vmap_and_jit_and_keep_float32(pair):
    p, t = (np.stack([x, 2 * x]).astype(np.float32) for x in pair)
    for f in (
        metrics.relative_l2,
        lambda p, t: metrics.relative_gradient_error(p, t, grid_shape=(3, 4)),
        lambda p, t: metrics.relative_flux_error(
            p[:, 0], t, grid_shape=(3, 4), spacing=0.5, coefficient=t[:, 0]
        ),
    ):
        batched, single = jax.jit(jax.vmap(f))(p, t), jax.jit(f)
        assert batched.dtype == jnp.float32
        expected = [single(p[0], t[0]), single(p[1], t[1])]
        assert_allclose(batched, expected, rtol=1e-6)


def test_weighted_relative_l2_batches_under_vmap_and_keeps_float32(pair):
    w = np.random.default_rng(3).uniform(0.5, 1, size=(2, 12))
    p, t = (np.stack([x, 2 * x + 1]) for x in pair)
    batched = jax.jit(
        jax.vmap(lambda p, t, w: metrics.relative_l2(p, t, quadrature_weights=w))
    )(*(jnp.asarray(a, jnp.float32) for a in (p, t, w)))
    assert batched.dtype == jnp.float32
    expected = [numpy_relative_l2(*triple) for triple in zip(p, t, w, strict=True)]
    assert_allclose(batched, expected, rtol=1e-5)


def test_bad_shapes_and_dtypes_are_named_in_the_error(pair):
    p, t = pair
    refused.each(
        (lambda: metrics.relative_l2(p, t[1:]), r"\(12, 2\).*\(11, 2\)"),
        (lambda: metrics.relative_l2(p[None], t[None]), "vmap"),
        (
            lambda: metrics.relative_l2(p, t, quadrature_weights=np.ones(3)),
            "one weight per point",
        ),
        (lambda: metrics.relative_gradient_error(p, t, grid_shape=(4, 5)), "20 points"),
    )
    with pytest.raises(TypeError, match="target"):
        metrics.relative_l2(p, t.astype(int))
    flux = functools.partial(metrics.relative_flux_error, grid_shape=(3, 4))
    refused.each(
        (lambda: flux(p, t, spacing=1.0), "vmap"),
        (
            lambda: flux(p[:, 0], t[:, :1], spacing=1.0),
            r"\(12, 1\), expected \(12, 2\)",
        ),
        (lambda: flux(p[:, 0], t, spacing=0.0), "spacing"),
        (lambda: flux(p[:, 0], t, spacing=1.0, coefficient=np.ones(3)), "points"),
        (
            lambda: flux(p[:, 0], t, spacing=1.0, relative_to="work"),
            "relative_to='work'",
        ),
        (
            lambda: metrics.relative_flux_error(
                p[:, 0], t, grid_shape=(6, 2), spacing=1.0
            ),
            "three points",
        ),
    )
    with pytest.raises(TypeError, match="coefficient"):
        flux(p[:, 0], t, spacing=1.0, coefficient=np.ones(12, int))


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_is_that_of_scipy(ties, rng):
    first, second = rng.normal(size=(2, 30))
    if ties:
        first, second = np.round(first), np.round(second)
    expected = scipy.stats.spearmanr(first, second).statistic
    actual = metrics.rank_correlation(first, second)
    assert_allclose(actual, expected, rtol=1e-12)
    pairs = jnp.stack([first, second]), jnp.stack([second, second])
    batched = jax.jit(jax.vmap(metrics.rank_correlation))(*pairs)
    assert_allclose(batched, [expected, 1], rtol=1e-12)
    single = metrics.rank_correlation(np.float32(first), np.float32(second))
    assert single.dtype == jnp.float32


def test_rank_correlation_sees_the_order_alone(rng):
    values = rng.normal(size=9)
    rising = metrics.rank_correlation(values, np.exp(values))
    assert_allclose(rising, 1, rtol=1e-12)
    falling = metrics.rank_correlation(values, -(values**3))
    assert_allclose(falling, -1, rtol=1e-12)
    assert np.isnan(metrics.rank_correlation(np.ones(9), values))
    with pytest.raises(ValueError, match=r"first \(9,\), second \(8,\)"):
        metrics.rank_correlation(values, values[1:])


def test_r_squared_is_the_share_of_the_spread_that_is_explained(rng):
    target, prediction = rng.normal(size=(2, 30))
    expected = 1 - np.var(target - prediction) / np.var(target)
    expected -= np.mean(target - prediction) ** 2 / np.var(target)
    assert_allclose(metrics.r_squared(prediction, target), expected)
    assert metrics.r_squared(target, target) == 1
    middle = np.full(30, target.mean())
    assert_allclose(metrics.r_squared(middle, target), 0, atol=1e-12)
    batched = jax.jit(jax.vmap(metrics.r_squared))(
        jnp.stack([prediction, target]), jnp.stack([target, target])
    )
    assert_allclose(batched, [expected, 1])
    single = metrics.r_squared(np.float32(prediction), np.float32(target))
    assert single.dtype == jnp.float32
    slope = jax.jit(jax.grad(metrics.r_squared))(prediction, target)
    spread = np.sum((target - target.mean()) ** 2)
    assert_allclose(slope, 2 * (target - prediction) / spread)


def test_r_squared_takes_one_number_for_each_sample():
    refused.each(
        (
            lambda: metrics.r_squared(np.ones(9), np.ones(8)),
            r"prediction \(9,\), target \(8,\)",
        ),
        (lambda: metrics.r_squared(np.ones(9), np.ones(9, int)), "target has dtype"),
    )


# From the smallest numbers that float32 has in full to the largest, squares of which
# leave its range.
FACTORS = [1e-33, 1e-25, 1e-20, 1e-12, 1.0, 1e12, 1e19, 1e20, 1e37]


def in_double(function, *arrays):
    """The measure of an oracle in float64."""
    return float(function(*(np.asarray(a, np.float64) for a in arrays)))


slope_of_relative_l2 = jax.jit(jax.grad(metrics.relative_l2))


@jax.jit
def errors(p, t, gradient, a):
    """All but the norm, which knows weights."""
    flux = functools.partial(
        metrics.relative_flux_error, p, gradient, grid_shape=(4, 3), spacing=1.0
    )
    return {
        "r_squared": metrics.r_squared(p, t),
        "rank": metrics.rank_correlation(p, t),
        "gradient": metrics.relative_gradient_error(p, t, grid_shape=(4, 3)),
        "flux": flux(),
        "weighted flux": flux(coefficient=a),
    }


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("mass", [1e-30, 1.0, 1e30])
def test_relative_l2_of_fields_and_weights_in_any_unit(factor, mass, rng):
    t = np.float32(factor) * rng.uniform(0.5, 2, size=(9, 2)).astype(np.float32)
    p = np.float32(1.1) * t
    w = np.float32(mass) * rng.uniform(0.5, 2, size=9).astype(np.float32)
    plain = metrics.relative_l2(p, t)
    assert_allclose(plain, in_double(numpy_relative_l2, p, t), rtol=2e-6)
    w[3], p[3] = 0, np.nan
    expected = in_double(numpy_relative_l2, *(np.delete(x, 3, 0) for x in (p, t, w)))
    weighted = metrics.relative_l2(p, t, quadrature_weights=w)
    assert_allclose(weighted, expected, rtol=2e-6)
    if 1e-30 < factor < 1e30:  # of others the gradient is beyond float32
        slope = slope_of_relative_l2(p, t, quadrature_weights=w)
        found = float(np.sum(np.nan_to_num(p) * slope, dtype=np.float64))
        # Along p = 1.1 t the error grows from 0.1 by as much as p grows.
        assert_allclose(found, 1.1, rtol=1e-5)


@pytest.mark.parametrize("factor", FACTORS)
def test_all_errors_are_the_same_in_any_unit(factor, rng):
    p, t = rng.normal(size=(2, 12)).astype(np.float32)
    gradient = rng.normal(size=(12, 2)).astype(np.float32)
    a = rng.uniform(1, 2, size=12).astype(np.float32)
    found = errors(*(np.float32(factor) * x for x in (p, t, gradient, a)))
    double = [np.float64(x) for x in (p, t, gradient, a)]
    expected = errors(*double) | {"gradient": numpy_gradient_error(*double[:2], (4, 3))}
    for name, value in expected.items():
        assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_measured_in_float32_and_rounded_at_the_end(dtype, rng):
    p, t = ((300 + 30 * x).astype(dtype) for x in rng.normal(size=(2, 4000)))
    shape = {"grid_shape": (80, 50)}
    calls = [
        metrics.relative_l2,
        metrics.r_squared,
        metrics.rank_correlation,
        functools.partial(metrics.relative_gradient_error, **shape),
    ]
    for call in calls:
        if call is metrics.rank_correlation:
            p, t = p[:300], t[:300]
        elif isinstance(call, functools.partial):
            p, t = ((30 * x).astype(dtype) for x in rng.normal(size=(2, 4000)))
        run = jax.jit(call)
        found = run(p, t)
        assert found.dtype == dtype
        expected = run(p.astype(np.float64), t.astype(np.float64))
        eps = float(jnp.finfo(dtype).eps)
        assert_allclose(float(found), expected, rtol=eps, atol=eps)


def test_scaling_by_a_power_of_two_changes_no_bit(rng):
    p, t = rng.normal(size=(2, 50, 2)).astype(np.float32)
    w = rng.uniform(size=50).astype(np.float32)
    once = metrics.relative_l2(p, t, quadrature_weights=w)
    for power in (-60, -1, 30):
        s = np.float32(2.0**power)
        again = metrics.relative_l2(s * p, s * t, quadrature_weights=s * s * w)
        assert float(again) == float(once)


def test_the_power_below_is_that_of_the_largest_magnitude():
    values = jnp.asarray([-3.0, 0.5], jnp.float32)
    assert float(metrics.power_below(values)) == 2
    assert float(metrics.power_below(8 * values)) == 16
    assert float(metrics.power_below(8 * values, even=True)) == 16
    assert float(metrics.power_below(4 * values, even=True)) == 4
    for other in (0.0, np.nan, np.inf):
        assert float(metrics.power_below(other * values)) == 1
    rows = metrics.power_below(jnp.asarray([[1.0, -5.0], [0.1, 0.0]]), axis=1)
    assert_array_equal(rows, [[4], [0.0625]])
    for value in (2.0**-126, 2.0**127):
        for even in (True, False):
            found = metrics.power_below(jnp.float32(value), even=even)
            assert 0 <= np.log2(value / float(found)) <= 1


def test_losses_of_usual_size_round_as_the_plain_formula_does(rng):
    """What papers' programs train on; a power of two would change the fused sums.

    Compiled, the last bits depend on the machine's vectors.
    """
    prediction, target = jnp.asarray(rng.normal(size=(2, 50, 3)), jnp.float32)
    weights = jnp.asarray(rng.random(50), jnp.float32)

    def norm(x):
        return jnp.sqrt(jnp.sum(x * x))

    @jax.jit
    def plain(prediction, target):
        root = jnp.sqrt(jnp.broadcast_to(weights[:, None], target.shape))
        return norm(root * (prediction - target)) / norm(root * target)

    given = {"quadrature_weights": weights}
    loss = functools.partial(metrics.relative_l2, rescale=False, **given)
    with jax.disable_jit():
        assert loss(prediction, target) == plain(prediction, target)
    assert "bitcast" not in str(jax.make_jaxpr(loss)(prediction, target))
    found = loss(prediction, target)
    assert_allclose(found, plain(prediction, target), rtol=5e-7)
    rescaled = metrics.relative_l2(prediction, target, **given)
    assert_allclose(rescaled, found, rtol=1e-6)
