"""Winograd's minimal filtering: 3 x 3 correlations with a quarter of the products."""

import jax
import jax.numpy as jnp
import numpy as np

# Four outputs per tile and axis from six values, which overlap the next tile by two.
_TILE, _SIZE = 4, 3
_WINDOW = _TILE + _SIZE - 1
_OVERLAP = _SIZE - 1

# Interpolation points, besides infinity. The textbook's 0, +-1, +-2 lose five times
# more digits; all products of these are exact in float32.
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)


def _transforms() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns A^T, G and B^T of one axis (Toom-Cook at `_POINTS` and infinity)."""
    output, stencil = np.zeros((_TILE, _WINDOW)), np.zeros((_WINDOW, _SIZE))
    window = np.zeros((_WINDOW, _WINDOW))
    for j, point in enumerate(_POINTS):
        others = _POINTS[:j] + _POINTS[j + 1 :]
        output[:, j] = point ** np.arange(_TILE)
        stencil[j] = point ** np.arange(_SIZE) / np.prod(point - np.array(others))
        window[j, :-1] = np.poly(others)[::-1]
    output[-1, -1] = stencil[-1, -1] = 1
    window[-1] = np.poly(_POINTS)[::-1]
    return output, stencil, window


# Both axes at once: one dense matrix product over the 36 values of a window is faster
# here than sums along each axis, and its size is that of the other products.
_OUTPUT, _STENCIL, _INPUT = (np.kron(matrix, matrix) for matrix in _transforms())


# What has a shape and a type.
_Described = jax.Array | jax.ShapeDtypeStruct


def pays_off(field: _Described, kernel: _Described) -> bool:
    """Returns whether `correlate` is applicable and, as measured, faster on a CPU.

    The number of products is four times smaller, but the transforms need extra passes
    over memory, which dominate with few channels or few tiles.

    Args:
      field: see `correlate`; only shape and dtype are used.
      kernel: stencil, shape `(..., c, o)`.
    """
    return (
        kernel.shape[:-2] == (_SIZE, _SIZE)
        and min(kernel.shape[-2:]) >= 64
        and min(field.shape[0] - _OVERLAP, field.shape[1]) >= 16
        and field.dtype == kernel.dtype
        and field.dtype in (jnp.float32, jnp.float64)
    )


def correlate(field: jax.Array, kernel: jax.Array) -> jax.Array:
    r"""Correlates a field with a 3 x 3 kernel, with zero padding along the second axis.

    For the window `d` (6, 6) of a tile, and the stencil `g` (3, 3), the tile's outputs

        Y = A^T [(G g G^T) * (B^T d B)] A

    need one product per entry of the bracket, 36 instead of 144; with channels, one
    matrix product per entry. In float32 the largest error is about 3e-6 of the largest
    output, three to ten times that of the direct sums; bfloat16 would be unusable.

    Args:
      field: values on the grid, with one row before and after, `(n_1 + 2, n_2, c)`.
      kernel: stencil, shape `(3, 3, c, o)`.

    Returns:
      The correlated values, shape `(n_1, n_2, o)`.

    References:
      Winograd, "Arithmetic Complexity of Computations", SIAM, 1980.
      Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016
      (arXiv:1509.09308).
    """
    rows, width, channels = field.shape
    grid_shape = rows - _OVERLAP, width
    dtype, out_channels = field.dtype, kernel.shape[-1]
    windows = jnp.matmul(_INPUT.astype(dtype), _windows(field))
    stencil = jnp.matmul(_STENCIL.astype(dtype), kernel.reshape(_SIZE**2, -1))
    products = jnp.matmul(
        windows.reshape(_WINDOW**2, -1, channels),
        stencil.reshape(_WINDOW**2, channels, out_channels),
    )
    tiles = jnp.matmul(_OUTPUT.astype(dtype), products.reshape(_WINDOW**2, -1))
    return _join(tiles.reshape(_TILE, _TILE, *_tiles(grid_shape), -1), grid_shape)


def _tiles(grid_shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the number of tiles along each axis."""
    rows, columns = grid_shape
    return -(-rows // _TILE), -(-columns // _TILE)


def _windows(field: jax.Array) -> jax.Array:
    """Gathers the windows of all tiles: `(n_1 + 2, n_2, c)` to `(36, tiles c)`."""
    field_rows, field_columns, channels = field.shape
    rows, columns = _tiles((field_rows - _OVERLAP, field_columns))
    # One more tile than needed: a window ends in the first rows of the next tile.
    height, width = _TILE * (rows + 1), _TILE * (columns + 1)
    after = height - field_rows, width - 1 - field_columns
    padded = jnp.pad(field, [(0, after[0]), (1, after[1]), (0, 0)])
    split = padded.reshape(rows + 1, _TILE, columns + 1, _TILE, channels)
    tiles = split.transpose(1, 3, 0, 2, 4)
    tiles = jnp.concatenate([tiles[:, :, :-1], tiles[:_OVERLAP, :, 1:]], axis=0)
    tiles = jnp.concatenate([tiles[..., :-1, :], tiles[:, :_OVERLAP, :, 1:]], axis=1)
    return tiles.reshape(_WINDOW**2, -1)


def _join(tiles: jax.Array, grid_shape: tuple[int, int]) -> jax.Array:
    """Puts tiles side by side: `(4, 4, rows, columns, o)` to `(n_1, n_2, o)`."""
    rows, columns, channels = tiles.shape[2:]
    joined = tiles.transpose(2, 0, 3, 1, 4)
    joined = joined.reshape(_TILE * rows, _TILE * columns, channels)
    return joined[: grid_shape[0], : grid_shape[1]]
