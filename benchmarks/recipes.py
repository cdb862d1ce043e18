r"""Compares training recipes of finished runs: error over seconds or epochs.

    python -m benchmarks.recipes --runs=runs/pipe-old,runs/pipe-new \
        --names=pipe:adamw,pipe:muon --figure=results/recipes.png

Every run is named `problem:recipe`. The figure has a panel per problem, a colour per
recipe and a line per seed. Prints a Markdown table with medians and ranges over the
seeds of the test errors and seconds.

--ends adds results without a curve as marks, of which only the time and the error at
the end are known. Seconds then have a logarithmic axis.
"""

import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

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
_ENDS = flags.DEFINE_list(
    "ends", [], "Results without a curve, problem:recipe:seconds:error"
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


class End(NamedTuple):
    """Seconds that a recipe took on a problem, and the error at its end."""

    problem: str
    recipe: str
    seconds: float
    error: float


def read_ends(values: Sequence[str]) -> list[End]:
    """Reads --ends.

    Raises:
      ValueError: if one has other parts than problem:recipe:seconds:error.
    """
    found = []
    for value in values:
        try:
            problem, recipe, seconds, error = value.split(":")
            found.append(End(problem, recipe, float(seconds), float(error)))
        except ValueError:
            raise ValueError(
                f"--ends: {value!r} must be problem:recipe:seconds:error, the last two "
                "of them numbers."
            ) from None
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


def curves(
    folders: Folders, model: str, over: str = "seconds", ends: Sequence[End] = ()
) -> Any:
    """Draws the validation error of every member over a column of its history.

    Args:
      folders: of the runs with curves.
      model: whose members are drawn.
      over: the column.
      ends: results that are drawn as marks, also of problems without curves.

    Raises:
      ValueError: if there are ends and `over` is not "seconds".
    """
    if ends and over != "seconds":
        raise ValueError(f"--ends has no meaning for --over={over}.")
    problems = list(dict.fromkeys([*folders, *(end.problem for end in ends)]))
    named = [name for recipes in folders.values() for name in recipes]
    named += [end.recipe for end in ends]
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(named))}
    columns = min(_COLUMNS, len(problems))
    rows = -(-len(problems) // columns)
    height = 3.6 if ends else 2.6  # with names below every panel, or in the first one
    figure = drawing.new_figure(3.2 * columns, height * rows, "constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, problem in zip(axes, problems, strict=False):
        recipes = folders.get(problem, {})
        for recipe, run in recipes.items():
            _draw_run(axis, members(run, model), over, recipe, colours[recipe])
        _draw_ends(axis, [e for e in ends if e.problem == problem], recipes, colours)
        axis.set(title=problem, xlabel=over, yscale="log")
        drawing.plain(axis)
        if ends:
            axis.set_xscale("log")
            _number(axis.xaxis, (1, 2, 5))
            _number(axis.yaxis, (1, 1.2, 1.5, 2, 3, 5, 7))
            place = {"loc": "upper left", "bbox_to_anchor": (0, -0.2)}
            axis.legend(frameon=False, fontsize=8, **place)
    if not ends:
        axes[0].legend(frameon=False, fontsize=8)
    for axis in axes[len(problems) :]:
        axis.remove()
    axes[0].set_ylabel("error" if ends else "validation")
    return figure


def _draw_run(
    axis: Any, folders: Sequence[pathlib.Path], over: str, recipe: str, colour: str
) -> None:
    """Draws the validation errors of all members of a run."""
    for place, folder in enumerate(folders):
        points = [
            (row[over], row["validation"])
            for row in read_metrics(folder)
            if row.get("validation") is not None
        ]
        label = "_" * bool(place) + recipe  # without a name in the legend, but for one
        x, y = zip(*points, strict=True)
        axis.plot(x, y, color=colour, linewidth=1.2, label=label)


def _draw_ends(
    axis: Any,
    ends: Sequence[End],
    recipes: Collection[str],
    colours: Mapping[str, str],
) -> None:
    """Draws marks; recipes that have a curve are named by it."""
    named = set(recipes)
    for end in ends:
        label = "_" * (end.recipe in named) + end.recipe
        axis.scatter(end.seconds, end.error, color=colours[end.recipe], label=label)
        named.add(end.recipe)


def _number(axis: Any, digits: Sequence[float]) -> None:
    """Writes plain numbers at a logarithmic axis, with these digits if it is short."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    subs = digits if high < 20 * low else (1,)
    axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def main(argv: Sequence[str]) -> None:
    """Prints the table and writes the figure."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    if _ENDS.value and not _FIGURE.value:
        raise app.UsageError("--ends are drawn; give --figure, or leave them out.")
    folders = by_problem(_RUNS.value, _NAMES.value)
    print(text(folders, _MODEL.value))
    if _FIGURE.value:
        ends = read_ends(_ENDS.value)
        drawn = curves(folders, _MODEL.value, _OVER.value, ends)
        drawing.save(drawn, _FIGURE.value)


if __name__ == "__main__":
    app.run(main)
