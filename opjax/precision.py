r"""Numbers in 16 bits: types, rounding, and products of rounded factors.

A number is rounded to the nearest one of its type. With `u = 2^-8` for bfloat16 and `u
= 2^-11` for float16, where `m` is the largest magnitude in an array,

    |rounded - x| <= u |x|  (bfloat16),    u max(|x|, 2^-28 m)  (float16).

Arrays are first scaled by a power of two for float16, so that no number overflows.
Features can be stored in either type. Products are computed only in bfloat16, which
needs no scaling and which processors multiply faster than float32: both factors are
rounded, and sums are in single precision or higher,

    |computed - x y| <= (2 u + u^2 + s eps) |x| |y|,

with `|x| |y|` the product of absolute values, `s` terms in a sum and `eps = 2^-24` of
float32.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

# What features are stored in, and what products are computed in.
STORED_TYPES = ("bfloat16", "float16")
PRODUCT_TYPES = ("bfloat16",)
# The largest number of a scaled array is below this power of two, float16's below 2^16.
EXPONENT = 15


@dataclasses.dataclass(frozen=True)
class Precision:
    """Parts of a model that use 16 bits, see `nn.with_precision`.

    Attributes:
      features: one of `PRODUCT_TYPES`, to which features and basis functions are
        rounded before products over channels and points; None for no rounding.
      storage: one of `STORED_TYPES`, in which features before blocks are stored for the
        backward pass; None for no rounding.

    Raises:
      ValueError: if a type is unknown.

    Examples:
      >>> from opjax.precision import Precision
      >>> Precision(features="bfloat16")
      Precision(features='bfloat16', storage=None)
      >>> Precision(features="int8")
      Traceback (most recent call last):
          ...
      ValueError: features='int8' must be one of bfloat16, or None for no ...
    """

    features: str | None = None
    storage: str | None = None

    def __post_init__(self):
        _check("features", self.features, PRODUCT_TYPES)
        check_stored(storage=self.storage)


def check_stored(**types: str | None) -> None:
    """Raises ValueError for a type that is not supported for stored features.

    Examples:
      >>> from opjax.precision import check_stored
      >>> check_stored(storage="float64")
      Traceback (most recent call last):
          ...
      ValueError: storage='float64' must be one of bfloat16, float16, or None for ...
    """
    for name, dtype in types.items():
        _check(name, dtype, STORED_TYPES)


def _check(name: str, dtype: str | None, types: tuple[str, ...]) -> None:
    if dtype is not None and dtype not in types:
        raise ValueError(
            f"{name}={dtype!r} must be one of {', '.join(types)}, or None for no "
            "rounding."
        )


def rounded(
    x: jax.Array, dtype: str, *, leading: int = 0
) -> tuple[jax.Array, jax.Array | None]:
    """Rounds numbers to 16 bits.

    Args:
      x: numbers.
      dtype: one of `STORED_TYPES`.
      leading: number of leading axes that index separate arrays.

    Returns:
      The scaled and rounded numbers, and the scale, a power of two with axes of length
      one; None stands for a scale of one.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.precision import rounded
      >>> values, scale = rounded(jnp.array([1.0, 1e6]), "float16")
      >>> values.dtype, (values / scale).tolist()
      (dtype('float16'), [1.0, 999936.0])
    """
    if dtype != "float16":
        return x.astype(dtype), None
    axes = tuple(range(leading, x.ndim))
    largest = jnp.max(jnp.abs(x), axis=axes, keepdims=True)
    powers = jnp.clip(EXPONENT - jnp.frexp(largest)[1], -100, 100)
    scale = lax.stop_gradient(jnp.ldexp(jnp.ones_like(largest), powers))
    return (x * scale).astype(dtype), scale


def matmul(x: jax.Array, y: jax.Array, dtype: str | None) -> jax.Array:
    """Returns the product `x @ y` of matrices, optionally with rounded factors.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.precision import matmul
      >>> x = jnp.full((1, 1), 1 + 2.0**-10)  # bfloat16 has eight bits
      >>> matmul(x, jnp.eye(1), "bfloat16").tolist()
      [[1.0]]
    """
    return x @ y if dtype is None else product("ab,bc->ac", x, y, dtype)


def product(spec: str, x: jax.Array, y: jax.Array, dtype: str | None) -> jax.Array:
    """Returns `jnp.einsum(spec, x, y)` with factors rounded to 16 bits.

    Gradients are such products as well, with a rounded cotangent. Forward-mode
    differentiation is not supported.

    Args:
      spec: einsum specification in which every letter occurs in two of the three
        arrays.
      x: a factor, in single precision or higher.
      y: the other factor, in the same dtype.
      dtype: one of `PRODUCT_TYPES`; None for no rounding.

    Returns:
      The product, in the dtype of the factors.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.precision import product
      >>> x = jnp.full((2, 3), 1 + 2.0**-10)  # bfloat16 has eight bits
      >>> product("nk,nd->kd", x, x, "bfloat16").tolist()
      [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
    """
    return jnp.einsum(spec, x, y) if dtype is None else _rounded(spec, dtype, x, y)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rounded(spec: str, dtype: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return _forward(spec, dtype, x, y)[0]


_Kept = tuple[jax.Array, jax.Array]  # the factors, the larger ones rounded


def _forward(
    spec: str, dtype: str, x: jax.Array, y: jax.Array
) -> tuple[jax.Array, _Kept]:
    # Small factors are maps, which loops over points have in common: XLA rounds them,
    # in the order of axes that a product wants, in front of the loop.
    one = x if x.size < y.size else x.astype(dtype)
    other = y if y.size < x.size else y.astype(dtype)
    return _sum(spec, dtype, one, other, x.dtype), (one, other)


def _backward(
    spec: str, dtype: str, kept: _Kept, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    factors, out = spec.split("->")
    one, other = factors.split(",")
    wide, large = cotangent.dtype, cotangent.size >= max(x.size for x in kept)
    after = cotangent.astype(dtype) if large else cotangent
    return (
        _sum(f"{out},{other}->{one}", dtype, after, kept[1], wide),
        _sum(f"{out},{one}->{other}", dtype, after, kept[0], wide),
    )


_rounded.defvjp(_forward, _backward)


def _sum(
    spec: str, dtype: str, x: jax.Array, y: jax.Array, wide: jnp.dtype
) -> jax.Array:
    """The product of rounded factors, added up in a wide type."""
    factors, out = spec.split("->")
    pairs = dict(zip(factors.split(","), (x, y), strict=True))
    # The factor whose axes come first in the product is fastest on a CPU with the sum
    # over its last axis.
    first, second = sorted(pairs, key=lambda letters: out[-1] in letters)
    shared = "".join(letter for letter in out if letter in first)
    order = shared + "".join(letter for letter in first if letter not in shared)
    axes = [first.index(letter) for letter in order]
    return jnp.einsum(
        f"{order},{second}->{out}",
        jnp.transpose(pairs[first], axes).astype(dtype),
        pairs[second].astype(dtype),
        preferred_element_type=wide,
    )


def dot_general(dtype: str | None) -> Callable[..., jax.Array]:
    """Returns the `dot_general` for `nnx.Linear`; equal dtypes give the same object.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.precision import dot_general
      >>> multiply = dot_general("bfloat16")
      >>> layer = nnx.Linear(4, 8, dot_general=multiply, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 4))).dtype
      dtype('float32')
    """
    return lax.dot_general if dtype is None else _DOTS[dtype]


def _dot_bfloat16(
    x: jax.Array, y: jax.Array, dimensions: lax.DotDimensionNumbers, **_: Any
) -> jax.Array:
    """`lax.dot_general` of factors that share one axis."""
    ((one,), (other,)), _batch = dimensions
    letters = [*"abcdefgh"[: x.ndim]], [*"stuvwxyz"[: y.ndim]]
    letters[0][one] = letters[1][other] = "i"
    left, right = map("".join, letters)
    out = (left + right).replace("i", "")
    return product(f"{left},{right}->{out}", x, y, "bfloat16")


_DOTS: dict[str, Callable[..., jax.Array]] = {"bfloat16": _dot_bfloat16}
