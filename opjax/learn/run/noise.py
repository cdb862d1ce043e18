"""Noise in the layers of a model during training, for any task."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from opjax import nn, training
from opjax._trees import Arrays, Batch, Model, PyTree
from opjax.learn.tasks.task import BaseTask, LossTask
from opjax.training import tuning

_Task = TypeVar("_Task", bound=BaseTask)


def prepared(task: _Task, model: PyTree) -> _Task:
    """Returns the task with noise added in training, if the model has noise.

    If layers of the model use noise, see `nn.bases.with_noise`, every sample of a batch
    gets its own noise, in the loss only: validation, evaluation and prediction are
    without noise.

    Raises:
      ValueError: if the task has no loss of arrays.
    """
    if not nn.bases.draws_noise(model):
        return task
    if not isinstance(task, LossTask):
        raise ValueError(
            "Layers of this model draw noise while they are trained, which training on "
            "meshes that are read in slices does not support; choose another model."
        )
    return dataclasses.replace(
        task, loss=_noisy(task.loss, task.needs_key), needs_key=True
    )


# The same function for the same loss, so that members of a study share their programs.
@functools.lru_cache(maxsize=8)
def _noisy(loss: Callable[..., Any], needs_key: bool) -> Callable[..., Any]:
    """Makes a sum over samples one of losses of single samples, each with its noise."""

    def total(model: Model, batch: Batch, *, key: jax.Array) -> Any:
        def one(sample: Arrays, key: jax.Array) -> Any:
            noise, own = jax.random.split(key)
            alone = jax.tree.map(lambda leaf: leaf[None], sample)
            noisy = nn.bases.with_noise(tuning.merged(model), noise)
            return loss(noisy, alone, key=own) if needs_key else loss(noisy, alone)

        size = jax.tree.leaves(batch)[0].shape[0]
        values = training.over_samples(one)(batch, jax.random.split(key, size))
        return jax.tree.map(functools.partial(jnp.sum, axis=0), values)

    return total
