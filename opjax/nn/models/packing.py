"""Storage of features before layers in 16 bits, until the backward pass.

They are rounded as by `opjax.precision`. The values of a model do not change, only its
gradients. Tests bound the change of gradients by one unit roundoff times their norm per
layer; on large meshes rounding errors average out, and the change is much smaller.
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
      storage_dtype: one of `STORED_TYPES`; None leaves the features unchanged.
      leading: number of leading axes that index separate arrays.

    Returns:
      The input of `unpack`, with the same leading axes.
    """
    if storage_dtype is None:
        return z
    half, scale = rounded(z, storage_dtype, leading=leading)
    # Loops of XLA on CPU would widen 16-bit reals to 32 bits again.
    bits = lax.bitcast_convert_type(half, jnp.uint16)
    return bits, scale


def unpack(kept: Any, storage_dtype: str | None, dtype: Any) -> jax.Array:
    """Returns stored features in a dtype."""
    if storage_dtype is None:
        return kept
    bits, scale = kept
    half = lax.bitcast_convert_type(bits, jnp.dtype(storage_dtype)).astype(dtype)
    return half if scale is None else half / scale


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recomputed(
    function: Callable[..., jax.Array], storage_dtype: str, z: jax.Array, *rest: Any
) -> jax.Array:
    """Returns `function(z, *rest)`, which is recomputed in the backward pass.

    Args:
      function: function of features and of pytrees of arrays; returns features of the
        same dtype.
      storage_dtype: dtype in which the features are stored until then.
      z: features.
      *rest: pytrees of arrays.
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
