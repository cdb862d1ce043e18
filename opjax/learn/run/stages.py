"""Training stages: parts of the epochs in which steps compute differently."""

from collections.abc import Sequence
from typing import TypeVar

_Value = TypeVar("_Value")


def value_at(values: Sequence[_Value], epoch: int, num_epochs: int) -> _Value:
    """Returns the value for an epoch; each value applies to equally many epochs.

        values[floor(epoch len(values) / num_epochs)],

    so the parts differ by at most one epoch. It depends only on the number of the
    epoch, so that a resumed run uses the same values.

    Args:
      values: one value per part, at most as many as epochs.
      epoch: number of the epoch, from 0.
      num_epochs: number of epochs of the training.

    Raises:
      ValueError: if there are more values than epochs, or the epoch does not exist.
    """
    if not 0 <= epoch < num_epochs or not 0 < len(values) <= num_epochs:
        raise ValueError(
            f"{len(values)} stages and {epoch=} do not fit {num_epochs=}; every "
            "stage needs at least one epoch."
        )
    return values[epoch * len(values) // num_epochs]
