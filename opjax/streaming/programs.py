"""The compiled programs for a chunk: one of each kind, for all layers and chunks.

Features are `(c, m)`, points last. `model` is an operator transformer with stacked
blocks, `mixed` are the coefficients `(l, h, k, d)` of the attention layers, from all
points. Programs are called with a `Flat` model, and cotangents of parameters are lists:
flattening modules for every chunk would take as long as computing a hundred points.
"""

import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from opjax._trees import PyTree
from opjax.nn import OperatorTransformer
from opjax.nn.attention.sums import Added, Sums
from opjax.nn.bases import Basis
from opjax.nn.models import Block, block_parts
from opjax.streaming.losses import SumLoss

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")
_Tree = TypeVar("_Tree")

# Arrays `(m, ...)` of the points of a chunk, on the host, by name.
Given = Mapping[str, Any]
# Gradients of some of the parameters of a model, in the order of its leaves.
Leaves = list[jax.Array]
Totals = tuple[jax.Array, jax.Array]


class _Structure:
    """What a model is without its arrays, compared by identity."""

    def __init__(self, tree: PyTree):
        self.tree = tree


_structure = functools.cache(_Structure)


class Flat(NamedTuple):
    """The parts of a model."""

    structure: _Structure
    leaves: list[Any]


class Inputs(NamedTuple):
    """Inputs of layers at the points of a chunk.

    Attributes:
      z: features, `(c, m)`.
      given: further arguments of the attention.
    """

    z: ArrayLike
    given: Given


class Fixed(NamedTuple):
    """Quantities of all layers for the backward passes.

    Attributes:
      mixed: coefficients, `(l, h, k, d)`.
      of_added: cotangents of the sums, `(l, h, ...)`.
      highest: exponents that the sums are relative to, `(l, h, k)`, or None.
    """

    mixed: jax.Array
    of_added: Added
    highest: jax.Array | None


def flatten(model: OperatorTransformer) -> Flat:
    """Splits a model into its parts."""
    leaves, tree = jax.tree.flatten(model)
    return Flat(_structure(tree), leaves)


def _program(
    function: Callable[Concatenate[OperatorTransformer, _Rest], _Result],
) -> Callable[Concatenate[Flat, _Rest], _Result]:
    """Compiles a function of a model, and of `loss` and `depth`, which are static."""

    def rebuilt(
        structure: _Structure,
        leaves: list[Any],
        *rest: _Rest.args,
        **static: _Rest.kwargs,
    ) -> _Result:
        return function(jax.tree.unflatten(structure.tree, leaves), *rest, **static)

    rebuilt.__name__ = function.__name__
    static = ("loss", "depth")
    compiled = jax.jit(rebuilt, static_argnums=0, static_argnames=static)

    @functools.wraps(function)
    def call(model: Flat, *rest: _Rest.args, **static: _Rest.kwargs) -> _Result:
        return compiled(*model, *rest, **static)

    return call


def block_of(model: OperatorTransformer, layer: ArrayLike) -> Block:
    """Returns one block of a model."""
    return _row(model.blocks, layer)


def _row(tree: _Tree, layer: ArrayLike) -> _Tree:
    def row(leaf: jax.Array) -> jax.Array:
        return lax.dynamic_index_in_dim(leaf, layer, keepdims=False)

    return jax.tree.map(row, tree)


def _advance(
    model: OperatorTransformer,
    mixed: jax.Array,
    given: Given,
    layer: ArrayLike,
    z: jax.Array,
) -> jax.Array:
    block, mine = block_of(model, layer), _row(mixed, layer)
    return block_parts.advance(block, model.basis, z, given, mine)


@_program
def encode(
    model: OperatorTransformer,
    points: ArrayLike,
    features: ArrayLike | None,
    time: jax.Array | None,
) -> jax.Array:
    """Returns the inputs of the first layer."""
    return _encoded(model, points, features, time)


def _encoded(
    model: OperatorTransformer,
    points: ArrayLike,
    features: ArrayLike | None,
    time: jax.Array | None,
) -> jax.Array:
    inputs = None if features is None else jnp.asarray(features)
    return model.encode(jnp.asarray(points), inputs, time=time).T


