"""Which points are in which chunk: in turn, or by their place in a tile of the grid.

Attention in a basis does not mind the order of points, so on a grid the chunks may be
what a convolution by tiles wants: one for each place of a point in its tile of 4 x 4,
of all tiles. Then nothing is ever transposed between points and tiles.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax

from opjax import _halo, _winograd
from opjax.nn.attention.bases import Basis, with_points
from opjax.nn.layers import GridConvolution, LayerNorm

_FEWEST = 64  # points of a chunk by tiles: below, loops cost more than transpositions
_TILE = _winograd.TILE


@dataclasses.dataclass(frozen=True)
class InTurn:
    """Points in their own order.

    Attributes:
      num_points: points `n`, of a device.
      size: points `m` of a chunk.
    """

    num_points: int
    size: int

    @property
    def count(self) -> int:
        """The number of chunks."""
        return -(-self.num_points // self.size)

    def split(self, x: jax.Array) -> jax.Array:
        """Cuts `(n, ...)` into chunks `(chunks, m, ...)`, the last point repeated."""
        if extra := self.count * self.size - self.num_points:
            last = jnp.broadcast_to(x[-1:], (extra, *x.shape[1:]))
            x = jnp.concatenate([x, last])
        return x.reshape(self.count, self.size, *x.shape[1:])

    def split_weights(self, weights: jax.Array) -> jax.Array:
        """Cuts `(n,)` into chunks `(chunks, m)`, zeros where points are missing."""
        extra = self.count * self.size - self.num_points
        return jnp.pad(weights, (0, extra)).reshape(self.count, self.size)

    def join(self, parts: jax.Array) -> jax.Array:
        """Puts chunks `(chunks, m, q)` together, `(n, q)`."""
        return parts.reshape(-1, parts.shape[-1])[: self.num_points]

    def project(
        self,
        basis: Basis,
        norm: LayerNorm,
        z: jax.Array,
        points: jax.Array,
        axis_name: str | None,
    ) -> jax.Array:
        """Convolves normalised features of all points.

        Args:
          basis: whose projection is a convolution.
          norm: of the features.
          z: features, shape `(chunks, c, m)`.
          points: coordinates, shape `(chunks, m, p)`.
          axis_name: axis of the devices that have the other rows of the grid, if any.

        Returns:
          What the convolution makes of them, shape `(chunks, e, m)`.
        """
        x = norm(self.join(z.swapaxes(1, 2)))
        given = {"mesh_points": self.join(points), "axis_name": axis_name}
        return self.split(basis.project(x, **given)).swapaxes(1, 2)


@dataclasses.dataclass(frozen=True)
class ByTiles:
    """Points of a grid of two axes by their place in a tile.

    Chunk `4 i + j` has the points of row `i` and column `j` of all tiles.

    Attributes:
      shape: rows and columns of a device.
      grid_rows: rows of the whole grid.
    """

    shape: tuple[int, int]
    grid_rows: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along each axis."""
        return -(-self.shape[0] // _TILE), -(-self.shape[1] // _TILE)

    def split(self, x: jax.Array) -> jax.Array:
        """Cuts `(n, ...)` into chunks `(16, m, ...)`, zeros beyond the grid."""
        more, (rows, columns) = x.shape[1:], self.tiles
        missing = rows * _TILE - self.shape[0], columns * _TILE - self.shape[1]
        padding = [(0, missing[0]), (0, missing[1])] + [(0, 0)] * len(more)
        x = jnp.pad(x.reshape(*self.shape, *more), padding)
        x = x.reshape(rows, _TILE, columns, _TILE, *more)
        x = jnp.moveaxis(x, (1, 3), (0, 1))
        return x.reshape(_TILE**2, rows * columns, *more)

    split_weights = split

    def join(self, parts: jax.Array) -> jax.Array:
        """Puts chunks `(16, m, q)` together, `(n, q)`."""
        rows, columns = self.tiles
        x = parts.reshape(_TILE, _TILE, rows, columns, -1)
        x = jnp.moveaxis(x, (0, 1), (1, 3))
        x = x.reshape(rows * _TILE, columns * _TILE, -1)
        x = x[: self.shape[0], : self.shape[1]]
        return x.reshape(-1, x.shape[-1])

    def project(
        self,
        basis: Basis,
        norm: LayerNorm,
        z: jax.Array,
        points: jax.Array,
        axis_name: str | None,
    ) -> jax.Array:
        """Convolves normalised features of all points, see `InTurn.project`."""
        inside = _halo.inside(self.shape[0], self.grid_rows, axis_name)
        inside = jnp.broadcast_to(inside[:, None], self.shape).reshape(-1)

        def normalise(chunk):
            z, points, inside = chunk
            x = norm(z, axis=0)
            if basis.point_dim:
                x = with_points(x.T, points, basis.point_dim).T
            return jnp.where(inside[None, :], x, 0)

        chunks = z, points, self.split(inside)
        x = lax.map(jax.checkpoint(normalise, prevent_cse=False), chunks)
        x = x.reshape(_TILE, _TILE, -1, *self.tiles)
        y = basis.projection.of_tiles(x, rows=self.shape[0], axis_name=axis_name)
        return y.reshape(_TILE**2, -1, math.prod(self.tiles))


def choose(
    convolution: GridConvolution | None,
    num_points: int,
    chunk_size: int | None,
    axis_name: str | None,
) -> InTurn | ByTiles:
    """Returns the order of points for chunks of at most so many.

    Args:
      convolution: of the layers, if there is one.
      num_points: points of a device.
      chunk_size: the largest number of points in a chunk; None for all in one.
      axis_name: axis of the devices that have the other rows of the grid, if any.
    """
    chunk_size = chunk_size or num_points
    # As many points in each.
    turn = InTurn(num_points, -(-num_points // -(-num_points // chunk_size)))
    if convolution is None or turn.count == 1:
        return turn
    shape = convolution.local_shape(num_points, axis_name)
    if len(shape) != 2 or not convolution.by_tiles(shape):
        return turn
    tiles = ByTiles(shape, convolution.grid_shape[0])
    return tiles if _FEWEST <= math.prod(tiles.tiles) <= chunk_size else turn
