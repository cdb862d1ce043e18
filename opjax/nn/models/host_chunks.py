"""Operator transformers on meshes whose chunks are given one by one.

For prediction of more points than fit on the device at once: only the features of the
points are kept, one program for each part of a layer serves all chunks.
"""

from collections.abc import Sequence
from typing import Any

import jax


def call_in_chunks(
    model: Any,
    chunks: Sequence[tuple[jax.Array, jax.Array | None, jax.Array]],
    *,
    time: jax.Array | None = None,
) -> list[jax.Array]:
    """Evaluates a model on a mesh in chunks, with the same result as on the whole.

    Chunks of the same number of points share what is compiled.

    Args:
      model: see `chunks.can_be_chunked`.
      chunks: `mesh_points` `(n, p)`, `features` `(n, c)` or None and
        `quadrature_weights` `(n,)` of every chunk; a zero weight masks a point.
      time: as for the model.

    Returns:
      Values of the output function for every chunk, `(n, out_features)`.
    """
    parts = [
        (_encode(model, points, features, time), points, weights)
        for points, features, weights in chunks
    ]
    for number in range(jax.tree.leaves(model.blocks)[0].shape[0]):
        block = jax.tree.map(lambda leaf, number=number: leaf[number], model.blocks)
        total = None
        for part in parts:
            found = _moments(block, model.basis, *part)
            total = found if total is None else total + found
        parts = [
            (_advance(block, model.basis, total, z, points), points, weights)
            for z, points, weights in parts
        ]
    return [_decode(model, z) for z, _, _ in parts]


@jax.jit
def _encode(model: Any, points: Any, features: Any, time: Any) -> jax.Array:
    return model.encode(points, features, time=time)


@jax.jit
def _moments(block: Any, basis: Any, z: Any, points: Any, weights: Any) -> Any:
    x = block.attention_norm(z)
    return block.attention.moments(
        x, basis=basis, mesh_points=points, quadrature_weights=weights
    )


@jax.jit
def _advance(block: Any, basis: Any, moments: Any, z: Any, points: Any) -> jax.Array:
    """Features of a chunk after a block, from the moments of all chunks."""
    x, mixed = block.attention_norm(z), block.attention.mix(moments, basis=basis)
    attended = block.attention.expand(mixed, x, basis=basis, mesh_points=points)
    return block.add(z, attended)


@jax.jit
def _decode(model: Any, z: jax.Array) -> jax.Array:
    return model.decode(z)
