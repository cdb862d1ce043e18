"""Training from a baseline: the model learns the difference from the target.

    prediction = baseline + share * (model in units of the difference).

For the training cases, the baseline is a cross-validation prediction, so that the
difference is representative of new cases. Validation decides how much of the model is
added.
"""

import dataclasses
import pathlib

import numpy as np

from opjax._trees import Model
from opjax.learn.baselines import fitted
from opjax.learn.baselines.fitted import BEST, NAMES, Baselines
from opjax.learn.messages import say
from opjax.learn.predict.field_errors import keys
from opjax.learn.predict.prediction import weights_of
from opjax.learn.predict.starting import Start
from opjax.learn.tasks.errors import SampleError
from opjax.learn.tasks.evaluation import Evaluator, TestSet
from opjax.normalize import Normalizer
from opjax.samples import Sample, Splits
from opjax.samples.fields import Fields
from opjax.samples.mirror import is_copy

_LEVEL = 0.05  # of the test whether a model improves a baseline


@dataclasses.dataclass(frozen=True, eq=False)
class Difference:
    """The difference that a model adds to a baseline.

    Attributes:
      baselines: baselines fitted to the training cases.
      parts: their predictions for training, validation and test cases, `(n, q)` each.
      normalizer: normaliser with the mean of the target and the standard deviation of
        the difference, so that the model's output is of unit size.
    """

    baselines: Baselines
    parts: tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]
    normalizer: Normalizer

    @classmethod
    def fit(
        cls, splits: Splits, fields: Fields | None, normalizer: Normalizer | None
    ) -> "Difference":
        """Fits baselines to the training cases, and computes the differences.

        Args:
          splits: samples as for the model, divided by their scales.
          fields: fields of the target.
          normalizer: normaliser of the target, without deviation for constant channels.

        Raises:
          ValueError: if no baseline can be fitted, or the difference cannot be
            computed.
        """
        reason = fitted.obstacle(splits.train)
        if splits.train[0].target is None:
            reason = "scalars alone are predicted"
        elif fields is None or normalizer is None:
            reason = "the loss is not one of fields"
        elif not splits.validation:
            reason = "there are no validation samples, which decide what is added"
        if reason:
            raise ValueError(
                f"start_from=baseline has no effect here: {reason}; omit it."
            )
        assert fields is not None
        assert normalizer is not None
        made = Baselines.fit(splits.train, fields)
        if made.correspond and any(map(is_copy, splits.train)):
            raise ValueError(
                "start_from=baseline has no effect with mirror if meshes "
                "correspond: the points of a mirrored copy are in another order, "
                "for which there is no baseline; omit one of them."
            )
        train = [made.predict(BEST, one) for one in splits.train]
        for row, values in zip(made.rows, made.left_out(), strict=True):
            train[row] = values
        validation, test = (
            [made.predict(BEST, one) for one in part]
            for part in (splits.validation, splits.test)
        )
        squares = np.stack(
            [
                np.mean((np.asarray(one.target) - values) ** 2, axis=0)
                for one, values in zip(splits.train, train, strict=True)
            ]
        )
        mean, std = (np.asarray(part, np.float64) for part in normalizer)
        left = np.maximum(np.sqrt(squares.mean(axis=0)), 1e-6 * std)
        which = {
            field.name: NAMES[name]
            for field, name in zip(made.fields, made.best, strict=True)
        }
        each = ", ".join(f"{name} from {of}" for name, of in which.items())
        say(f"Starting from a baseline: {each}.")
        parts = train, validation, test
        return cls(made, parts, Normalizer(mean, np.where(std > 0, left, 0)))

    def beside(self, splits: Splits) -> Splits:
        """Returns samples whose targets contain the baseline in further channels."""
        train, validation, test = (
            [_joined(*pair) for pair in zip(part, values, strict=True)]
            for part, values in zip(
                (splits.train, splits.validation, splits.test), self.parts, strict=True
            )
        )
        return splits._replace(train=train, validation=validation, test=test)


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """Evaluates the sum of baseline and model, with factors from the validation set.

    Attributes:
      difference: the difference that the model learns.
      validation: the validation samples, with their baselines.
      error: error of one encoded sample.
      evaluator: evaluator of the test samples; its `test` contains their baselines.
    """

    difference: Difference
    validation: TestSet
    error: SampleError
    evaluator: Evaluator

    def __call__(self, model: Model, folder: pathlib.Path) -> dict[str, float]:
        """Decides, saves what the operator starts from, and returns the numbers."""
        evaluator, fields = self.evaluator, self.evaluator.fields
        assert fields is not None
        shares = self.shares(model, fields)
        Start(self.difference.baselines, shares).save(folder)
        error = dataclasses.replace(self.error, shares=shares)
        test = dataclasses.replace(evaluator.test, shares=shares)
        evaluator = dataclasses.replace(evaluator, error=error.measured, test=test)
        each = {f.name: float(shares[f.channels[0]]) for f in fields.varying}
        text = ", ".join(f"{name} {share:.2g}" for name, share in each.items())
        say(f"Factor of the model that validation adds to the baseline: {text}.")
        numbers = evaluator(model, folder)
        numbers["share_of_model"] = float(np.mean(list(each.values())))
        for key, share in zip(keys(fields.names), each.values(), strict=False):
            numbers[f"share_of_model_{key}"] = share
        return numbers

    def shares(self, model: Model, fields: Fields) -> np.ndarray:
        """Returns the factor of the model for each channel, `(q,)`.

        Factors are the least-squares solution over the validation cases, relative to
        the size of their fields, limited to [0, 1]. They are zero (the baseline alone)
        unless the mean error over these cases decreases significantly, by Student's
        t-test at the 5 % level.
        """
        shares = np.zeros(len(self.difference.normalizer.mean))
        cases = self.validation.samples
        changes = [self.validation.change(model, row) for row in range(len(cases))]
        for field in fields.varying:
            channels = list(field.channels)
            rows = [
                _over_size(sample, start, change, channels)
                for sample, start, change in zip(
                    cases, self.difference.parts[1], changes, strict=True
                )
            ]
            both = sum(float(np.sum(left * change)) for left, change in rows)
            square = sum(float(np.sum(change**2)) for _, change in rows)
            share = float(np.clip(both / square, 0, 1)) if square > 0 else 0.0
            falls = np.array(
                [
                    np.linalg.norm(left) - np.linalg.norm(left - share * change)
                    for left, change in rows
                ]
            )
            shares[channels] = share if _are_positive(falls) else 0.0
        return shares


def _are_positive(falls: np.ndarray) -> bool:
    """Whether numbers have a positive mean, tested if there are several."""
    spread = float(np.std(falls, ddof=1)) if len(falls) > 1 else 0.0
    if not spread:
        return bool(falls.mean() > 0)
    from scipy import stats

    size = falls.mean() / (spread / np.sqrt(len(falls)))
    return bool(stats.t.sf(size, len(falls) - 1) < _LEVEL)


def _joined(sample: Sample, values: np.ndarray) -> Sample:
    assert sample.target is not None
    target = np.concatenate([sample.target, values], axis=1)
    return sample._replace(target=target.astype(np.float64))


def _over_size(
    sample: Sample, baseline: np.ndarray, change: np.ndarray, channels: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of a field, and what the model adds, over the size of the field."""
    target, roots = (
        np.asarray(sample.target, float),
        np.sqrt(weights_of(sample))[:, None],
    )
    size = np.linalg.norm(roots * target[:, channels]) or 1.0
    left = roots * (target - baseline)[:, channels] / size
    return left, roots * change[:, channels] / size
