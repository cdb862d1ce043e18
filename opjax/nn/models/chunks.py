"""Operator transformers on more points than fit at once, chunk by chunk.

All that attention in a basis knows of the points are moments, which add up, where the
functions of the basis depend on their point alone; all else acts on every point alone.
So a layer is two passes over the points, forward and backward alike:

    forward      sum the moments;  map coefficients;  expand them at every point,
    backward     what follows the expansion, which gives the cotangents of the
                 coefficients;  those of the moments;  what precedes them.

Kept are the features `z` in front of every layer and its moments; everything else is
computed again, so that no array `(n, k)` is ever alive, and gradients are exact, or
those of features rounded to 16 bits, see `packing`.

Points may also be split over the devices of an axis of `jax.shard_map`: then the sums
go over the devices as well, once a layer and direction, in numbers that do not depend
on how many points there are.

A convolution on a grid reads neighbours: it is made of all points of a device, in front
of the layer, and kept. Where rows of the grid are split over devices, neighbours
exchange one row in every layer and direction.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from opjax import _checks
from opjax.nn.attention.adaptive import NoisyBasis
from opjax.nn.attention.bases import Basis
from opjax.nn.attention.basis import BasisAttention
from opjax.nn.layers.position import check_points
from opjax.nn.models import block_parts, orders, packing
from opjax.nn.models.encoder import Block
from opjax.nn.models.orders import ByTiles, InTurn
from opjax.quadrature import active

# A pytree whose arrays have the axes: chunk, channel, point of the chunk.
Chunks = Any


def obstacle(model: Any, *, together: bool = False) -> str | None:
    """Says why an operator transformer cannot be evaluated in chunks, if so.

    Args:
      model: the operator transformer.
      together: whether the features of all points, of a device, are in memory together,
        so that convolutions find neighbours.
    """
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
    if isinstance(basis.projection, nnx.Linear):
        return None
    if block_parts.convolution(blocks, shared) is None:
        return f"the projection of a {_name(basis)} is not known"
    return None if together else "convolutional projections read neighbouring points"


def _name(module: Any) -> str:
    return type(module).__name__


def weights_of_chunks(
    attention: BasisAttention,
    basis: Basis,
    x: jax.Array,
    quadrature_weights: jax.Array | None,
    order: InTurn | ByTiles,
    axis_name: str | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns weights of chunks `(chunks, m)`, zero in padding, and their totals.

    Args:
      attention: says which weights are taken where none are given.
      basis: of the attention.
      x: any array of the points, `(n, ...)`, of the dtype of the weights.
      quadrature_weights: weights of the points, shape `(n,)`, or None.
      order: which points are in which chunk.
      axis_name: axis of the devices that have the other points, which totals include.

    Returns:
      The weights, their sum, and the number of positive ones.

    Raises:
      ValueError: if a weight is negative or belongs to no point.
    """
    weights = attention.weights(basis, x, quadrature_weights)
    if weights is None:  # equal ones, which cancel
        weights = jnp.ones(x.shape[0], x.dtype)
    elif quadrature_weights is None and axis_name is not None:  # 1 / n, of all points
        weights = weights / lax.axis_size(axis_name)
    weights = jnp.where(active(weights), weights, 0).astype(x.dtype)
    parts = order.split_weights(weights)
    totals = jnp.sum(weights), jnp.sum(active(weights).astype(x.dtype))
    return parts, *_sum_over(axis_name, totals)


def _sum_over(axis_name: str | None, tree: Any) -> Any:
    """Adds up what the devices of an axis have; all of them get the sum."""
    return tree if axis_name is None else lax.psum(tree, axis_name)


def _vary(tree: Any, axes: Iterable[str]) -> Any:
    """Says of arrays that devices have different ones, at least in their cotangents.

    Cotangents of parameters are then sums over the points of a device, and are added
    up where the parameters came from: once, for all layers.
    """

    def cast(x: jax.Array) -> jax.Array:
        missing = tuple(set(axes) - jax.typeof(x).manual_axis_type.varying)
        return lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(cast, tree)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def layer(
    axis_name: str | None,
    storage_dtype: str | None,
    block: Any,
    shared: Basis | None,
    z: Chunks,
    given: Chunks,
    weights: jax.Array,
    totals: tuple[jax.Array, jax.Array],
) -> Chunks:
    """Evaluates a block of the transformer on all chunks, in two passes over them.

    Args:
      axis_name: axis of the devices that have the other points, if any.
      storage_dtype: what features are kept in for the backward pass, see `packing`.
      block: the block.
      shared: the basis that all blocks share, if any.
      z: features, `(chunks, c, m)`.
      given: what calls of the basis take, arrays `(chunks, m, ...)` by name.
      weights: `(chunks, m)`, zero for points that are not there.
      totals: sum of all weights, and how many are positive.

    Returns:
      Features after the block, `(chunks, c, m)`.
    """
    rest = block, shared, z, given, weights, totals
    return _forward(axis_name, storage_dtype, *rest)[0]


