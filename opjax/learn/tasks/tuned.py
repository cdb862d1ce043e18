"""Tasks in which only parts of an operator are trained, see `training.tuning`."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import nnx

from opjax._trees import Model
from opjax.learn.config.start import StartOptions
from opjax.learn.messages import say
from opjax.learn.registry.entries import Configuration, Sizes
from opjax.learn.tasks.channels import Match, head, new_parameters
from opjax.learn.tasks.task import Task
from opjax.training import tuning

_SHOWN = 6  # names of parameters in a line


def selected(
    names: Iterable[str], parts: Sequence[str], head: Collection[str] = ()
) -> list[str]:
    """Returns the parameters that belong to parts of a model.

    Args:
      names: names of all parameters, as from `tuning.named`.
      parts: `head`, `norms`, or parts of names between dots, such as `blocks.mlp`.
      head: names of the parameters of the head.

    Raises:
      ValueError: if a part does not exist. The message lists those that do.
    """
    names, found = list(names), set[str]()
    for part in parts:
        some = {name for name in names if f".{part}." in f".{name}."}
        if part == "head":
            some |= set(head)
        if part == "norms":
            some |= {name for name in names if "norm" in name}
        if not some:
            known = [one for name in names for one in name.split(".")]
            known = [one for one in dict.fromkeys(known) if not one.isdigit()]
            raise ValueError(
                f"train_only: the model has no part {part!r}; its parts are head, "
                f"norms, {', '.join(known)}, and several of them with dots, such as "
                f"{names[0]}."
            )
        found |= some
    return [name for name in names if name in found]


def tuned_task(
    task: Task, how: StartOptions, sizes: Sizes, found: Match | None = None
) -> Task:
    """Returns a task that trains only parts of the model that a task starts from.

    Args:
      task: the task of the whole model.
      how: the parts, and the rank of updates; the task itself without any.
      sizes: sizes that the model is built for.
      found: the channels that the operator knows, if others may be new: their
        parameters are always trained.
    """
    if not how.freezes:
        return task
    assert task.build is not None
    assert task.evaluate is not None

    def build(config: Configuration, rngs: nnx.Rngs) -> tuning.Tuned:
        model = make(config, rngs)
        new = set() if found is None else new_parameters(config, found)
        ranks = _ranks(model, how, partial(head, config, sizes))
        tuned = tuning.tuned(model, ranks | dict.fromkeys(new, 0), key=rngs.params())
        _tell(tuned, how)
        return tuned

    make = task.build
    return dataclasses.replace(
        task,
        build=build,
        loss=_of_merged(task.loss),
        metric=None if task.metric is None else _of_merged(task.metric),
        evaluate=_of_merged(task.evaluate),
    )


def _ranks(
    model: Model, how: StartOptions, of_head: Callable[[], Collection[str]]
) -> dict[str, int]:
    """The rank of the update of each parameter that is trained; 0 for all of it."""
    leaves = tuning.named(model).items()
    names = [n for n, leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    if how.train_only:
        known = of_head() if "head" in how.train_only else ()
        names = selected(names, how.train_only, known)
    if how.rank:
        matrices = tuning.matrices(model)
        names = [name for name in names if name in matrices]
        if not names:
            raise ValueError(
                f"rank={how.rank} has no effect on train_only="
                f"{','.join(how.train_only)}, which has no matrices; omit it."
            )
    return dict.fromkeys(names, how.rank)


def _tell(model: tuning.Tuned, how: StartOptions) -> None:
    """Prints what is trained."""
    names = list(model.parts)
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    count, all_of = tuning.num_trained(model), tuning.num_parameters(model)
    is_factored = any(isinstance(p, tuning.Factors) for p in model.parts.values())
    updates = f" by updates of rank {how.rank}" if is_factored else ""
    say(
        f"Trained{updates}: {count:,} of {all_of:,} parameters "
        f"({100 * count / all_of:.2g} %), {', '.join(names[:_SHOWN])}{rest}."
    )


def _of_merged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of an ordinary model as one of a tuned model."""

    def call(model: Any, *given: Any, **named: Any) -> Any:
        return function(tuning.merged(model), *given, **named)

    return call
