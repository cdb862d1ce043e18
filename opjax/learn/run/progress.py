"""The content of a checkpoint: everything that the rest of a run depends on."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from opjax import training
from opjax._trees import PyTree


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass
class Progress:
    """The state of a run between batches.

    Checkpoints name its arrays like a dictionary with these keys.

    Attributes:
      state: state of the training, of every replica.
      losses: losses of the steps, along the last axis, see `Batches.places`.
      norms: gradient norms of these steps.
      good: which replicas are finite, if training continues without the others.
      best_model: best model by validation; `()` without validation.
      best_metric: its validation metric.
      best_step: the step at which it was reached.
      seconds: time spent, without compilation.
      extra: extra data of the task, such as normalisers.
    """

    state: training.TrainState
    losses: np.ndarray
    norms: np.ndarray
    good: np.ndarray | None = None
    best_model: PyTree = ()
    best_metric: np.float64 = np.float64(np.inf)
    best_step: int = 0
    seconds: float = 0.0
    extra: Any = dataclasses.field(default_factory=dict)

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], None]:
        """Returns the fields by name."""
        keys = map(jax.tree_util.DictKey, _NAMES)
        values = (getattr(self, name) for name in _NAMES)
        return list(zip(keys, values, strict=True)), None

    @classmethod
    def tree_unflatten(cls, _: None, values: Iterable[Any]) -> "Progress":
        """Rebuilds the object from its fields."""
        progress = object.__new__(cls)
        for name, value in zip(_NAMES, values, strict=True):
            setattr(progress, name, value)
        return progress


# In the order of a dictionary.
_NAMES = sorted(field.name for field in dataclasses.fields(Progress))
