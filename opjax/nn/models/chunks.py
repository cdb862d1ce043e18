"""Operator transformers on more points than fit at once, chunk by chunk.

All that attention in a basis knows of the points are moments, which add up, where the
functions of the basis depend on their point alone; all else acts on every point alone.
So a layer is two passes over the points, forward and backward alike:

    forward      sum the moments;  map coefficients;  expand them at every point,
    backward     what follows the expansion, which gives the cotangents of the
                 coefficients;  those of the moments;  what precedes them.

Kept are the features `z` in front of every layer and its moments; everything else is
computed again, so that no array `(n, k)` is ever alive, and gradients are exact.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from opjax import _checks
from opjax.nn.attention import columns
from opjax.nn.attention.adaptive import NoisyBasis
from opjax.nn.attention.bases import Basis
from opjax.nn.attention.basis import BasisAttention, least_squares
from opjax.nn.layers.position import check_points
from opjax.nn.models.encoder import Block
from opjax.quadrature import active

# A pytree whose arrays have the axes: chunk, channel, point of the chunk.
Chunks = Any


def obstacle(model: Any) -> str | None:
    """Says why an operator transformer cannot be evaluated in chunks, if so."""
    blocks, shared = model.blocks, model.basis
    if type(blocks) is not Block:
        return f"only the parts of a Block are known, not those of {_name(blocks)}"
    attention = blocks.attention
    # A subclass may do more with the points than their moments say.
    if type(attention) is not BasisAttention:
        return f"{_name(attention)} is no attention in a basis"
    basis = attention.choose_basis(shared)
    if not basis.pointwise:
        return f"functions of a {_name(basis)} depend on all points together"
    if isinstance(basis, NoisyBasis):
        return "the noise of a training step is drawn for all points together"
    if not isinstance(getattr(basis, "projection", None), nnx.Linear):
        return "convolutional projections read neighbouring points"
    return None


def _name(module: Any) -> str:
    return type(module).__name__


def split(x: jax.Array, size: int) -> jax.Array:
    """Cuts `(n, ...)` into chunks `(chunks, size, ...)`, the last point repeated."""
    count = -(-x.shape[0] // size)
    if extra := count * size - x.shape[0]:
        x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (extra, *x.shape[1:]))])
    return x.reshape(count, size, *x.shape[1:])


def weights_of_chunks(
    attention: BasisAttention,
    basis: Basis,
    x: jax.Array,
    quadrature_weights: jax.Array | None,
    size: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns weights of chunks `(chunks, size)`, zero in padding, and their totals.

    Args:
      attention: says which weights are taken where none are given.
      basis: of the attention.
      x: any array of the points, `(n, ...)`, of the dtype of the weights.
      quadrature_weights: weights of the points, shape `(n,)`, or None.
      size: points of a chunk.

    Returns:
      The weights, their sum, and the number of positive ones.

    Raises:
      ValueError: if a weight is negative or belongs to no point.
    """
    weights = attention.weights(basis, x, quadrature_weights)
    if weights is None:  # equal ones, which cancel
        weights = jnp.ones(x.shape[0], x.dtype)
    weights = jnp.where(active(weights), weights, 0).astype(x.dtype)
    padded = -(-x.shape[0] // size) * size
    parts = jnp.pad(weights, (0, padded - x.shape[0])).reshape(-1, size)
    return parts, jnp.sum(weights), jnp.sum(active(weights).astype(x.dtype))


@jax.custom_vjp
def layer(
    block: Any,
    shared: Basis | None,
    z: Chunks,
    given: Chunks,
    weights: jax.Array,
    totals: tuple[jax.Array, jax.Array],
) -> Chunks:
    """Evaluates a block of the transformer on all chunks, in two passes over them.

    Args:
      block: the block.
      shared: the basis that all blocks share, if any.
      z: features, `(chunks, c, m)`.
      given: what calls of the basis take, arrays `(chunks, m, ...)` by name.
      weights: `(chunks, m)`, zero for points that are not there.
      totals: sum of all weights, and how many are positive.

    Returns:
      Features after the block, `(chunks, c, m)`.
    """
    return _forward(block, shared, z, given, weights, totals)[0]


def _forward(block, shared, z, given, weights, totals):
    def accumulate(total, chunk):
        return _add(total, _moments(block, shared, *chunk)), None

    chunks = z, given, weights
    one = jax.eval_shape(_moments, block, shared, *jax.tree.map(lambda x: x[0], chunks))
    found, _ = lax.scan(accumulate, _zeros(one), chunks)
    mixed = _mix(block, shared, found, totals)

    def advance(_, chunk):
        z, given = chunk
        _, phi = _values_and_basis(block, shared, z, given)
        return None, _rest(block, z, columns.reconstruct(mixed, phi))

    _, after = lax.scan(advance, None, (z, given))
    return after, (block, shared, z, given, weights, totals, found)


def _backward(kept, cotangent):
    block, shared, z, given, weights, totals, found = kept
    mixed, pull_mix = jax.vjp(_mix, block, shared, found, totals)

    def behind(gradients, chunk):
        """From the end of the layer to what the heads found, and the coefficients."""
        z, given, after = chunk
        _, phi = _values_and_basis(block, shared, z, given)
        heads, pull_mixed = jax.vjp(lambda c: columns.reconstruct(c, phi), mixed)
        _, pull = jax.vjp(_rest, block, z, heads)
        of_block, before, heads = pull(after)
        return _add(gradients, (of_block, *pull_mixed(heads))), (before, heads)

    start = _zeros((block, mixed))
    (of_block, of_mixed), (before, heads) = lax.scan(
        behind, start, (z, given, cotangent)
    )
    more, of_shared, of_found, of_totals = pull_mix(of_mixed)

    def ahead(gradients, chunk):
        """From what the heads found, and the moments, to the start of the layer."""
        z, given, weights, before, heads = chunk

        def first(block, shared, z, given, weights):
            values, phi = _values_and_basis(block, shared, z, given)
            found = columns.moments(values, phi, weights, with_gram=_with_gram(block))
            return found, columns.reconstruct(mixed, phi)

        _, pull = jax.vjp(first, block, shared, z, given, weights)
        of_block, of_shared, of_z, *others = pull((of_found, heads))
        return _add(gradients, (of_block, of_shared)), (before + of_z, *others)

    (of_block, of_shared), (of_z, of_given, of_weights) = lax.scan(
        ahead,
        (_add(of_block, more), of_shared),
        (z, given, weights, before, heads),
    )
    return of_block, of_shared, of_z, of_given, of_weights, of_totals


layer.defvjp(_forward, _backward)


def _values_and_basis(block, shared, z, given):
    """Features and basis functions of a chunk."""
    basis = block.attention.choose_basis(shared)
    return columns.values_and_basis(basis, block.attention_norm(z, axis=0), given)


def _with_gram(block) -> bool:
    return block.attention.projection is least_squares


def _moments(block, shared, z, given, weights):
    values, phi = _values_and_basis(block, shared, z, given)
    return columns.moments(values, phi, weights, with_gram=_with_gram(block))


def _mix(block, shared, found, totals):
    """Coefficients that attention makes of the sums over all points."""
    return block.attention.mix(columns.of_heads(found, *totals), basis=shared)


def _rest(block, z, heads):
    """What follows the attention of the heads, point by point."""
    z = z + columns.linear(block.attention.out, heads)
    return z + block.mlp(block.mlp_norm(z, axis=0), linear=columns.linear)


def _add(one, other):
    return jax.tree.map(jnp.add, one, other)


def _zeros(like):
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)


