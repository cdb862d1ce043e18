r"""Plates of a solver unlike those of training: alarms with few and many calibrations.

    opjax-train --train=FOLDER/train --scalar_names=fx,fy,modulus \
      --target_names=U,S_Mises --models=functional --width=32 --num_layers=3 \
      --num_heads=4 --num_basis=16 --num_epochs=60 --num_buckets=1 --workdir=runs/plates
    python -m benchmarks.unlike_plates --plates=FOLDER --plates_run=runs/plates

The folder has the files of a solver, which is not part of this project, and a table
`cases.csv` in each of `train`, `calib`, `test` (as in training), `square`, `two` and
`rubber`. Calibration cases are drawn from `calib`, several times for each of their
numbers. Prints two Markdown tables, medians and ranges over the draws: the share of
cases that are called unlike and the group of numbers that they are called so by, the
share in which a scalar lies outside the training range, and the median relative L2
error of each field; and the least shift of one number that is
noticed in 80 % of cases.
"""

import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import app, flags

from opjax import learn
from opjax.learn.predict import likeness
from opjax.learn.predict.likeness import Reference
from opjax.learn.predict.trained import Trained
from opjax.learn.tables import median_and_range, table
from opjax.samples import Sample, fields, ranges

_PLATES = flags.DEFINE_string("plates", None, "Folder of the cases of the solver")
_RUN = flags.DEFINE_string("plates_run", None, "Folder of a finished run")
_COUNTS = flags.DEFINE_list("plates_counts", ["24", "100"], "Calibration cases")
_DRAWS = flags.DEFINE_integer("plates_draws", 8, "Draws of calibration cases")
KINDS = {
    "test": "as in training",
    "square": "square holes",
    "two": "two holes",
    "rubber": "rubber, modulus of 0.5 to 2 GPa",
}


class Case(NamedTuple):
    """A case with what the operator predicts for it."""

    sample: Sample
    prediction: np.ndarray


class Study(NamedTuple):
    """The tables.

    Attributes:
      alarms: a row for each kind of cases.
      shifts: a row for each number of calibration cases.
    """

    alarms: str
    shifts: str


def study(
    run: pathlib.Path,
    folder: pathlib.Path,
    *,
    kinds: Mapping[str, str],
    counts: Sequence[int],
    draws: int,
) -> Study:
    """Compares cases of several kinds with draws of calibration cases.

    Args:
      run: see `learn.load`.
      folder: with a folder of files for `calib` and for each of `kinds`.
      kinds: names of the kinds for the table, by their folders.
      counts: numbers of calibration cases.
      draws: how many times each number is drawn.
    """
    trained = learn.load(run)
    known = _cases(trained, folder / "calib")
    drawn = {
        count: [_drawn(trained, known, count, seed) for seed in range(draws)]
        for count in counts
    }
    head, rows = ["cases", "number"], list[list[str]]()
    for count in counts:
        head += [f"alarms, {count} calibration cases", "by"]
    head += ["a scalar outside training", *(f"error of {n}" for n in _fields(trained))]
    for place, name in kinds.items():
        cases = _cases(trained, folder / place)
        row = [name, str(len(cases))]
        for several in drawn.values():
            row += _alarms(trained, several, cases)
        beyond = [_is_beyond(trained, case.sample) for case in cases]
        errors = np.median([_errors(trained, case) for case in cases], axis=0)
        rows.append([*row, f"{np.mean(beyond):.2g}", *(f"{e:.2g}" for e in errors)])
    return Study(table(head, rows), _shifts(drawn))


def _alarms(
    trained: Trained, references: Sequence[Reference], cases: Sequence[Case]
) -> list[str]:
    """Share of cases that are called unlike, and the groups by which they are."""
    found = [[one.row(trained, *case) for case in cases] for one in references]
    shares = [float(np.mean([row["unlike"] for row in rows])) for rows in found]
    groups = Counter(row["unlike_in"] for rows in found for row in rows)
    del groups[None]  # those that are not unlike
    total = max(sum(groups.values()), 1)
    by = [f"{name} {100 * n / total:.0f} %" for name, n in groups.most_common()]
    return [median_and_range(shares, digits=2), ", ".join(by) or "-"]


def _shifts(drawn: Mapping[int, Sequence[Reference]]) -> str:
    """A table of what calibration cases are able to tell apart, by their number."""
    rows: list[list[str]] = []
    for count, several in drawn.items():
        found = [one.shifts for one in several if one.shifts is not None]
        columns = np.stack(found).T
        each = (median_and_range(column, digits=2) for column in columns)
        rows.append([str(count), f"{several[0].least:.2g}", *each])
    return table(["calibration cases", "smallest p-value", *likeness.GROUPS], rows)


def _cases(trained: Trained, folder: pathlib.Path) -> list[Case]:
    return [Case(sample, trained(sample)) for sample in trained.read(str(folder))]


def _drawn(trained: Trained, cases: Sequence[Case], count: int, seed: int) -> Reference:
    """What some of the calibration cases are like."""
    order = np.random.default_rng(seed).permutation(len(cases))[:count]
    some = [cases[place] for place in order]
    found = likeness.refer(
        trained,
        [case.sample for case in some],
        [case.prediction for case in some],
        false_alarms=likeness.RATE,
    )
    assert found is not None  # refused, where cases are too few
    return found


def _is_beyond(trained: Trained, sample: Sample) -> bool:
    return bool(ranges.compare(trained.description.training, sample).get(ranges.BEYOND))


def _fields(trained: Trained) -> dict[str, list[int]]:
    """Channels of each field, by its name."""
    description = trained.description
    names, count = description.names.get("target"), description.channels.target
    return dict(fields.groups(names, count))


def _errors(trained: Trained, case: Case) -> list[float]:
    """The relative L2 error of each field of a case."""
    assert case.sample.target is not None
    error = case.prediction.astype(np.float64) - case.sample.target
    return [
        float(np.linalg.norm(error[:, c]) / np.linalg.norm(case.sample.target[:, c]))
        for c in _fields(trained).values()
    ]


def main(argv: Sequence[str]) -> None:
    """Prints the tables."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    if not _PLATES.value or not _RUN.value:
        raise app.UsageError("Give --plates and --plates_run.")
    found = study(
        pathlib.Path(_RUN.value),
        pathlib.Path(_PLATES.value),
        kinds=KINDS,
        counts=[int(count) for count in _COUNTS.value],
        draws=_DRAWS.value,
    )
    print(found.alarms, found.shifts, sep="\n")


if __name__ == "__main__":
    app.run(main)
