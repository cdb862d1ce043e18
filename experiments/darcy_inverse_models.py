"""The models of the inverse Darcy experiment, and what they are trained for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from experiments import darcy_data, darcy_inverse_data
from experiments.darcy_models import Objective
from opjax import metrics, nn
from opjax.learn.operators import PADDING, kept_modes
from opjax.nn.attention.pointwise import ATTENTIONS as POINTWISE
from opjax.normalize import Normalizer


def transformer(config: Any, *, attention: str, rngs: nnx.Rngs) -> nnx.Module:
    """Builds the transformer with scalers, whose output stays on the coarse grid.

    Args:
      config: has the model fields of `experiments.darcy_inverse.Config`; likewise
        below.
      attention: name, one of `ATTENTIONS`.
      rngs: source of the initial parameters.
    """
    return nn.inverse_transformer(
        config.grid_shape,
        config.coarse_shape,
        features=config.features,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        attention=POINTWISE[attention],
        rngs=rngs,
    )


class CoarseFourier(nnx.Module):
    """The Fourier neural operator on the measurements at the coarse grid's points."""

    def __init__(self, config: Any, *, rngs: nnx.Rngs):
        self.grid_shape, self.coarse_shape = config.grid_shape, config.coarse_shape
        self.step = config.target_stride // config.stride
        self.operator = nn.FourierNeuralOperator(
            grid_shape=config.coarse_shape,
            feature_dim=1,
            out_features=1,
            features=config.fno_features,
            num_layers=config.fno_layers,
            modes=kept_modes(config.num_modes, config.coarse_shape),
            padding=PADDING,
            rngs=rngs,
        )

    def __call__(self, mesh_points: jax.Array, measurement: jax.Array) -> jax.Array:
        """Maps measurements `(n_fine, 1)` to coefficients `(n_coarse, 1)`."""
        field = measurement.reshape(self.grid_shape)[:: self.step, :: self.step]
        return self.operator(mesh_points, field.reshape(-1, 1))


# A model maps points (n_coarse, 2) of the output and encoded measurements (n_fine, 1)
# to encoded coefficients (n_coarse, 1).
ATTENTIONS = ("galerkin", "fourier", "softmax", "linear")
MODELS: dict[str, Callable[..., nnx.Module]] = {
    **{name: partial(transformer, attention=name) for name in ATTENTIONS},
    "fno": CoarseFourier,
}


def objective(config: Any, normalizers: dict[str, Normalizer]) -> Objective:
    """Builds prediction, error and loss.

        loss = mean_b |p_b - t_b| / |t_b|

    of the coefficients on the coarse grid, in physical units.
    """

    def predict(model: Any, sample: Any) -> jax.Array:
        points = darcy_data.mesh_points(config.coarse_shape)
        encoded = model(points, sample["measurement"])
        return darcy_inverse_data.decode(normalizers["coefficient"], encoded)

    def error(model: Any, sample: Any) -> jax.Array:
        return metrics.relative_l2(predict(model, sample), sample["coefficient"])

    def loss(model: Any, batch: Any) -> jax.Array:
        # A sum over the parts of a batch that are differentiated one by one.
        values = jax.vmap(error, in_axes=(None, 0))(model, batch)
        return jnp.sum(values) / config.batch_size

    return Objective(predict, error, loss)
