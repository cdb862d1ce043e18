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


def mean_and_deviation(values: Sequence[float] | np.ndarray, scale: float = 1) -> str:
    """Returns `mean ± standard deviation` over the seeds; one value by itself."""
    array = scale * np.asarray(values, np.float64)
    if array.size == 1:
        return f"{array.item():.4g}"
    return f"{array.mean():.4g} ± {array.std(ddof=1):.2g}"
