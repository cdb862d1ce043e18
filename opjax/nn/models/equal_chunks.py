"""Points in chunks of equal size, in their own order."""

import dataclasses

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class EqualChunks:
    """How points are split into chunks.

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
        """Splits `(n, ...)` into chunks `(chunks, m, ...)`, the last point repeated."""
        if extra := self.count * self.size - self.num_points:
            last = jnp.broadcast_to(x[-1:], (extra, *x.shape[1:]))
            x = jnp.concatenate([x, last])
        return x.reshape(self.count, self.size, *x.shape[1:])

    def split_weights(self, weights: jax.Array) -> jax.Array:
        """Splits `(n,)` into chunks `(chunks, m)`, zeros where points are missing."""
        extra = self.count * self.size - self.num_points
        return jnp.pad(weights, (0, extra)).reshape(self.count, self.size)

    def join(self, parts: jax.Array) -> jax.Array:
        """Joins chunks `(chunks, m, q)` to `(n, q)`, without the repeated points."""
        return parts.reshape(-1, parts.shape[-1])[: self.num_points]


def equal_chunks(num_points: int, chunk_size: int | None) -> EqualChunks:
    """Returns chunks of equal size, at most `chunk_size`; None puts all in one."""
    count = -(-num_points // (chunk_size or num_points))
    return EqualChunks(num_points, size=-(-num_points // count))
