"""Figures of every benchmark, drawn from the folders of its members alone.

A figure is a function of members that returns a matplotlib figure, or None where the
members lack what it shows. To add one to every benchmark, write it and list it in
`FIGURES`.
"""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from opjax.learn import drawing, figures_fields, operators, outcome
from opjax.learn.metrics_file import read_metrics


class Member(NamedTuple):
    """One model with one seed.

    Attributes:
      name: of the model.
      seed: of its parameters.
      folder: of the finished run.
    """

    name: str
    seed: int
    folder: pathlib.Path

    @property
    def history(self) -> list[dict[str, Any]]:
        """Rows of `metrics.jsonl`."""
        return read_metrics(self.folder)

    @property
    def outcome(self) -> outcome.Outcome | None:
        """What `outcome.read` reads; None without the file or with an older one."""
        try:
            return outcome.read(self.folder)
        except (FileNotFoundError, KeyError):
            return None


def member(folder: pathlib.Path) -> Member:
    """Reads name and seed of a member from its configuration and its folder."""
    config = json.loads((folder / "config.json").read_text())
    name, seed = (
        found[0] if isinstance(found, list) else found
        for found in (
            config.get("models", config.get("model", folder.name)),
            config.get("seeds", config.get("seed", 0)),
        )
    )
    # Variants of a model have names of their own, in those of their folders.
    stem = folder.name.removesuffix(f"-{seed}")
    if stem != folder.name and stem != operators.slug(name):
        name = stem
    return Member(name, int(seed), folder)


def members(folder: pathlib.Path) -> list[Member]:
    """Finds the members of a run, models in its order and seeds as numbers.

    Args:
      folder: of the run, or of a single member.
    """
    found = sorted(path.parent for path in folder.rglob("metrics.jsonl"))
    config = json.loads((folder / "config.json").read_text())
    order = [operators.slug(name) for name in config.get("models", ())]

    def place(one: Member) -> tuple[int, str, int]:
        model = operators.slug(one.name)
        known = order.index(model) if model in order else len(order)
        return known, one.name, one.seed

    return sorted(map(member, found), key=place)


def draw(folder: pathlib.Path, shown: Sequence[Member]) -> list[pathlib.Path]:
    """Draws all figures.

    Args:
      folder: figures come to its folder `figures`.
      shown: the members, in the order of the models.

    Returns:
      The files.

    Raises:
      ImportError: if matplotlib is missing.
      OSError: if files cannot be read or written.
    """
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
    """Groups members by model, the smallest seed first."""
    groups: dict[str, list[Member]] = {}
    for one in shown:
        groups.setdefault(one.name, []).append(one)
    return {k: sorted(group, key=lambda m: m.seed) for k, group in groups.items()}


