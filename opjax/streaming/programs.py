"""The compiled programs of a chunk: one of each kind, for all layers and chunks.

Features are `(c, m)`, points last. `model` is an operator transformer whose blocks are
stacked, `mixed` the coefficients `(l, h, k, d)` that the attentions make of all points.
Programs are called with a `Flat` model, and cotangents of parameters are lists: modules
would be taken apart for every chunk, which takes as long as a hundred points.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from opjax.nn.models import block_parts


class _Structure:
    """What a model is without its arrays, compared by identity."""

    def __init__(self, tree: Any):
        self.tree = tree


_structure = functools.cache(_Structure)


class Flat(NamedTuple):
    """A model taken apart."""

    structure: _Structure
    leaves: list[Any]


def flatten(model: Any) -> Flat:
    """Takes a model apart."""
    leaves, tree = jax.tree.flatten(model)
    return Flat(_structure(tree), leaves)


def _program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of a model, and of `loss` and `depth`, which are static."""

    def rebuilt(structure: _Structure, leaves: Any, *rest: Any, **static: Any) -> Any:
        return function(jax.tree.unflatten(structure.tree, leaves), *rest, **static)

    rebuilt.__name__ = function.__name__
    static = ("loss", "depth")
    compiled = jax.jit(rebuilt, static_argnums=0, static_argnames=static)

    @functools.wraps(function)
    def call(model: Flat, *rest: Any, **static: Any) -> Any:
        return compiled(*model, *rest, **static)

    return call


def block_of(model: Any, layer: Any) -> Any:
    """One block of a model."""
    return jax.tree.map(lambda leaf: _row(leaf, layer), model.blocks)


def _row(tree: Any, layer: Any) -> Any:
    def row(leaf: Any) -> Any:
        return lax.dynamic_index_in_dim(leaf, layer, keepdims=False)

    return jax.tree.map(row, tree)


def _advance(model: Any, mixed: Any, given: Any, layer: Any, z: Any) -> jax.Array:
    block, mine = block_of(model, layer), _row(mixed, layer)
    return block_parts.advance(block, model.basis, z, given, mine)


@_program
def encode(model: Any, points: Any, features: Any, time: Any) -> jax.Array:
    """Features in front of the first layer."""
    return model.encode(points, features, time=time).T


@_program
def accumulate(
    model: Any, mixed: Any, z: Any, given: Any, weights: Any, places: tuple[Any, Any]
) -> tuple[jax.Array, Any]:
    """Features in front of a layer and its moments, from features at `places[0]`."""
    start, layer = places
    z = lax.fori_loop(start, layer, partial(_advance, model, mixed, given), z)
    block = block_of(model, layer)
    found = block_parts.moments_of(block, model.basis, z, given, weights)
    return z, found


@_program
def finish(model: Any, mixed: Any, z: Any, given: Any, start: Any) -> Any:
    """Features behind the last layer, and values `(m, q)` of the output function."""
    stop = len(mixed)
    z = lax.fori_loop(start, stop, partial(_advance, model, mixed, given), z)
    return z, model.decode(z.T)


@_program
def mix(model: Any, layer: Any, found: Any, totals: Any) -> jax.Array:
    """Coefficients that a layer's attention makes of the moments of all points."""
    return block_parts.mix(block_of(model, layer), model.basis, found, totals)


@_program
def pull_mix(model: Any, layer: Any, found: Any, totals: Any, cotangent: Any) -> Any:
    """Cotangents of a block, the shared basis and moments, from coefficients'."""
    block = block_of(model, layer)
    _, pull = jax.vjp(
        partial(block_parts.mix, totals=totals), block, model.basis, found
    )
    of_block, of_shared, of_found = pull(cotangent)
    return jax.tree.leaves(of_block), jax.tree.leaves(of_shared), of_found


@_program
def states(
    model: Any, mixed: Any, z: Any, given: Any, start: Any, stop: Any, *, depth: int
) -> jax.Array:
    """Features in front of layers `start` to `stop`, `(depth + 1, c, m)`."""

    def body(layer, carry):
        found, z = carry
        z = _advance(model, mixed, given, layer, z)
        return lax.dynamic_update_index_in_dim(found, z, layer - start + 1, 0), z

    found = jnp.zeros((depth + 1, *z.shape), z.dtype).at[0].set(z)
    return lax.fori_loop(start, stop, body, (found, z))[0]


@jax.jit
def state(found: Any, place: Any) -> jax.Array:
    """One of `states`."""
    return _row(found, place)


@partial(jax.jit, static_argnames="loss")
def sums(values: Any, target: Any, weights: Any, *, loss: Any) -> Any:
    """Sums of the loss."""
    return loss.sums(values, target, weights)


@_program
def pull_loss(
    model: Any, z: Any, target: Any, weights: Any, cotangent: Any, *, loss: Any
) -> Any:
    """Cotangents of the decoder and of features behind the last layer."""

    def found(outer, z):
        return loss.sums(outer.decode(z.T), target, weights)

    _, pull = jax.vjp(found, block_parts.without_blocks(model), z)
    of_outer, of_z = pull(cotangent)
    return jax.tree.leaves(of_outer), of_z


@_program
def pull_encoder(model: Any, points: Any, features: Any, time: Any, g: Any) -> Any:
    """Cotangents of the encoder."""

    def found(outer):
        return outer.encode(points, features, time=time).T

    return jax.tree.leaves(jax.vjp(found, block_parts.without_blocks(model))[1](g)[0])


@_program
def pull(
    model: Any,
    fixed: tuple[Any, Any],
    found: Any,
    g: Any,
    given: Any,
    weights: Any,
    places: tuple[Any, Any, Any],
) -> tuple[Any, Any, jax.Array]:
    """Pulls the cotangent behind layers back through them.

    Args:
      model: the operator transformer.
      fixed: coefficients of all layers, and cotangents of their moments.
      found: `states` from the layer `start` on.
      g: cotangent of the features in front of the layer `end`.
      given: what calls of the basis take.
      weights: of the points.
      places: `start`, `low` and `end`.

    Returns:
      Cotangents of the block `low` and of the shared basis in it, lists, and of the
      features in front of it.
    """
    mixed, of_found = fixed
    start, low, end = places

    def back(layer, g):
        mine = _row(mixed, layer)

        def evaluate(block, shared, z):
            values, phi = block_parts.values_and_basis(block, shared, z, given)
            heads = block_parts.reconstruct(block, mine, phi)
            moments = block_parts.moments(block, values, phi, weights)
            return block_parts.rest(block, z, heads), moments

        z = _row(found, layer - start)
        _, pull = jax.vjp(evaluate, block_of(model, layer), model.basis, z)
        return pull((g, _row(of_found, layer)))

    def only_features(step, g):
        return back(end - 1 - step, g)[2]

    g = lax.fori_loop(0, end - 1 - low, only_features, g)
    of_block, of_shared, g = back(low, g)
    return jax.tree.leaves(of_block), jax.tree.leaves(of_shared), g


@_program
def pull_rest(
    model: Any, mixed: Any, z: Any, g: Any, given: Any, layer: Any
) -> jax.Array:
    """Cotangents of a layer's coefficients, from those behind it."""
    block = block_of(model, layer)
    found = partial(block_parts.advance, block, model.basis, z, given)
    return jax.vjp(found, _row(mixed, layer))[1](g)[0]
