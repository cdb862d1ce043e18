"""Tables of the Poisson program."""

import pathlib
from typing import Any

import numpy as np

from experiments.poisson_rows import COLUMNS, LABELS, PAPER, PAPER_FINAL, Row
from experiments.poisson_studies import RATES
from opjax.learn.folder import to_json, write_json, write_text
from opjax.learn.provenance import provenance
from opjax.learn.tables import head, number


def write(
    folder: pathlib.Path,
    config: Any,
    rows: dict[str, dict[str, Row]],
    *,
    seconds: float,
) -> None:
    """Writes `tables.md` and `studies.json` into the folder of a run.

    Args:
      folder: of the run.
      config: of the run.
      rows: finished studies by section and label.
      seconds: wall time of all studies in this process.
    """
    studies = {
        section: {label: row.as_json() for label, row in group.items()}
        for section, group in rows.items()
    }
    write_json(folder / "studies.json", to_json(studies))
    main = rows["main"]
    parts = [_main_table(main, config)]
    if config.sweep:
        parts.insert(0, _sweep_table(main))
        parts.insert(1, _second_table(main, config.rate))
    if "growth" in rows:
        parts.append(_growth_table(rows))
        parts.append(_table("What the improvement comes from", rows["ablation"]))
        parts.append(_table("Two dimensions, 32 x 32 points", rows["two_dimensions"]))
    notes = (
        f"{len(config.seed_numbers)} seeds ({config.seeds}), {config.steps} steps, "
        f"batch {config.batch_size}, float32; median [smallest, largest] over the "
        "seeds. Weighted MSE is exact over the space of right-hand sides. Data come "
        "from our own solver: finite differences and their exact inverse.\n"
    )
    origin = provenance(folder, seconds=seconds)
    text = ["# Poisson, learned\n", notes, origin, *parts]
    write_text(folder / "tables.md", "\n".join(text))


def _sweep_table(main: dict[str, Row]) -> str:
    lines = head(
        "Table 1 of the paper: learning rates",
        "rate | model | | final weighted MSE | mean rel. L2 (16) | max rel. L2 (16) | "
        "operator Frobenius | weighted MSE (population)",
    )
    names = ("final", "mean_16", "max_16", "operator_frobenius")
    for i, rate in enumerate(RATES):
        for model, label in (("global", "global"), ("schwarz", "Schwarz")):
            paper = " | ".join(f"{value:.3g}" for value in PAPER[model][i])
            lines.append(f"| {rate:g} | {label} | paper | {paper} | |")
            ours = [main[model].values(name, rate) for name in (*names, "weighted_mse")]
            lines.append(f"| | | ours | {' | '.join(map(_spread, ours))} |")
    ratio = main["global"].values("operator_frobenius", 1e-3)
    ratio = ratio / main["schwarz"].values("operator_frobenius", 1e-3)
    lines.append(
        f"\nGlobal over Schwarz at rate 1e-3, seed by seed: Frobenius ratio "
        f"{_spread(ratio)}.\n"
    )
    return "\n".join(lines)


def _second_table(main: dict[str, Row], rate: float) -> str:
    lines = head(
        f"Table 2 of the paper, rate {rate:g} (paper 1e-3)",
        "model | parameters | | mean rel. L2 (16) | max rel. L2 (16) | "
        "operator Frobenius",
    )
    for model, label in (("global", "global"), ("schwarz", "Schwarz")):
        paper = " | ".join(f"{value:.4g}" for value in PAPER[model][2][1:])
        lines.append(f"| {label} | {main[model].parameters} | paper | {paper} |")
        names = ("mean_16", "max_16", "operator_frobenius")
        ours = " | ".join(_spread(main[model].values(name, rate)) for name in names)
        lines.append(f"| | | ours | {ours} |")
    return "\n".join([*lines, ""])


def _main_table(main: dict[str, Row], config: Any) -> str:
    named = {
        LABELS[name]
        if name != "global_matched"
        else f"global, rank {row.study.setup.global_rank}": row
        for name, row in main.items()
    }
    return _table("Comparison", named, config.rate, main["schwarz"].closed_form)


def _growth_table(rows: dict[str, dict[str, Row]]) -> str:
    lines = head(
        "More points, 32 in a subdomain",
        "n | start | seeds | parameters | initial loss | weighted MSE (population) | "
        "mean rel. L2 | operator Frobenius | paper, final | closed form, weighted MSE",
    )
    named = {"default_256": rows["ablation"]["default"], **rows["growth"]}
    for name, row in sorted(named.items(), key=lambda item: _size(item[1])):
        rate = row.study.rates[0]
        columns = ("initial", "weighted_mse", "relative_l2", "operator_frobenius")
        ours = " | ".join(_spread(row.values(column, rate)) for column in columns)
        exact = "" if row.closed_form is None else row.closed_form["weighted_mse"]
        label = name.rsplit("_", 1)[0].replace("_", " ")
        lines.append(
            f"| {_size(row)} | {label} | {len(row.study.seeds)} | {row.parameters} | "
            f"{ours} | "
            f"{number(PAPER_FINAL.get(name, ''))} | {number(exact)} |"
        )
    return "\n".join([*lines, ""])


def _table(
    title: str,
    rows: dict[str, Row],
    rate: float = 0.0,
    closed_form: dict[str, float] | None = None,
) -> str:
    lines = head(title, f"model | parameters | rate | {' | '.join(COLUMNS.values())}")
    for label, row in rows.items():
        shown = rate if rate in row.study.rates else row.study.rates[0]
        ours = " | ".join(_spread(row.values(name, shown)) for name in COLUMNS)
        lines.append(f"| {label} | {row.parameters} | {shown:g} | {ours} |")
    if closed_form is not None:
        exact = " | ".join(number(closed_form[name]) for name in COLUMNS)
        parameters = next(iter(rows.values())).parameters
        lines.append(f"| closed form, nothing trained | {parameters} | | {exact} |")
    return "\n".join([*lines, ""])


def _spread(values: np.ndarray) -> str:
    if len(values) == 1:
        return number(values[0])
    low, high = np.min(values), np.max(values)
    return f"{number(np.median(values))} [{number(low)}, {number(high)}]"


def _size(row: Row) -> int:
    return row.study.setup.num_points
