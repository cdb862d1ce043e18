"""Baselines of a run, evaluated beside its operator on cases with targets."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opjax.learn.baselines.fitted import FILE, NAMES, Baselines
from opjax.learn.predict.field_errors import error_of, numbers_of
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.prediction import Predicted, check, in_case
from opjax.learn.tables import number, table
from opjax.samples import Sample

ROW = "baselines"  # what `Beside.row` returns, in a row of a report


class Beside(NamedTuple):
    """Baselines that predict beside an operator, or instead of it.

    Attributes:
      baselines: baselines of the run.
      instead: key of the baseline that predicts instead of the operator; empty for
        none.
    """

    baselines: Baselines
    instead: str = ""

    @classmethod
    def of(cls, found: Learned, instead: str = "") -> "Beside | None":
        """Reads the baselines of an operator's run; None if it has none.

        Args:
          found: the operator.
          instead: key of the requested baseline, if any.

        Raises:
          ValueError: if the file is damaged, or the run has no such baseline.
        """
        for folder in (found.folder, found.folder.parent):
            if (folder / FILE).is_file():
                made = cls(Baselines.load(folder), instead)
                made.check(folder)
                return made
        if instead:
            raise ValueError(
                f"baseline={instead}: there is no {FILE} in {found.folder} or "
                f"{found.folder.parent}. opjax-train saves baselines if they can "
                "be fitted; omit the option, or train again."
            )
        return None

    def check(self, folder: pathlib.Path) -> None:
        """Raises ValueError if the requested baseline does not exist."""
        if self.instead and self.instead not in self.baselines.names:
            names = ", ".join(self.baselines.names)
            notes = " ".join(["", *self.baselines.notes])
            raise ValueError(
                f"baseline={self.instead}: {folder} only has {names}.{notes}"
            )

    def predicted(self, found: Learned, sample: Sample) -> Predicted:
        """Predicts with the baseline instead of the operator.

        Raises:
          ValueError: if the sample does not fit the operator.
        """
        check(found, sample, weights=True)
        reduced = found.reduced(sample)
        values = self.baselines.predict(self.instead, reduced)
        scalars = self.baselines.predict_scalars(self.instead, reduced)
        both = Predicted(values, scalars if len(scalars) else None)
        return in_case(found, sample, both)

    def row(self, found: Learned, sample: Sample) -> dict[str, Any]:
        """Returns a case's report entries of the baselines; empty without a target."""
        if sample.target is None or not self.baselines.fields:
            return {}
        each: dict[str, Any] = {}
        for name in self.baselines.names:
            values = self._replace(instead=name).predicted(found, sample).values
            pair = sample.target, sample.quadrature_weights
            each[name] = error_of(found.fields_of(sample), values, *pair).row()
        return {ROW: each}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the entries of the last line for each baseline, by its key."""
    of_baselines = [row[ROW] for row in rows if ROW in row]
    names = of_baselines[0] if of_baselines else ()
    errors = {name: numbers_of([row[name] for row in of_baselines]) for name in names}
    return {ROW: errors} if errors else {}


def shown(of_operator: Mapping[str, float], rows: Mapping[str, Any], name: str) -> str:
    """Returns a table of the errors of the operator and the baselines.

    Args:
      of_operator: numbers of the operator, from `numbers_of`.
      rows: numbers of the baselines, from `summary`.
      name: name of the predictor.
    """
    keys = [key for key in of_operator if key.startswith("relative_l2")]
    errors = {name: of_operator}
    errors |= {NAMES[key]: numbers for key, numbers in rows.items()}
    lines = [
        [label, *(number(numbers[k]) if k in numbers else "–" for k in keys)]
        for label, numbers in errors.items()
    ]
    return table(["", *(key.replace("_", " ") for key in keys)], lines)
