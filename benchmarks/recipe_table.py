"""The table of `results/recipes.md` that compares models by one recipe."""

import pathlib
import re
from typing import NamedTuple

_PAGE = pathlib.Path(__file__).parents[1] / "results" / "recipes.md"
_ERROR = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\]")


class Errors(NamedTuple):
    """Test errors of a model on a problem, over the seeds."""

    median: float
    smallest: float
    largest: float


def one_recipe() -> dict[str, dict[str, Errors]]:
    """Returns errors by problem and model; a model without the problem is left out."""
    text = _PAGE.read_text().split("## One recipe for all models\n")[1]
    lines = text[text.index("| problem") :].split("\n\n")[0].splitlines()
    heads, _, *rows = [line.split("|")[1:-1] for line in lines]
    table: dict[str, dict[str, Errors]] = {}
    for first, *cells in rows:
        found = {
            model.strip(): _ERROR.search(cell)
            for model, cell in zip(heads[1:], cells, strict=True)
        }
        table[first.split(",")[0].strip()] = {
            model: Errors(*map(float, match.groups()))
            for model, match in found.items()
            if match
        }
    return table
