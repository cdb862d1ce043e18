"""Operators that add a correction to the prediction of a baseline.

    prediction = baseline + share * std * (values of the model),

with a factor for each channel, chosen on the validation set, see `tasks.differences`.
"""

import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from opjax.learn.baselines.fitted import BEST, Baselines
from opjax.samples import Sample

_SHARES = "shares"  # in the file of the baselines


class Start(NamedTuple):
    """The baselines that an operator adds to.

    Attributes:
      baselines: baselines; the best one of each field is used.
      shares: factors of the model's output, one per channel, `(q,)`.
    """

    baselines: Baselines
    shares: np.ndarray

    def total(self, values: Any, std: Any, sample: Sample) -> np.ndarray:
        """Returns the total prediction for a case, `(n, q)`, in the target's precision.

        Args:
          values: output of the model, `(n, q)`.
          std: standard deviation of the difference, `(q,)`.
          sample: the case, divided by its scales if it has any.
        """
        change = np.asarray(values, np.float64) * np.asarray(std) * self.shares
        return self.baselines.predict(BEST, sample) + change

    def save(self, folder: pathlib.Path) -> None:
        """Writes the file of the baselines to the folder of an operator."""
        self.baselines.save(folder, {_SHARES: self.shares})

    @classmethod
    def load(cls, folder: pathlib.Path) -> "Start":
        """Reads the file that `save` writes.

        Raises:
          FileNotFoundError: if there is no such file.
          ValueError: if it is damaged.
        """
        baselines, further = Baselines.load_with(folder, [_SHARES])
        return cls(baselines, further[_SHARES])


def of_both(
    values: jax.Array, beside: jax.Array, shares: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    """Returns normalised total predictions and targets.

    Args:
      values: output of the model, `(n, q)`.
      beside: targets, followed by the baseline in further channels, `(n, 2 q)`.
      shares: factors of the model's output, `(q,)`.
    """
    count = values.shape[1]
    start = beside[:, count:]
    return values * shares.astype(values.dtype)[None] + start, beside[:, :count]
