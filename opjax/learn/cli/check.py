"""Checks a data set before training and proposes the next command.

    opjax-check cases
    opjax-check --train=cases --json

Reads the cases like `opjax-train`, with all fields. Prints the number of cases, fields
with their ranges, scalars, cells, boundaries and times; errors, with an example of each
type; warnings; and the next command. Ranges are in the units of the files, followed by
standard deviations from the mean. Nothing is written.
"""

import csv
import dataclasses
import io
import pathlib
import re
import shlex
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from opjax.files import ReadOptions, building, cases, checking, components, formats
from opjax.files.checking import DataCheck, FieldCheck, Problem, ScalarCheck
from opjax.files.formats import Paths
from opjax.learn.cli import command_line, shared
from opjax.learn.cli.train import FEW, PRESETS
from opjax.learn.config import Options, option
from opjax.samples import Splits
from opjax.samples.division import Shares

# Fields that a first training is proposed for, if there are some of these names.
_LIKELY = ("target", "p", "U", "T", "u", "v", "S_Mises", "S")
_MOST_TARGETS = 2
# Columns that a simulation answers, by their names.
_ANSWERS = re.compile(
    r"(drag|lift|dp|force|moment|torque|loss|eff|stress|tip|reaction|cd|cl|cm|max|min|"
    r"mean|peak|total)(_|$)",
    re.IGNORECASE,
)
_LONGEST = 600  # letters of a message that are shown


@dataclasses.dataclass(frozen=True)
class CheckOptions(Options):
    """What to check."""

    train: Paths = option(
        (), "Folder, files or patterns of the samples, separated by commas"
    )
    most: int = option(
        200,
        "Maximum number of files to read, evenly spaced in the list. 0 reads all",
        minimum=0,
    )
    json: bool = option(False, "Print one JSON object instead of text")

    def __post_init__(self):
        """Refuses nothing to look at."""
        super().__post_init__()
        if not self.train:
            raise ValueError("Pass the folder of the data: opjax-check FOLDER.")


def run(options: CheckOptions) -> dict[str, Any] | None:
    """Checks the data.

    Returns:
      The content of the last line of output with `json`; otherwise the text is printed
      and nothing returned.
    """
    paths = shared.divided(options.train)
    checked = checking.check(paths, most=options.most)
    line, note = next_command(checked, paths)
    if options.json:
        fields = [
            {**dataclasses.asdict(one), "in_spreads": one.in_spreads}
            for one in checked.fields
        ]
        return dataclasses.asdict(checked) | {"fields": fields, "command": line}
    print(text(checked, paths, line, note), flush=True)
    return None


def text(found: DataCheck, paths: Sequence[str], line: str, note: str) -> str:
    """Returns the printed text of a check.

    Args:
      found: the result of the check.
      paths: the given paths.
      line: the suggested next command; empty if there is none.
      note: a comment on this command.
    """
    parts = [_head(found, paths)]
    if found.fields:
        parts.append(_table("Fields", _rows_of_fields(found)))
    if found.scalars:
        rows = [
            [
                one.name,
                one.source,
                f"{one.low:.6g} to {one.high:.6g}",
                "constant" if one.constant else "",
            ]
            for one in found.scalars
        ]
        parts.append(_table("Scalars", rows))
    if found.columns:
        parts.append(f"Columns that are not numeric: {', '.join(found.columns)}")
    if found.boundaries:
        names = [
            name if count == found.looked_at else f"{name} (in {count} cases)"
            for name, count in sorted(found.boundaries.items())
        ]
        parts.append(f"Boundaries: {', '.join(names)}")
    parts += _listed("Refused", found.refused)
    parts += _listed("Doubtful", found.doubtful)
    if line:
        parts.append(f"Next:\n  {line}")
    parts.append(note)
    return "\n\n".join(part for part in parts if part)


def _head(found: DataCheck, paths: Sequence[str]) -> str:
    lines = [f"{found.cases} cases in {', '.join(paths)}"]
    if found.suffix:
        lines[0] += f" ({found.suffix})"
    if found.looked_at < found.cases:
        lines[0] += f", of which {found.looked_at} were read; --most=0 reads all"
    fewest, most = found.num_points
    if most:
        count = f"{fewest} to {most}" if fewest < most else f"{most}"
        grid = f", on a grid of {found.grid_axes} axes" if found.grid_axes else ""
        lines.append(f"Points of a case: {count}, in {found.point_dim}-D{grid}")
    if found.cells:
        cells = ", ".join(f"{count} {kind}" for kind, count in found.cells.items())
        lines.append(f"Cells: {cells}")
    if found.times is not None:
        low, high = found.times
        lines.append(f"Times: {low:g} to {high:g}" if low < high else f"Time: {low:g}")
    if found.frames is not None:
        fewest, most = found.frames
        count = f"{fewest} to {most}" if fewest < most else f"{most}"
        lines.append(
            f"Frames of a case: {count}; the last one is read. For fields that evolve, "
            "add --time=one_step"
        )
    return "\n".join(lines)


def _rows_of_fields(found: DataCheck) -> list[list[str]]:
    rows = [["name", "at", "range", "spread", "range in spreads", ""]]
    for field in found.fields:
        names = components.listed(field.name, field.components)[: field.components]
        if field.components == 1 or len(names) < field.components:
            names = [f"{field.name}[{i}]" for i in range(field.components)]
        if field.components == 1:
            names = [field.name]
        for i, name in enumerate(names):
            low, high = field.in_spreads[i]
            notes = ["constant"] if i in field.constant else []
            if i == 0:
                notes += _notes(field, found)
            rows.append(
                [
                    name,
                    field.location,
                    f"{field.low[i]:.4g} to {field.high[i]:.4g}",
                    f"{field.std[i]:.3g}",
                    "" if i in field.constant else f"{low:.3g} to {high:.3g}",
                    ", ".join(notes),
                ]
            )
    return rows