def curves(shown: Sequence[Member]) -> Any:
    """Training loss, validation error and learning rate over the epochs."""
    histories = [(one, one.history) for one in shown]
    if not any(rows for _, rows in histories):
        return None
    figure = drawing.new_figure(11.0, 3.3, "constrained")
    axes = figure.subplots(1, 3, width_ratios=[2, 2, 1])
    titles = {
        "train_loss": "training loss of a batch",
        "validation": "validation, best marked",
        "learning_rate": "learning rate",
    }
    names = list(by_name(shown))
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for one, history in histories:
            rows = [row for row in history if row.get(column) is not None]
            style = {"color": f"C{names.index(one.name) % 10}", "label": one.name}
            _curve(axis, rows, column, **style)
        drawing.plain(axis)
        axis.set_title(title, fontsize=10, pad=14)
        axis.set_xlabel("epoch")
        axis.locator_params(axis="x", integer=True)
    axes[2].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    handles, labels = axes[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes[0].legend(once.values(), once.keys(), frameon=False, fontsize=8)
    return figure


def _curve(
    axis: Any, rows: Sequence[dict[str, Any]], column: str, **style: Any
) -> None:
    epochs = [row.get("epoch", row["step"]) for row in rows]
    values = [row[column] for row in rows]
    marker = "." if len(rows) < 20 else ""
    axis.plot(epochs, values, marker=marker, linewidth=1.3, **style)
    if column == "validation" and rows:
        best = int(np.argmin(values))
        axis.plot(epochs[best], values[best], "o", color=style["color"])
    if column != "learning_rate" and rows and min(values) > 0:
        axis.set_yscale("log")


def errors(shown: Sequence[Member]) -> Any:
    """How the errors of the test samples are distributed: sorted, over their share."""
    found = [(one, one.outcome) for one in shown]
    found = [(one, seen.errors) for one, seen in found if seen is not None]
    if not found:
        return None
    figure = drawing.new_figure(6.0, 3.4, "constrained")
    axis = figure.subplots()
    groups = list(by_name([one for one, _ in found]))
    named = set()
    for one, values in found:
        values = np.sort(values[np.isfinite(values)])
        share = (np.arange(len(values)) + 0.5) / max(len(values), 1)
        text = f"{one.name}, mean {np.mean(values):.3g}" if len(values) else one.name
        axis.plot(
            values,
            share,
            color=f"C{groups.index(one.name) % 10}",
            marker="." if len(values) < 60 else "",
            linewidth=1.3,
            label=None if one.name in named else text,
        )
        named.add(one.name)
    drawing.plain(axis)
    if all((values > 0).all() for _, values in found):
        axis.set_xscale("log")
    axis.set(xlabel="error of a test sample", ylabel="share of the test samples below")
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, fontsize=8)
    return figure


def fields(shown: Sequence[Member]) -> Any:
    """Truth, prediction and error of a few test samples, see `figures_fields.fields`.

    The first seed of every model is shown.
    """
    found = {name: group[0].outcome for name, group in by_name(shown).items()}
    return figures_fields.fields({k: v for k, v in found.items() if v is not None})


def series(shown: Sequence[Member]) -> Any:
    """Mean errors over the steps or frames of a sample, a line for each member.

    Drawn from the arrays `series`, `(num_test, steps)`, `series_name`, what a step is,
    and `series_baseline`, `(steps,)`, the error of a trivial prediction, if any.
    """
    found = [(one, one.outcome) for one in shown]
    found = [(one, seen.arrays) for one, seen in found if seen is not None]
    found = [(one, arrays) for one, arrays in found if "series" in arrays]
    if not found:
        return None
    figure = drawing.new_figure(5.0, 3.4, "constrained")
    axis = figure.subplots()
    names = list(by_name([one for one, _ in found]))
    labels = set()
    for one, arrays in found:
        steps = np.arange(1, arrays["series"].shape[1] + 1)
        axis.plot(
            steps,
            arrays["series"].mean(axis=0),
            ".-",
            color=f"C{names.index(one.name) % 10}",
            label=None if one.name in labels else one.name,
        )
        labels.add(one.name)
    if "series_baseline" in found[0][1]:
        baseline = found[0][1]["series_baseline"]
        axis.plot(steps, baseline, "--", color="0.5", label="nothing moves")
    drawing.plain(axis)
    axis.set(xlabel=str(found[0][1]["series_name"]), ylabel="error", ylim=(0, None))
    axis.legend(frameon=False, fontsize=8)
    return figure


def basis_functions(shown: Sequence[Member]) -> Any:
    """Basis functions of the first model that has them, see `figures_fields.basis`."""
    return figures_fields.basis(*_first_with(shown, "basis"))


def functional_maps(shown: Sequence[Member]) -> Any:
    """Functional maps of the first model that has them, see `figures_fields.maps`."""
    return figures_fields.maps(*_first_with(shown, "maps"))


def _first_with(
    shown: Sequence[Member], name: str
) -> tuple[str, outcome.Outcome | None]:
    for model, group in by_name(shown).items():
        seen = group[0].outcome
        if seen is not None and name in seen.arrays:
            return model, seen
    return "", None


# Files by name; a new figure of every benchmark is a function and a line here.
FIGURES: dict[str, Callable[[Sequence[Member]], Any]] = {
    "fields": fields,
    "curves": curves,
    "errors": errors,
    "series": series,
    "basis_functions": basis_functions,
    "functional_maps": functional_maps,
}
