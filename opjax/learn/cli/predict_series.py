"""Rollouts from files: implements `opjax-predict --steps`."""

import contextlib
import dataclasses
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from opjax.files import folders, series_writing
from opjax.files import frames as lists
from opjax.files.formats import Paths
from opjax.files.options import MAX_BYTES
from opjax.files.series import read_series
from opjax.learn.config.reading import read_options
from opjax.learn.json_files import to_json, write_json
from opjax.learn.messages import say
from opjax.learn.named_types import Row
from opjax.learn.predict import in_time
from opjax.learn.predict.description import Stepping
from opjax.learn.predict.field_errors import FieldErrors, error_of, joined
from opjax.learn.predict.trained import Trained
from opjax.learn.report import animation
from opjax.samples import Sample, Series, ranges


def predict(
    operator: Trained,
    inputs: Paths,
    output: pathlib.Path,
    *,
    steps: int,
    time_step: float | None = None,
    gif: bool = False,
    point_dim: int | None = None,
) -> list[Row]:
    """Rolls out all series of the input, and writes each one when it is complete.

    Args:
      operator: operator that was trained on series.
      inputs: series, see `files.series.read_series`, with at least the first frames.
      output: folder of the files and of `report.json`.
      steps: number of steps.
      time_step: time step; by default, that of the training data, or the times of the
        series' own later frames, if it has enough and the operator supports them.
      gif: also draw an animation.
      point_dim: as for `files.read`; by default, as in training.

    Returns:
      The entries of `report.json` for the series.

    Raises:
      OSError: if a file cannot be read or written.
      ValueError: if the input is damaged or does not fit the operator, the operator was
        not trained on series, or a rollout contains NaN or infinity.
    """
    how = operator.stepping
    lags = in_time.lags_of(operator, steps, time_step)
    output.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    seen: list[Sample] = []
    for case, name, series in _cases(operator, how, inputs, point_dim):
        if (output / f"{name}.npz").resolve() == case.resolve():
            raise ValueError(f"{case} is the input itself; pass another --output.")
        own = lags
        if time_step is None:
            own = in_time.lags_of_frames(operator, series, lags)
        rows.append(_roll_out(operator, how, case, series, own, output / name, gif))
        if note := _about_times(how, series, own is not lags, rows[-1]):
            say(f"{series.name}: {note}.")
        if note := ranges.sentence(rows[-1]):
            say(f"{series.name}: {note}.")
        seen.append(ranges.ends(series.seen(range(how.history))))
    names = operator.channel_names
    for note in ranges.other_units(operator.description.training, seen, names):
        warnings.warn(note, stacklevel=2)
    write_json(output / "report.json", rows)
    return [to_json(row) for row in rows]


def _cases(
    operator: Trained, how: Stepping, inputs: Paths, point_dim: int | None
) -> Iterator[tuple[pathlib.Path, str, Series]]:
    """Files or folders, names for their results, and their series one by one."""
    options = read_options(operator.config)
    point_dim = operator.read_options(point_dim=point_dim).point_dim
    options = dataclasses.replace(options, point_dim=point_dim)
    taken = set[str]()
    every = lists.find_cases(inputs)
    roots = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    folders_given = [pathlib.Path(root).expanduser() for root in roots]
    placed = folders.places(folders_given, every)
    for case in every:
        several = read_series(case, options, min_frames=how.history).series
        for number, series in enumerate(several):
            stem = case.name.split(".")[0] if case.suffix == ".series" else case.stem
            name = stem if len(several) == 1 else f"{stem}_{number}"
            name = name if name == placed[case].name else str(placed[case] / name)
            if name in taken:
                raise ValueError(
                    f"Several input cases have the name {name}; predict on their "
                    "folders one by one."
                )
            taken.add(name)
            yield case, name, series


def _roll_out(
    operator: Trained,
    how: Stepping,
    case: pathlib.Path,
    series: Series,
    lags: np.ndarray,
    place: pathlib.Path,
    gif: bool,
) -> Row:
    """Writes the last known frame and those predicted, and returns the report."""
    names = operator.written_names
    start = float(series.times[how.history - 1])
    times = start + np.concatenate([np.zeros(1), lags])
    predicted = in_time.frames(operator, series, lags)
    errors: list[FieldErrors] = []
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(
                series_writing.pvd(
                    place,
                    place.name,
                    series,
                    names,
                    mesh=_mesh(operator, case, series),
                    location=operator.config.get("location", "points"),
                )
            ),
            stack.enter_context(
                series_writing.archive(
                    f"{place}.npz",
                    series,
                    names,
                    times,
                    on_grid=bool(operator.config.get("grid_axes", 0)),
                )
            ),
        ]
        if gif:
            picture = animation.gif(f"{place}.gif", series, len(times), names[0])
            writers.append(stack.enter_context(picture))
        for write in writers:
            write(start, series.values[how.history - 1])
        for time, values in zip(times[1:], predicted, strict=True):
            for write in writers:
                write(float(time), values)
            errors += _errors(operator, series, float(time), values, how.interval)
    row: Row = {"name": series.name, "num_points": series.num_points}
    row |= ranges.compare(
        operator.description.training, series.seen(range(how.history))
    )
    if series.scalars:
        row["scalars"] = dict(series.scalars)
    row |= {"steps": len(lags), "last_time": float(times[-1])}
    if errors:
        of_frames = joined(errors)
        row |= of_frames.row() | {"errors": of_frames.of_samples.tolist()}
    return to_json(row)


def _about_times(how: Stepping, series: Series, is_own: bool, row: Row) -> str:
    """Describes unusual times of a rollout, or why it has no errors."""
    later = series.num_frames - how.history
    if is_own:
        return (
            f"predicted at the times of its own later frames, up to "
            f"{row['last_time']:g}; --time_step gives equal steps"
        )
    if not later or "errors" in row:
        return ""
    remedy = f"the operator supports only steps of {how.interval:g}"
    if how.timed:
        remedy = f"--steps={later} without --time_step predicts at their times"
    return (
        f"no errors, because none of its {later} later frames is at a predicted "
        f"time; {remedy}"
    )


def _mesh(operator: Trained, case: pathlib.Path, series: Series) -> Any:
    """The mesh of a case of `.vtu` files, with cells of any kinds; None for others."""
    if not case.is_dir() and case.suffix.lower() not in lists.MESHES:
        return None
    first = next(iter(lists.listed(case)))
    point_dim = operator.read_options().point_dim
    if series.mesh_points.shape[1] == 3:
        point_dim = 3
    return series_writing.mesh_of(
        first.file, MAX_BYTES, point_dim=point_dim, step=first.step
    )


def _errors(
    operator: Trained, series: Series, time: float, values: np.ndarray, interval: float
) -> list[FieldErrors]:
    """The errors at a time, if the series has a true frame of that time."""
    near = int(np.argmin(np.abs(series.times - time)))
    if abs(series.times[near] - time) > 1e-3 * interval:
        return []
    pair = series.values[near], series.quadrature_weights
    return [error_of(operator.fields, values, *pair)]
