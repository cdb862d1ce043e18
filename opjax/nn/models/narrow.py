r"""Operator transformers in 16 bits: what is, and what is not.

In 16 bits are the factors of all products that sum over channels or points: linear maps
of blocks, scores of basis functions, moments, expansions, and their gradients. In the
type of the parameters are sums, residuals, coordinates (the first map of the encoder,
since 8 bits of a coordinate leave 256 places in a domain), softmax, normalisation,
activations, masses and Gram matrices of the moments, the small systems, the last map,
parameters, gradients and the state of the optimizer.

A product errs by two unit roundoffs `u` of its factors, see `opjax.precision`. Blocks
add to what they are given and normalise what they read, so errors of blocks add up:
with `l` blocks, in the norm of all points or of all gradients,

    |computed - exact| <= B l u |exact|.

`B` depends on the parameters, through the condition of the small systems and how much
attention amplifies. Tests against float64, on 60 random points, have 1 for values and 2
for gradients of three blocks with twice the parameters of the start (with three times
those it was 2 and 40), and 6 and 12 for attention alone, by every mixer, with four
times those (24 for gradients where the data choose the ridge).
"""

from typing import TypeVar

from flax import nnx

from opjax import precision
from opjax.nn import division
from opjax.nn.attention.basis import BasisAttention
from opjax.nn.bases.expansions import Basis
from opjax.nn.layers import MLP
from opjax.nn.models.operator import OperatorTransformer
from opjax.precision import Precision

_Model = TypeVar("_Model", bound=nnx.Module)


def with_precision(model: _Model, given: Precision) -> _Model:
    """Computes products of points, or keeps features of blocks, in 16 bits.

    With `features`, factors of products are rounded, and errors of values and gradients
    are within the module's bounds. That is faster where a device multiplies bfloat16
    faster than float32.

    With `storage`, features in front of the blocks, which are what chunks and
    `rematerialize` need of memory, are kept in 16 bits for the backward pass. Values
    are the same, and gradients those of rounded features, see `packing`.

    Args:
      model: an `OperatorTransformer`, which changes; for features, of `BasisAttention`
        in a `SoftmaxBasis` or `FixedBasis`, for storage with `chunk_size` or
        `rematerialize`.
      given: the types, for all of which the model had before.

    Returns:
      The model.

    Raises:
      ValueError: if a part of the model has no such precision, or it keeps no features.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.OperatorTransformer(
      ...     position=nn.Coordinates(2),
      ...     feature_dim=1,
      ...     out_features=1,
      ...     attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=4),
      ...     features=8,
      ...     num_layers=2,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model = nn.with_precision(model, nn.Precision(features="bfloat16"))
      >>> model(jnp.ones((9, 2)), jnp.ones((9, 1))).dtype
      dtype('float32')
    """
    if not isinstance(model, OperatorTransformer):
        raise ValueError(f"A {division.name(model)} has no {given}.")
    keeps = model.chunk_size is not None or model.rematerialize
    if given.storage is not None and not keeps:
        raise ValueError(
            f"storage={given.storage!r} means nothing to a model without chunk_size or "
            "rematerialize, which keep features of every block. Give it one of them."
        )
    if given.features is not None and (reason := division.obstacle(model, "narrow")):
        raise ValueError(
            f"features={given.features!r}: {reason}. Leave features out, which are "
            "then of the type of the parameters."
        )
    if given.features != model.precision.features:
        _narrow(model, given.features)
    if given != model.precision:
        model.precision = given
    return model


def narrow_attention(
    attention: BasisAttention, basis: Basis, dtype: str | None
) -> None:
    """Rounds factors of an attention in a basis, its own or a shared one."""
    attention.compute_dtype = basis.compute_dtype = dtype
    for linear in (basis.projection, attention.out):
        linear.dot_general = precision.dot_general(dtype)


def _narrow(model: OperatorTransformer, dtype: str | None) -> None:
    attention = model.blocks.attention
    if not isinstance(attention, BasisAttention):
        return  # never narrowed, and is not to be
    narrow_attention(attention, attention.choose_basis(model.basis), dtype)
    _, *inside = _maps(model.encoder)  # the first one sees coordinates
    for linear in (*inside, *_maps(model.blocks.mlp)):
        linear.dot_general = precision.dot_general(dtype)


def _maps(perceptron: MLP) -> list[nnx.Linear]:
    return [*perceptron.hidden, perceptron.out]
