r"""Features in front of layers, kept in 16 bits until the backward pass needs them.

A number is rounded to the nearest one of its type, so with `u = 2^-8` of bfloat16 and
`u = 2^-11` of float16, where `m` is the largest number of an array,

    |kept - z| <= u |z|  (bfloat16),    u max(|z|, 2^-28 m)  (float16).

Numbers of float16 are first scaled by a power of two, one for every array, so that none
overflows. Values of a model do not change: only what gradients are computed from does.
Tests bound the change of gradients by `u` times their norm for each layer; on large
meshes rounding errors average out, and it is far less.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

_Model = TypeVar("_Model", bound=Any)
TYPES = ("bfloat16", "float16")
# The largest number of a scaled array is below this power of two, float16's below 2^16.
EXPONENT = 15


def check(storage_dtype: str | None) -> None:
    """Raises ValueError for a type that features cannot be kept in."""
    if storage_dtype is not None and storage_dtype not in TYPES:
        raise ValueError(
            f"{storage_dtype=} must be one of {', '.join(TYPES)}, or None for the type "
            "of the features."
        )


def with_storage(model: _Model, storage_dtype: str) -> _Model:
    """Keeps features in front of the blocks in 16 bits, for the backward pass.

    They are what chunks and `rematerialize` need of memory. Values are the same, and
    gradients those of rounded features, see the module's bounds.

    Args:
      model: an `OperatorTransformer` with `chunk_size` or `rematerialize`, which
        changes.
      storage_dtype: "bfloat16" or "float16", which is eight times as precise.

    Returns:
      The model.

    Raises:
      ValueError: if the type is unknown, or the model keeps no features.
    """
    check(storage_dtype)
    if not hasattr(model, "storage_dtype"):
        raise ValueError(f"A {type(model).__name__} has no {storage_dtype=}.")
    if model.chunk_size is None and not model.rematerialize:
        raise ValueError(
            f"{storage_dtype=} means nothing to a model without chunk_size or "
            "rematerialize, which keep features of every block. Give it one of them."
        )
    model.storage_dtype = storage_dtype
    return model


def pack(z: jax.Array, storage_dtype: str | None, *, leading: int = 0) -> Any:
    """Rounds features to 16 bits.

    Args:
      z: features.
      storage_dtype: one of `TYPES`; None to leave them alone.
      leading: number of leading axes whose every entry is an array of its own.

    Returns:
      What `unpack` takes, with the same leading axes.
    """
    if storage_dtype is None:
        return z
    scale, scaled = None, z
    if storage_dtype == "float16":
        axes = tuple(range(leading, z.ndim))
        largest = jnp.max(jnp.abs(z), axis=axes, keepdims=True)
        powers = jnp.clip(EXPONENT - jnp.frexp(largest)[1], -100, 100)
        scale = jnp.ldexp(jnp.ones_like(largest), powers)
        scaled = z * scale
    # Loops of XLA on CPU would widen 16-bit reals to 32 bits again.
    bits = lax.bitcast_convert_type(scaled.astype(storage_dtype), jnp.uint16)
    return bits, scale


def unpack(kept: Any, storage_dtype: str | None, dtype: Any) -> jax.Array:
    """Returns features of a type, as they were kept."""
    if storage_dtype is None:
        return kept
    bits, scale = kept
    rounded = lax.bitcast_convert_type(bits, jnp.dtype(storage_dtype)).astype(dtype)
    return rounded if scale is None else rounded / scale


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recomputed(
    function: Callable[..., jax.Array], storage_dtype: str, z: jax.Array, *rest: Any
) -> jax.Array:
    """Returns `function(z, *rest)`, computed again in the backward pass.

    Args:
      function: of features and of pytrees of arrays, to features of the same type.
      storage_dtype: what the features are kept in until then.
      z: features.
      *rest: pytrees.
    """
    del storage_dtype
    return function(z, *rest)


def _forward(function, storage_dtype, z, *rest):
    return function(z, *rest), (pack(z, storage_dtype), rest)


def _backward(function, storage_dtype, kept, cotangent):
    packed, rest = kept
    z = unpack(packed, storage_dtype, cotangent.dtype)
    return jax.vjp(function, z, *rest)[1](cotangent)


recomputed.defvjp(_forward, _backward)
