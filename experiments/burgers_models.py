"""The models of the Burgers experiment, by name, and what they are trained for."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from experiments.burgers_data import mesh_points
from opjax import metrics, nn
from opjax.nn.attention.pointwise import ATTENTIONS as POINTWISE


def transformer(config: Any, *, attention: str, rngs: nnx.Rngs) -> nnx.Module:
    """Builds the super-resolution transformer with one of the attentions.

    Args:
      config: has the model fields of `experiments.burgers.Config`; likewise below.
      attention: name, one of `ATTENTIONS`.
      rngs: source of the initial parameters.
    """
    keys = config.normalization == "keys"
    if attention == "functional":
        constructor = nn.coordinate_attention(
            num_heads=config.num_heads, num_basis=config.num_basis
        )
    else:
        constructor = partial(
            POINTWISE[attention],
            num_heads=config.num_heads,
            point_dim=1,
            normalization="layer" if keys else None,
            kernel_init=nn.initializers.diagonal_xavier(
                scale=config.init_scale, diagonal=config.init_diagonal
            ),
        )
    return nn.SuperResolutionTransformer(
        features=config.features,
        num_layers=config.num_layers,
        attention=constructor,
        outer_norm=attention != "functional" and not keys,
        hidden_features=config.feedforward,
        modes=config.num_modes,
        decoder_features=config.decoder_features,
        rngs=rngs,
    )


def fourier(config: Any, *, rngs: nnx.Rngs) -> nnx.Module:
    """Builds the Fourier neural operator, on the grid of its arguments."""
    return nn.FourierNeuralOperator(
        grid_shape=(config.num_points,),
        feature_dim=1,
        out_features=1,
        features=config.features,
        num_layers=config.num_layers,
        modes=config.num_modes,
        rngs=rngs,
    )


# A model maps points (n, 1) and initial values (n, 1) to final ones (n, 1), any n.
ATTENTIONS = ("functional", "galerkin", "fourier", "softmax", "linear")
# Of Galerkin-type attention and its kin: all features of a point after every residual
# (004, Eq. 7), or keys and values within every head (004, Eq. 5 and 6).
NORMALIZATIONS = ("features", "keys")
MODELS: dict[str, Callable[..., nnx.Module]] = {
    **{name: partial(transformer, attention=name) for name in ATTENTIONS},
    "fno": fourier,
}


class Objective(NamedTuple):
    """Functions of the model and samples.

    Attributes:
      predict: `predict(model, sample)`, the final state `(n, 1)`.
      error: `error(model, sample)`, its relative L2 error.
      loss: `loss(model, batch)`, to be minimised.
    """

    predict: Callable[[Any, Any], jax.Array]
    error: Callable[[Any, Any], jax.Array]
    loss: Callable[[Any, Any], jax.Array]


def objective(config: Any) -> Objective:
    """Builds prediction, error and loss.

        loss = mean_b |p - t| / |t| + sqrt(gradient_weight / n) |D p - D t| / |D t|

    with the periodic central difference `D`. The published loss takes `D t` from the
    finest grid and no difference across the ends, and does not vanish at `p = t`.
    """

    def predict(model: Any, sample: Any) -> jax.Array:
        points = jnp.asarray(mesh_points(sample["initial"].shape[0]))
        return model(points, sample["initial"])

    def error(model: Any, sample: Any) -> jax.Array:
        return metrics.relative_l2(predict(model, sample), sample["solution"])

    def sample_loss(model: Any, sample: Any) -> jax.Array:
        prediction, target = predict(model, sample), sample["solution"]
        weight = (config.gradient_weight / target.shape[0]) ** 0.5
        slopes = metrics.relative_l2(_differences(prediction), _differences(target))
        return metrics.relative_l2(prediction, target) + weight * slopes

    def loss(model: Any, batch: Any) -> jax.Array:
        # A sum over the parts of a batch that are differentiated one by one.
        values = jax.vmap(sample_loss, in_axes=(None, 0))(model, batch)
        return jnp.sum(values) / config.batch_size

    return Objective(predict, error, loss)


def _differences(values: jax.Array) -> jax.Array:
    return jnp.roll(values, -1, axis=0) - jnp.roll(values, 1, axis=0)
