r"""Numbers of points in 16 bits: what they are rounded to, and products of them.

A number is rounded to the nearest one of its type, so with `u = 2^-8` of bfloat16 and
`u = 2^-11` of float16, where `m` is the largest number of an array,

    |rounded - x| <= u |x|  (bfloat16),    u max(|x|, 2^-28 m)  (float16).

Numbers of float16 are first scaled by a power of two, one for every array, so that none
overflows. A product rounds both factors, and adds up in single precision or better:

    |computed - x y| <= (2 u + u^2 + s eps) |x| |y|,

with `|x| |y|` that of absolute values, `s` terms of a sum and `eps = 2^-24` of float32.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

TYPES = ("bfloat16", "float16")
# The largest number of a scaled array is below this power of two, float16's below 2^16.
EXPONENT = 15


@dataclasses.dataclass(frozen=True)
class Precision:
    """What a model has in 16 bits, see `nn.with_precision`.

    Attributes:
      features: type that features and basis functions are rounded to in front of
        products over channels and points; None for their own.
      storage: type that features in front of blocks are kept in for the backward pass;
        None for their own.

    Raises:
      ValueError: if a type is unknown.
    """

    features: str | None = None
    storage: str | None = None

    def __post_init__(self):
        check(features=self.features, storage=self.storage)


def check(**types: str | None) -> None:
    """Raises ValueError for a type of 16 bits that is not known."""
    for name, dtype in types.items():
        if dtype is not None and dtype not in TYPES:
            raise ValueError(
                f"{name}={dtype!r} must be one of {', '.join(TYPES)}, or None for the "
                "type of the features."
            )


def rounded(
    x: jax.Array, dtype: str, *, leading: int = 0
) -> tuple[jax.Array, jax.Array | None]:
    """Rounds numbers to 16 bits.

    Args:
      x: numbers.
      dtype: one of `TYPES`.
      leading: number of leading axes whose every entry is an array of its own.

    Returns:
      The numbers times a scale, and the scale, a power of two with axes of length one;
      None for one.
    """
    if dtype != "float16":
        return x.astype(dtype), None
    axes = tuple(range(leading, x.ndim))
    largest = jnp.max(jnp.abs(x), axis=axes, keepdims=True)
    powers = jnp.clip(EXPONENT - jnp.frexp(largest)[1], -100, 100)
    scale = lax.stop_gradient(jnp.ldexp(jnp.ones_like(largest), powers))
    return (x * scale).astype(dtype), scale


def matmul(x: jax.Array, y: jax.Array, dtype: str | None) -> jax.Array:
    """Returns `x @ y` of matrices, rounded to 16 bits if a type is given."""
    return x @ y if dtype is None else product("ab,bc->ac", x, y, dtype)


def product(spec: str, x: jax.Array, y: jax.Array, dtype: str | None) -> jax.Array:
    """Returns `jnp.einsum(spec, x, y)` of factors that are rounded to 16 bits.

    Gradients are such products as well, of the rounded cotangent. There is no forward
    mode of differentiation.

    Args:
      spec: in which every letter is in two of the factors and the product.
      x: a factor, in single precision or better.
      y: the other factor, of the same type.
      dtype: one of `TYPES`; None for the product of what is given.

    Returns:
      The product, of the type of the factors.
    """
    return jnp.einsum(spec, x, y) if dtype is None else _rounded(spec, dtype, x, y)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rounded(spec: str, dtype: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return _forward(spec, dtype, x, y)[0]


def _forward(
    spec: str, dtype: str, x: jax.Array, y: jax.Array
) -> tuple[jax.Array, Any]:
    # Small factors are maps, which loops over points have in common: XLA rounds them,
    # in the order of axes that a product wants, in front of the loop.
    one = x if x.size < y.size else rounded(x, dtype)
    other = y if y.size < x.size else rounded(y, dtype)
    return _sum(spec, dtype, one, other, x.dtype), (one, other)


def _backward(
    spec: str, dtype: str, kept: Any, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    factors, out = spec.split("->")
    one, other = factors.split(",")
    wide, large = cotangent.dtype, cotangent.size >= max(map(_size, kept))
    after = rounded(cotangent, dtype) if large else cotangent
    return (
        _sum(f"{out},{other}->{one}", dtype, after, kept[1], wide),
        _sum(f"{out},{one}->{other}", dtype, after, kept[0], wide),
    )


_rounded.defvjp(_forward, _backward)


def _size(factor: Any) -> int:
    return (factor[0] if isinstance(factor, tuple) else factor).size


def _sum(spec: str, dtype: str, x: Any, y: Any, wide: Any) -> jax.Array:
    """The product of factors, rounded or to be rounded, added up in a wide type."""
    factors, out = spec.split("->")
    pairs = dict(zip(factors.split(","), (x, y), strict=True))
    # The factor whose axes come first in the product is fastest on a CPU with the sum
    # over its last axis.
    first, second = sorted(pairs, key=lambda letters: out[-1] in letters)
    shared = "".join(letter for letter in out if letter in first)
    order = shared + "".join(letter for letter in first if letter not in shared)
    axes = [first.index(letter) for letter in order]
    if isinstance(pairs[first], tuple):
        values, scale = pairs[first]
        one = jnp.transpose(values, axes), scale
    else:
        one = rounded(jnp.transpose(pairs[first], axes), dtype)
    other = pairs[second]
    other = other if isinstance(other, tuple) else rounded(other, dtype)
    found = jnp.einsum(
        f"{order},{second}->{out}", one[0], other[0], preferred_element_type=wide
    )
    for _, scale in (one, other):
        found = found if scale is None else found / scale.reshape(())
    return found


def dot_general(dtype: str | None) -> Any:
    """Returns what `nnx.Linear` takes as `dot_general`, the same object for a type."""
    return lax.dot_general if dtype is None else _DOTS[dtype]


def _dot(dtype: str, x: jax.Array, y: jax.Array, dimensions: Any, **_) -> jax.Array:
    """`lax.dot_general` of factors that share one axis."""
    ((one,), (other,)), _ = dimensions
    letters = [*"abcdefgh"[: x.ndim]], [*"stuvwxyz"[: y.ndim]]
    letters[0][one] = letters[1][other] = "i"
    left, right = map("".join, letters)
    out = (left + right).replace("i", "")
    return product(f"{left},{right}->{out}", x, y, dtype)


def _bfloat16(*args: Any, **given: Any) -> jax.Array:
    return _dot("bfloat16", *args, **given)


def _float16(*args: Any, **given: Any) -> jax.Array:
    return _dot("float16", *args, **given)


_DOTS = {"bfloat16": _bfloat16, "float16": _float16}
