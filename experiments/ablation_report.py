"""Tables and figures of the ablation program."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.ablation_studies import STUDIES
from opjax.learn import drawing, members
from opjax.learn.fitting import read_metrics
from opjax.learn.folder import to_json, write_json, write_text
from opjax.learn.provenance import provenance
from opjax.learn.tables import table

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
    stored = to_json({**results, "boundary": list(boundary)})
    write_json(folder / "studies.json", stored)
    parts = [
        "# What matters, one choice at a time\n",
        "Relative L2 error on test samples, mean ± standard deviation over the seeds. "
        "A seed that diverged has no part in them; it is counted.\n",
        f"- seeds: {config.seeds}\n"
        f"- training samples of our own solvers: {config.num_train}\n"
        f"- epochs: {config.num_epochs}\n"
        f"- channels: {config.features}; layers: {config.num_layers}\n"
        "- Where models are smaller than the published ones or trained for less, "
        "orders and ratios compare, values do not.\n",
        provenance(folder, seconds=seconds),
    ]
    found = {}
    for study, members_ in results.items():
        found |= members.summary(members_, ["error"])
        columns = {"error": ("error, x 100", 100.0)}
        if study == "ridge":
            columns["condition"] = ("condition number", 1.0)
        columns["seconds"] = ("seconds", 1.0)
        parts += [f"## {STUDIES[study]}\n", members.comparison(members_, columns)]
        if study == "ridge":
            parts.append(
                "Condition number of the small systems after the last epoch, mean over "
                "layers and heads, on one validation sample.\n"
            )
    if boundary:
        parts += [
            "## How small a ridge float32 allows, no training\n",
            "Relative errors against float64 of one attention and its gradient in the "
            "key coefficients: 32 of smooth functions with 16 channels, a system that "
            "is singular without a ridge. No value is NaN: past an error of one they "
            "are noise.\n",
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
    figure = drawing.new_figure(9.0, 3.4, "constrained")
    left, right = figure.subplots(1, 2)
    seed = members.seed_numbers(config.seeds)[0]
    for name in results:
        rows = read_metrics(folder / "ridge" / f"{name}-{seed}")
        epochs = [row["epoch"] for row in rows]
        draw = {"label": name.replace("logit_", ""), "marker": ".", "linewidth": 1.2}
        left.plot(epochs, [_number(row["condition"]) for row in rows], **draw)
        right.plot(epochs, [row["validation"] for row in rows], **draw)
    left.set(xlabel="epoch", ylabel="condition number, mean", yscale="log")
    right.set(xlabel="epoch", ylabel="relative $L^2$ error, validation")
    for axis in (left, right):
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.locator_params(axis="x", integer=True)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles, labels, title="initial logit", loc="outside right", frameon=False
    )
    drawing.save(figure, folder / "conditions.png")


def _number(value: float | None) -> float:
    return np.nan if value is None else value  # JSON has no infinity
