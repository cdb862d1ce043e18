"""The models of the Darcy experiment, by name, and what they are trained for."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from experiments import darcy_data
from experiments.basis_choice import ATTENTIONS, BASES, PROJECTIONS, ChosenOperator
from opjax import metrics, nn, normalize, schwarz
from opjax.normalize import Normalizer


def check(config: Any) -> None:
    """Raises ValueError if the boxes of a Schwarz model do not fit the grid.

    Args:
      config: has the model fields of `experiments.darcy.Config`; likewise below.
    """
    if config.model != "functional_schwarz":
        return
    if not config.convolution:
        raise ValueError(
            "model='functional_schwarz' divides a grid: leave convolution on."
        )
    boxes = config.num_boxes, config.num_boxes
    schwarz.box_cover(config.grid_shape, boxes, overlap=config.overlap)
    hats = config.num_boxes + 1, config.num_boxes + 1
    schwarz.partition_hats(config.grid_shape, hats)


def functional(config: Any, *, rngs: nnx.Rngs, **options: Any) -> nnx.Module:
    """Builds the operator transformer with functional attention."""
    return nn.OperatorTransformer(
        point_dim=2,
        feature_dim=1,
        out_features=1,
        features=config.features,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_basis=config.num_basis,
        mlp_ratio=config.mlp_ratio,
        grid_shape=config.grid_shape if config.convolution else None,
        shared_basis=config.shared_basis,
        reference_points=config.reference_points or None,
        ridge_logit=config.ridge_logit,
        temperature=config.temperature,
        temperature_bounds=(config.min_temperature, config.max_temperature),
        rematerialize=config.rematerialize,
        rngs=rngs,
        **options,
    )


def functional_schwarz(config: Any, *, rngs: nnx.Rngs) -> nnx.Module:
    """Builds the operator transformer with functional Schwarz attention."""
    return functional(
        config,
        rngs=rngs,
        attention="functional_schwarz",
        num_boxes=config.num_boxes,
        overlap=config.overlap,
    )


# A model maps mesh points (n, 2) and encoded coefficients (n, 1) to encoded solutions
# (n, 1). One with a method `inspect` also gets figures of its bases and maps.
MODELS: dict[str, Callable[..., nnx.Module]] = {
    "functional": functional,
    "functional_schwarz": functional_schwarz,
    "transolver": partial(functional, attention="physics"),
    # Every basis with every attention, every projection: `experiments.ablation`.
    **{
        f"{basis}_{attention}": partial(
            ChosenOperator, attention=attention, basis=basis
        )
        for basis in BASES
        for attention in ATTENTIONS
    },
    **{
        f"projected_{projection}": partial(
            ChosenOperator,
            attention="functional",
            basis="learned",
            projection=projection,
        )
        for projection in PROJECTIONS
    },
}


class Objective(NamedTuple):
    """Functions of the model, in physical units.

    Attributes:
      predict: `predict(model, sample)`, the solution `(n, 1)`.
      error: `error(model, sample)`, its relative L2 error.
      loss: `loss(model, batch)`, to be minimised.
    """

    predict: Callable[[Any, Any], jax.Array]
    error: Callable[[Any, Any], jax.Array]
    loss: Callable[[Any, Any], jax.Array]


def objective(config: Any, normalizers: dict[str, Normalizer]) -> Objective:
    """Builds prediction, error and loss.

        loss = sum_b |p_b - t_b| / |t_b| + gradient_weight (relative gradient error),

    summed over the batch, as in the published runs: with clipping, scale matters.
    """
    points = darcy_data.mesh_points(config.grid_shape)

    def predict(model: Any, sample: Any) -> jax.Array:
        encoded = model(points, sample["coefficient"])
        return normalize.decode(normalizers["solution"], encoded)

    def error(model: Any, sample: Any) -> jax.Array:
        return metrics.relative_l2(predict(model, sample), sample["solution"])

    def sample_loss(model: Any, sample: Any) -> jax.Array:
        prediction, target = predict(model, sample), sample["solution"]
        gradient_error = metrics.relative_gradient_error(
            prediction, target, grid_shape=config.grid_shape
        )
        value = metrics.relative_l2(prediction, target)
        return value + config.gradient_weight * gradient_error

    def loss(model: Any, batch: Any) -> jax.Array:
        return jnp.sum(jax.vmap(sample_loss, in_axes=(None, 0))(model, batch))

    return Objective(predict, error, loss)