def can_be_chunked(model: Any) -> bool:
    """Whether a model has chunks; a call with `chunk_size` says why not."""
    return hasattr(model, "blocks") and hasattr(model, "basis") and not obstacle(model)


def check(model: Any, chunk_size: int) -> None:
    """Raises ValueError if a model cannot be evaluated in chunks of such a size."""
    _checks.positive(chunk_size=chunk_size)
    if reason := obstacle(model):
        raise ValueError(f"{chunk_size=}: {reason}. Leave chunk_size out.")
    if model.rematerialize:
        raise ValueError(
            f"rematerialize=True means nothing with {chunk_size=}: chunks are always "
            "computed again in the backward pass. Leave one of them out."
        )


def evaluate(
    model: Any,
    mesh_points: jax.Array,
    features: jax.Array | None,
    *,
    chunk_size: int,
    quadrature_weights: jax.Array | None = None,
    time: jax.Array | None = None,
    **given: jax.Array,
) -> jax.Array:
    """Evaluates an operator transformer in chunks.

    Args:
      model: the operator transformer.
      mesh_points: points, shape `(n, p)`.
      features: values of the input function, shape `(n, feature_dim)`, or None.
      chunk_size: points that are computed at once; all, if there are fewer.
      quadrature_weights: weights of the points, shape `(n,)`; zero masks a point.
      time: scalar, if the model has a time embedding.
      **given: arrays `(n, ...)` that calls of the attention take.

    Returns:
      Values of the output function, shape `(n, out_features)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the model has no chunks, or as from a call without them.
    """
    check(model, chunk_size)
    check_points(model.position, mesh_points)
    arrays = {"mesh_points": mesh_points, **given}
    more = {} if features is None else {"features": features}
    _checks.same_points(**arrays, **more)
    blocks, shared = model.blocks, model.basis
    n = mesh_points.shape[0]
    size = min(chunk_size, n)
    basis = blocks.attention.choose_basis(shared)
    weights, *totals = weights_of_chunks(
        blocks.attention, basis, mesh_points, quadrature_weights, size
    )
    parts = {name: split(array, size) for name, array in arrays.items()}
    inputs = None if features is None else split(features, size)

    def encode(chunk):
        return model.encode(*chunk, time=time).T

    def decode(z):
        return model.decode(z.T)

    z = lax.map(
        jax.checkpoint(encode, prevent_cse=False), (parts["mesh_points"], inputs)
    )

    def one(z, block):
        return layer(block, shared, z, parts, weights, tuple(totals)), None

    z, _ = lax.scan(one, z, blocks)
    values = lax.map(jax.checkpoint(decode, prevent_cse=False), z)
    return values.reshape(-1, values.shape[-1])[:n]