def _notes(field: FieldCheck, found: DataCheck) -> list[str]:
    notes: list[str] = []
    if field.cases < found.looked_at:
        notes.append(f"in {field.cases} of {found.looked_at} cases")
    if field.zero:
        example = pathlib.Path(field.zero_in).name
        notes.append(f"zero everywhere in {field.zero} cases, such as {example}")
    return notes


def _table(title: str, rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([title, *lines])


def _listed(title: str, problems: Sequence[Problem]) -> list[str]:
    lines = []
    for one in problems:
        count = f"{one.cases} cases: " if one.cases > 1 else ""
        said = one.text if len(one.text) < _LONGEST else one.text[:_LONGEST] + " ..."
        lines.append(f"  - {count}{said}")
    return ["\n".join([title, *lines])] if lines else []


def next_command(found: DataCheck, paths: Sequence[str]) -> tuple[str, str]:
    """Returns a training command for these data, and a comment on it.

    Args:
      found: the result of the check.
      paths: folders, files and patterns of the data.

    Returns:
      A shell command, empty if training is not possible, and a sentence.
    """
    if not found.looked_at:
        return "", "Nothing can be trained on yet."
    points, cells = (found.complete(where) for where in ("points", "cells"))
    if not all(field.whole for field in (*points, *cells)):  # else they are the fields
        points, cells = ([f for f in some if not f.whole] for some in (points, cells))
    location = "cells" if len(cells) >= len(points) and cells else "points"
    fields = _targets(cells if location == "cells" else points)
    several = [
        one
        for one in found.scalars
        if one.cases == found.looked_at and not one.constant
    ]
    asked = [one.name for one in several if _ANSWERS.match(one.name)]
    inputs = [one.name for one in several if one.name not in (*asked, *fields)]
    if not fields and not asked:
        return "", "No field varies in all cases, so there is nothing to predict yet."
    flags = {
        "preset": PRESETS["small"].preset if found.cases in FEW else "",
        "location": location if location == "cells" else "",
        "grid_axes": str(found.grid_axes or ""),
        "target_names": _joined(fields),
        "scalar_names": _joined(inputs),
        "target_scalars": _joined(asked),
        "boundary_names": _joined(
            sorted(k for k, n in found.boundaries.items() if n == found.looked_at)
        ),
    }
    for dropped in ("", "boundary_names", "target_scalars", "scalar_names"):
        flags.pop(dropped, None)
        if not (error := _error_of(paths, flags)):
            break
    else:
        return "", f"Nothing can be trained on yet: {error}"
    batch, few = _batch_size(found)
    if few:
        return "", few
    flags["batch_size"] = batch
    name = re.sub(r"\W+", "_", pathlib.Path(paths[0]).name).strip("_") or "mine"
    words = [f"--train={','.join(paths)}"]
    words += [f"--{key}={value}" for key, value in flags.items() if value]
    line = shlex.join(["opjax-train", *words, f"--workdir=runs/{name}"])
    return line, _note(found, location, fields, several)


def _targets(fields: Sequence[FieldCheck]) -> list[str]:
    """Names of the fields to predict: a few, those of likely names first."""
    names = [field.name for field in fields if field.name != "features"]
    likely = [name for name in _LIKELY if name in names]
    return [*likely, *(name for name in names if name not in likely)][:_MOST_TARGETS]


def _joined(names: Sequence[str]) -> str:
    """Names with commas between them; one with a comma in quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def _error_of(paths: Sequence[str], flags: dict[str, str]) -> str:
    """Why the first case cannot be read with flags; empty if it can."""
    options = ReadOptions(
        target=flags["target_names"],
        location=flags["location"] or "points",
        grid_axes=int(flags["grid_axes"] or 0),
        scalars=flags.get("scalar_names", ""),
        target_scalars=flags.get("target_scalars", ""),
        boundary_names=flags.get("boundary_names", ""),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for file in (formats.find(list(paths))[i] for i in (0, -1)):
                with formats.opened(file, options) as groups:
                    for group, arrays in groups.items():
                        name = f"{file}/{group}" if group else str(file)
                        named = options.has_scalars
                        row = cases.row_of(file, group, named=named)
                        building.build(name, arrays, options, row)
        except (OSError, ValueError) as error:
            return str(error)
    return ""


def _batch_size(found: DataCheck) -> tuple[str, str]:
    """A batch size if that of the preset is too large; or why there are too few."""
    usual = PRESETS["fast"].batch_size
    if found.divided:
        return "", ""
    try:
        train = Splits.divide(list(np.arange(found.cases)), shares=Shares()).train  # pyright: ignore
    except ValueError as error:
        return "", f"Too few cases for a training: {error}"
    return ("" if len(train) >= usual else str(max(len(train) // 2, 1))), ""


def _note(
    found: DataCheck,
    location: str,
    fields: Sequence[str],
    several: Sequence[ScalarCheck],
) -> str:
    others = [
        field.name for field in found.complete(location) if field.name not in fields
    ]
    notes: list[str] = []
    if others:
        notes.append(f"Other fields to name in --target_names: {', '.join(others)}.")
    if several:
        notes.append(
            "Check the scalars: --scalar_names are known before a simulation, "
            "--target_scalars are what it answers."
        )
    if any(one.cases for one in found.refused):
        notes.append("Cases that are refused have to be repaired or taken out first.")
    return " ".join(notes)


def main() -> None:
    """Runs the program with its flags, or on folders given without a flag."""
    command_line.launch(CheckOptions, run, doc=__doc__, operands="train")


if __name__ == "__main__":
    main()
