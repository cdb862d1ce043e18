"""A quantity of a mesh that is read in slices, and its derivatives by the values."""

from typing import Any

import numpy as np

from opjax.learn.config.quantities import EXTREMES, MEANS, SUM, Quantity
from opjax.learn.predict.learned import Learned
from opjax.samples.sliced import Rows


class SlicedQuantity:
    """A largest, smallest or mean value, an integral or a sum over a whole mesh.

    Args:
      wanted: what to compute.
      trained: the operator that predicts the field.
      weights: of the points, that can be sliced; None if there are none.

    Raises:
      ValueError: if the quantity needs the whole mesh at once, or the weights.
    """

    def __init__(self, wanted: Quantity, trained: Learned, weights: Rows | None):
        if wanted.boundary or wanted.kind not in (*EXTREMES, *MEANS, SUM):
            raise ValueError(
                f"{wanted.text} needs the boundaries of a whole mesh; omit --stream, "
                "or choose max, min, mean, integral or sum of the whole mesh."
            )
        listed = trained.component_names
        if wanted.field not in listed:
            raise ValueError(
                f"{wanted.text}: with --stream, the field must be one predicted "
                f"channel, one of {', '.join(listed)}."
            )
        if wanted.kind in MEANS and weights is None:
            raise ValueError(
                f"{wanted.text} needs quadrature_weights, which cannot be computed "
                "from cells in slices; add them to the file."
            )
        self._wanted, self._weights = wanted, weights
        self._channel, self._count = listed.index(wanted.field), len(listed)
        self._total, self._mass, self._n = 0.0, 0.0, 0
        self._best, self._rows = -np.inf, np.zeros(0, int)

    def add(self, start: int, values: np.ndarray) -> None:
        """Adds values `(m, q)` of the points from `start` on."""
        self._n = start + len(values)
        field = np.asarray(values[:, self._channel], np.float64)
        weights = self._weights_of(slice(start, start + len(values)), len(values))
        if self._wanted.kind in EXTREMES:
            field = np.where(weights > 0, self._sign * field, -np.inf)
            best = field.max()
            rows = start + np.flatnonzero(field == best)
            if best > self._best:
                self._best, self._rows = best, rows
            elif best == self._best:
                self._rows = np.concatenate([self._rows, rows])
        elif self._wanted.kind == SUM:
            self._total += field.sum()
        else:
            self._total += np.sum(np.where(weights > 0, weights * field, 0))
            self._mass += weights.sum()

    @property
    def value(self) -> float:
        """Of the quantity, when all points are added."""
        if self._wanted.kind in EXTREMES:
            return float(self._sign * self._best)
        return float(self._total / (self._mass if self._wanted.kind == "mean" else 1))

    @property
    def num_ties(self) -> int:
        """How many points share a largest or smallest value; else one."""
        return max(len(self._rows), 1)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Derivatives by the values of some points, `(m, q)`."""
        start, stop = rows.start, rows.stop
        slopes = np.zeros((stop - start, self._count))
        if self._wanted.kind in EXTREMES:
            inside = self._rows[(self._rows >= start) & (self._rows < stop)]
            slopes[inside - start, self._channel] = 1 / len(self._rows)
        elif self._wanted.kind == SUM:
            slopes[:, self._channel] = 1
        else:
            share = self._mass if self._wanted.kind == "mean" else 1
            slopes[:, self._channel] = self._weights_of(rows, stop - start) / share
        return slopes

    @property
    def _sign(self) -> int:
        return 1 if self._wanted.kind == EXTREMES[0] else -1

    def _weights_of(self, rows: slice, count: int) -> Any:
        weights = self._weights
        if weights is None:
            return np.ones(count)
        return np.asarray(weights[rows], np.float64)
