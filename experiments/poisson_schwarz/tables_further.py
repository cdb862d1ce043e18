"""Tables of what the paper leaves open."""

from collections.abc import Mapping

from experiments.poisson_schwarz.further import CONTRAST, EQUATIONS
from experiments.poisson_schwarz.tables import COLUMNS, Row, Rows, comparison
from opjax.learn.tables import table

_SCALINGS = {
    "none": "none (the paper)",
    "points": "1/sqrt(n d_k)",
    "blocks": "1/sqrt(n_i d_k), n_i of the block",
    "start": "1/sqrt(n d_k), start only",
}


def lines(rows: Rows) -> list[str]:
    """Parts of a page, for those sections that there are."""
    parts = []
    if "scaling" in rows:
        parts += _scaling(rows["scaling"])
    if "coarse_spaces" in rows:
        parts += comparison("Coarse spaces, n = 256", rows["coarse_spaces"])
    if "coefficients" in rows:
        parts += _coefficients(rows["coefficients"])
    if "mesh" in rows:
        setup = next(iter(rows["mesh"].values())).study.setup
        title = f"Linear finite elements on an L, {setup.domain.num_points} points"
        parts += comparison(title, rows["mesh"])
    return parts


def _scaling(rows: Mapping[str, Row]) -> list[str]:
    columns, found = {"initial": "initial loss", **COLUMNS}, []
    for name, row in rows.items():
        kind, size = name.rsplit("_", 1)
        for i, rate in enumerate(row.study.rates):
            first = ["", ""] if i else [size, _SCALINGS[kind]]
            found.append([*first, f"{rate:g}", *row.spreads(columns, rate)])
    head = ["n", "scaling", "rate", *columns.values()]
    return [
        "## Scaling by 1/sqrt(n d_k), the paper's initialisation\n",
        table(head, found),
    ]


def _coefficients(rows: Mapping[str, Row]) -> list[str]:
    parts = []
    for kind, seed in EQUATIONS:
        prefix = f"{kind} {seed}: "
        part = {k.removeprefix(prefix): row for k, row in rows.items() if prefix in k}
        exact = (row.result["closed_form"] for row in part.values())
        title = f"-(a u')' = f, {kind}"
        title += f", draw {seed}" if kind == "random" else ""
        title += f", contrast {CONTRAST:g}, n = 256"
        parts += comparison(title, part, next(filter(None, exact), None))
    return parts
