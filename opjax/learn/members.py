"""Programs that train several models with several seeds, each in its own folder."""

import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from opjax.learn import options
from opjax.learn.folder import RunDirectory, run_once
from opjax.learn.tables import mean_and_deviation, table


def names(text: str, option: str, choices: Collection[str]) -> tuple[str, ...]:
    """Splits names at commas.

    Raises:
      ValueError: if one is unknown or there twice.
    """
    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        options.check_choice(option, name, choices)
    if len(set(found)) < len(found):
        raise ValueError(f"{option}={text!r} contains a name twice.")
    return found


def seed_numbers(text: str) -> tuple[int, ...]:
    """Splits seeds at commas.

    Raises:
      ValueError: if one is not a whole number or is there twice.
    """
    seeds = [seed.strip() for seed in text.split(",")]
    if not all(seed.isdecimal() for seed in seeds):
        raise ValueError(
            f"seeds={text!r} must be non-negative whole numbers separated by commas, "
            "such as 0,1,2."
        )
    numbers = tuple(map(int, seeds))
    if max(numbers) >= 2**31:
        raise ValueError(f"seeds={text!r} must be below 2^31.")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"seeds={text!r} contains a seed twice.")
    return numbers


def folder_name(name: str, seed: int | None) -> str:
    """Returns the folder of a member in that of its study."""
    plain = name.replace(":", "_")
    return plain if seed is None else f"{plain}-{seed}"


def run_all(
    folder: pathlib.Path,
    members: Mapping[tuple[str, int], Any],
    train: Callable[[Any, RunDirectory], dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
    """Trains every member in `folder/<name>-<seed>`, or reads what is finished.

    Args:
      folder: of the program's run.
      members: configurations by name and seed.
      train: `train(config, directory)`, the result of one member.

    Returns:
      Results by name, in the order of the seeds.
    """
    results: dict[str, list[dict[str, Any]]] = {}
    for (name, seed), config in members.items():
        result = run_once(
            folder / folder_name(name, seed),
            config,
            lambda directory, config=config: train(config, directory),
            last_line=False,
        )
        results.setdefault(name, []).append(result)
    return results


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
      results: as from `run_all`, with the key "parameters". A row with the key
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
