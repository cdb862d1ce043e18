"""Convolution by multiplication of Fourier coefficients on a uniform periodic grid."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._jitted import jitted


@jitted(static=("grid_shape",))
def spectral_convolution(
    values: Float[ArrayLike, "n c"],
    kernel: Float[ArrayLike, "*modes c o 2"],
    *,
    grid_shape: Sequence[int],
) -> Float[Array, "n o"]:
    r"""Multiplies the low Fourier coefficients of a function by complex matrices.

        u_f = 1/n sum_j exp(-2 pi i f . x_j) v_j,    x_j = (j_1/n_1, ..., j_p/n_p),
        y_j = Re sum_f m_f exp(2 pi i f . x_j) W_f^T u_f,

    where `m_f` is 2, but 1 if `f_p` is zero or the Nyquist frequency `n_p / 2`. The
    values are real, so the last axis needs only frequencies `f_p = 0 .. K - 1`; a
    leading axis of `M` entries has `f = -(M // 2) .. M - M // 2 - 1`. All others are
    set to zero. A band-limited function has the same coefficients on every grid that
    resolves it, so the kernel does not depend on the grid.

    On a grid too coarse for the kernel, frequencies above the Nyquist frequency are
    omitted; the others keep their weights. (The neuraloperator package shifts them by
    one if it clips an even `M` to an odd number of points.)

    Args:
      values: values at the grid points in row-major order, shape `(n, c)`.
      kernel: real and imaginary parts of the matrices, shape `(M_1, ..., M_{p-1}, K, c,
        o, 2)`. They are stored as real numbers, so optimizers and checkpoints need no
        support for complex numbers.
      grid_shape: number of points per axis, `p` numbers with product `n`; one period,
        without its end point.

    Returns:
      The filtered values, shape `(n, o)`; half precision is transformed in float32 and
      returned in the dtype of `values`.

    Raises:
      TypeError: if an array is not real floating point.
      ValueError: if points, channels or dimensions do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.spectral import spectral_convolution
      >>> kernel = np.zeros((1, 2, 3, 2))  # the constant, of two channels in, three out
      >>> kernel[..., 0] = 1
      >>> y = spectral_convolution(np.ones((8, 2)), kernel, grid_shape=(8,))
      >>> y.shape, y[0].tolist()
      ((8, 3), [2.0, 2.0, 2.0])

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), Eq. 4 and 5.
    """
    values, kernel = jnp.asarray(values), jnp.asarray(kernel)
    grid_shape = tuple(grid_shape)
    _checks.floating(values=values, kernel=kernel)
    _checks.rank(2, values=values)
    p = len(grid_shape)
    if p == 0 or kernel.ndim != p + 3 or kernel.shape[-1] != 2:
        raise ValueError(
            f"kernel {kernel.shape} must have {p} frequency axes, two channel axes and "
            f"an axis of 2 (real, imaginary) for {grid_shape=}."
        )
    channels, out_channels = kernel.shape[-3:-1]
    if values.shape != (math.prod(grid_shape), channels):
        raise ValueError(
            f"values {values.shape} must have shape "
            f"{(math.prod(grid_shape), channels)} for {grid_shape=} and kernel "
            f"{kernel.shape}."
        )
    dtype = values.dtype
    if jnp.finfo(dtype).bits < 32:
        values, kernel = values.astype(jnp.float32), kernel.astype(jnp.float32)
    kernel = _clip(kernel, grid_shape)
    modes = kernel.shape[:p]
    field = values.T.reshape(channels, *grid_shape)
    coefficients = _analyse(field, modes).reshape(channels, -1)
    # One small matrix product per frequency: with samples batched, a large one.
    weights = lax.complex(kernel[..., 0], kernel[..., 1])
    weights = weights.reshape(-1, channels, out_channels)
    filtered = jnp.einsum("cf,fco->of", coefficients, weights)
    field = _synthesise(filtered.reshape(out_channels, *modes), grid_shape)
    return field.reshape(out_channels, -1).T.astype(dtype)


def largest_modes(grid_shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the maximum number of frequencies per axis of a grid.

    These are `(n_1, ..., n_{p-1}, n_p // 2 + 1)`, with the last one halved, see
    `spectral_convolution`.

    Examples:
      >>> from opjax.spectral import largest_modes
      >>> largest_modes((64, 64))
      (64, 33)
    """
    *leading, last = grid_shape
    return (*leading, last // 2 + 1)


def _clip(kernel: Array, grid_shape: tuple[int, ...]) -> Array:
    """Returns the part of a kernel whose frequencies the grid resolves."""
    modes, p = kernel.shape, len(grid_shape)
    for axis, largest in enumerate(largest_modes(grid_shape)):
        kept = min(largest, modes[axis])
        start = 0 if axis == p - 1 else modes[axis] // 2 - kept // 2
        kernel = lax.slice_in_dim(kernel, start, start + kept, axis=axis)
    return kernel


# Coefficients are cut off axis by axis: the leading transforms then run over the kept
# part alone, and the last inverse, of one axis, drops the imaginary parts of frequency
# zero and Nyquist by definition, which transforms of several axes leave to the backend.


def _analyse(field: Array, modes: tuple[int, ...]) -> Array:
    """Maps a field `(c, n_1, ..., n_p)` to coefficients `(c, M_1, ..., K)`."""
    *leading, last = modes
    field = jnp.fft.rfft(field, norm="forward")[..., :last]
    for axis, kept in enumerate(leading, start=1):
        field = jnp.fft.fft(field, axis=axis, norm="forward")
        n, negative = field.shape[axis], kept // 2
        parts = [
            lax.slice_in_dim(field, n - negative, n, axis=axis),
            lax.slice_in_dim(field, 0, kept - negative, axis=axis),
        ]
        field = jnp.concatenate(parts, axis=axis)
    return field


def _synthesise(coefficients: Array, grid_shape: tuple[int, ...]) -> Array:
    """Maps coefficients `(o, M_1, ..., K)` to a field `(o, n_1, ..., n_p)`."""
    *leading, last = grid_shape
    field = coefficients
    for axis, n in enumerate(leading, start=1):
        kept = field.shape[axis]
        negative = kept // 2
        gap = jnp.zeros(
            (*field.shape[:axis], n - kept, *field.shape[axis + 1 :]), field.dtype
        )
        parts = [
            lax.slice_in_dim(field, negative, kept, axis=axis),
            gap,
            lax.slice_in_dim(field, 0, negative, axis=axis),
        ]
        field = jnp.concatenate(parts, axis=axis)
        field = jnp.fft.ifft(field, axis=axis, norm="forward")
    return jnp.fft.irfft(field, n=last, norm="forward")
