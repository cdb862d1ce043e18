"""Operator transformers on many points, evaluated chunk by chunk.

Some attention layers combine points only by sums, see `nn.attention.PointSums`; all
other operations are pointwise. So a layer is two passes over the points, forward and
backward:

    forward      add up the sums;  combine them;  spread that to every point,
    backward     what follows the spreading, which gives the cotangents of the
                 coefficients;  those of the sums;  what precedes them.

Exponentials are added relative to the highest exponent so far, and in the backward pass
relative to the highest of all points, which is treated as a constant. Only the features
`z` before every layer and its sums are stored; everything else is recomputed. No array
`(n, k)` is ever in memory. Gradients are exact, or those of features rounded to 16
bits, see `packing`.

Points may also be split over the devices of an axis of `jax.shard_map`. The sums are
then also over the devices, once per layer and direction; their size does not depend on
the number of points.

A convolution on a grid reads neighbours. It is computed for all points of a device
before the layer, and stored. If rows of the grid are split over devices, neighbours
exchange one row per layer and direction.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from opjax import _checks
from opjax.nn.attention.sums import Added, Sums, Totals, nothing
from opjax.nn.bases.expansions import Basis
from opjax.nn.division import Use
from opjax.nn.layers.position import Position, check_points
from opjax.nn.models import block_parts, packing
from opjax.nn.models.encoder import Block
from opjax.nn.models.equal_chunks import EqualChunks, equal_chunks
from opjax.precision import Precision
from opjax.projection import check_weights
from opjax.quadrature import active

# Arrays with the axes: chunk, channel, point of the chunk.
Chunks = jax.Array
# Arrays by name with the axes: chunk, point of the chunk, others.
GivenChunks = Mapping[str, jax.Array]
_Tree = TypeVar("_Tree")
# Features, arrays by name and weights.
_Chunk = tuple[jax.Array, GivenChunks, jax.Array]


class _Decoder(Protocol):
    """What is left of a model when the blocks are done."""

    def decode(self, z: jax.Array) -> jax.Array:
        """Maps features `(n, c)` to output values."""
        ...


class Divided(_Decoder, Protocol):
    """Interface of an operator transformer that supports chunks of points."""

    @property
    def blocks(self) -> Block:
        """All blocks, stacked; their attention is one of `PointSums`."""
        ...

    @property
    def basis(self) -> Basis | None:
        """The basis that the blocks share, if any."""
        ...

    @property
    def position(self) -> Position:
        """The encoding of the coordinates."""
        ...

    @property
    def rematerialize(self) -> bool:
        """Whether blocks are recomputed in the backward pass."""
        ...

    @property
    def precision(self) -> Precision:
        """Data types of products and of stored features."""
        ...

    def obstacle(self, use: Use) -> str | None:
        """Returns why a use is not supported, or `None`."""
        ...

    def encode(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        time: jax.Array | None = None,
    ) -> jax.Array:
        """Maps positions and input values to the features `(n, c)` of the blocks."""
        ...


class Inputs(NamedTuple):
    """Arguments of a layer, on all chunks.

    Attributes:
      block: the block.
      shared: the basis that all blocks share, if any.
      z: features, `(chunks, c, m)`; as `packing` stores them, for the backward pass.
      arrays: further arguments of the attention, arrays `(chunks, m, ...)` by name.
      weights: `(chunks, m)`, zero for padding.
      totals: the sum of all weights, and the number of positive weights.
    """

    block: Block
    shared: Basis | None
    z: Any
    arrays: GivenChunks
    weights: jax.Array
    totals: Totals


def weights_of_chunks(
    x: jax.Array,
    quadrature_weights: jax.Array | None,
    order: EqualChunks,
    *,
    equal_cancel: bool,
    axis_name: str | None = None,
) -> tuple[jax.Array, Totals]:
    """Returns weights of chunks `(chunks, m)`, zero for padding, and their totals.

    Args:
      x: any array of the points, `(n, ...)`, with the dtype of the weights.
      quadrature_weights: weights of the points, shape `(n,)`, or None.
      order: how points are split into chunks.
      equal_cancel: whether ones can replace the default weights `1 / n`.
      axis_name: axis of the devices that hold the other points, which totals include.

    Returns:
      The weights; their sum, and the number of positive weights.

    Raises:
      ValueError: if a weight is negative or the numbers of points differ.
    """
    n = x.shape[0]
    if quadrature_weights is not None:
        weights = check_weights(quadrature_weights, x=x)
    elif equal_cancel:
        weights = jnp.ones(n, x.dtype)
    else:
        devices = 1 if axis_name is None else lax.axis_size(axis_name)
        weights = jnp.full(n, 1 / n, x.dtype) / devices
    weights = jnp.where(active(weights), weights, 0).astype(x.dtype)
    parts = order.split_weights(weights)
    totals = jnp.sum(weights), jnp.sum(active(weights).astype(x.dtype))
    return parts, totals if axis_name is None else lax.psum(totals, axis_name)


def _vary(tree: _Tree, axes: Iterable[str]) -> _Tree:
    """Says of arrays that devices have different ones, at least in their cotangents.

    Cotangents of parameters are then sums over the points of a device, and are added
    up where the parameters came from: once, for all layers.
    """

    def cast(x: jax.Array) -> jax.Array:
        missing = tuple(set(axes) - jax.typeof(x).manual_axis_type.varying)
        return lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(cast, tree)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def layer(axis_name: str | None, storage_dtype: str | None, inputs: Inputs) -> Chunks:
    """Evaluates a block of the transformer on all chunks, in two passes over them.

    Args:
      axis_name: axis of the devices that hold the other points, if any.
      storage_dtype: dtype of features stored for the backward pass, see `packing`.
      inputs: the block and its arguments.

    Returns:
      Features after the block, `(chunks, c, m)`.
    """
    return _forward(axis_name, storage_dtype, inputs)[0]


def _forward(
    axis_name: str | None, storage_dtype: str | None, inputs: Inputs
) -> tuple[Chunks, tuple[Inputs, Sums]]:
    block, shared, z, arrays, weights, totals = inputs

    def accumulate(total: Sums, chunk: _Chunk) -> tuple[Sums, None]:
        return total + block_parts.sums(block, shared, *chunk), None

    chunks: _Chunk = z, arrays, weights
    first = jax.tree.map(lambda x: x[0], chunks)
    one = jax.eval_shape(block_parts.sums, block, shared, *first)
    total_sums, _ = lax.scan(accumulate, nothing(one), chunks)
    total_sums = _vary(total_sums.over(axis_name), _axes(total_sums))
    mixed = block_parts.combine(block, shared, total_sums.added, totals)

    def advance(_: None, chunk: tuple[jax.Array, GivenChunks]) -> tuple[None, Chunks]:
        return None, block_parts.advance(block, shared, *chunk, mixed)

    _, after = lax.scan(advance, None, (z, arrays))
    kept = packing.pack(z, storage_dtype, leading=1)
    return after, (inputs._replace(z=kept), total_sums)


def _backward(
    axis_name: str | None,
    storage_dtype: str | None,
    residuals: tuple[Inputs, Sums],
    cotangent: Chunks,
) -> tuple[Inputs]:
    (block, shared, kept, arrays, weights, totals), total_sums = residuals
    combine = block_parts.combine
    mixed, pull_mix = jax.vjp(combine, block, shared, total_sums.added, totals)

    def restore(part: Any) -> jax.Array:
        return packing.unpack(part, storage_dtype, cotangent.dtype)

    def behind(gradients: tuple[Block, jax.Array], chunk: Any) -> Any:
        """From the end of the layer to what the heads found, and the coefficients."""
        part, arrays, after = chunk
        z = restore(part)
        here = block_parts.local(block, shared, z, arrays)
        heads, pull_mixed = jax.vjp(lambda c: block.attention.spread(c, here), mixed)
        _, pull = jax.vjp(block_parts.rest, block, z, heads)
        of_block, before, heads = pull(after)
        gradients = _add(gradients, (of_block, *pull_mixed(heads)))
        return gradients, (before, packing.pack(heads, storage_dtype))

    start = _zeros((block, mixed))
    (of_block, of_mixed), (before, heads) = lax.scan(
        behind, start, (kept, arrays, cotangent)
    )
    # Linear, so that the parts of the devices are pulled back before they are added.
    more, of_shared, of_added, of_totals = pull_mix(of_mixed)
    axes = _axes(of_added)
    if axis_name is not None:
        of_added = lax.psum(of_added, axis_name)
    of_added = _vary(of_added, axes)

    def ahead(carry: tuple[Any, jax.Array], chunk: Any) -> Any:
        """From what the heads found, and the sums, to the start of the layer."""
        gradients, of_z = carry
        number, part, arrays, weights, heads = chunk

        def first(
            block: Block,
            shared: Basis | None,
            z: jax.Array,
            arrays: GivenChunks,
            weights: jax.Array,
        ) -> tuple[Added, jax.Array]:
            here = block_parts.local(block, shared, z, arrays)
            sums = block.attention.sums(here, weights, total_sums.highest)
            return sums.added, block.attention.spread(mixed, here)

        _, pull = jax.vjp(first, block, shared, restore(part), arrays, weights)
        of_block, of_shared, more, *others = pull((of_added, restore(heads)))
        # In place of the chunk of `before`: one array of all points less.
        of_z = _put(of_z, more + _row(of_z, number), number)
        return (_add(gradients, (of_block, of_shared)), of_z), others

    numbers = jnp.arange(len(weights))
    ((of_block, of_shared), of_z), (of_arrays, of_weights) = lax.scan(
        ahead,
        ((_add(of_block, more), of_shared), before),
        (numbers, kept, arrays, weights, heads),
    )
    return (Inputs(of_block, of_shared, of_z, of_arrays, of_weights, of_totals),)


layer.defvjp(_forward, _backward)


@jax.custom_vjp
def _decode(model: _Decoder, z: Chunks) -> jax.Array:
    """Values of the output function, `(chunks, m, q)`."""
    return lax.map(lambda part: model.decode(part.T), z)


def _decode_forward(
    model: _Decoder, z: Chunks
) -> tuple[jax.Array, tuple[_Decoder, Chunks]]:
    return _decode(model, z), (model, z)


def _decode_backward(
    kept: tuple[_Decoder, Chunks], cotangent: jax.Array
) -> tuple[_Decoder, Chunks]:
    model, z = kept

    def back(carry: tuple[_Decoder, jax.Array], chunk: Any) -> Any:
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


def _row(array: jax.Array, number: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(array, number, keepdims=False)


def _put(array: jax.Array, row: jax.Array, number: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(array, row, number, 0)


def _add(one: _Tree, other: _Tree) -> _Tree:
    return jax.tree.map(jnp.add, one, other)


def _zeros(like: _Tree) -> _Tree:
    return jax.tree.map(jnp.zeros_like, like)


def _axes(tree: Any) -> frozenset[str]:
    """The axes of devices that have different arrays."""
    varying = (jax.typeof(x).manual_axis_type.varying for x in jax.tree.leaves(tree))
    return frozenset[str]().union(*varying)


def check(model: Divided, option: str, value: int | str) -> None:
    """Raises ValueError if a model does not support `chunk_size` or `axis_name`."""
    setting = f"{option}={value!r}"
    use: Use = "chunks" if option == "chunk_size" else "devices"
    if reason := model.obstacle(use):
        raise ValueError(f"{setting}: {reason}. Omit {option}.")
    if model.rematerialize:
        raise ValueError(
            f"rematerialize=True has no effect with {setting}: the backward pass "
            "always recomputes chunks. Omit one of them."
        )


def evaluate(
    model: Divided,
    mesh_points: jax.Array,
    features: jax.Array | None,
    *,
    chunk_size: int | None,
    axis_name: str | None = None,
    quadrature_weights: jax.Array | None = None,
    basis_functions: jax.Array | None = None,
    time: jax.Array | None = None,
) -> jax.Array:
    """Evaluates an operator transformer in chunks.

    Args:
      model: the operator transformer.
      mesh_points: points, shape `(n, p)`.
      features: values of the input function, shape `(n, feature_dim)`, or None.
      chunk_size: number of points computed at once; all points if None or larger than
        their number.
      axis_name: axis of `jax.shard_map` whose devices hold the other points.
      quadrature_weights: weights of the points, shape `(n,)`; zero masks a point.
      basis_functions: functions of the mesh, `(n, k)`, or None.
      time: scalar time, if the model has a time embedding.

    Returns:
      Values of the output function, shape `(n, out_features)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the model does not support chunks, or as from a call without
        chunks.
    """
    if chunk_size is not None:
        _checks.positive(chunk_size=chunk_size)
        check(model, "chunk_size", chunk_size)
    if axis_name is not None:
        check(model, "axis_name", axis_name)
    check_points(model.position, mesh_points)
    arrays = {"mesh_points": mesh_points}
    if basis_functions is not None:
        arrays["basis_functions"] = basis_functions
    more = {} if features is None else {"features": features}
    _checks.same_points(**arrays, **more)
    axes = _axes((arrays, more, quadrature_weights, time))
    model, arrays, more, time = _vary((model, arrays, more, time), axes)
    mesh_points, features = arrays["mesh_points"], more.get("features")
    blocks, shared = model.blocks, model.basis
    n = mesh_points.shape[0]
    order = equal_chunks(n, chunk_size)
    weights, totals = weights_of_chunks(
        mesh_points,
        quadrature_weights,
        order,
        equal_cancel=blocks.attention.equal_weights_cancel(shared),
        axis_name=axis_name,
    )
    weights, totals = _vary((weights, totals), axes)
    parts = {name: order.split(array) for name, array in arrays.items()}
    inputs = None if features is None else order.split(features)

    def encode(chunk: tuple[jax.Array, jax.Array | None]) -> jax.Array:
        return model.encode(*chunk, time=time).T

    z = lax.map(
        jax.checkpoint(encode, prevent_cse=False), (parts["mesh_points"], inputs)
    )

    def one(z: Chunks, block: Block) -> tuple[Chunks, None]:
        own = dict(parts)
        basis = block.attention.convolved_basis(shared)
        if basis is not None:
            x = block.attention_norm(order.join(z.swapaxes(1, 2)))
            x = basis.project(x, mesh_points=mesh_points, axis_name=axis_name)
            own["projected"] = order.split(x).swapaxes(1, 2)
        inputs = Inputs(block, shared, z, own, weights, totals)
        return layer(axis_name, model.precision.storage, inputs), None

    z, _ = lax.scan(one, z, blocks)
    values = _decode(block_parts.without_blocks(model), z)
    return order.join(values)
