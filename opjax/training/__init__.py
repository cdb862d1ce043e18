"""Training of any pytree model: steps, optimizers, devices, replicas, checkpoints.

`init`, `make_step` and `make_epoch` are pure functions of states. The optimizers in
`training.optimizers` and the averages in `training.averages` are optax transformations.
Import the other modules by name: `training.sharding` splits points and samples over
devices, `training.replicas` trains many models at once, and `training.checkpoint`,
which needs Orbax, saves and restores.
"""

from opjax.training.averages import average_of, averaged
from opjax.training.matrix_optimizers import muon
from opjax.training.optimizers import (
    adamw,
    adamw_onecycle,
    chain,
    clip_gradient_norm,
    onecycle,
    onecycle_momentum,
    scale_updates,
)
from opjax.training.step import (
    Epoch,
    Gradient,
    NonFiniteError,
    TrainState,
    averaged_model,
    bucket_order,
    evaluate,
    first_non_finite,
    init,
    jit_with,
    make_epoch,
    make_step,
    make_update,
    over_samples,
    sample_order,
    updated,
    value_and_grad,
)

__all__ = [
    "Epoch",
    "Gradient",
    "NonFiniteError",
    "TrainState",
    "adamw",
    "adamw_onecycle",
    "average_of",
    "averaged",
    "averaged_model",
    "bucket_order",
    "chain",
    "clip_gradient_norm",
    "evaluate",
    "first_non_finite",
    "init",
    "jit_with",
    "make_epoch",
    "make_step",
    "make_update",
    "muon",
    "onecycle",
    "onecycle_momentum",
    "over_samples",
    "sample_order",
    "scale_updates",
    "updated",
    "value_and_grad",
]
