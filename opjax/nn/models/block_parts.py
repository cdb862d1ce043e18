"""The parts of a transformer block on a chunk of points, which are the columns.

    here = local(z)                       point by point, as is
    found = sums(here)                    what adds up over chunks,
    mixed = combine(found of all points)  the small system, and
    z <- rest(z, spread(mixed, here))     point by point again.

Features `z` are `(c, m)`; `shared` is the basis of all blocks, None if each has its own
one; `given` are the arrays `(m, ...)` of the points that calls of an attention take,
and `projected`, `(e, m)`, where a convolution has read the neighbours of all points
before. Attentions are `PointSums`.
"""

from typing import Any, TypeVar

import jax

from opjax.nn.attention import columns
from opjax.nn.attention.sums import Added, Given, Local, Sums
from opjax.nn.bases.expansions import Basis
from opjax.nn.models.encoder import Block

_Model = TypeVar("_Model")


def local(block: Block, shared: Basis | None, z: jax.Array, given: Given) -> Local:
    """Returns what the attention computes at every point of a chunk alone."""
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
      shared: the basis of all blocks, if they have one.
      z: features, shape `(c, m)`.
      given: arrays of the points.
      weights: quadrature weights, shape `(m,)`; a zero leaves a point out.
    """
    return block.attention.sums(local(block, shared, z, given), weights)


def combine(
    block: Block,
    shared: Basis | None,
    added: Added,
    totals: tuple[jax.Array, jax.Array],
) -> jax.Array:
    """Returns the coefficients `(h, ...)` that attention makes of all points' sums.

    Args:
      block: the block.
      shared: the basis of all blocks, if they have one.
      added: sums over all points.
      totals: sum of all weights, and how many are positive.
    """
    return block.attention.combine(added, totals, shared)


def advance(
    block: Block, shared: Basis | None, z: jax.Array, given: Given, mixed: jax.Array
) -> jax.Array:
    """Returns features `(c, m)` behind the block, given coefficients of all points."""
    here = local(block, shared, z, given)
    return rest(block, z, block.attention.spread(mixed, here))


def rest(block: Block, z: jax.Array, heads: jax.Array) -> jax.Array:
    """Returns features behind the block, given what the heads found, `(h d, m)`."""
    z = z + columns.linear(block.attention.out, heads)
    return z + block.mlp(block.mlp_norm(z, axis=0), linear=columns.linear)


def without_blocks(model: _Model) -> _Model:
    """The encoder, the decoder and what blocks share: all else is None."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(model)
    kept = [None if first_name(path) == "blocks" else leaf for path, leaf in leaves]
    return jax.tree.unflatten(structure, kept)


def first_name(path: tuple[Any, ...]) -> str:
    """The attribute of a model that a path of its tree begins with."""
    return getattr(path[0], "name", None) or path[0].key
