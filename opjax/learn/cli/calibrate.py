"""Calibrates the error bars of a trained operator, without training it again.

    opjax-calibrate --workdir=runs/mine --input=data/calibration --coverage=0.9

Reads cases with their targets that the run has not seen, measures the errors of the
operator there, and writes `calibration.npz` beside it. From then on `opjax-predict`
writes lower and upper fields. If the cases to come are like the calibration cases, the
whole field lies inside in the promised share of cases, see `opjax.uncertainty`.

`--width` says where the band is wide. `constant` has the same width everywhere.
`residual` learns from a third of the cases where errors are large. `ensemble` measures
how far the seeds of a study (`opjax-train --seeds=0,1,2`) are apart. `combined` learns
from both.

`opjax-predict` then also says of every case whether it is told apart from the
calibration cases. Of cases drawn like these, no more than `--false_alarms` are called
unlike. How large a difference these cases are able to tell apart is printed.
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
        "Folder, files or patterns of the calibration cases, separated by commas. They "
        "have targets, and the run has not seen them"
    )
    coverage: float = option(
        0.9,
        "Share of cases whose whole field is to lie inside the band, between 0 and 1. "
        "0.9 needs at least 9 calibration cases, 0.99 at least 99",
    )
    width: str = option(
        "constant",
        "Where the band is wide: constant, the same everywhere; residual, learned from "
        "a third of the cases; ensemble, by how far the seeds of the study are apart; "
        "combined, learned from a third of the cases and from the seeds",
        choices=calibration.WIDTHS,
    )
    false_alarms: float | None = option(
        None,
        "Share of cases drawn like the calibration cases that opjax-predict may call "
        "unlike them, between 0 and 1. 0.05 needs at least 19 cases, 0.01 at least 99. "
        "By default 0.05, or no such warning with fewer than 19 cases",
    )
    own_model: str | None = shared.own_model()
    point_dim: int | None = shared.point_dim()
    chunk_size: int = shared.chunk_size()
    memory_gib: float = shared.memory_gib()
    scratch: OnePath | None = shared.scratch()


def run(options: CalibrateOptions) -> dict[str, Any]:
    """Calibrates an operator and saves the calibration beside it.

    Returns:
      What the last line of the program says.

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
                f"{len(cases)} cases are too few to warn of cases that are unlike them "
                f"with 5 % false alarms: at least {least} are needed, or another "
                "--false_alarms."
            )
        else:
            say(result.reference.statement())
        path = result.save()
    row: dict[str, Any] = {
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
            f"{operator.folder} has no other seeds beside it. Train several, "
            "opjax-train --seeds=0,1,2, or give another --width."
        )
    return members


class Bands(NamedTuple):
    """The bands that a prediction is written with.

    Attributes:
      found: the calibration.
      kind: one of `calibration.BANDS`.
      pictures: of cases with their band and their error, if they are asked for.
    """

    found: Calibration
    kind: str
    pictures: Pictures | None = None

    def beside(
        self, sample: Sample, values: np.ndarray, names: Sequence[str]
    ) -> tuple[tuple[np.ndarray, list[str]], dict[str, Any]]:
        """Returns the prediction with its band, and what the report says of it.

        Args:
          sample: the case.
          values: the prediction, `(n, q)`.
          names: of its channels.

        Returns:
          Prediction, lower and upper field side by side with the names of all their
          channels, none where scalars alone are predicted; and keys for the row of the
          case.
        """
        fields, ends = values, list[str]()
        row: dict[str, Any] = {"band_coverage": self.found.coverage}
        if names:
            band = self.found.band(sample, values, kind=self.kind)
            fields = np.concatenate([values, band.lower, band.upper], axis=1)
            if self.pictures is not None:
                half = (band.upper - band.lower) / 2
                drawn = self.found.trained.fields_of(sample)
                shown = dict(enumerate(self.found.trained.component_names))
                shown = {c: shown[c] for c in drawn.channels}
                self.pictures.add(sample, values, half, shown)
            ends = [f"{name}_{end}" for end in ("lower", "upper") for name in names]
            row = calibration.row_of(
                band,
                sample,
                self.found.trained.fields_of(sample),
                kind=self.kind,
                coverage=self.found.coverage,
            )
        likeness_row = self.found.likeness(sample, values)
        if likeness_row is not None:
            row |= likeness_row
            say(f"{sample.name}: {self._sentence(sample, likeness_row)}.")
        return (fields, [*names, *ends]), to_json(row)

    def _sentence(self, sample: Sample, likeness_row: Mapping[str, Any]) -> str:
        description = self.found.trained.description
        p_value, distance = (
            likeness_row["likeness_p_value"],
            likeness_row["likeness_distance"],
        )
        reduced = self.found.trained.reduced(sample)
        beyond = ranges.compare(description.training, reduced).get(ranges.BEYOND)
        outside = f"outside the training range in {' and '.join(beyond or ())}"
        if not likeness_row["unlike"]:
            words = f"not told apart from the calibration cases (p = {p_value:.2g})"
            return f"{words}, but {outside}" if beyond else words
        far = "too far away to be measured"
        if distance is not None:
            far = f"{distance:.3g} times as far from their mean as they are"
        if likeness_row["unlike_in"] == "shape":
            far += ", by the details of its shape"
        if likeness_row["unlike_in"] == "scalars":
            named = case_table.row_of(description.names, sample, None)["scalars"]
            listed = ", ".join(f"{name} = {x:.6g}" for name, x in named.items())
            far += f", by its scalars {listed}"
        elif beyond:
            far += f", {outside}"
        return (
            f"unlike the calibration cases (p = {p_value:.2g}, {far}): its band "
            "promises nothing"
        )

    def intervals(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the ends of the intervals of the numbers in a row of the report."""
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
    """Returns the bands to write: None for an operator that is not calibrated.

    Args:
      operator: from `trained.load`.
      kind: the band that is asked for, if any is.
      strict: whether cases that are unlike the calibration cases are an error.
      stream: whether meshes are read in slices, for which there are no bands.
      own_model: see `learn.load`.
      figures: number of figures that are asked for.

    Raises:
      ValueError: if a band, `strict` or figures are asked for and there is no
        calibration for them, or it cannot be read.
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
        raise ValueError(f"{asked[0]} means nothing here: {reason}.")
    alone = not operator.description.channels.target
    if alone and (kind is not None or figures):
        raise ValueError(
            f"{asked[-1]} means nothing here: the operator in {operator.folder} "
            "predicts scalars alone, which have intervals."
        )
    if stream and exists:
        say("Slices of points (--stream) are predicted without bands.")
        return None
    stored = calibration.load_calibration(operator, own_model=own_model)
    if stored is None:
        return None
    if strict and stored.reference is None:
        raise ValueError(
            "--strict means nothing here: the calibration does not say what its cases "
            "are like, because they were too few or an earlier opjax wrote it; run "
            f"opjax-calibrate with {likeness.least_cases(likeness.RATE)} cases or "
            "more, or with --false_alarms."
        )
    if stored.reference is not None:
        say(stored.reference.statement())
    return Bands(stored, kind or calibration.BANDS[0])


def main() -> None:
    """Runs the program on its flags."""
    command_line.launch(CalibrateOptions, run, doc=__doc__)


if __name__ == "__main__":
    main()
