"""Operators that start from a baseline, to whose prediction they add their own.

    prediction = baseline + share * std * (values of the model),

with a share for each channel that validation has decided, see `tasks.differences`.
"""

import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from opjax.learn.baselines.fitted import BEST, Baselines
from opjax.samples import Sample

_SHARES = "shares"  # in the file of the baselines


class Start(NamedTuple):
    """What an operator starts from.

    Attributes:
      baselines: of which each field has its best.
      shares: of the model that are added, one for each channel, `(q,)`.
    """

    baselines: Baselines
    shares: np.ndarray

    def total(self, values: Any, std: Any, sample: Sample) -> np.ndarray:
        """Returns the prediction for a case, `(n, q)`, in the precision of its target.

        Args:
          values: of the model, `(n, q)`.
          std: of the difference, `(q,)`.
          sample: the case, over its scales where it has some.
        """
        change = np.asarray(values, np.float64) * np.asarray(std) * self.shares
        return self.baselines.predict(BEST, sample) + change

    def save(self, folder: pathlib.Path) -> None:
        """Writes the file of the baselines into the folder of an operator."""
        self.baselines.save(folder, {_SHARES: self.shares})

    @classmethod
    def load(cls, folder: pathlib.Path) -> "Start":
        """Reads what `save` has written.

        Raises:
          FileNotFoundError: if there is no such file.
          ValueError: if it is damaged.
        """
        baselines, further = Baselines.load_with(folder, [_SHARES])
        return cls(baselines, further[_SHARES])


def of_both(
    values: jax.Array, beside: jax.Array, shares: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    """Returns normalised predictions and targets.

    Args:
      values: of the model, `(n, q)`.
      beside: targets, and in further channels the baseline, `(n, 2 q)`.
      shares: of the model that are added, `(q,)`.
    """
    count = values.shape[1]
    start = beside[:, count:]
    return values * shares.astype(values.dtype)[None] + start, beside[:, :count]