def _forward(axis_name, storage_dtype, block, shared, z, given, weights, totals):
    def accumulate(total, chunk):
        return _add(total, block_parts.moments_of(block, shared, *chunk)), None

    chunks = z, given, weights
    first = jax.tree.map(lambda x: x[0], chunks)
    one = jax.eval_shape(block_parts.moments_of, block, shared, *first)
    found, _ = lax.scan(accumulate, _zeros(one), chunks)
    found = _vary(_sum_over(axis_name, found), _axes(found))
    mixed = block_parts.mix(block, shared, found, totals)

    def advance(_, chunk):
        z, given = chunk
        return None, block_parts.advance(block, shared, z, given, mixed)

    _, after = lax.scan(advance, None, (z, given))
    kept = packing.pack(z, storage_dtype, leading=1)
    return after, (block, shared, kept, given, weights, totals, found)


def _backward(axis_name, storage_dtype, residuals, cotangent):
    block, shared, kept, given, weights, totals, found = residuals
    mixed, pull_mix = jax.vjp(block_parts.mix, block, shared, found, totals)

    def restore(part):
        return packing.unpack(part, storage_dtype, cotangent.dtype)

    def behind(gradients, chunk):
        """From the end of the layer to what the heads found, and the coefficients."""
        part, given, after = chunk
        z = restore(part)
        _, phi = block_parts.values_and_basis(block, shared, z, given)
        heads, pull_mixed = jax.vjp(
            lambda c: block_parts.reconstruct(block, c, phi), mixed
        )
        _, pull = jax.vjp(block_parts.rest, block, z, heads)
        of_block, before, heads = pull(after)
        gradients = _add(gradients, (of_block, *pull_mixed(heads)))
        return gradients, (before, packing.pack(heads, storage_dtype))

    start = _zeros((block, mixed))
    (of_block, of_mixed), (before, heads) = lax.scan(
        behind, start, (kept, given, cotangent)
    )
    # Linear, so that the parts of the devices are pulled back before they are added.
    more, of_shared, of_found, of_totals = pull_mix(of_mixed)
    of_found = _vary(_sum_over(axis_name, of_found), _axes(of_found))

    def ahead(carry, chunk):
        """From what the heads found, and the moments, to the start of the layer."""
        gradients, of_z = carry
        number, part, given, weights, heads = chunk

        def first(block, shared, z, given, weights):
            values, phi = block_parts.values_and_basis(block, shared, z, given)
            found = block_parts.moments(block, values, phi, weights)
            return found, block_parts.reconstruct(block, mixed, phi)

        _, pull = jax.vjp(first, block, shared, restore(part), given, weights)
        of_block, of_shared, more, *others = pull((of_found, restore(heads)))
        # In place of the chunk of `before`: one array of all points less.
        of_z = _put(of_z, more + _row(of_z, number), number)
        return (_add(gradients, (of_block, of_shared)), of_z), others

    numbers = jnp.arange(len(weights))
    ((of_block, of_shared), of_z), (of_given, of_weights) = lax.scan(
        ahead,
        ((_add(of_block, more), of_shared), before),
        (numbers, kept, given, weights, heads),
    )
    return of_block, of_shared, of_z, of_given, of_weights, of_totals


layer.defvjp(_forward, _backward)


@jax.custom_vjp
def _decode(model, z):
    """Values of the output function, `(chunks, m, q)`."""
    return lax.map(lambda part: model.decode(part.T), z)


def _decode_forward(model, z):
    return _decode(model, z), (model, z)


def _decode_backward(kept, cotangent):
    model, z = kept

    def back(carry, chunk):
        gradients, of_z = carry
        number, part, after = chunk
        _, pull = jax.vjp(lambda model, z: model.decode(z.T), model, part)
        of_model, row = pull(after)
        return (_add(gradients, of_model), _put(of_z, row, number)), None

    # Zeros that are made now: XLA would make others first of all, before the layers.
    of_z = jnp.full_like(z, 0 * cotangent[0, 0, 0])
    numbers = jnp.arange(len(z))
    start = _vary((_zeros(model), of_z), _axes((z, cotangent)))
    (of_model, of_z), _ = lax.scan(back, start, (numbers, z, cotangent))
    return of_model, of_z


