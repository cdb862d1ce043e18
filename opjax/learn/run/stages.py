"""Stages of a training: parts of its epochs that differ in what a step computes."""

from collections.abc import Sequence
from typing import TypeVar

_Value = TypeVar("_Value")


def value_at(values: Sequence[_Value], epoch: int, num_epochs: int) -> _Value:
    """Returns the value of an epoch, where each has an equal part of the epochs.

        values[floor(epoch len(values) / num_epochs)],

    so that the parts differ by one epoch at most. It depends on the number of the epoch
    alone, so that a resumed run meets the same.

    Args:
      values: one for each part, at most as many as epochs.
      epoch: its number, from 0.
      num_epochs: of the training.

    Raises:
      ValueError: if there are more values than epochs, or no such epoch.
    """
    if not 0 <= epoch < num_epochs or not 0 < len(values) <= num_epochs:
        raise ValueError(
            f"{len(values)} stages and {epoch=} do not fit into {num_epochs=}; every "
            "stage needs at least one epoch."
        )
    return values[epoch * len(values) // num_epochs]
