"""The parts of a transformer block on a chunk of points, which are the columns.

    values, phi = values_and_basis(z)         point by point, as is
    found = moments(values, phi)              what adds up over chunks,
    mixed = mix(found of all points)          the small system, and
    z <- rest(z, reconstruct(mixed, phi))     point by point again.

Features `z` are `(c, m)`; `shared` is the basis of all blocks, None if each has its own
one; `given` are the arrays `(m, ...)` of the points that calls of a basis take, and
`projected`, `(e, m)`, where a convolution has read the neighbours of all points before.
"""

from typing import Any

import jax

from opjax.nn.attention import columns
from opjax.nn.attention.bases import Basis
from opjax.nn.attention.basis import least_squares
from opjax.nn.layers import GridConvolution
from opjax.nn.models.encoder import Block

Given = dict[str, jax.Array]
# Integrals, masses and Gram matrices of the heads, see `columns.moments`.
Sums = tuple[jax.Array, jax.Array, jax.Array | None]


def convolution(block: Block, shared: Basis | None) -> GridConvolution | None:
    """Returns the projection of a block if it reads neighbouring points of a grid."""
    found = block.attention.choose_basis(shared).projection
    return found if isinstance(found, GridConvolution) else None


def values_and_basis(
    block: Block, shared: Basis | None, z: jax.Array, given: Given
) -> tuple[jax.Array, jax.Array]:
    """Returns features `(h, d, m)` and basis functions `(h, k, m)` of a chunk."""
    basis = block.attention.choose_basis(shared)
    return columns.values_and_basis(basis, block.attention_norm(z, axis=0), given)


def moments(
    block: Block, values: jax.Array, phi: jax.Array, weights: jax.Array
) -> Sums:
    """Returns the moments of a chunk that the block's projection needs.

    Args:
      block: the block.
      values: features, shape `(h, d, m)`.
      phi: basis functions, shape `(h, k, m)`.
      weights: quadrature weights, shape `(m,)`; a zero leaves a point out.
    """
    with_gram = block.attention.projection is least_squares
    dtype = block.attention.compute_dtype
    given = {"with_gram": with_gram, "compute_dtype": dtype}
    return columns.moments(values, phi, weights, **given)


def moments_of(
    block: Block,
    shared: Basis | None,
    z: jax.Array,
    given: Given,
    weights: jax.Array,
) -> Sums:
    """Returns the moments of a chunk from its features."""
    return moments(block, *values_and_basis(block, shared, z, given), weights)


def mix(
    block: Block,
    shared: Basis | None,
    found: Sums,
    totals: tuple[jax.Array, jax.Array],
) -> jax.Array:
    """Returns the coefficients `(h, k, d)` that attention makes of all points' moments.

    Args:
      block: the block.
      shared: the basis of all blocks, if they have one.
      found: moments of all points.
      totals: sum of all weights, and how many are positive.
    """
    return block.attention.mix(columns.of_heads(found, *totals), basis=shared)


def advance(
    block: Block, shared: Basis | None, z: jax.Array, given: Given, mixed: jax.Array
) -> jax.Array:
    """Returns features `(c, m)` behind the block, given coefficients of all points."""
    _, phi = values_and_basis(block, shared, z, given)
    return rest(block, z, reconstruct(block, mixed, phi))


def reconstruct(block: Block, mixed: jax.Array, phi: jax.Array) -> jax.Array:
    """Returns what the heads find, `(h d, m)`, from coefficients and functions."""
    dtype = block.attention.compute_dtype
    return columns.reconstruct(mixed, phi, compute_dtype=dtype)


def rest(block: Block, z: jax.Array, heads: jax.Array) -> jax.Array:
    """Returns features behind the block, given what the heads found, `(h d, m)`."""
    z = z + columns.linear(block.attention.out, heads)
    return z + block.mlp(block.mlp_norm(z, axis=0), linear=columns.linear)


def without_blocks(model: Any) -> Any:
    """The encoder, the decoder and what blocks share: all else is None."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(model)
    kept = [None if first_name(path) == "blocks" else leaf for path, leaf in leaves]
    return jax.tree.unflatten(structure, kept)


def first_name(path: Any) -> str:
    """The attribute of a model that a path of its tree begins with."""
    return getattr(path[0], "name", None) or path[0].key
