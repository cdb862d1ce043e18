"""Splitting points into chunks of equal size, in their order."""

import dataclasses

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class EqualChunks:
    """The split of points into chunks.

    Attributes:
      num_points: number `n` of points of a device.
      size: number `m` of points of a chunk.
    """

    num_points: int
    size: int

    @property
    def count(self) -> int:
        """The number of chunks."""
        return -(-self.num_points // self.size)

    def split(self, x: jax.Array) -> jax.Array:
        """Splits `(n, ...)` into chunks `(chunks, m, ...)`, the last point repeated."""
        if extra := self.count * self.size - self.num_points:
            last = jnp.broadcast_to(x[-1:], (extra, *x.shape[1:]))
            x = jnp.concatenate([x, last])
        return x.reshape(self.count, self.size, *x.shape[1:])

    def split_weights(self, weights: jax.Array) -> jax.Array:
        """Splits `(n,)` into chunks `(chunks, m)`, with zeros for padding."""
        extra = self.count * self.size - self.num_points
        return jnp.pad(weights, (0, extra)).reshape(self.count, self.size)

    def join(self, parts: jax.Array) -> jax.Array:
        """Joins chunks `(chunks, m, q)` to `(n, q)`, without the repeated points."""
        return parts.reshape(-1, parts.shape[-1])[: self.num_points]


def equal_chunks(num_points: int, chunk_size: int | None) -> EqualChunks:
    """Returns chunks of equal size, at most `chunk_size`; one chunk if None."""
    count = -(-num_points // (chunk_size or num_points))
    return EqualChunks(num_points, size=-(-num_points // count))
