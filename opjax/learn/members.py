"""Results of several models with several seeds, each in a folder of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opjax.learn.tables import mean_and_deviation, table


def folder_name(name: str, seed: int | None) -> str:
    """Returns the folder of a member in that of its study."""
    plain = name.replace(":", "_")
    return plain if seed is None else f"{plain}-{seed}"


def summary(
    results: Mapping[str, Sequence[Mapping[str, Any]]], columns: Sequence[str]
) -> dict[str, float]:
    """Returns `<column>_<name>`, means over the seeds, and `..._std` for several.

    A value that is None, as JSON has it for NaN, makes the mean NaN.
    """
    found = {}
    for name, rows in results.items():
        for column in columns:
            values = np.array([row.get(column) for row in rows], np.float64)
            found[f"{column}_{name}"] = float(values.mean())
            if len(values) > 1:
                found[f"{column}_{name}_std"] = float(values.std(ddof=1))
    return found


def comparison(
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    columns: Mapping[str, tuple[str, float]],
) -> str:
    """Returns a Markdown table of means and standard deviations over the seeds.

    Args:
      results: by name, with the key "parameters". A row with the key
        "diverged" needs none of the columns: it is counted, and the others are shown.
      columns: heading and factor of every key to show.
    """
    lines = []
    for name, rows in results.items():
        kept = [row for row in rows if "diverged" not in row]
        lost, seeds = len(rows) - len(kept), str(len(rows))
        cells = [_cell(kept, key, scale) for key, (_, scale) in columns.items()]
        if lost:
            seeds += f", {lost} diverged"
        if not kept and cells:
            cells[0] = "diverged"
        parameters = max(row["parameters"] for row in rows)
        lines.append([name, f"{parameters:,}" if parameters else "–", seeds, *cells])
    headings = [heading for heading, _ in columns.values()]
    return table(["model", "parameters", "seeds", *headings], lines)


def _cell(rows: Sequence[Mapping[str, Any]], key: str, scale: float) -> str:
    values = np.array([row[key] for row in rows], np.float64)  # None becomes NaN
    if not values.size:
        return "–"
    return mean_and_deviation(values, scale) if np.isfinite(values).all() else "∞"
