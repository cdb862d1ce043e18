"""Tables and figures of the ablation program."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import figures, members
from experiments.ablation_studies import STUDIES
from experiments.reports import provenance, table
from experiments.run_directory import read_metrics, write_json, write_text

Results = Mapping[str, Mapping[str, Sequence[dict[str, Any]]]]


def write(
    folder: pathlib.Path,
    config: Any,
    results: Results,
    boundary: Sequence[dict[str, float]],
    *,
    seconds: float,
) -> dict[str, float]:
    """Writes `tables.md`, `studies.json` and the figures of the ridge.

    Args:
      folder: of the run.
      config: of the run.
      results: of every study, as from `members.run_all`.
      boundary: from `ablation_studies.ridge_boundary`.
      seconds: wall time of this process.

    Returns:
      `error_<variant>`, means over the seeds, and their standard deviations.
    """
    write_json(folder / "studies.json", {**results, "boundary": list(boundary)})
    parts = [
        "# What matters, one choice at a time\n",
        f"Relative L2 error on test samples, mean ± standard deviation over the seeds "
        f"{config.seeds}; {config.num_train} training samples of our own solvers, "
        f"{config.num_epochs} epochs, {config.features} channels, {config.num_layers} "
        "layers. Models are much smaller than the published ones: orders and ratios "
        "compare, values do not.\n",
        provenance(folder, "ablation", seconds=seconds),
    ]
    found = {}
    for study, members_ in results.items():
        found |= members.summary(members_, ["error"])
        columns = {"error": ("error, x 100", 100.0)}
        if study == "ridge":
            columns["condition"] = ("condition number, last", 1.0)
        columns["seconds"] = ("seconds", 1.0)
        parts += [f"## {STUDIES[study]}\n", members.comparison(members_, columns)]
    if boundary:
        parts += [
            "## How small a ridge float32 allows, no training\n",
            _table(boundary),
        ]
        _draw_conditions(folder, config, results["ridge"])
    write_text(folder / "tables.md", "\n".join(parts))
    return found


def _table(boundary: Sequence[dict[str, float]]) -> str:
    columns = ("logit", "ridge", "condition", "value_error", "gradient_error")
    rows = [[f"{row[name]:.3g}" for name in columns] for row in boundary]
    return table([name.replace("_", " ") for name in columns], rows)


def _draw_conditions(
    folder: pathlib.Path, config: Any, results: Mapping[str, Any]
) -> None:
    figure = figures.new_figure(9.0, 3.4)
    left, right = figure.subplots(1, 2)
    seed = members.seed_numbers(config.seeds)[0]
    for name in results:
        rows = read_metrics(folder / "ridge" / f"{name}-{seed}")
        epochs = [row["epoch"] for row in rows]
        label = name.replace("logit_", r"$\alpha$ = ")
        left.semilogy(epochs, [_number(row["condition"]) for row in rows], label=label)
        right.semilogy(epochs, [row["validation"] for row in rows], label=label)
    left.set(xlabel="epoch", ylabel="condition number, mean")
    right.set(xlabel="epoch", ylabel="relative L2 error, validation")
    left.legend(fontsize=7)
    figures.save(figure, folder / "conditions.png")


def _number(value: float | None) -> float:
    return np.nan if value is None else value  # JSON has no infinity
