r"""Compares training recipes of finished runs: error over seconds or epochs.

    python -m benchmarks.recipes --runs=runs/pipe-old,runs/pipe-new \
        --names=pipe:adamw,pipe:muon --figure=results/recipes.png

Every run is named `problem:recipe`. The figure has a panel per problem, a colour per
recipe and a line per seed. Prints a Markdown table with medians and ranges over the
seeds of the test errors and seconds.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from opjax.learn.report import drawing
from opjax.learn.run.metrics_file import read_metrics
from opjax.learn.tables import median_and_range, table

_RUNS = flags.DEFINE_list("runs", [], "Folders of finished runs")
_MODEL = flags.DEFINE_string("model", "functional", "Model whose results are compared")
_NAMES = flags.DEFINE_list(
    "names", [], "Names of the runs, problem:recipe, in the order of --runs"
)
_FIGURE = flags.DEFINE_string("figure", None, "PNG file to write")
_OVER = flags.DEFINE_enum(
    "over",
    "seconds",
    ["seconds", "epoch"],
    "Horizontal axis of the figure. Use epoch when a busy machine distorted the "
    "seconds",
)
_COLUMNS = 3

# By problem and recipe.
Folders = Mapping[str, Mapping[str, pathlib.Path]]


def by_problem(runs: Sequence[str], names: Sequence[str]) -> Folders:
    """Groups folders by the two parts of their names.

    Raises:
      ValueError: if there is not one name of two parts for every run.
    """
    if len(runs) != len(names) or not all(name.count(":") == 1 for name in names):
        raise ValueError(
            f"--names={','.join(names)} must be one problem:recipe for every one of "
            f"the {len(runs)} --runs."
        )
    found: dict[str, dict[str, pathlib.Path]] = {}
    for run, name in zip(runs, names, strict=True):
        problem, recipe = name.split(":")
        found.setdefault(problem, {})[recipe] = pathlib.Path(run)
    return found


def members(run: pathlib.Path, model: str) -> list[pathlib.Path]:
    """Folders of a model's members of a run.

    Raises:
      ValueError: if there are none.
    """
    found = sorted(path.parent for path in run.glob(f"{model}-*/result.json"))
    if not found:
        raise ValueError(f"{run} holds no finished member of --model={model}.")
    return found


def results(run: pathlib.Path, model: str) -> list[dict[str, Any]]:
    """Numbers of a model's members."""
    files = [folder / "result.json" for folder in members(run, model)]
    return [json.loads(path.read_text()) for path in files]


def text(folders: Folders, model: str) -> str:
    """Returns the table."""
    rows = []
    for problem, recipes in folders.items():
        for recipe, run in recipes.items():
            found = results(run, model)
            headline = next(iter(found[0]))
            errors = [row[headline] for row in found]
            seconds = [row["seconds"] for row in found]
            cells = [headline.replace("_", " "), median_and_range(errors)]
            cells.append(median_and_range(seconds, digits=3))
            rows.append([problem, recipe, str(len(found)), *cells])
    columns = ["problem", "recipe", "seeds", "number", "test", "seconds"]
    return table(columns, rows)


def curves(folders: Folders, model: str, over: str = "seconds") -> Any:
    """Draws the validation error of every member over a column of its history."""
    columns = min(_COLUMNS, len(folders))
    rows = -(-len(folders) // columns)
    figure = drawing.new_figure(3.2 * columns, 2.6 * rows, "constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    names = list(dict.fromkeys(name for group in folders.values() for name in group))
    for axis, (problem, recipes) in zip(axes, folders.items(), strict=False):
        for recipe, run in recipes.items():
            for place, folder in enumerate(members(run, model)):
                points = [
                    (row[over], row["validation"])
                    for row in read_metrics(folder)
                    if row.get("validation") is not None
                ]
                style = {"color": f"C{names.index(recipe)}", "linewidth": 1.2}
                axis.plot(
                    *zip(*points, strict=True),
                    **style,
                    label="_" * bool(place) + recipe,
                )
        axis.set(title=problem, xlabel=over, yscale="log")
        drawing.plain(axis)
    for axis in axes[len(folders) :]:
        axis.remove()
    axes[0].set_ylabel("validation")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def main(argv: Sequence[str]) -> None:
    """Prints the table and writes the figure."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    folders = by_problem(_RUNS.value, _NAMES.value)
    print(text(folders, _MODEL.value))
    if _FIGURE.value:
        drawing.save(curves(folders, _MODEL.value, _OVER.value), _FIGURE.value)


if __name__ == "__main__":
    app.run(main)
