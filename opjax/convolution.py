"""Convolution of values on a uniform grid, for grids of any dimension."""

import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, _halo, _winograd
from opjax._explicit import split_by_compiler
from opjax._sequential import one_by_one


@split_by_compiler
def grid_convolution(
    values: Float[ArrayLike, "n c"],
    kernel: Float[ArrayLike, "*stencil c o"],
    *,
    grid_shape: Sequence[int],
    axis_name: str | None = None,
) -> Float[Array, "n o"]:
    r"""Correlates values on a grid with a small kernel, with zero padding.

        y[i, o] = sum_{s, c} kernel[s, c, o] v[i + s - (size - 1) / 2, c].

    Supports `jax.grad`, `jax.jacrev` and `jax.hessian`. `jax.jvp` is not supported,
    for convenience (C): the gradient has a custom rule, which stores only the
    arguments. Second derivatives use JAX's own gradient. On CPU, JAX's gradient with
    respect to the kernel is tens of times slower inside `lax.scan` and `lax.while_loop`
    than outside; the custom rule is one matrix product per kernel entry. There, 3 x 3
    kernels with 64 or more input and output channels on grids of 16 x 16 points or more
    use Winograd's minimal filtering, for one sample of a batch after another: it is
    about twice as fast forward and backward, with a maximum float32 error of about 3e-6
    of the largest value instead of 1e-6.

    Args:
      values: values at the mesh points in row-major order, shape `(n, c)`.
      kernel: kernel with odd sizes, shape `(s_1, ..., s_p, c, o)`.
      grid_shape: points per axis, `p` numbers with product `n`.
      axis_name: axis of `jax.shard_map` over whose devices the rows of the grid (points
        with the same first index) are split. The values are then those of one device,
        with equally many rows on each, and neighbours exchange as many rows as the
        kernel reads. Rows beyond the grid, on the last devices, are ignored.

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
    local = _halo.local_shape(values.shape[0], grid_shape, axis_name)
    if values.shape != (math.prod(local), channels):
        raise ValueError(
            f"values {values.shape} must have shape "
            f"{(math.prod(grid_shape), channels)} for {grid_shape=} and kernel "
            f"{kernel.shape}."
        )
    field = _halo.clear(values.reshape(*local, channels), grid_shape[0], axis_name)
    field = _halo.extend(field, sizes[0] // 2, axis_name)
    return _correlate(field, kernel).reshape(-1, out_channels)


# The fields below have the rows that the kernel reads beyond the first and the last.


def _by_platform(field: Array, kernel: Array) -> Array:
    return lax.platform_dependent(
        field, kernel, cpu=_correlate_cpu, default=_correlate_native
    )


_correlate = jax.custom_vjp(_by_platform)


# Neither rule calls `_correlate`: a custom rule inside a custom rule has no second
# derivatives in `lax.scan` (jax 0.10.2), and forward mode, which `jax.hessian` applies
# to the gradient, would be refused.


def _correlate_forward(
    field: Array, kernel: Array
) -> tuple[Array, tuple[Array, Array]]:
    return _by_platform(field, kernel), (field, kernel)


def _correlate_backward(
    residuals: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    return lax.platform_dependent(
        *residuals, cotangent, cpu=_pullback_cpu, default=_pullback(_correlate_native)
    )


_correlate.defvjp(_correlate_forward, _correlate_backward)


def _correlate_native(field: Array, kernel: Array) -> Array:
    letters = "XYZTUV"[: field.ndim - 1]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    strides = (1,) * (field.ndim - 1)
    padding = [(0, 0)] + [(size // 2, size // 2) for size in kernel.shape[1:-2]]
    return lax.conv_general_dilated(
        field[None], kernel, strides, padding, dimension_numbers=numbers
    )[0]


def _correlate_cpu(field: Array, kernel: Array) -> Array:
    if _winograd.pays_off(field, kernel):
        return one_by_one(_winograd.correlate)(field, kernel)
    return _correlate_native(field, kernel)


def _pullback_cpu(field: Array, kernel: Array, cotangent: Array) -> tuple[Array, Array]:
    if _winograd.pays_off(field, kernel):
        # The transforms are linear, and XLA drops the products of the forward pass:
        # what remains are the transposed transforms and two products per entry.
        pullback = _pullback(_winograd.correlate)
        return one_by_one(pullback)(field, kernel, cotangent)
    # The adjoint of a correlation is a correlation with the reflected stencil and
    # input and output channels exchanged.
    reflected = jnp.swapaxes(jnp.flip(kernel, range(kernel.ndim - 2)), -1, -2)
    sizes = kernel.shape[:-2]
    kernel_cotangent = _kernel_cotangent_products(field, cotangent, sizes=sizes)
    cotangent = _halo.extend(cotangent, sizes[0] - 1, None)
    return _correlate_cpu(cotangent, reflected), kernel_cotangent


def _pullback(
    function: Callable[[Array, Array], Array],
) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    """Returns the map from arguments and the output's cotangent to cotangents."""

    def pullback(field: Array, kernel: Array, cotangent: Array) -> tuple[Array, Array]:
        return jax.vjp(function, field, kernel)[1](cotangent)

    return pullback


def _kernel_cotangent_products(
    field: Array, cotangent: Array, *, sizes: tuple[int, ...]
) -> Array:
    """Sums field values times cotangents over the grid, one product per shift."""
    *grid_shape, out_channels = cotangent.shape
    padding = [(0, 0)] + [(s // 2, s // 2) for s in sizes[1:]] + [(0, 0)]
    padded, channels = jnp.pad(field, padding), field.shape[-1]
    flat = cotangent.reshape(-1, out_channels)
    products = []
    for shift in itertools.product(*map(range, sizes)):
        window = tuple(slice(s, s + n) for s, n in zip(shift, grid_shape, strict=True))
        products.append(padded[window].reshape(-1, channels).T @ flat)
    return jnp.stack(products).reshape(*sizes, channels, out_channels)
