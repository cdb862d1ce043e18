"""Small eager operations are computed by NumPy: their bits are those of programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import eager
from tests.selection import by_day

pytestmark = pytest.mark.skipif(
    not eager.installed(), reason="internals of another version of JAX"
)
SHAPES = [(), (5, 7), (2, 1, 50)]


def draws(key, dtype):
    for shape in SHAPES:
        yield jax.random.normal(key, shape, dtype)
        yield jax.random.uniform(key, shape, dtype, -1, 2)
        yield jax.random.truncated_normal(key, -2, 2, shape, dtype)


def operations(x):
    rows, whole = x[1:], x.astype(jnp.int32)
    yield from (
        x + 1,
        2 * x - rows[:1],
        x / (1 + x),
        x / 3,
        -x,
        abs(x),
        x**2,
        jnp.sqrt(abs(x)),
    )
    yield from (x > 0.5, jnp.where(x > 0, x, 0), jnp.maximum(x, rows[:1]), x.T)
    yield from (jnp.max(x, axis=0), jnp.min(x), jnp.all(x < 9, axis=1), jnp.any(x > 1))
    yield from (jnp.stack([x, x]), jnp.concatenate([x, rows]), x[:, None], x[::-1])
    yield from (jnp.isfinite(x), whole // 2, whole % 3, whole + 1, jnp.arange(4.0))
    yield from (jnp.asarray(2.0) * 3, jnp.zeros((2, 3)), x.reshape(-1), ~(x > 0))
    yield from (jnp.clip(x, -1, 1), jnp.sign(x), jnp.eye(3), jnp.tile(x, 2))


CASES = [(f, t) for f in (draws, operations) for t in (jnp.float32, jnp.float64)]


@pytest.mark.parametrize(
    ("function", "dtype"),
    by_day(CASES, [(draws, jnp.float32), (operations, jnp.float64)]),
)
def test_bits_and_types_are_those_of_a_program(function, dtype, rng, monkeypatch):
    given = jnp.asarray(3 * rng.normal(size=(4, 3)), dtype)
    arguments = (jax.random.key(3), dtype) if function is draws else (given,)

    def found(first):
        return list(function(first, *arguments[1:]))

    actual = found(arguments[0])
    with monkeypatch.context() as patch:  # as JAX comes
        patch.setattr(eager, "_simple", lambda program: False)
        patch.setattr(eager, "_is_simple", {})
        patch.setattr(eager, "_is_eager", lambda trace: False)
        expected = found(arguments[0])
    for one, other in zip(actual, expected, strict=True):
        assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
        np.testing.assert_array_equal(one, other)


def test_draws_under_vmap_are_those_of_a_program():
    def draw(key):
        return jax.random.normal(key, (4, 5))

    keys = jax.random.split(jax.random.key(1), 3)
    np.testing.assert_array_equal(jax.vmap(draw)(keys), jax.jit(jax.vmap(draw))(keys))


def test_results_do_not_change_with_the_array_that_was_given():
    given = np.ones((2, 3))
    turned = jnp.transpose(given)
    given[:] = 2
    np.testing.assert_array_equal(turned, 1)
