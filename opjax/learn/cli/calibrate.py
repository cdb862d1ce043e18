"""Calibrates the error bars of a trained operator, without training it again.

    opjax-calibrate --workdir=runs/mine --input=data/calibration --coverage=0.9

Reads held-out cases with targets, measures the errors of the operator on them, and
writes `calibration.npz` into the operator's folder. `opjax-predict` then writes lower
and upper fields. If new cases come from the distribution of the calibration cases, the
whole field lies inside with the chosen coverage, see `opjax.uncertainty`.

`--width` selects how the width varies over the field. `constant` does not vary.
`residual` is a regression of errors, fitted on a third of the cases. `ensemble` is the
difference between the seeds of a study (`opjax-train --seeds=0,1,2`). `combined` is a
regression that also uses this difference.

`opjax-predict` then also tests whether a case is out of distribution ("unlike"), with
a false-alarm rate of at most `--false_alarms`. The smallest shifts that this test can
detect are printed.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from opjax.files.formats import OnePath, Paths
from opjax.learn.cli import command_line, shared
from opjax.learn.config import Options, option
from opjax.learn.config.fields import required
from opjax.learn.json_files import to_json
from opjax.learn.messages import say
from opjax.learn.named_types import Row
from opjax.learn.predict import (
    calibration,
    case_table,
    intervals,
    likeness,
    trained,
    widths,
)
from opjax.learn.predict.calibration import Calibration
from opjax.learn.predict.prediction import Limits
from opjax.learn.predict.trained import Trained
from opjax.learn.report.figures_bands import Pictures
from opjax.samples import Sample, ranges


@dataclasses.dataclass(frozen=True)
class CalibrateOptions(Options):
    """What to calibrate, and on which cases."""

    workdir: OnePath = shared.workdir()
    input: Paths = required(
        "Folder, files or patterns of the calibration cases, separated by commas. "
        "They need targets and must not be part of the training or validation set"
    )
    coverage: float = option(
        0.9,
        "Coverage of the band, the fraction of cases whose whole field lies inside, "
        "between 0 and 1. 0.9 needs at least 9 calibration cases, 0.99 at least 99",
    )
    width: str = option(
        "constant",
        "Local width of the band: constant; residual (a regression of errors, fitted "
        "on a third of the cases); ensemble (the difference between the seeds of the "
        "study); combined (a regression that also uses the seeds)",
        choices=calibration.WIDTHS,
    )
    false_alarms: float | None = option(
        None,
        "False-alarm rate of the out-of-distribution test in opjax-predict, between "
        "0 and 1. 0.05 needs at least 19 cases, 0.01 at least 99. By default 0.05, "
        "or no test with fewer than 19 cases",
    )
    own_model: str | None = shared.own_model()
    point_dim: int | None = shared.point_dim()
    chunk_size: int = shared.chunk_size()
    memory_gib: float = shared.memory_gib()
    scratch: OnePath | None = shared.scratch()


def run(options: CalibrateOptions) -> dict[str, Any]:
    """Calibrates an operator and saves the calibration in its folder.

    Returns:
      The content of the last line of output.

    Raises:
      FileNotFoundError: if there is no finished run, or no case.
      OSError: if a file cannot be read or written.
      ValueError: see `learn.calibrate`.
    """
    begin = time.monotonic()
    with jax.enable_x64(False):
        operator = trained.load(options.workdir, own_model=options.own_model)
        inputs = shared.divided(options.input)
        cases = calibration.read_cases(operator, inputs, point_dim=options.point_dim)
        members = _siblings(operator, options)
        result = calibration.calibrate(
            operator,
            cases,
            coverage=options.coverage,
            width=options.width,
            members=members,
            false_alarms=options.false_alarms,
            predict=functools.partial(
                operator.both,
                limits=Limits(options.chunk_size, options.memory_gib, options.scratch),
            ),
        )
        if result.reference is None:
            least = likeness.least_cases(likeness.RATE)
            say(
                f"{len(cases)} cases are too few for out-of-distribution warnings "
                f"with 5 % false alarms: at least {least} are needed, or another "
                "--false_alarms."
            )
        else:
            say(result.reference.statement())
        path = result.save()
    row: Row = {
        "model": str(operator.folder),
        "calibration": str(path),
        "coverage_asked": options.coverage,
        "width_model": options.width,
        "samples": len(cases),
        "calibration_samples": len(result.scores),
        "members": len(members),
    }
    row |= {f"factor_{name}": value for name, value in result.factors.items()}
    row["half_widths"] = {
        name: half
        for named in result.half_widths.values()
        for name, half in named.items()
    }
    if result.reference is not None:
        row["false_alarms"] = result.reference.false_alarms
        row |= result.reference.power()
    return to_json(row | {"seconds": time.monotonic() - begin})


def _siblings(operator: Trained, options: CalibrateOptions) -> list[Trained]:
    """The other seeds of the study, if the width of the band depends on them."""
    if options.width not in widths.OF_SEEDS:
        return []
    members = calibration.siblings(operator, own_model=options.own_model)
    if not members:
        raise ValueError(
            f"{operator.folder} has no other seeds. Train several with opjax-train "
            "--seeds=0,1,2, or use another --width."
        )
    return members


class Bands(NamedTuple):
    """The error bands that are written with a prediction.

    Attributes:
      found: the calibration.
      kind: one of `calibration.BANDS`.
      pictures: figures of cases with band and error, if requested.
    """

    found: Calibration
    kind: str
    pictures: Pictures | None = None

    def beside(
        self, sample: Sample, values: np.ndarray, names: Sequence[str]
    ) -> tuple[tuple[np.ndarray, list[str]], Row]:
        """Returns the prediction with its band, and the entries for the report.

        Args:
          sample: the case.
          values: the prediction, `(n, q)`.
          names: names of the predicted channels.

        Returns:
          Prediction, lower and upper field side by side with the names of all channels
          (no channels if only scalars are predicted), and entries for the report.
        """
        calibrated, fields, ends = self.found, values, list[str]()
        row: Row = {"band_coverage": calibrated.coverage}
        if names:
            band = calibrated.band(sample, values, kind=self.kind)
            own_fields = calibrated.trained.fields_of(sample)
            fields = np.concatenate([values, band.lower, band.upper], axis=1)
            if self.pictures is not None:
                half = (band.upper - band.lower) / 2
                listed = calibrated.trained.component_names
                shown = {c: listed[c] for c in own_fields.channels}
                self.pictures.add(sample, values, half, shown)
            ends = [f"{name}_{end}" for end in ("lower", "upper") for name in names]
            kind, coverage = self.kind, calibrated.coverage
            row = calibration.row_of(
                band, sample, own_fields, kind=kind, coverage=coverage
            )
        likeness_row = calibrated.likeness(sample, values)
        if likeness_row is not None:
            row |= likeness_row
            say(f"{sample.name}: {self._sentence(sample, likeness_row)}.")
        return (fields, [*names, *ends]), to_json(row)

    def _sentence(self, sample: Sample, likeness_row: Mapping[str, Any]) -> str:
        operator = self.found.trained
        p_value, distance = (
            likeness_row[f"likeness_{name}"] for name in ("p_value", "distance")
        )
        row = ranges.compare(operator.description.training, operator.reduced(sample))
        beyond = row.get(ranges.BEYOND)
        outside = f"outside the training range in {' and '.join(beyond or ())}"
        if not likeness_row["unlike"]:
            words = (
                "no significant difference from the calibration cases "
                f"(p = {p_value:.2g})"
            )
            return f"{words}, but {outside}" if beyond else words
        far = "distance too large to be computed"
        if distance is not None:
            far = f"{distance:.3g} times their median distance"
        if likeness_row["unlike_in"] == "shape":
            far += ", in details of the shape"
        if likeness_row["unlike_in"] == "scalars":
            names = operator.channel_names
            named = case_table.row_of(names, sample, None)["scalars"]
            listed = ", ".join(f"{name} = {x:.6g}" for name, x in named.items())
            far += f", in the scalars {listed}"
        elif beyond:
            far += f", {outside}"
        return f"out of distribution (p = {p_value:.2g}, {far}): its band is not valid"

    def intervals(self, row: Mapping[str, Any]) -> Row:
        """Returns the interval bounds of the scalars and quantities in a report row."""
        return intervals.row_of(self.found.half_widths, row)


def bands_of(
    operator: Trained,
    kind: str | None,
    *,
    strict: bool,
    stream: bool,
    own_model: str | None,
    figures: int = 0,
) -> Bands | None:
    """Returns the bands to write, or None if the operator is not calibrated.

    Args:
      operator: from `trained.load`.
      kind: requested band, if any.
      strict: raise an error for an out-of-distribution case.
      stream: whether meshes are read in slices, which does not support bands.
      own_model: see `learn.load`.
      figures: number of requested figures.

    Raises:
      ValueError: if a band, `strict` or figures are requested but the operator has no
        calibration, or the calibration cannot be read.
    """
    exists = (operator.folder / calibration.FILE).is_file()
    asked = ["--strict"] if strict else []
    asked += [] if kind is None else [f"--band={kind}"]
    asked += [f"--band_figures={figures}"] if figures else []
    if asked and (stream or not exists):
        reason = "slices of points (--stream) have no bands, and no case is compared"
        if operator.description.time is not None:
            reason = f"{operator.folder} was trained on series, which have no bands"
        elif not exists:
            reason = f"{operator.folder} is not calibrated; run opjax-calibrate first"
        raise ValueError(f"{asked[0]} has no effect here: {reason}.")
    alone = not operator.channels.target
    if alone and (kind is not None or figures):
        raise ValueError(
            f"{asked[-1]} has no effect here: the operator in {operator.folder} "
            "predicts only scalars, which have intervals instead of bands."
        )
    if stream and exists:
        say("Predictions in slices of points (--stream) have no bands.")
        return None
    stored = calibration.load_calibration(operator, own_model=own_model)
    if stored is None:
        return None
    if strict and stored.reference is None:
        raise ValueError(
            "--strict has no effect here: the calibration has no out-of-distribution "
            "test, because it had too few cases or was written by an earlier opjax; "
            f"run opjax-calibrate with {likeness.least_cases(likeness.RATE)} cases or "
            "more, or with --false_alarms."
        )
    if stored.reference is not None:
        say(stored.reference.statement())
    return Bands(stored, kind or calibration.BANDS[0])


def main() -> None:
    """Runs the program with the flags of the command line."""
    command_line.launch(CalibrateOptions, run, doc=__doc__)


if __name__ == "__main__":
    main()