_decode.defvjp(_decode_forward, _decode_backward)


def _row(array, number):
    return lax.dynamic_index_in_dim(array, number, keepdims=False)


def _put(array, row, number):
    return lax.dynamic_update_index_in_dim(array, row, number, 0)


def _add(one, other):
    return jax.tree.map(jnp.add, one, other)


def _zeros(like):
    return jax.tree.map(jnp.zeros_like, like)


def _axes(tree: Any) -> frozenset[str]:
    """The axes of devices that have different arrays."""
    found = (jax.typeof(x).manual_axis_type.varying for x in jax.tree.leaves(tree))
    return frozenset().union(*found)


def can_be_chunked(model: Any) -> bool:
    """Whether a model has chunks; a call with `chunk_size` says why not."""
    return hasattr(model, "blocks") and hasattr(model, "basis") and not obstacle(model)


def check(model: Any, option: str, value: int | str) -> None:
    """Raises ValueError if an option, `chunk_size` or `axis_name`, is for no model."""
    given = f"{option}={value!r}"
    if reason := obstacle(model, together=True):
        raise ValueError(f"{given}: {reason}. Leave {option} out.")
    if model.rematerialize:
        raise ValueError(
            f"rematerialize=True means nothing with {given}: chunks are always "
            "computed again in the backward pass. Leave one of them out."
        )


def evaluate(
    model: Any,
    mesh_points: jax.Array,
    features: jax.Array | None,
    *,
    chunk_size: int | None,
    axis_name: str | None = None,
    quadrature_weights: jax.Array | None = None,
    time: jax.Array | None = None,
    **given: jax.Array,
) -> jax.Array:
    """Evaluates an operator transformer in chunks.

    Args:
      model: the operator transformer.
      mesh_points: points, shape `(n, p)`.
      features: values of the input function, shape `(n, feature_dim)`, or None.
      chunk_size: points that are computed at once; all, if there are fewer, or if None.
      axis_name: axis of `jax.shard_map` whose devices have the other points.
      quadrature_weights: weights of the points, shape `(n,)`; zero masks a point.
      time: scalar, if the model has a time embedding.
      **given: arrays `(n, ...)` that calls of the attention take.

    Returns:
      Values of the output function, shape `(n, out_features)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the model has no chunks, or as from a call without them.
    """
    if chunk_size is not None:
        _checks.positive(chunk_size=chunk_size)
        check(model, "chunk_size", chunk_size)
    if axis_name is not None:
        check(model, "axis_name", axis_name)
    check_points(model.position, mesh_points)
    arrays = {"mesh_points": mesh_points, **given}
    more = {} if features is None else {"features": features}
    _checks.same_points(**arrays, **more)
    axes = _axes((arrays, more, quadrature_weights, time))
    model, arrays, more, time = _vary((model, arrays, more, time), axes)
    mesh_points, features = arrays["mesh_points"], more.get("features")
    blocks, shared = model.blocks, model.basis
    n = mesh_points.shape[0]
    basis = blocks.attention.choose_basis(shared)
    convolution = block_parts.convolution(blocks, shared)
    order = orders.choose(convolution, n, chunk_size, axis_name)
    weights, *totals = weights_of_chunks(
        blocks.attention, basis, mesh_points, quadrature_weights, order, axis_name
    )
    weights, totals = _vary((weights, tuple(totals)), axes)
    parts = {name: order.split(array) for name, array in arrays.items()}
    inputs = None if features is None else order.split(features)

    def encode(chunk):
        return model.encode(*chunk, time=time).T

    z = lax.map(
        jax.checkpoint(encode, prevent_cse=False), (parts["mesh_points"], inputs)
    )

    def one(z, block):
        given = dict(parts)
        if convolution is not None:
            own = block.attention.choose_basis(shared)
            local = own, block.attention_norm, z, parts["mesh_points"], axis_name
            given["projected"] = order.project(*local)
        rest = block, shared, z, given, weights, totals
        return layer(axis_name, model.precision.storage, *rest), None

    z, _ = lax.scan(one, z, blocks)
    values = _decode(block_parts.without_blocks(model), z)
    return order.join(values)
