"""Figures of predicted fields."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from opjax.interpolation import interpolate_grid
from opjax.learn.named_types import HostArrays, Numbers
from opjax.learn.report import drawing
from opjax.learn.report.drawing import Axes, Colours, Figure, Line
from opjax.learn.tasks.outcome import Outcome, extremes
from opjax.samples import Sample

_NUM_COMPARED = 2


class _Row(NamedTuple):
    """One field of a test sample, and what models make of it."""

    label: str
    sample: Sample
    features: str  # name of the first channel
    target: str  # of the field
    truth: np.ndarray  # `(n,)`; of a vector, its length
    predicted: HostArrays  # by model
    differences: HostArrays  # of a vector, the length of the difference
    errors: Numbers  # of this field

    def title(self, what: str, name: str) -> str:
        """A title that names the field, where it has a name."""
        return f"{what} {name}".strip()


def fields(
    outcomes: Mapping[str, Outcome],
    shown: Sequence[str] = ("best", "median", "worst"),
) -> Any:
    """Draws inputs, targets, predictions and errors of test samples.

    Every field has its own row and its own error. For a vector, the length is shown,
    and the length of the error. For a single model, the samples are the best, median
    and worst test samples; for several models, the first samples that were tested on
    the meshes of the first model. In 1D, target and predictions are curves in one axis.
    """
    # Of operators that predict scalars alone there is nothing to show.
    outcomes = {
        k: seen for k, seen in outcomes.items() if any(map(np.size, seen.predicted))
    }
    if not outcomes:
        return None
    first = next(iter(outcomes.values()))
    outcomes = {
        name: seen for name, seen in outcomes.items() if _comparable(seen, first)
    }
    if len(outcomes) == 1:
        chosen = {
            row: f"{k} ({row})"
            for k, row in extremes(first.errors).items()
            if k in shown
        }
    else:
        chosen = {row: f"sample {row}" for row in first.rows[:_NUM_COMPARED]}
    rows: list[_Row] = []
    for number, label in chosen.items():
        if all(number in seen.rows for seen in outcomes.values()):
            rows += _rows(outcomes, first, number, label)
    if not rows:
        return None
    if rows[0].sample.mesh_points.shape[1] == 1:
        return _on_a_line(rows)
    return _in_a_plane(rows, first.arrays.get("window"))


def _rows(
    outcomes: Mapping[str, Outcome], first: Outcome, number: int, label: str
) -> list[_Row]:
    """A row for each field of a sample."""
    sample = first.samples[first.rows.index(number)]
    if sample.target is None:
        return []
    rows: list[_Row] = []
    for place, (name, channels) in enumerate(_shown(first)):
        truth = _channels(sample.target, channels)
        predicted = {
            model: _channels(seen.predicted[seen.rows.index(number)], channels)
            for model, seen in outcomes.items()
        }
        errors = {
            model: _error(seen, number, place) for model, seen in outcomes.items()
        }
        apart = {model: _size(values - truth) for model, values in predicted.items()}
        sizes = {model: _size(values) for model, values in predicted.items()}
        features = _first_name(first, "features")
        rows.append(
            _Row(label, sample, features, name, _size(truth), sizes, apart, errors)
        )
    return rows


def _shown(seen: Outcome) -> list[tuple[str, list[int]]]:
    """Names and channels of the fields; the first channel where none are known."""
    if "field_channels" not in seen.arrays:
        return [(_first_name(seen, "target"), [0])]
    names = [str(name) for name in seen.arrays["field_names"]]
    channels = [np.flatnonzero(row).tolist() for row in seen.arrays["field_channels"]]
    if len(names) == 1:
        names = [_first_name(seen, "target")]
    return list(zip(names, channels, strict=True))


def _error(seen: Outcome, number: int, place: int) -> float:
    """The error of a field of a sample; of all channels where fields have none."""
    of_fields = seen.arrays.get("field_errors")
    return float(seen.errors[number] if of_fields is None else of_fields[number, place])


def _channels(values: Any, channels: list[int]) -> np.ndarray:
    """Channels `(n, c)`; classes are one."""
    return np.asarray(values, float).reshape(len(values), -1)[:, channels]


def _size(values: np.ndarray) -> np.ndarray:
    """A scalar as it is, the length of a vector, `(n,)`."""
    return values[:, 0] if values.shape[1] == 1 else np.linalg.norm(values, axis=1)


def _comparable(seen: Outcome, first: Outcome) -> bool:
    """Whether the samples shown of both are on the same meshes."""
    pairs = [
        (sample.mesh_points, first.samples[first.rows.index(row)].mesh_points)
        for row, sample in zip(seen.rows, seen.samples, strict=True)
        if row in first.rows
    ]
    return all(np.array_equal(one, other) for one, other in pairs)


def _first_name(seen: Outcome, role: str) -> str:
    """Name of the channel that is shown; empty if it has none."""
    names = seen.arrays.get(f"{role}_names", np.array([role]))
    return "" if not names.size or names[0] == role else str(names[0])


def _channel(values: Any) -> np.ndarray:
    """The first channel, or the classes, as `(n,)`."""
    return np.asarray(values, float).reshape(len(values), -1)[:, 0]


def _in_a_plane(rows: list[_Row], window: np.ndarray | None) -> Any:
    """Input, truth and predictions in a line, differences below (beside, if one)."""
    names = list(rows[0].predicted)
    lines, columns = (1, 4) if len(names) == 1 else (2, 2 + len(names))
    points = np.concatenate([row.sample.mesh_points[:, :2] for row in rows])
    low, high = points.min(axis=0), points.max(axis=0)
    if window is not None:
        low, high = window[[0, 2]], window[[1, 3]]
    wide = float(np.clip((high - low)[0] / max((high - low)[1], 1e-9), 0.4, 3.0))
    # Axes of about four square inches, and room for colorbars and titles.
    size = 2.0 * np.asarray([wide**0.5, wide**-0.5])
    figure = drawing.new_figure(
        (size[0] + 0.6) * columns, (size[1] + 0.3) * lines * len(rows)
    )
    axes = figure.subplots(lines * len(rows), columns, squeeze=False)
    for number, row in enumerate(rows):
        block = axes[lines * number : lines * (number + 1)]
        _draw_images(figure, block, row)
        block[0, 0].set_ylabel(row.label, fontsize=9)
    if window is not None:
        for axis in axes.flat:
            axis.set(xlim=window[:2], ylim=window[2:])
    return figure


def _draw_images(figure: Figure, axes: Any, row: _Row) -> None:
    sample, truth = row.sample, row.truth
    for axis in axes.flat:  # labels take most of the time of a figure
        axis.set(xticks=[], yticks=[])

    def image(
        axis: Axes, values: np.ndarray, title: str, colours: Colours, bar: bool = True
    ) -> None:
        points, shape = sample.mesh_points, sample.grid_shape
        coarse = sample.target_grid
        if shape is not None and coarse is not None and len(values) != len(points):
            points = interpolate_grid(points, grid_shape=shape, new_shape=coarse)
            points, shape = np.asarray(points), coarse
        drawn = drawing.field(axis, points, values, grid_shape=shape, colours=colours)
        axis.set_title(title, fontsize=9)
        if bar:
            drawing.add_colorbar(figure, drawn, axis)

    first = axes[0, 0]
    if sample.features is None:
        first.scatter(*sample.mesh_points[:, :2].T, s=2, c="0.3", linewidths=0)
        first.set_aspect("equal")
        first.set_title("input: the mesh", fontsize=9)
    else:
        title = row.title("input", row.features)
        image(first, _channel(sample.features), title, Colours("cividis"))
    # Truth and predictions share their colours, so they can be compared by eye.
    limits = Colours(low=truth.min(), high=truth.max())
    image(axes[0, 1], truth, row.title("truth", row.target), limits)
    below = axes[-1, 2:] if len(axes) > 1 else axes[0, 3:]
    for name, axis, under in zip(row.predicted, axes[0, 2:], below, strict=False):
        predicted = row.predicted[name]
        image(axis, predicted, row.title(name, row.target), limits, bar=False)
        difference = row.differences[name]
        largest = float(np.abs(difference).max()) or 1.0
        signed = bool((difference < 0).any())
        image(
            under,
            difference,
            f"difference; error {row.errors[name]:.3g}",
            Colours("RdBu_r", -largest, largest)
            if signed
            else Colours("Reds", 0.0, largest),
        )
    for axis in axes[1:, :2].flat:
        axis.set_axis_off()


def _on_a_line(rows: list[_Row]) -> Any:
    columns = 2 if rows[0].sample.features is None else 3
    figure = drawing.new_figure(3.8 * columns, 2.6 * len(rows), "constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for axis_row, row in zip(axes, rows, strict=True):
        _draw_curves(axis_row, row)
    return figure


def _draw_curves(axes: Any, row: _Row) -> None:
    sample, points = row.sample, row.sample.mesh_points
    truth = row.truth
    *first, fitted, left = axes  # without input functions the first one is missing
    for axis in first:
        drawing.curve(axis, points, _channel(sample.features), Line("0.3"))
    drawing.curve(fitted, points, truth, Line("k", "truth"))
    for number, (name, predicted) in enumerate(row.predicted.items()):
        line = Line(f"C{number % 10}", f"{name}: {row.errors[name]:.3g}")
        drawing.curve(fitted, points, predicted, line._replace(dash="--"))
        drawing.curve(left, points, row.differences[name], line)
    titles = (
        row.title("input", row.features),
        row.title("truth and prediction", row.target),
        "difference; errors",
    )[-len(axes) :]
    for axis, title in zip(axes, titles, strict=True):
        drawing.plain(axis)
        axis.set_title(title, fontsize=9)
    axes[0].set_ylabel(row.label, fontsize=9)
    for axis in (fitted, left):
        axis.legend(frameon=False, fontsize=7)
