"""Convolution of values on a uniform grid, for grids of any dimension."""

import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from opjax import _checks


def grid_convolution(
    values: ArrayLike, kernel: ArrayLike, *, grid_shape: Sequence[int]
) -> jax.Array:
    r"""Correlates values on a grid with a small kernel, zero beyond the boundary.

        y[i, o] = sum_{s, c} kernel[s, c, o] v[i + s - (size - 1) / 2, c].

    Reverse mode only (C): the rule for the gradient is our own. On CPU the library's
    gradient with respect to the kernel is tens of times slower inside `lax.scan` and
    `lax.while_loop` than outside; ours is one matrix product per kernel entry.

    Args:
      values: values at the mesh points in row-major order, shape `(n, c)`.
      kernel: stencil of odd sizes, shape `(s_1, ..., s_p, c, o)`.
      grid_shape: points per axis, `p` numbers with product `n`.

    Returns:
      The convolved values, shape `(n, o)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points, channels or dimensions do not match, or a size is even.
    """
    values, kernel = jnp.asarray(values), jnp.asarray(kernel)
    grid_shape = tuple(grid_shape)
    _checks.floating(values=values, kernel=kernel)
    _checks.rank(2, values=values)
    *sizes, channels, out_channels = kernel.shape
    if len(sizes) != len(grid_shape):
        raise ValueError(
            f"kernel {kernel.shape} must have {len(grid_shape)} stencil axes and two "
            f"channel axes for {grid_shape=}."
        )
    if any(size % 2 == 0 for size in sizes):
        raise ValueError(f"kernel {kernel.shape} must have odd stencil sizes.")
    if values.shape != (math.prod(grid_shape), channels):
        raise ValueError(
            f"values {values.shape} must have shape "
            f"{(math.prod(grid_shape), channels)} for {grid_shape=} and kernel "
            f"{kernel.shape}."
        )
    field = values.reshape(*grid_shape, channels)
    return _correlate(field, kernel).reshape(-1, out_channels)


def _correlate_native(field: jax.Array, kernel: jax.Array) -> jax.Array:
    letters = "XYZTUV"[: field.ndim - 1]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    strides = (1,) * (field.ndim - 1)
    return lax.conv_general_dilated(
        field[None], kernel, strides, "SAME", dimension_numbers=numbers
    )[0]


@jax.custom_vjp
def _correlate(field: jax.Array, kernel: jax.Array) -> jax.Array:
    return _correlate_native(field, kernel)


def _correlate_forward(field, kernel):
    return _correlate(field, kernel), (field, kernel)


def _correlate_backward(residuals, cotangent):
    field, kernel = residuals
    stencil_axes = tuple(range(kernel.ndim - 2))
    # The adjoint of a correlation is a correlation with the reflected stencil and
    # input and output channels exchanged.
    reflected = jnp.swapaxes(jnp.flip(kernel, stencil_axes), -1, -2)
    kernel_cotangent = lax.platform_dependent(
        field,
        cotangent,
        cpu=functools.partial(_kernel_cotangent_products, sizes=kernel.shape[:-2]),
        default=functools.partial(_kernel_cotangent_native, shape=kernel.shape),
    )
    return _correlate(cotangent, reflected), kernel_cotangent


def _kernel_cotangent_products(field, cotangent, *, sizes):
    """Sums field values times cotangents over the grid, one product per shift."""
    *grid_shape, channels = field.shape
    padded = jnp.pad(field, [(s // 2, s // 2) for s in sizes] + [(0, 0)])
    flat = cotangent.reshape(-1, cotangent.shape[-1])
    products = []
    for shift in itertools.product(*map(range, sizes)):
        window = tuple(slice(s, s + n) for s, n in zip(shift, grid_shape, strict=True))
        products.append(padded[window].reshape(-1, channels).T @ flat)
    return jnp.stack(products).reshape(*sizes, channels, flat.shape[1])


def _kernel_cotangent_native(field, cotangent, *, shape):
    zeros = jnp.zeros(shape, field.dtype)
    _, pullback = jax.vjp(lambda kernel: _correlate_native(field, kernel), zeros)
    return pullback(cotangent)[0]


_correlate.defvjp(_correlate_forward, _correlate_backward)
