"""The models of the Darcy experiment, by name, and what they are trained for."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from experiments import darcy_data
from experiments.basis_choice import ATTENTIONS, BASES, PROJECTIONS, ChosenOperator
from opjax import metrics, normalize, schwarz
from opjax.learn import operators
from opjax.normalize import Normalizer


def check(config: Any) -> None:
    """Raises ValueError if boxes or the coarse grid of a model do not fit the grid.

    Args:
      config: has the model fields of `experiments.darcy.Config`; likewise below.
    """
    if config.model == "galerkin2d":
        _check_coarse_points(config)
    if config.model == "functional_schwarz":
        _check_boxes(config)


def _check_coarse_points(config: Any) -> None:
    size = min(config.grid_shape)
    if config.coarse_points and not 2 <= config.coarse_points <= size:
        raise ValueError(
            f"coarse_points={config.coarse_points} must be at least 2 and at most the "
            f"{size} points per side of the grid, or 0 for {(size + 1) // 2}."
        )
    if config.features < 3:
        raise ValueError(
            f"features={config.features} must be at least 3 for model='galerkin2d': "
            "its down-scaler has three blocks."
        )


def _check_boxes(config: Any) -> None:
    if not config.convolution:
        raise ValueError(
            "model='functional_schwarz' divides a grid: leave convolution on."
        )
    boxes = config.num_boxes, config.num_boxes
    schwarz.box_cover(config.grid_shape, boxes, overlap=config.overlap)
    hats = config.num_boxes + 1, config.num_boxes + 1
    schwarz.partition_hats(config.grid_shape, hats)


def build(name: str, config: Any, *, rngs: nnx.Rngs) -> nnx.Module:
    """Builds a model of the registry, with as many channels as the options say."""
    shape = tuple(config.grid_shape)
    sizes = operators.Sizes(
        point_dim=2,
        feature_dim=1,
        out_features=1,
        grid_shape=shape,
        num_points=shape[0] * shape[1],
        box=((0.0, 0.0), (1.0, 1.0)),
    )
    return operators.build(Named(config, name), sizes, rngs=rngs)


class Named:
    """A configuration with another model."""

    def __init__(self, config: Any, name: str):
        self._config, self.models = config, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


# A model maps mesh points (n, 2) and encoded coefficients (n, 1) to encoded solutions
# (n, 1). One with a method `inspect` also gets figures of its bases and maps.
MODELS: dict[str, Callable[..., nnx.Module]] = {
    **{
        name: partial(build, name)
        for name in (
            "functional",
            "functional_schwarz",
            "transolver",
            "galerkin2d",
            "fno",
        )
    },
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
