"""Errors of predicted fields, on the host, for tables and reports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from opjax.learn.named_types import HostArrays, Numbers
from opjax.learn.registry import operators
from opjax.samples import Sample
from opjax.samples.fields import Fields

_OF_A_SAMPLE = ("relative_l2", "error_over_spread")


def keys(names: Sequence[str]) -> list[str]:
    """Returns the suffix of the keys of each field.

    It is empty for a single field, whose numbers are those of all channels. Suffixes
    avoid keys with another meaning, such as `relative_l2_worst` or
    `relative_l2_functional`.
    """
    if len(names) < 2:
        return []
    taken = {"worst", *operators.REGISTRY}

    def clear(name: str) -> bool:
        return name not in taken and not name.startswith("worst_")

    return [name if clear(name) else f"field_{name}" for name in names]


class FieldErrors(NamedTuple):
    """Errors of the fields of many samples, on the host.

    Attributes:
      names: names of the fields.
      relative: relative L2 errors, `(b, f)`; NaN if a target is zero, infinite if a
        prediction is not finite.
      over_spread: root mean square errors divided by the training spread, `(b, f)`.
    """

    names: tuple[str, ...]
    relative: np.ndarray
    over_spread: np.ndarray

    @classmethod
    def of(
        cls, names: Sequence[str], error: ArrayLike, target: ArrayLike
    ) -> "FieldErrors":
        """Creates errors from root mean squares divided by the spread of each field.

        Args:
          names: names of the fields.
          error: root mean square of prediction minus target, `(b, f)`.
          target: root mean square of the target, `(b, f)`.
        """
        error, target = (np.asarray(x, np.float64) for x in (error, target))
        # What is no number is infinitely wrong, and no target that is zero.
        error = np.where(np.isnan(error), np.inf, error)
        with np.errstate(divide="ignore", invalid="ignore"):
            # In units of the spread, so this is rounding and no small field.
            relative = np.where(target > 1e-6, error / target, np.nan)
        return cls(tuple(names), relative, error)

    @property
    def filled(self) -> np.ndarray:
        """Relative errors; errors over the spread if a target is zero, `(b, f)`."""
        return np.where(np.isnan(self.relative), self.over_spread, self.relative)

    @property
    def of_samples(self) -> np.ndarray:
        """The mean over the fields for each sample, `(b,)`."""
        return self.filled.mean(axis=1)

    def arrays(self, fields: Fields) -> HostArrays:
        """Returns the entries of `predictions.npz` for errors and field channels."""
        belongs = np.zeros((len(self.names), fields.num_channels), bool)
        for row, field in zip(belongs, fields.varying, strict=True):
            row[list(field.channels)] = True
        return {
            "field_names": np.asarray(self.names, str),
            "field_channels": belongs,
            "field_errors": self.relative,
            "field_errors_over_spread": self.over_spread,
        }

    def numbers(self) -> Numbers:
        """Returns the errors shown in tables of results.

        `relative_l2` and `error_over_spread` are means over samples and fields. With
        several fields, each also has separate numbers, see `keys`.
        """
        each = list(self.by_field().values())
        shown: Numbers = {}
        relative = [one["relative_l2"] for one in each if "relative_l2" in one]
        if relative:
            shown["relative_l2"] = float(np.mean(relative))
            shown["relative_l2_worst"] = float(self.of_samples.max())
        shown["error_over_spread"] = float(self.over_spread.mean())
        for name, numbers in zip(keys(self.names), each, strict=False):
            shown |= {f"{key}_{name}": value for key, value in numbers.items()}
        return shown

    def by_field(self) -> dict[str, Numbers]:
        """Returns the numbers of each field, with the keys of `numbers`."""
        fields: dict[str, Numbers] = {}
        for place, name in enumerate(self.names):
            relative = self.relative[:, place]
            relative = relative[~np.isnan(relative)]
            one: Numbers = {}
            if relative.size:  # not if the field is zero in all samples
                one["relative_l2"] = float(relative.mean())
                one["relative_l2_worst"] = float(relative.max())
            one["error_over_spread"] = float(self.over_spread[:, place].mean())
            fields[name] = one
        return fields

    def row(self) -> dict[str, Any]:
        """Returns the report entries of one sample, with nested entries per field.

        `numbers_of` reads them.
        """

        def kept(numbers: Mapping[str, float]) -> Numbers:
            return {k: v for k, v in numbers.items() if k in _OF_A_SAMPLE}

        fields = {name: kept(one) for name, one in self.by_field().items()}
        return kept(self.numbers()) | {"fields": fields}


def joined(several: Sequence[FieldErrors]) -> FieldErrors:
    """Concatenates errors of several groups of samples."""
    relative, over_spread = (
        np.concatenate([one[place] for one in several]) for place in (1, 2)
    )
    return FieldErrors(several[0].names, relative, over_spread)


def numbers_of(rows: Sequence[Mapping[str, Any]]) -> Numbers:
    """Returns the numbers of a table from the report rows that have errors."""
    of_cases = [row["fields"] for row in rows if "error_over_spread" in row]
    if not of_cases:
        return {}
    relative, over_spread = (
        np.array([[one.get(key, np.nan) for one in row.values()] for row in of_cases])
        for key in _OF_A_SAMPLE
    )
    return FieldErrors(tuple(of_cases[0]), relative, over_spread).numbers()


class Sums:
    """Errors of one sample in physical units, accumulated over parts of its points.

    Args:
      fields: fields of the output function.
    """

    def __init__(self, fields: Fields):
        self._fields, self.mass = fields, 0.0
        self._squares = np.zeros((2, len(fields.varying)))

    def add(
        self, predicted: ArrayLike, target: Any, weights: ArrayLike | None = None
    ) -> None:
        """Adds points, `(m, q)`, and their weights, `(m,)`; zero masks a point."""
        mass = np.ones(len(target)) if weights is None else np.asarray(weights, float)
        keep = mass > 0
        values, truth = (np.asarray(x, np.float64)[keep] for x in (predicted, target))
        for place, array in enumerate((values - truth, truth)):
            for number, field in enumerate(self._fields.varying):
                part = array[:, list(field.channels)] / field.spread
                self._squares[place, number] += mass[keep] @ np.sum(part**2, axis=1)
        self.mass += mass.sum()

    def errors(self) -> FieldErrors:
        """Returns the errors of the points so far, as errors of one sample."""
        error, target = np.sqrt(self._squares / self.mass)[:, None]
        return FieldErrors.of(self._fields.names, error, target)


def errors_of(
    fields: Fields, samples: Sequence[Sample], predicted: Iterable[np.ndarray]
) -> FieldErrors:
    """Returns the errors of predictions for samples with targets, in physical units."""
    return joined(
        [
            error_of(fields, values, sample.target, sample.quadrature_weights)
            for sample, values in zip(samples, predicted, strict=True)
        ]
    )


def error_of(
    fields: Fields, predicted: ArrayLike, target: Any, weights: ArrayLike | None
) -> FieldErrors:
    """Returns the errors of one sample in physical units, see `Sums`."""
    sums = Sums(fields)
    sums.add(predicted, target, weights)
    return sums.errors()
