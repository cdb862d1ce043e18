"""Spectral convolution with learned matrices."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.nn.layers.initializers import Initializer, spectral_variance
from opjax.spectral import largest_modes, spectral_convolution


class SpectralConvolution(nnx.Module):
    """Multiplies low Fourier coefficients by learned matrices, `spectral_convolution`.

    Args:
      in_features: number of input channels.
      out_features: number of output channels.
      grid_shape: points per axis of the grid that the layer is built for.
      modes: number of frequencies. A single number `m` selects `|f| <= m` except `f =
        m` on leading axes and `0 .. m - 1` on the last one, as in the original code,
        limited to the frequencies that the grid resolves: on a leading axis of `n < 2
        m` points, odd or even, all `n`. One number per axis gives the kernel's shape
        `(M_1, ..., M_{p-1}, K)`; the package's `n_modes` are `(n_1, ..., n_{p-1}, n_p
        // 2 + 1)`.
      kernel_init: initialiser of the kernel, see `opjax.nn.layers.initializers`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a number of modes is not positive, or the numbers per axis do not
        fit the grid.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> build = partial(layers.SpectralConvolution, grid_shape=(6, 6), modes=2)
      >>> layer = build(4, 8, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((36, 4))).shape
      (36, 8)
      >>> layer(jnp.ones((64, 4)), grid_shape=(8, 8)).shape  # the same on a finer grid
      (64, 8)

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), Eq. 4 and 5.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid_shape: Sequence[int],
        modes: int | Sequence[int],
        kernel_init: Initializer = spectral_variance,
        rngs: nnx.Rngs,
    ):
        _checks.positive(in_features=in_features, out_features=out_features)
        self.grid_shape = tuple(grid_shape)
        shape = (*_modes(modes, self.grid_shape), in_features, out_features, 2)
        self.kernel = nnx.Param(kernel_init(rngs.params(), shape, jnp.float32))

    def __call__(
        self, x: jax.Array, *, grid_shape: Sequence[int] | None = None
    ) -> jax.Array:
        """Maps values `(n, in_features)` on a grid to `(n, out_features)`.

        The grid is the layer's own unless `grid_shape` says otherwise. On a coarser one
        the frequencies that it does not resolve are left out.
        """
        grid_shape = self.grid_shape if grid_shape is None else tuple(grid_shape)
        return spectral_convolution(x, self.kernel[...], grid_shape=grid_shape)


def _modes(modes: int | Sequence[int], grid_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the frequency axes of a kernel; those given must exist on the grid."""
    if not 1 <= len(grid_shape) <= 3:
        raise ValueError(f"{grid_shape=} must have 1, 2 or 3 axes.")
    largest = largest_modes(grid_shape)
    if isinstance(modes, int):
        shape = (*(2 * modes for _ in grid_shape[1:]), modes)
        modes = tuple(map(min, shape, largest))
    modes = tuple(modes)
    fits = len(modes) == len(largest)
    if not fits or not all(
        1 <= m <= limit for m, limit in zip(modes, largest, strict=True)
    ):
        raise ValueError(
            f"{modes=} must have one positive number per axis of {grid_shape=}, at "
            f"most {largest}: the grid does not resolve higher frequencies."
        )
    return modes
