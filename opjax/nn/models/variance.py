"""Initialisation that preserves the variance of features from layer to layer."""

from typing import TypeVar

import jax.numpy as jnp
from flax import nnx

_Model = TypeVar("_Model", bound=nnx.Module)

# Parts of an operator transformer whose kernels carry features from point to point and
# layer to layer; bases and decoder keep theirs.
_TRUNK = ("encoder", "time_embedding", "blocks")
# Last maps of what a block adds to its features.
_BRANCHES = ("attention", "mlp")


def unit_variance(model: _Model) -> _Model:
    r"""Scales kernels so that features keep unit variance, in place.

        W <- g W / rms(W),    g = fan_in^{-1/2},

    for every pointwise map of encoder, time embedding and blocks, and for the last map
    of each of the `2 L` branches that `L` blocks add to the features

        g = (2 L fan_in)^{-1/2},

    so that all branches together add as much variance as the features have. Kernels of
    basis and decoder are unchanged. With the published standard deviation of 0.02, a
    perceptron with few inputs stays in the linear range of its activation: features are
    linear in the coordinates, of rank two on a plane, until training has enlarged the
    kernels.

    Args:
      model: an untrained `OperatorTransformer`, or another model with `encoder` and
        `blocks` stacked along a leading axis.

    Returns:
      The fitted model.

    Raises:
      ValueError: if the model has no such parts.

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
      >>> model = nn.unit_variance(model)  # before training
      >>> model(jnp.ones((9, 2)), jnp.ones((9, 1))).shape
      (9, 1)
    """
    missing = [name for name in ("encoder", "blocks") if not hasattr(model, name)]
    if missing:
        raise ValueError(
            f"{type(model).__name__} has no {' and no '.join(missing)}; "
            "unit_variance supports only operator transformers."
        )
    for path, module in nnx.iter_modules(model):
        of_trunk = path and path[0] in _TRUNK and "basis" not in path
        if not of_trunk or not isinstance(module, nnx.Linear):
            continue
        stacked = path[0] == "blocks"
        values = module.kernel[...]
        gain = values.shape[-2] ** -0.5
        if stacked and path[-1] == "out" and path[-2] in _BRANCHES:
            gain *= (2 * values.shape[0]) ** -0.5
        module.kernel[...] = gain * values / jnp.sqrt(jnp.mean(values**2))
    return model
