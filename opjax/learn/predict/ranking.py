"""Ranking of candidates to solve next: uncertain and far from solved cases."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from opjax import uncertainty
from opjax.learn.messages import say
from opjax.learn.predict import calibration, case_table, likeness, widths
from opjax.learn.predict.calibration import Calibration
from opjax.learn.predict.prediction import Predicted
from opjax.learn.predict.trained import Trained
from opjax.learn.tables import write_csv
from opjax.samples import Sample, ranges
from opjax.samples.digests import digest

FILE = "ranking.csv"


class Ranked(NamedTuple):
    """A candidate that was chosen.

    Attributes:
      place: index among the candidates.
      name: of the case.
      score: width times distance.
      width: of its band or between seeds, relative to the standard deviation of the
        output in training; 1 if there is neither.
      distance: from the nearest case that is solved or was chosen before.
      row: its scalars, which of them are outside the training range, and whether it is
        out of distribution, as in reports.

    Examples:
      >>> from opjax import learn
      >>> learn.Ranked(7, "wing.vtu", score=0.6, width=0.2, distance=3.0, row={}).place
      7
    """

    place: int
    name: str
    score: float
    width: float
    distance: float
    row: Mapping[str, Any]


class Candidate(NamedTuple):
    """Properties of a case that determine its rank.

    Attributes:
      name: of the case.
      inputs: digest of its inputs.
      features: see `likeness.features_of`.
      width: see `Ranked`; None if it is unknown.
      row: see `Ranked`.
      seen: whether it was in the training or validation set.
    """

    name: str
    inputs: str
    features: np.ndarray
    width: float | None
    row: Mapping[str, Any]
    seen: bool


class Ranker:
    """Measures candidates one by one, and orders them.

    Args:
      operator: the trained operator that predicts them.
      found: its calibration, if it has one.
      members: other seeds of its run.

    Raises:
      ValueError: if the operator was trained on series.
    """

    def __init__(
        self,
        operator: Trained,
        found: Calibration | None = None,
        members: Sequence[Trained] = (),
    ):
        if operator.description.time is not None:
            raise ValueError(
                f"The operator in {operator.folder} was trained on series, whose cases "
                "cannot be ranked; rank with an operator of single fields."
            )
        self._operator, self._found, self._members = operator, found, members
        self._seen = set(operator.description.seen or ())
        self._known: dict[str, np.ndarray] = {}
        has_band = found is not None and bool(found.factors)
        self._banded = has_band and found is not None and found.width_name != "constant"

    @property
    def source(self) -> str:
        """Where widths come from: `"band"`, `"seeds"` or `"nothing"`."""
        if self._banded:
            return "band"
        return "seeds" if self._members else "nothing"

    def statement(self) -> str:
        """Returns a sentence on the source of the widths."""
        folder = self._operator.folder
        if self._banded:
            return "Candidates are ranked by the width of the band and by distance."
        reason = f"{folder} is not calibrated"
        if self._found is not None:
            reason = "The band has the same width in all cases"
            if not self._found.factors:
                reason = "Intervals of scalars have the same width in all cases"
        if self._members:
            return (
                f"{reason}: candidates are ranked by the difference between "
                f"{len(self._members) + 1} seeds and by distance."
            )
        return (
            f"{reason}, and there are no other seeds: candidates are ranked by "
            "distance alone. Train with --seeds=0,1,2, or calibrate with "
            "--width=residual, to rank by uncertainty too."
        )

    def add_known(self, solved: Sample) -> None:
        """Adds a solved case."""
        values = self._operator.both(solved).values
        features = likeness.features_of(self._operator, solved, values)
        self._known[inputs_of(solved)] = features

    def measure(self, sample: Sample) -> Candidate:
        """Returns the properties of a candidate.

        Raises:
          ValueError: if it does not fit the operator, or its prediction is not finite.
        """
        operator = self._operator
        predicted = operator.both(sample)
        row = ranges.compare(operator.description.training, operator.reduced(sample))
        row = {key: row[key] for key in (ranges.BEYOND,) if key in row}
        row |= case_table.row_of(operator.channel_names, sample, None)
        if self._found is not None:
            row |= self._found.likeness(sample, predicted.values) or {}
        return Candidate(
            sample.name,
            inputs_of(sample),
            likeness.features_of(operator, sample, predicted.values),
            self._width(sample, predicted),
            row,
            digest(sample) in self._seen,
        )

    def order(self, candidates: Sequence[Candidate], count: int) -> list[Ranked]:
        """Chooses `count` candidates, the best one first.

        Solved cases and duplicates of an earlier candidate are left out; a message
        reports them.

        Raises:
          ValueError: if fewer than `count` candidates remain.
        """
        solved = [c.name for c in candidates if c.seen or c.inputs in self._known]
        first = {c.inputs: i for i, c in reversed([*enumerate(candidates)])}
        new = [
            i
            for i in sorted(first.values())
            if not (candidates[i].seen or candidates[i].inputs in self._known)
        ]
        repeated = len(candidates) - len(solved) - len(new)
        if solved:
            say(
                f"{len(solved)} of {len(candidates)} candidates are solved already, "
                f"for example {solved[0]}; they are left out."
            )
        if repeated:
            say(
                f"{repeated} of {len(candidates)} candidates have the inputs of "
                "another one; they are left out."
            )
        if len(new) < count:
            raise ValueError(
                f"{count} cases are asked for, but there are {len(new)} candidates "
                "that are not solved; ask for fewer, or add candidates."
            )
        some = [candidates[i] for i in new]
        weights = np.asarray([1.0 if c.width is None else c.width for c in some])
        if not weights.any():  # all seeds agree
            weights = np.ones(len(some))
        with jax.enable_x64(True):
            chosen = uncertainty.greedy_choice(
                np.stack([c.features for c in some]).astype(np.float64),
                count,
                weights=weights,
                known=self._known_features(),
            )
        ranked: list[Ranked] = []
        for i, score, distance in zip(*map(np.asarray, chosen), strict=True):
            numbers = float(score), float(weights[i]), float(distance)
            ranked.append(Ranked(new[i], some[i].name, *numbers, some[i].row))
        return ranked

    @property
    def num_known(self) -> int:
        """Number of solved cases that candidates are compared with."""
        features = self._known_features()
        return 0 if features is None else len(features)

    def _known_features(self) -> np.ndarray | None:
        """Features of solved cases, those of the calibration among them."""
        rows = list(self._known.values())
        if self._found is not None and self._found.reference is not None:
            rows += [*self._found.reference.features]
        return np.stack(rows).astype(np.float64) if rows else None

    def _width(self, sample: Sample, predicted: Predicted) -> float | None:
        if self._banded:
            assert self._found is not None
            band = self._found.band(sample, predicted.values)
            fields = self._operator.fields_of(sample)
            bare = sample._replace(target=None)
            row = calibration.row_of(
                *(band, bare, fields), kind="whole_field", coverage=self._found.coverage
            )
            return float(row["width_over_spread"])
        if not self._members:
            return None
        others = [member.both(sample) for member in self._members]
        return between_seeds(self._operator, sample, [predicted, *others])


def between_seeds(
    operator: Trained, sample: Sample, predicted: Sequence[Predicted]
) -> float:
    """Returns the deviation of seeds from their mean, relative to the training data.

    The root mean square over weighted points, channels and seeds, and likewise over
    scalars; the mean of the two if both are predicted.
    """
    parts: list[float] = []
    scalars = [one.scalars for one in predicted if one.scalars is not None]
    if predicted[0].values.shape[1]:
        scale = widths.scale_of(operator) * operator.factor(sample)
        values = np.asarray([one.values for one in predicted], np.float64) / scale
        squares = values.var(axis=0).mean(axis=1)
        parts.append(np.sqrt(np.average(squares, weights=sample.quadrature_weights)))
    if scalars:
        std = np.asarray(operator.normalizers["target_scalars"].std, np.float64)
        std = operator.physical(std, sample, "target_scalars")
        over = np.asarray(scalars, np.float64) / np.where(std > 0, std, 1)
        parts.append(np.sqrt(over.var(axis=0).mean()))
    return float(np.mean(parts))


def inputs_of(sample: Sample) -> str:
    """Returns a digest of the inputs of a case, with or without its solution."""
    numbers = sample.numbers or {}
    scalars = [] if sample.scalars is None else [*sample.scalars]
    scalars += [numbers[name] for name in sorted(numbers)]
    numbers_of_case = np.asarray(scalars) if scalars else None
    return digest(
        sample._replace(target=None, target_scalars=None, scalars=numbers_of_case)
    )


def rank(
    operator: Trained,
    candidates: Sequence[Sample],
    count: int,
    *,
    solved: Sequence[Sample] = (),
    found: Calibration | None = None,
    members: Sequence[Trained] = (),
) -> list[Ranked]:
    """Orders candidates by the expected gain of solving them, the best one first.

        for one in learn.rank(trained, candidates, 12, solved=train, members=others):
            solve(candidates[one.place])

    One by one, the candidate with the largest width times distance is chosen, see
    `uncertainty.greedy_choice`. The width is that of the band, where it differs from
    case to case, or else the difference between seeds. The distance is that of moments
    of points, inputs and prediction, and of scalars, from the nearest case that is
    solved, was in the calibration or was chosen before.

    Args:
      operator: from `train` or `load`.
      candidates: cases without targets.
      count: number of cases to choose.
      solved: cases that are solved, those of training.
      found: calibration of the operator.
      members: other seeds of its run, see `siblings`.

    Returns:
      The chosen cases in order, with their place among the candidates.

    Raises:
      ValueError: if there are fewer candidates than asked for, one does not fit the
        operator, or the operator was trained on series.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn, samples
      >>> points = np.random.default_rng(0).uniform(size=(12, 9, 2))
      >>> cases = samples.from_arrays(mesh_points=points, target=points[..., 0])
      >>> trained = learn.train(cases[:8], preset="smoke", num_epochs=1)
      >>> new = [case._replace(target=None) for case in cases[8:]]
      >>> len(learn.rank(trained, new, 2, solved=cases[:8]))
      2
    """
    ranker = Ranker(operator, found, members)
    for sample in solved:
        ranker.add_known(sample)
    return ranker.order([ranker.measure(sample) for sample in candidates], count)


def write(path: pathlib.Path, ranked: Sequence[Ranked]) -> None:
    """Writes the table of chosen cases, the best one first.

    Columns are rank, file, score, width, distance, the scalars, names of scalars
    outside the range of training, and whether the case is unlike the calibration
    cases.

    Raises:
      OSError: if it cannot be written.
    """
    lines = [
        {
            "rank": number,
            "file": one.name,
            "score": one.score,
            "width": one.width,
            "distance": one.distance,
            **one.row.get("scalars", {}),
            **case_table.warnings_of(one.row),
        }
        for number, one in enumerate(ranked, 1)
    ]
    write_csv(path, lines)
