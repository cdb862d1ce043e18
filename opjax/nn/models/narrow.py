r"""Operator transformers in 16 bits: which operations are narrowed.

The following are in 16 bits: the factors of all products that sum over channels or
points, which are linear maps of blocks, scores of basis functions, moments, expansions,
and their gradients. The following have the dtype of the parameters: sums, residuals,
coordinates (the first map of the encoder, because 8 bits of a coordinate distinguish
only 256 places in a domain), softmax, normalisation, activations, masses and Gram
matrices of the moments, the small linear systems, the last map, parameters, gradients
and the optimizer state.

The error of a product is two unit roundoffs `u` of its factors, see `opjax.precision`.
Blocks add to their input and normalise it, so errors of blocks add up: with `l` blocks,
in the norm over all points or over all gradients,

    |computed - exact| <= B l u |exact|.

`B` depends on the parameters, through the condition of the small systems and the
amplification by attention. Tests against float64 on 60 random points bound it by 1 for
values and 2 for gradients of three blocks with parameters scaled by two after
initialisation (with a factor of three it was 2 and 40), and by 6 and 12 for single
attention layers with every mixer and a factor of four (24 for gradients if the ridge is
selected from the data).
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
    """Computes products over points, or stores features of blocks, in 16 bits.

    With `features`, factors of products are rounded; errors of values and gradients are
    within the bounds in the module docstring. It is faster if a device multiplies
    bfloat16 faster than float32.

    With `storage`, the features before the blocks, which dominate the memory with
    chunks and `rematerialize`, are stored in 16 bits for the backward pass. Values do
    not change, and gradients are those of rounded features, see `packing`.

    Args:
      model: an `OperatorTransformer`, changed in place; `features` needs
        `BasisAttention` with a `SoftmaxBasis` or `FixedBasis`, `storage` needs
        `chunk_size` or `rematerialize`.
      given: the data types, which replace all earlier ones of the model.

    Returns:
      The fitted model.

    Raises:
      ValueError: if a part of the model does not support the precision, or the model
        stores no features.

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
        raise ValueError(f"A {division.name(model)} does not support {given}.")
    keeps = model.chunk_size is not None or model.rematerialize
    if given.storage is not None and not keeps:
        raise ValueError(
            f"storage={given.storage!r} has no effect on a model without chunk_size "
            "or rematerialize, which store the features of every block. Set one of "
            "them."
        )
    if given.features is not None and (reason := division.obstacle(model, "narrow")):
        raise ValueError(
            f"features={given.features!r}: {reason}. Omit features, or with flags use "
            "--compute_dtype=float32."
        )
    if given.features != model.precision.features:
        _narrow(model, given.features)
    if given != model.precision:
        model.precision = given
    return model


def narrow_attention(
    attention: BasisAttention, basis: Basis, dtype: str | None
) -> None:
    """Rounds factors of an attention in a basis, either its own or a shared basis."""
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
