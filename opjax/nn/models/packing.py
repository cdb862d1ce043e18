"""Features in front of layers, kept in 16 bits until the backward pass needs them.

They are rounded as by `opjax.precision`. Values of a model do not change: only what
gradients are computed from does. Tests bound the change of gradients by a unit roundoff
times their norm for each layer; on large meshes rounding errors average out, and it is
far less.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from opjax.precision import rounded


def pack(z: jax.Array, storage_dtype: str | None, *, leading: int = 0) -> Any:
    """Rounds features to 16 bits.

    Args:
      z: features.
      storage_dtype: one of `STORED_TYPES`; None to leave them alone.
      leading: number of leading axes whose every entry is an array of its own.

    Returns:
      What `unpack` takes, with the same leading axes.
    """
    if storage_dtype is None:
        return z
    half, scale = rounded(z, storage_dtype, leading=leading)
    # Loops of XLA on CPU would widen 16-bit reals to 32 bits again.
    bits = lax.bitcast_convert_type(half, jnp.uint16)
    return bits, scale


def unpack(kept: Any, storage_dtype: str | None, dtype: Any) -> jax.Array:
    """Returns features of a type, as they were kept."""
    if storage_dtype is None:
        return kept
    bits, scale = kept
    half = lax.bitcast_convert_type(bits, jnp.dtype(storage_dtype)).astype(dtype)
    return half if scale is None else half / scale


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


def _forward(
    function: Callable[..., jax.Array], storage_dtype: str, z: jax.Array, *rest: Any
) -> tuple[jax.Array, Any]:
    return function(z, *rest), (pack(z, storage_dtype), rest)


def _backward(
    function: Callable[..., jax.Array],
    storage_dtype: str,
    kept: Any,
    cotangent: jax.Array,
) -> tuple[Any, ...]:
    packed, rest = kept
    z = unpack(packed, storage_dtype, cotangent.dtype)
    return jax.vjp(function, z, *rest)[1](cotangent)


recomputed.defvjp(_forward, _backward)
