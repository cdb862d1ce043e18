"""Finished studies beside the paper's figures, as tables."""

import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.poisson_schwarz.studies import RATES, Study
from opjax.learn import Finished
from opjax.learn.json_files import write_json
from opjax.learn.tables import median_and_range, number, table

if TYPE_CHECKING:
    from experiments.poisson_schwarz import Config

# Table 1 of the paper: final weighted MSE, mean and maximum relative L2 error of 16
# right-hand sides, relative Frobenius error; by model and learning rate.
PAPER = {
    "global": (
        (4.760e-1, 7.280e-1, 9.755e-1, 5.500),
        (1.208e-1, 2.785e-1, 7.486e-1, 5.452),
        (1.256e-2, 6.334e-2, 2.231e-1, 3.676),
        (1.669e-2, 4.427e-2, 1.339e-1, 1.581),
        (1.842e-2, 1.586e-1, 1.141, 3.069),
        (6.157e-1, 7.965e-1, 9.058e-1, 10.27),
    ),
    "schwarz": (
        (2.085e-2, 1.241e-1, 3.323e-1, 6.394e-1),
        (2.481e-3, 4.241e-2, 1.114e-1, 6.063e-1),
        (8.319e-4, 2.172e-2, 6.142e-2, 4.995e-1),
        (3.177e-4, 9.978e-3, 2.818e-2, 3.124e-1),
        (2.085e-4, 1.158e-2, 3.881e-2, 2.868e-1),
        (1.513e-3, 1.775e-2, 5.676e-2, 6.779e-1),
    ),
}
# Section 7 and Fig. 7: final weighted MSE.
PAPER_FINAL = {"paper_512": 1.339e-3, "paper_1024": 1.631e-2, "global_matched": 3.41e-1}

MODELS = {"global": "global", "schwarz": "Schwarz"}  # of those tables
LABELS = {
    "schwarz": "Schwarz, as configured",
    "global": "global, as configured",
    "global_matched": "global, about as many parameters",
    "global_small": "global, small start (2e-4), tuned",
    "global_whitened": "global, our default start",
    "schwarz_default": "Schwarz, our default start",
}
COLUMNS = {
    "weighted_mse": "weighted MSE (population)",
    "relative_l2": "mean rel. L2",
    "operator_frobenius": "operator Frobenius",
    "unseen_l2": "rel. L2, unseen modes",
}
_OF_MESHES = {"mass_l2": "mean rel. L2, mass matrix"}
_FURTHER = {
    "relative_l2_16": "mean_16",
    "initial_loss": "initial",
    "final_loss": "final",
}


class Row(NamedTuple):
    """A finished study: what it was, its result, and its folder."""

    study: Study
    result: dict[str, Any]
    folder: pathlib.Path

    @property
    def parameters(self) -> int:
        """Trainable numbers of one model, without padding."""
        return self.study.num_parameters()

    @property
    def losses(self) -> np.ndarray:
        """Weighted MSE of every batch, shape `(rates, seeds, steps)`."""
        shape = len(self.study.rates), len(self.study.seeds), -1
        with np.load(self.folder / "losses.npz") as file:
            return file["losses"].reshape(shape)

    def values(self, name: str, rate: float) -> np.ndarray:
        """An error of every seed at a rate; `final` is the loss of the last batch."""
        index = self.study.rates.index(rate)
        return np.array(self.result["errors"][name][index], float)  # None becomes NaN

    def spreads(self, names: Iterable[str], rate: float) -> list[str]:
        """Median and extremes over the seeds of some errors."""
        return [median_and_range(self.values(n, rate), digits=3) for n in names]

    def summary(self, rate: float) -> dict[str, Any]:
        """Medians over the seeds, with extremes of the first."""
        medians = {name: name for name in COLUMNS} | _FURTHER
        first = self.values("weighted_mse", rate)
        return {
            **{k: float(np.median(self.values(v, rate))) for k, v in medians.items()},
            "weighted_mse_min": float(np.min(first)),
            "weighted_mse_max": float(np.max(first)),
        }


Rows = dict[str, dict[str, Row]]  # by section and label


def rows(finished: Finished) -> Rows:
    """Finds the studies of a run by section and label."""
    return {
        section: {
            label: Row(one, finished.results[one.name][0], finished.folder / one.name)
            for label, one in group.items()
        }
        for section, group in finished.config.sections().items()
    }


