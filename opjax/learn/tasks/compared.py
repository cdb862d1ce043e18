"""Baselines on the test samples, with the same error measures as operators."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from opjax.learn.baselines import fitted
from opjax.learn.baselines.fitted import NAMES, Baselines
from opjax.learn.messages import say
from opjax.learn.named_types import Numbers
from opjax.learn.predict.field_errors import errors_of, keys
from opjax.learn.tasks import scalars
from opjax.samples import Sample, Splits
from opjax.samples.fields import Field, Fields

_EQUAL = 1.001  # times as large: no difference that a table shows
# Numbers of a table, from the errors of all test samples.
OfErrors = Callable[[np.ndarray], Numbers]


class Measure(NamedTuple):
    """Error measures of predictions, the same as for operators.

    Attributes:
      fields: fields of the output function, if each has a separate error.
      joint: computes the numbers from the errors of all channels together, if that is
        the error measure.
      scalars: names of the target scalars.
      physical: `physical(scalars)` converts target scalars of the test samples to
        physical units, `(b, t)`, if samples are scaled.
      quantities: `quantities(predicted)` returns the numbers of quantities of interest
        for predicted fields of the test samples, if any are requested.
    """

    fields: Fields | None = None
    joint: OfErrors | None = None
    scalars: Sequence[str] = ()
    physical: Callable[[np.ndarray], np.ndarray] | None = None
    quantities: Callable[[Sequence[np.ndarray]], Numbers] | None = None

    @property
    def decisive(self) -> dict[str, str]:
        """The decisive number of each field and scalar, by name."""
        of_scalars = {name: f"{name}_error" for name in self.scalars}
        if self.fields is None:
            return {"target": "relative_l2"} | of_scalars
        names = self.fields.names
        each = [f"relative_l2_{key}" for key in keys(names)] or ["relative_l2"]
        return dict(zip(names, each, strict=True)) | of_scalars

    def numbers(
        self, test: Sequence[Sample], predicted: Sequence[np.ndarray]
    ) -> Numbers:
        """Returns the numbers of predicted fields."""
        numbers: Numbers = {}
        if self.fields is not None:
            numbers = errors_of(self.fields, test, predicted).numbers()
        if self.joint is not None:
            whole = together(predicted[0].shape[1])
            numbers |= self.joint(errors_of(whole, test, predicted).filled[:, 0])
        return numbers | ({} if self.quantities is None else self.quantities(predicted))

    def of_scalars(
        self, test: Sequence[Sample], predicted: Sequence[np.ndarray]
    ) -> Numbers:
        """Returns the numbers of predicted scalars."""
        truth = np.stack([np.asarray(one.target_scalars) for one in test])
        both = np.stack(predicted), truth
        if self.physical is not None:
            both = self.physical(both[0]), self.physical(both[1])
        return scalars.errors(*both, self.scalars)


class Compared(NamedTuple):
    """Results of the baselines of a task.

    Attributes:
      fitted: the baselines; None if there are none.
      numbers: numbers of each baseline by its key, as for an operator in a table.
      decisive: see `Measure.decisive`.
      words: description of each baseline, by its key.
      notes: sentences on omitted baselines and on the common mesh.
    """

    fitted: Baselines | None
    numbers: Mapping[str, Numbers]
    decisive: Mapping[str, str]
    words: Mapping[str, str]
    notes: Sequence[str]

    def wins(self, models: Mapping[str, Numbers]) -> dict[str, str]:
        """Returns which baselines are at least as good as all models.

        Args:
          models: numbers of the models, medians over the seeds, by name.

        Returns:
          The key of the baseline by name of the field or scalar, for those that have
          one.
        """
        wins: dict[str, str] = {}
        for name, key in self.decisive.items():
            baseline, model = _smallest(self.numbers, key), _smallest(models, key)
            if baseline and model and baseline[0] <= model[0] * _EQUAL:
                wins[name] = baseline[1]
        return wins

    def sentences(self, models: Mapping[str, Numbers]) -> str:
        """Returns the text below a table: best predictors and described baselines."""
        baselines = [f"- {NAMES[k]}: {text}." for k, text in self.words.items() if text]
        parts = [self._verdict(models), "\n".join(baselines), " ".join(self.notes)]
        text = "\n\n".join(filter(None, parts))
        return f"\n{text}\n" if text else ""

    def _verdict(self, models: Mapping[str, Numbers]) -> str:
        """Says which predicts each field better, and what follows."""
        won, lost, kept = self.wins(models), list[str](), list[str]()
        for name, key in self.decisive.items():
            baseline, model = _smallest(self.numbers, key), _smallest(models, key)
            if baseline is None or model is None:
                continue
            (one, by), (other, than) = baseline, model
            if name in won:
                pair = f"error {one:.3g} of {NAMES[by]}, {other:.3g} of {than}"
                lost.append(f"{name} ({pair})")
            else:
                times = f"{one / other:.3g} times the error" if other else "more error"
                kept.append(f"{name}: {NAMES[by]}, {times} of {than}.")
        text = ""
        if lost:
            flags = [f"`--baseline={name}`" for name in dict.fromkeys(won.values())]
            text = (
                f"**A baseline wins** on {', '.join(lost)}. Use it: it is saved with "
                f"the run, and `opjax-predict` with {' or '.join(flags)} predicts with "
                "it. Where meshes correspond and a few parameters change the field "
                "smoothly, it is the better tool; else see whether scales, geometry or "
                "more training help the operator."
            )
        if kept:
            text += " " * bool(text) + f"Best baseline of {' '.join(kept)}"
        return text


def _smallest(rows: Mapping[str, Numbers], key: str) -> tuple[float, str] | None:
    errors = [
        (row[key], name) for name, row in rows.items() if row.get(key) is not None
    ]
    return min(errors, default=None)


def together(channels: int) -> Fields:
    """Returns all channels as one field, in physical units."""
    return Fields((Field("all", tuple(range(channels)), 1.0),))


def none(reason: str) -> Compared:
    """Returns an empty result with the reason."""
    return Compared(None, {}, {}, {}, [f"No baselines: {reason}."])


def compare(splits: Splits, measure: Measure) -> Compared:
    """Fits baselines to the training samples and measures them on the test samples.

    Args:
      splits: samples as for operators, divided by their scales.
      measure: error measures of the operators.
    """
    train, test = splits.train, splits.test
    if reason := fitted.obstacle(train):
        return none(reason)
    begin = time.monotonic()
    baselines = Baselines.fit(train, measure.fields)
    numbers: dict[str, Numbers] = {}
    for name in baselines.names:
        numbers[name] = {}
        if train[0].target is not None:
            fields = [baselines.predict(name, one) for one in test]
            numbers[name] |= measure.numbers(test, fields)
        if train[0].target_scalars is not None:
            predicted_scalars = [baselines.predict_scalars(name, one) for one in test]
            numbers[name] |= measure.of_scalars(test, predicted_scalars)
    say(f"Baselines: {time.monotonic() - begin:.1f} s.")
    words = {name: baselines.words(name) for name in baselines.names}
    return Compared(baselines, numbers, measure.decisive, words, baselines.notes)
