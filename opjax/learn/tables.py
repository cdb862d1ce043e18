"""Tables of the programs, in Markdown and for a terminal."""

import csv
import itertools
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opjax.learn.json_files import replacing
from opjax.learn.messages import say


def number(value: Any) -> str:
    """Formats a number; returns text unchanged."""
    return value if isinstance(value, str) else f"{value:.3g}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table; a `|` in a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped) + "\n"


def median_and_range(
    values: Sequence[float] | np.ndarray, scale: float = 1, *, digits: int = 4
) -> str:
    """Returns `median [minimum, maximum]` over the seeds; no range for one seed."""
    array = scale * np.asarray(values, np.float64)
    found = np.median(array), array.min(), array.max()
    median, low, high = (f"{value:.{digits}g}" for value in found)
    return f"{median} [{low}, {high}]" if array.size > 1 else median


def plain(text: str, width: int, *, max_rows: int = 30) -> str:
    """Formats the tables of a Markdown page for a terminal.

    Args:
      text: the page; everything except tables is omitted.
      width: width of the terminal. Columns that do not fit are shown below, repeated
        with the first column, and with the second if the first does not identify the
        rows.
      max_rows: maximum number of rows of a table.
    """
    shown: list[str] = []
    cells = [_cells(line) for line in text.splitlines()]
    for _, group in itertools.groupby(cells, key=len):
        lines = list(group)
        if len(lines) < 2 or set("".join(lines[1])) != {"-"}:
            continue
        left = len(lines) - 2 - max_rows
        shown += _aligned([lines[0], *lines[2 : 2 + max_rows]], width)
        if left > 0:
            shown[-1:] = [f"... {left} more rows", ""]
    return "\n".join(shown).rstrip()


def write_csv(
    path: pathlib.Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()
) -> None:
    """Writes a table to a file.

    Args:
      path: path of the file.
      rows: values by the name of their column; a missing value is an empty cell.
      columns: names of the columns; by default, in the order of the rows.

    Raises:
      OSError: if it cannot be written.
    """
    names = columns or list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)


def show(text: str) -> None:
    """Prints the tables of a Markdown page in the width of the terminal."""
    if shown := plain(text, shutil.get_terminal_size().columns):
        say(f"\n{shown}\n")


def _cells(line: str) -> list[str]:
    """The cells of a line of a Markdown table; none of another."""
    if not line.startswith("| "):
        return []
    cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
    return [cell.strip().replace(r"\|", "|") for cell in cells]


def _aligned(rows: list[list[str]], width: int) -> list[str]:
    """Lines of a table, names to the left, numbers to the right, in parts that fit."""
    first, *others = zip(*rows, strict=True)
    if not others:
        return [*first, ""]
    if len(set(first)) < len(first) and len(others) > 1:  # a model in several lines
        wide = max(map(len, first))
        first = [f"{a.ljust(wide)}  {b}" for a, b in zip(first, others[0], strict=True)]
        others = others[1:]
    sizes = [max(map(len, column)) for column in others]
    names = max(map(len, first))
    lines: list[str] = []
    while others:
        total, count = names, 0
        while count < len(others) and (not count or total + 2 + sizes[count] <= width):
            total, count = total + 2 + sizes[count], count + 1
        for name, *values in zip(first, *others[:count], strict=True):
            padded = (v.rjust(n) for v, n in zip(values, sizes, strict=False))
            lines.append("  ".join([name.ljust(names), *padded]).rstrip())
        lines.append("")
        others, sizes = others[count:], sizes[count:]
    return lines