def write(folder: pathlib.Path, config: "Config", rows: Rows) -> tuple[str, str]:
    """Writes `studies.json` into the folder of a run; returns tables and their head."""

    def as_json(row: Row) -> dict[str, Any]:
        return {
            "parameters": row.parameters,
            "train_seconds": row.result["seconds"],
            "rates": {f"{rate:g}": row.summary(rate) for rate in row.study.rates},
            "closed_form": row.result["closed_form"],
        }

    sections = {
        k: {x: as_json(row) for x, row in part.items()} for k, part in rows.items()
    }
    write_json(folder / "studies.json", sections)
    main = rows["main"]
    labels = dict(LABELS)
    if config.baselines:
        rank = main["global_matched"].study.setup.global_rank
        labels["global_matched"] = f"global, rank {rank}"
    named = {labels[name]: row for name, row in main.items()}
    parts = _paper_tables(main, config.rate) if config.sweep else []
    parts += comparison("Comparison", named, main["schwarz"].result["closed_form"])
    if "growth" in rows:
        parts += _growth_table(rows)
        parts += comparison("What the improvement comes from", rows["ablation"])
        parts += comparison("Two dimensions, 32 x 32 points", rows["two_dimensions"])

    head = (
        f"{len(config.seeds)} seeds ({','.join(map(str, config.seeds))}), "
        f"{config.num_steps} steps, batch {config.batch_size}, float32; median "
        "[smallest, largest] over the seeds. Weighted MSE is exact over the space of "
        "right-hand sides. Data come from our own solver: finite differences and their "
        "exact inverse."
    )
    return "\n".join(parts), head


def _paper_tables(main: dict[str, Row], rate: float) -> list[str]:
    """Tables 1 and 2 of the paper."""
    names = ["final", "mean_16", "max_16", "operator_frobenius", "weighted_mse"]
    columns = ["final weighted MSE", "mean rel. L2 (16)", "max rel. L2 (16)"]
    columns += ["operator Frobenius", "weighted MSE (population)"]
    first, second = [], []
    for i, one in enumerate(RATES):
        for name, label in MODELS.items():
            paper = [f"{value:.3g}" for value in PAPER[name][i]]
            first.append([f"{one:g}", label, "paper", *paper, ""])
            first.append(["", "", "ours", *main[name].spreads(names, one)])
    for name, label in MODELS.items():
        paper = [f"{value:.4g}" for value in PAPER[name][2][1:]]
        second.append([label, str(main[name].parameters), "paper", *paper])
        second.append(["", "", "ours", *main[name].spreads(names[1:4], rate)])
    pair = [main[name].values("operator_frobenius", 1e-3) for name in MODELS]
    return [
        "## Table 1 of the paper: learning rates\n",
        table(["rate", "model", "", *columns], first),
        "Global over Schwarz at rate 1e-3, seed by seed: Frobenius ratio "
        f"{median_and_range(pair[0] / pair[1], digits=3)}.\n",
        f"## Table 2 of the paper, rate {rate:g} (paper 1e-3)\n",
        table(["model", "parameters", "", *columns[1:4]], second),
    ]


def _growth_table(rows: Rows) -> list[str]:
    columns = {"initial": "initial loss", **COLUMNS}
    del columns["unseen_l2"]
    named = {"default_256": rows["ablation"]["default"], **rows["growth"]}
    lines = []
    for name, row in sorted(
        named.items(), key=lambda x: x[1].study.setup.domain.num_points
    ):
        start, size = name.rsplit("_", 1)
        line = [size, start.replace("_", " "), str(len(row.study.seeds))]
        line += [str(row.parameters), *row.spreads(columns, row.study.rate)]
        exact = (row.result["closed_form"] or {}).get("weighted_mse", "")
        lines.append([*line, *map(number, (PAPER_FINAL.get(name, ""), exact))])
    first = ["n", "start", "seeds", "parameters"]
    last = ["paper, final", "closed form, weighted MSE"]
    return [
        "## More points, 32 in a subdomain\n",
        table([*first, *columns.values(), *last], lines),
    ]


def comparison(
    title: str, rows: dict[str, Row], closed_form: dict[str, float] | None = None
) -> list[str]:
    """Lines of a table of studies under its title, with computed factors if there are.

    Columns that only some domains have are left out elsewhere.
    """
    errors = next(iter(rows.values())).result["errors"]
    columns = COLUMNS | {k: v for k, v in _OF_MESHES.items() if k in errors}
    lines = []
    for label, row in rows.items():
        rate = row.study.rate
        ours = row.spreads(columns, rate)
        lines.append([label, str(row.parameters), f"{rate:g}", *ours])
    if closed_form is not None:
        exact = [number(closed_form[name]) for name in columns]
        lines.append(["closed form, nothing trained", lines[0][1], "", *exact])
    head = ["model", "parameters", "rate", *columns.values()]
    return [f"## {title}\n", table(head, lines)]
