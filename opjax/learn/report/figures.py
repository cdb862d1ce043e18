"""Figures of all benchmarks, drawn from the folders of finished runs.

A figure is a function of members. It returns a matplotlib figure, or None if the
members lack the data. To add a figure to every benchmark, write the function and add it
to `FIGURES`.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from opjax.learn.registry import operators
from opjax.learn.report import (
    drawing,
    figures_bases,
    figures_fields,
    figures_latents,
    figures_quantities,
    figures_seeds,
)
from opjax.learn.report.drawing import Axes, Line
from opjax.learn.run.metrics_file import read_metrics
from opjax.learn.tasks import latents, outcome


@dataclasses.dataclass(frozen=True)
class Member:
    """One model with one seed, in the folder of its finished run."""

    name: str
    seed: int
    folder: pathlib.Path

    @functools.cached_property
    def history(self) -> list[dict[str, Any]]:
        """Rows of `metrics.jsonl`."""
        return read_metrics(self.folder)

    @functools.cached_property
    def outcome(self) -> outcome.Outcome | None:
        """The result of `outcome.read`, if available."""
        there = (self.folder / outcome.FILE).exists()
        return outcome.read(self.folder) if there else None


def member(folder: pathlib.Path) -> Member:
    """Reads the name and the seed of a member from its folder."""
    config = json.loads((folder / "config.json").read_text())
    name, *_ = config.get("models", [folder.name])
    seed, *_ = config.get("seeds", [0])
    # Variants of a model have names of their own, in those of their folders.
    stem = folder.name.removesuffix(f"-{seed}")
    if stem != folder.name and stem != operators.slug(name):
        name = stem
    return Member(name, int(seed), folder)


def members(folder: pathlib.Path) -> list[Member]:
    """Finds the members of a run, or a single one, sorted by model and seed."""
    folders = sorted(path.parent for path in folder.rglob("metrics.jsonl"))
    config = json.loads((folder / "config.json").read_text())
    order = [operators.slug(name) for name in config.get("models", ())]

    def place(one: Member) -> tuple[int, str, int]:
        model = operators.slug(one.name)
        rank = order.index(model) if model in order else len(order)
        return rank, one.name, one.seed

    return sorted(map(member, folders), key=place)


def draw(folder: pathlib.Path, shown: Sequence[Member]) -> list[pathlib.Path]:
    """Draws all figures into the subfolder `figures`; returns the files."""
    drawing.require_matplotlib()
    written = []
    for name, function in FIGURES.items():
        figure = function(shown)
        if figure is not None:
            path = folder / "figures" / f"{name}.png"
            path.parent.mkdir(exist_ok=True)
            drawing.save(figure, path)
            written.append(path)
    return written


def by_name(shown: Sequence[Member]) -> dict[str, list[Member]]:
    """Groups members by model, sorted by seed."""
    groups: dict[str, list[Member]] = {}
    for one in shown:
        groups.setdefault(one.name, []).append(one)
    return {k: sorted(group, key=lambda m: m.seed) for k, group in groups.items()}


def _lines(shown: Sequence[Member]) -> Iterator[tuple[Member, Line]]:
    """Members and the style of their lines: a colour for a model, named once."""
    for number, (name, group) in enumerate(by_name(shown).items()):
        for one in group:
            label = name if one is group[0] else None
            yield one, Line(f"C{number % 10}", label, width=1.3)


def _outcomes(shown: Sequence[Member]) -> list[tuple[outcome.Outcome, Line]]:
    """What members did, of those that have finished, and the style of their lines."""
    lines = _lines([one for one in shown if one.outcome is not None])
    return [(one.outcome, line) for one, line in lines if one.outcome is not None]


def curves(shown: Sequence[Member]) -> Any:
    """Training loss, validation error and learning rate against the epoch.

    Also condition numbers, if `Task.probe` measures them as `condition`.
    """
    rows = [row for one in shown for row in one.history]
    if not rows:
        return None
    titles = {
        "train_loss": "training loss, mean",
        "validation": "validation, best marked",
        "learning_rate": "learning rate",
        "condition": "condition number, mean",
    }
    measured = {name for row in rows for name in row if row[name] is not None}
    columns = [name for name in titles if name in measured]
    widths = [1 if name == "learning_rate" else 2 for name in columns]
    figure = drawing.new_figure(2.2 * sum(widths), 3.3, "constrained")
    axes = figure.subplots(1, len(columns), width_ratios=widths, squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        for one, line in _lines(shown):
            rows = [row for row in one.history if row.get(column) is not None]
            _curve(axis, rows, column, line)
        drawing.plain(axis)
        axis.set_title(titles[column], fontsize=10, pad=14)
        axis.set_xlabel("epoch")
        axis.locator_params(axis="x", integer=True)
        if column == "learning_rate":
            axis.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _curve(axis: Axes, rows: Sequence[dict[str, Any]], column: str, line: Line) -> None:
    epochs = [row.get("epoch", row["step"]) for row in rows]
    values = [row[column] for row in rows]
    line.draw(axis, epochs, values, marker="." if len(rows) < 20 else "")
    if column == "validation" and rows:
        best = int(np.argmin(values))
        axis.plot(epochs[best], values[best], "o", color=line.color)
    if column != "learning_rate" and rows and min(values) > 0:
        axis.set_yscale("log")


def errors(shown: Sequence[Member]) -> Any:
    """Distribution of the test errors: sorted errors against the fraction of samples.

    With several fields, a solid line shows the mean of the fields, and other lines the
    single fields.
    """
    outcomes = _outcomes(shown)
    if not outcomes:
        return None
    figure = drawing.new_figure(6.0, 3.4, "constrained")
    axis, groups = figure.subplots(), by_name(shown)
    for seen, line in outcomes:
        label = line.label
        if label and np.isfinite(seen.errors).any():
            label += _mean_error(groups[label])
        _distribution(axis, seen.errors, line._replace(label=label))
        for place, dashed in enumerate(_dashed_fields(seen, line)):
            _distribution(axis, seen.arrays["field_errors"][:, place], dashed)
    drawing.plain(axis)
    if all((seen.errors > 0).all() for seen, _ in outcomes):
        axis.set_xscale("log")
    axis.set(xlabel="error of a test sample", ylabel="share of the test samples below")
    axis.set_ylim(0, 1)
    drawing.legend(axis)
    return figure


def _distribution(axis: Axes, errors: np.ndarray, line: Line) -> None:
    values = np.sort(errors[np.isfinite(errors)])
    share = (np.arange(len(values)) + 0.5) / max(len(values), 1)
    line.draw(axis, values, share, marker="." if len(values) < 60 else "")


def _dashed_fields(seen: outcome.Outcome, line: Line) -> list[Line]:
    """A dashed line for each of several fields, named after it; none of one field."""
    names = [str(name) for name in seen.arrays.get("field_names", ())]
    dashes = ["--", ":", "-.", (0, (1, 4)), (0, (6, 3))]
    several = names if len(names) > 1 else []
    labels = [f"{line.label}, {name}" if line.label else None for name in several]
    return [
        line._replace(label=label, dash=dashes[i % len(dashes)])
        for i, label in enumerate(labels)
    ]


def _mean_error(group: Sequence[Member]) -> str:
    """The mean over the test samples; of several seeds the median of the means."""
    errors = [one.outcome.errors for one in group if one.outcome is not None]
    means = [np.mean(e[np.isfinite(e)]) for e in errors if np.isfinite(e).any()]
    of = f", median of {len(means)} seeds" if len(means) > 1 else ""
    return f", mean {np.median(means):.3g}{of}"


def fields(shown: Sequence[Member]) -> Any:
    """Truth, prediction and error of a few test samples, for the first seeds."""
    return figures_fields.fields(_first_outcomes(shown))


def series(shown: Sequence[Member]) -> Any:
    """Mean errors against the steps or frames of a sample, one line per member.

    Uses the arrays `series`, `(num_test, steps)`; `series_name`, the name of a step;
    `field_series`, `(steps, fields)`, with several fields; and, if they exist,
    `series_steps`, `(steps,)`, the step numbers, and `series_baseline`, `(steps,)`, the
    error of a trivial prediction.
    """
    outcomes = [(seen, x) for seen, x in _outcomes(shown) if "series" in seen.arrays]
    if not outcomes:
        return None
    figure = drawing.new_figure(5.0, 3.4, "constrained")
    axis, first = figure.subplots(), outcomes[0][0].arrays
    means = [seen.arrays["series"].mean(axis=0) for seen, _ in outcomes]
    steps = first.get("series_steps", np.arange(1, len(means[0]) + 1))
    for values, (seen, line) in zip(means, outcomes, strict=True):
        line.draw(axis, steps, values, marker=".")
        for place, dashed in enumerate(_dashed_fields(seen, line)):
            dashed.draw(axis, steps, seen.arrays["field_series"][:, place])
    if "series_baseline" in first:
        baseline = first["series_baseline"]
        axis.plot(steps, baseline, "--", color="0.5", label="nothing moves")
    drawing.plain(axis)
    axis.set(xlabel=str(first["series_name"]), ylabel="error")
    if 0 < 30 * np.min(means) < np.max(means):
        axis.set_yscale("log")
    else:
        axis.set_ylim(0, None)
    drawing.legend(axis)
    return figure


def basis_functions(shown: Sequence[Member]) -> Any:
    """Basis functions of the first model with a basis."""
    return _first_with(shown, "basis", figures_bases.basis)


def functional_maps(shown: Sequence[Member]) -> Any:
    """Functional maps of the first model with functional maps."""
    return _first_with(shown, "maps", figures_bases.maps)


def bases(shown: Sequence[Member]) -> Any:
    """Bases and functional maps of all models that have them, side by side."""
    outcomes = _first_outcomes(shown)
    both = {k: seen for k, seen in outcomes.items() if "basis" in seen.arrays}
    return figures_bases.compared(both) if len(both) > 1 else None


def seeds(shown: Sequence[Member]) -> Any:
    """Training and validation against the epoch: median and range over the seeds."""
    groups = by_name(shown)
    histories = {k: [one.history for one in group] for k, group in groups.items()}
    complete = {k: group for k, group in histories.items() if all(group)}
    several = any(len(group) > 1 for group in complete.values())
    return figures_seeds.seeds(complete) if several else None


def layers(shown: Sequence[Member]) -> Any:
    """Latents and eigenfunctions, for the first model whose program compares them."""
    for one in shown:
        if (one.folder / latents.FILE).exists():
            with np.load(one.folder / latents.FILE) as file:
                return figures_latents.latents(one.name, dict(file))
    return None


def _first_with(
    shown: Sequence[Member], array: str, function: Callable[..., Any]
) -> Any:
    for name, seen in _first_outcomes(shown).items():
        if array in seen.arrays:
            return function(name, seen)
    return None


def _first_outcomes(shown: Sequence[Member]) -> dict[str, outcome.Outcome]:
    """What the first seed of each model did, if it has finished."""
    outcomes = {name: group[0].outcome for name, group in by_name(shown).items()}
    return {name: seen for name, seen in outcomes.items() if seen is not None}


# Files by name; a new figure of every benchmark is a function and a line here.
def parity(shown: Sequence[Member]) -> Any:
    """Predicted against true quantities of interest and scalars, for the first seed."""
    values: dict[str, figures_quantities.Values] = {}
    for name, (first, *_) in by_name(shown).items():
        arrays = {} if first.outcome is None else first.outcome.arrays
        values[name] = figures_quantities.values_of(first.folder, arrays)
    return figures_quantities.parity(values)


FIGURES: dict[str, Callable[[Sequence[Member]], Any]] = {
    "fields": fields,
    "curves": curves,
    "errors": errors,
    "quantities": parity,
    "series": series,
    "basis_functions": basis_functions,
    "functional_maps": functional_maps,
    "bases": bases,
    "seeds": seeds,
    "latents": layers,
}
