"""Parts of the Markdown tables that programs write."""

import json
import pathlib
from typing import Any


def head(title: str, columns: str) -> list[str]:
    """Returns the first lines of a table with a heading; columns are split by `|`."""
    count = columns.count("|") + 1
    return [f"## {title}\n", f"| {columns} |", f"|{' --- |' * count}"]


def number(value: Any) -> str:
    """Formats a number; text is kept."""
    return value if isinstance(value, str) else f"{value:.3g}"


def provenance(folder: pathlib.Path, program: str, *, seconds: float) -> str:
    """Says how the numbers of a run came about, from its `environment.json`.

    Args:
      folder: of the run.
      program: module in `experiments`.
      seconds: wall time of the last process.

    Returns:
      A Markdown list.
    """
    found = json.loads((folder / "environment.json").read_text())
    modified = " with uncommitted changes" if found["git_modified"] else ""
    packages = ", ".join(
        f"{k} {found['packages'][k]}" for k in ("jax", "flax", "optax")
    )
    command = " ".join([f"python -m experiments.{program}", *found["command"][2:]])
    return (
        f"- command: `{command}`\n"
        f"- commit {found['git_commit']}{modified}, {found['starts'][-1][:10]}\n"
        f"- {found['cpu_count']} cores, {found['device_kind']}; {found['platform']}\n"
        f"- Python {found['python']}, {packages}\n"
        f"- {seconds:.0f} s for all studies of the last process, with compilation\n"
    )
