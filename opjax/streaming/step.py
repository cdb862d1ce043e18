"""A training step on a mesh that does not fit into memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import optax
from jax import Array
from jax.typing import ArrayLike

from opjax import training
from opjax.streaming.gradients import value_and_grad
from opjax.streaming.losses import RELATIVE_L2, SumLoss
from opjax.streaming.plan import Chunks
from opjax.streaming.source import Source
from opjax.training import TrainState


def make_step(
    optimizer: optax.GradientTransformation,
    chunks: Chunks,
    *,
    loss: SumLoss = RELATIVE_L2,
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Builds the update for one mesh, like `training.make_step`, with streaming.

    Args:
      optimizer: gradient transformation.
      chunks: chunk size and storage, as in `value_and_grad`.
      loss: loss of the whole mesh.

    Returns:
      `step(state, source, time=None) -> (state, metrics)`, with the metrics "loss",
      "gradient_norm" and "finite". An update with a non-finite loss or gradient is not
      applied.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming, training
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> mesh = np.random.default_rng(0).uniform(size=(9, 2))
      >>> optimizer = training.adamw(1e-3, weight_decay=0.0)
      >>> step = streaming.make_step(optimizer, streaming.Chunks(4))
      >>> state = training.init(model, optimizer)
      >>> state, metrics = step(state, {"mesh_points": mesh, "target": mesh[:, :1]})
      >>> int(state.step), bool(metrics["finite"])
      (1, True)
    """
    update = make_update(optimizer)

    def step(
        state: TrainState, source: Source, time: ArrayLike | None = None
    ) -> tuple[TrainState, dict[str, Array]]:
        value, gradients = value_and_grad(
            state.model, source, chunks, loss=loss, time=time
        )
        return update(state, value, gradients)

    return step


def make_update(
    optimizer: optax.GradientTransformation,
) -> Callable[[TrainState, Array, Any], tuple[TrainState, dict[str, Array]]]:
    """Builds the update for a loss and gradients that are already computed.

    Args:
      optimizer: gradient transformation.

    Returns:
      `update(state, value, gradients) -> (state, metrics)`, as from `make_step`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming, training
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> mesh = np.random.default_rng(0).uniform(size=(9, 2))
      >>> source = {"mesh_points": mesh, "target": mesh[:, :1]}
      >>> found = streaming.value_and_grad(model, source, streaming.Chunks(4))
      >>> optimizer = training.adamw(1e-3, weight_decay=0.0)
      >>> update = streaming.make_update(optimizer)
      >>> state, metrics = update(training.init(model, optimizer), *found)
      >>> int(state.step)
      1
    """
    return training.jit_with(optimizer, lambda rule: partial(training.updated, rule))
