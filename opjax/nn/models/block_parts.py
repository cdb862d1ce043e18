"""Parts of a transformer block, applied to a chunk of points in column layout.

    here = local(z)                       point by point, as is
    found = sums(here)                    what adds up over chunks,
    mixed = combine(found of all points)  the small system, and
    z <- rest(z, spread(mixed, here))     point by point again.

Features `z` are `(c, m)`; `shared` is the basis of all blocks, or None if each block
has its own; `given` are further arrays `(m, ...)` of the points for calls of the
attention, and `projected`, `(e, m)`, if a convolution has already read the neighbours
of all points. The attention is one of `PointSums`.
"""

from typing import Any, TypeVar

import jax

from opjax.nn.attention import columns
from opjax.nn.attention.sums import Added, Given, Local, Sums, Totals
from opjax.nn.bases.expansions import Basis
from opjax.nn.models.encoder import Block

_Model = TypeVar("_Model")


def local(block: Block, shared: Basis | None, z: jax.Array, given: Given) -> Local:
    """Returns the values that the attention computes at every point of a chunk."""
    return block.attention.local(block.attention_norm(z, axis=0), given, shared)


def sums(
    block: Block,
    shared: Basis | None,
    z: jax.Array,
    given: Given,
    weights: jax.Array,
) -> Sums:
    """Returns the sums over a chunk from its features.

    Args:
      block: the block.
      shared: the basis of all blocks, if they share one.
      z: features, shape `(c, m)`.
      given: further arrays of the points.
      weights: quadrature weights, shape `(m,)`; zero masks a point.
    """
    return block.attention.sums(local(block, shared, z, given), weights)


def combine(
    block: Block,
    shared: Basis | None,
    added: Added,
    totals: Totals,
) -> jax.Array:
    """Returns the coefficients `(h, ...)` from the sums over all points.

    Args:
      block: the block.
      shared: the basis of all blocks, if they share one.
      added: sums over all points.
      totals: the sum of all weights, and the number of positive weights.
    """
    return block.attention.combine(added, totals, shared)


def advance(
    block: Block, shared: Basis | None, z: jax.Array, given: Given, mixed: jax.Array
) -> jax.Array:
    """Returns features `(c, m)` after the block, from coefficients of all points."""
    here = local(block, shared, z, given)
    return rest(block, z, block.attention.spread(mixed, here))


def rest(block: Block, z: jax.Array, heads: jax.Array) -> jax.Array:
    """Returns features after the block, from the outputs of the heads, `(h d, m)`."""
    z = z + columns.linear(block.attention.out, heads)
    return z + block.mlp(block.mlp_norm(z, axis=0), linear=columns.linear)


def without_blocks(model: _Model) -> _Model:
    """The encoder, the decoder and shared parts of the blocks; the rest is None."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(model)
    kept = [None if first_name(path) == "blocks" else leaf for path, leaf in leaves]
    return jax.tree.unflatten(structure, kept)


def first_name(path: tuple[Any, ...]) -> str:
    """The attribute of a model at the root of a tree path."""
    return getattr(path[0], "name", None) or path[0].key
