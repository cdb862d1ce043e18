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
from opjax.learn.operators import PADDING, attention_operator, kept_modes
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


def functional(
    config: Any, *, rngs: nnx.Rngs, name: str = "functional", **options: Any
) -> nnx.Module:
    """Builds the operator transformer with attention in a basis."""
    return attention_operator(
        config,
        name,
        position=_position(config),
        grid_shape=config.grid_shape,
        feature_dim=1,
        out_features=1,
        shared_basis=config.shared_basis,
        temperature=config.temperature,
        temperature_bounds=(config.min_temperature, config.max_temperature),
        rngs=rngs,
        **options,
    )


def _position(config: Any) -> Any:
    if config.reference_points:
        return nn.ReferenceDistances(2, config.reference_points)
    return nn.Coordinates(2)


def functional_schwarz(config: Any, *, rngs: nnx.Rngs) -> nnx.Module:
    """Builds the operator transformer with functional Schwarz attention."""
    softmax = partial(
        nn.SoftmaxBasis,
        num_heads=config.num_heads,
        num_basis=config.num_basis,
        grid_shape=config.grid_shape,
        temperature=config.temperature,
        temperature_bounds=(config.min_temperature, config.max_temperature),
    )
    mixer = partial(nn.FunctionalMap, ridge_logit=config.ridge_logit)
    local = partial(
        nn.BasisAttention,
        num_heads=config.num_heads,
        basis=None if config.shared_basis else softmax,
        mixer=mixer,
    )
    grid = nn.GridSubdomains(config.grid_shape, config.num_boxes, config.overlap)
    return nn.OperatorTransformer(
        position=_position(config),
        feature_dim=1,
        out_features=1,
        attention=partial(
            nn.SubdomainAttention, attention=local, coarse=mixer, subdomains=grid
        ),
        basis=softmax if config.shared_basis else None,
        features=config.features,
        num_layers=config.num_layers,
        mlp_ratio=config.mlp_ratio,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def galerkin2d(config: Any, *, rngs: nnx.Rngs) -> nnx.Module:
    """Builds the Galerkin transformer between grids."""
    coarse = tuple(config.coarse_points or (n + 1) // 2 for n in config.grid_shape)
    return nn.darcy_transformer(
        config.grid_shape,
        coarse,
        features=config.features,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        modes=kept_modes(config.num_modes, config.grid_shape),
        # The samples are at cell centres, where the solution does not vanish.
        boundary="free",
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def fourier(config: Any, *, rngs: nnx.Rngs) -> nnx.Module:
    """Builds the Fourier neural operator, with zeros around the domain."""
    return nn.FourierNeuralOperator(
        grid_shape=config.grid_shape,
        feature_dim=1,
        out_features=1,
        features=config.features,
        num_layers=config.num_layers,
        modes=kept_modes(config.num_modes, config.grid_shape),
        padding=PADDING,
        rngs=rngs,
    )


# A model maps mesh points (n, 2) and encoded coefficients (n, 1) to encoded solutions
# (n, 1). One with a method `inspect` also gets figures of its bases and maps.
MODELS: dict[str, Callable[..., nnx.Module]] = {
    "functional": functional,
    "functional_schwarz": functional_schwarz,
    "transolver": partial(functional, name="transolver"),
    "galerkin2d": galerkin2d,
    "fno": fourier,
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