@_program
def accumulate(
    model: OperatorTransformer,
    mixed: jax.Array,
    here: Inputs,
    weights: jax.Array,
    start: ArrayLike,
    layer: ArrayLike,
) -> tuple[jax.Array, Sums]:
    """Returns inputs of a layer and its sums, from the inputs of layer `start`."""
    step = partial(_advance, model, mixed, here.given)
    z: jax.Array = lax.fori_loop(start, layer, step, jnp.asarray(here.z))
    block = block_of(model, layer)
    return z, block_parts.sums(block, model.basis, z, here.given, weights)


@_program
def finish(
    model: OperatorTransformer, mixed: jax.Array, here: Inputs, start: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Returns the features after the last layer, and output values `(m, q)`."""
    step = partial(_advance, model, mixed, here.given)
    behind: jax.Array = lax.fori_loop(start, len(mixed), step, jnp.asarray(here.z))
    return behind, model.decode(behind.T)


@_program
def combine(
    model: OperatorTransformer, layer: ArrayLike, added: Added, totals: Totals
) -> jax.Array:
    """Returns the coefficients of a layer's attention from the sums over all points."""
    return block_parts.combine(block_of(model, layer), model.basis, added, totals)


@_program
def pull_combine(
    model: OperatorTransformer,
    layer: ArrayLike,
    added: Added,
    totals: Totals,
    cotangent: jax.Array,
) -> tuple[Leaves, Leaves, Added]:
    """Returns cotangents of a block, the shared basis and sums, from coefficients'."""
    block = block_of(model, layer)
    _, pull = jax.vjp(
        partial(block_parts.combine, totals=totals), block, model.basis, added
    )
    of_block, of_shared, of_added = pull(cotangent)
    return jax.tree.leaves(of_block), jax.tree.leaves(of_shared), of_added


@_program
def states(
    model: OperatorTransformer,
    mixed: jax.Array,
    here: Inputs,
    start: ArrayLike,
    stop: ArrayLike,
    *,
    depth: int,
) -> jax.Array:
    """Returns the inputs of the layers `start` to `stop`, `(depth + 1, c, m)`."""
    z = jnp.asarray(here.z)

    def body(
        layer: jax.Array, carry: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        kept, z = carry
        z = _advance(model, mixed, here.given, layer, z)
        return lax.dynamic_update_index_in_dim(kept, z, layer - start + 1, 0), z

    kept = jnp.zeros((depth + 1, *z.shape), z.dtype).at[0].set(z)
    return lax.fori_loop(start, stop, body, (kept, z))[0]


@jax.jit
def state(found: jax.Array, place: ArrayLike) -> jax.Array:
    """Returns one of `states`."""
    return _row(found, place)


@partial(jax.jit, static_argnames="loss")
def sums(
    values: jax.Array, target: jax.Array, weights: jax.Array, *, loss: SumLoss
) -> Any:
    """Returns the sums of the loss."""
    return loss.sums(values, target, weights)


@_program
def pull_loss(
    model: OperatorTransformer,
    z: jax.Array,
    target: jax.Array,
    weights: jax.Array,
    cotangent: PyTree,
    *,
    loss: SumLoss,
) -> tuple[Leaves, jax.Array]:
    """Returns the cotangents of the decoder and of features after the last layer."""

    def found(outer: OperatorTransformer, z: jax.Array) -> Any:
        return loss.sums(outer.decode(z.T), target, weights)

    _, pull = jax.vjp(found, block_parts.without_blocks(model), z)
    of_outer, of_z = pull(cotangent)
    return jax.tree.leaves(of_outer), of_z


@_program
def pull_encoder(
    model: OperatorTransformer,
    points: ArrayLike,
    features: ArrayLike | None,
    time: jax.Array | None,
    g: jax.Array,
) -> Leaves:
    """Returns the cotangents of the encoder."""

    def found(outer: OperatorTransformer) -> jax.Array:
        return _encoded(outer, points, features, time)

    (of_outer,) = jax.vjp(found, block_parts.without_blocks(model))[1](g)
    return jax.tree.leaves(of_outer)


@_program
def pull(
    model: OperatorTransformer,
    fixed: Fixed,
    found: jax.Array,
    g: ArrayLike,
    given: Given,
    weights: jax.Array,
    start: int,
    low: int,
    end: int,
) -> tuple[Leaves, Leaves, jax.Array]:
    """Propagates the cotangent backward through layers.

    Args:
      model: the operator transformer.
      fixed: quantities of all layers.
      found: `states` from the layer `start` on.
      g: cotangent of the features before the layer `end`.
      given: further arguments of the attention.
      weights: weights of the points.
      start: first layer of `found`.
      low: the layer at which propagation ends.
      end: the layer at which propagation starts.

    Returns:
      Cotangents of the block `low` and of its shared basis, as lists, and of the
      features before it.
    """

    def back(
        layer: int | jax.Array, g: jax.Array
    ) -> tuple[Block, Basis | None, jax.Array]:
        mine, of_added, highest = _row(fixed, layer)

        def evaluate(
            block: Block, shared: Basis | None, z: jax.Array
        ) -> tuple[jax.Array, Added]:
            here = block_parts.local(block, shared, z, given)
            heads = block.attention.spread(mine, here)
            added = block.attention.sums(here, weights, highest).added
            return block_parts.rest(block, z, heads), added

        z = _row(found, layer - start)
        _, pull = jax.vjp(evaluate, block_of(model, layer), model.basis, z)
        return pull((g, of_added))

    def only_features(step: jax.Array, g: jax.Array) -> jax.Array:
        return back(end - 1 - step, g)[2]

    behind = lax.fori_loop(0, end - 1 - low, only_features, jnp.asarray(g))
    of_block, of_shared, of_z = back(low, behind)
    return jax.tree.leaves(of_block), jax.tree.leaves(of_shared), of_z


@_program
def pull_rest(
    model: OperatorTransformer,
    mixed: jax.Array,
    here: Inputs,
    g: jax.Array,
    layer: ArrayLike,
) -> jax.Array:
    """Returns cotangents of a layer's coefficients, from the layers after it."""
    block, z = block_of(model, layer), jnp.asarray(here.z)
    advance = partial(block_parts.advance, block, model.basis, z, here.given)
    return jax.vjp(advance, _row(mixed, layer))[1](g)[0]


@_program
def pull_inputs(
    model: OperatorTransformer,
    fixed: Fixed,
    inputs: tuple[ArrayLike, ArrayLike | None],
    time: jax.Array | None,
    given: Given,
    weights: jax.Array,
    cotangent: jax.Array,
) -> tuple[jax.Array, jax.Array | None]:
    """Cotangents of points and features of a chunk, through all layers.

    Args:
      model: the operator transformer.
      fixed: quantities of all layers.
      inputs: coordinates `(m, p)`, and features `(m, c)` or None.
      time: time, if the model has a time embedding.
      given: what calls of the attention take; coordinates among it are those of
        `inputs`.
      weights: of the points, in attention.
      cotangent: of the values `(m, q)`, zero where there is no point.
    """

    def evaluate(
        inputs: tuple[jax.Array, jax.Array | None],
    ) -> tuple[jax.Array, Added]:
        points, features = inputs
        here = {k: points if k == "mesh_points" else a for k, a in given.items()}

        # Kept of a layer is its input alone, and the rest is computed again.
        @jax.checkpoint
        def layer(z: jax.Array, row: tuple[Block, Any]) -> tuple[jax.Array, Added]:
            block, (mine, highest) = row
            local = block_parts.local(block, model.basis, z, here)
            added = block.attention.sums(local, weights, highest).added
            return block_parts.rest(
                block, z, block.attention.spread(mine, local)
            ), added

        z = _encoded(model, points, features, time)
        rows = model.blocks, (fixed.mixed, fixed.highest)
        behind, added = lax.scan(layer, z, rows)
        return model.decode(behind.T), added

    arrays = jax.tree.map(jnp.asarray, inputs)
    return jax.vjp(evaluate, arrays)[1]((cotangent, fixed.of_added))[0]
