"""Markdown tables of the programs."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def number(value: Any) -> str:
    """Formats a number; text is kept."""
    return value if isinstance(value, str) else f"{value:.3g}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table; a `|` in a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped) + "\n"


def median_and_range(
    values: Sequence[float] | np.ndarray, scale: float = 1, *, digits: int = 4
) -> str:
    """Returns `median [smallest, largest]` over the seeds; one value by itself."""
    array = scale * np.asarray(values, np.float64)
    found = np.median(array), array.min(), array.max()
    median, low, high = (f"{value:.{digits}g}" for value in found)
    return f"{median} [{low}, {high}]" if array.size > 1 else median
