"""What is to be learned: samples, model, loss and evaluation."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from opjax.replicas import Replicas


class Task(NamedTuple):
    """What is to be learned.

    Attributes:
      train: pytrees of arrays with samples along axis 0, one for every size of mesh, as
        from `samples.stack`, or `buckets.Bucket` of samples in files; or a pure
        `sample(key, step)` that draws a batch.
      validation: likewise, arrays; chooses the model. Empty: that of the last epoch.
      test: likewise; used once.
      build: `build(config, rngs)`, the model of a member's configuration.
      loss: `loss(model, batch)`, a sum over the samples of the batch; takes `key=` if
        `needs_key`.
      metric: `metric(model, sample)`, to be minimised on validation samples; without,
        the model after the last step is taken.
      evaluate: `evaluate(model, folder)`, numbers of the test samples, the headline
        first; may leave files in the folder of the member.
      extra: pytree saved with the model, such as normalisers.
      source: where the samples come from.
      needs_key: whether the loss draws random numbers.
      notes: sentences for the head of the tables.
      optimizer: `optimizer(config, total_steps)` in place of `config.make_optimizer`;
        with replicas `optimizer(config, total_steps, hyper)`, of one of them.
      probe: `probe(model)`, further numbers for the rows of the history; the last ones
        are numbers of the member.
      replicas: of the model that `build` returns, if it is several, stacked.
      scan: one `lax.scan` for an epoch rather than one dispatch for each step; faster
        where steps are short.
      over_batch: whether the loss is a sum over samples, along axis 0 of the arrays of
        a batch, so that devices may share them.
      over_points: whether loss and metric take `axis_name=`, the axis of devices over
        which points of a sample are split.
      row: points of a sample that are on one device, those of a row of the grid.
      diverge: whether a training that diverges is a result rather than an error.
    """

    train: tuple[Any, ...] | Callable[[jax.Array, jax.Array], Any]
    loss: Callable[..., Any]
    build: Callable[..., Any] | None = None
    evaluate: Callable[[Any, pathlib.Path], dict[str, Any]] | None = None
    metric: Callable[[Any, Any], Any] | None = None
    validation: tuple[Any, ...] = ()
    test: tuple[Any, ...] = ()
    extra: Any = None
    source: str = ""
    needs_key: bool = False
    notes: str = ""
    optimizer: Callable[..., optax.GradientTransformation] | None = None
    probe: Callable[[Any], dict[str, Any]] | None = None
    replicas: Replicas | None = None
    scan: bool = False
    over_batch: bool = True
    over_points: bool = False
    row: int = 1
    diverge: bool = False
