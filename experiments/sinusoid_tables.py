"""Tables of the sinusoid program."""

import pathlib
from typing import Any, NamedTuple

import numpy as np

from experiments.sinusoid_models import METHODS
from experiments.sinusoid_training import CONTEXTS
from opjax.learn.folder import write_text
from opjax.learn.provenance import provenance
from opjax.learn.tables import head, number

_COMPARED = np.asarray(CONTEXTS) >= 10


class Row(NamedTuple):
    """What the seeds of a method reached.

    Attributes:
      rate: learning rate.
      parameters: numbers that are trained.
      errors: mean square errors, shape `(seeds, contexts)`.
      losses: training losses, shape `(seeds, steps)`.
      seconds: of training, all seeds.
    """

    rate: float
    parameters: int
    errors: np.ndarray
    losses: np.ndarray
    seconds: float

    @property
    def error(self) -> float:
        """Mean over 10 and more observations, median of the seeds."""
        return float(np.median(self.errors[:, _COMPARED].mean(axis=1)))


def summary(rows: dict[str, Row]) -> dict[str, Any]:
    """Returns errors, ratios to functional attention, sizes and times by method."""
    found: dict[str, Any] = {f"mse_{name}": row.error for name, row in rows.items()}
    if (ours := rows.get("functional")) is not None:
        found |= {f"ratio_{name}": r.error / ours.error for name, r in rows.items()}
    found |= {f"parameters_{name}": row.parameters for name, row in rows.items()}
    return found | {f"train_seconds_{name}": row.seconds for name, row in rows.items()}


def write(
    folder: pathlib.Path, config: Any, rows: dict[str, Row], *, seconds: float
) -> None:
    """Writes `tables.md` into the folder of a run.

    Args:
      folder: of the run.
      config: of the run.
      rows: finished methods.
      seconds: wall time of this process.
    """
    notes = (
        f"{len(config.seed_numbers)} seeds ({config.seeds}), {config.steps} steps of "
        f"{config.batch_size} fresh tasks with {config.num_context} observations and "
        f"{config.num_query} queries, float32; mean ± standard deviation over the "
        f"seeds. Errors are those of {config.test_tasks} test tasks, the same for all."
        f"{_shrunk(config)}\n"
    )
    text = [
        "# Sine waves from a few observations\n",
        notes,
        provenance(folder, seconds=seconds),
        _errors_table(rows),
        _ratios_table(rows),
    ]
    write_text(folder / "tables.md", "\n".join(text))


def _shrunk(config: Any) -> str:
    if config.shrink == 1:
        return ""
    return f" Models have 1/{config.shrink} of the published widths."


def _errors_table(rows: dict[str, Row]) -> str:
    sizes = " | ".join(str(size) for size in CONTEXTS)
    lines = head(
        "Mean square error by number of observations",
        f"method | parameters | rate | {sizes} | ms per step",
    )
    for name, row in rows.items():
        cells = " | ".join(_spread(values) for values in row.errors.T)
        pace = number(1e3 * row.seconds / row.losses.size)
        label = METHODS[name].label
        lines.append(
            f"| {label} | {row.parameters} | {row.rate:g} | {cells} | {pace} |"
        )
    return "\n".join([*lines, ""])


def _ratios_table(rows: dict[str, Row]) -> str:
    if "functional" not in rows:
        return ""
    sizes = " | ".join(str(size) for size in CONTEXTS if size >= 10)
    lines = head(
        "Error relative to functional attention (means over the seeds)",
        f"method | {sizes} | mean of 10 to 40, median of the seeds",
    )
    ours = rows["functional"]
    for name, row in rows.items():
        ratios = (row.errors.mean(axis=0) / ours.errors.mean(axis=0))[_COMPARED]
        cells = " | ".join(map(number, ratios))
        total = number(row.error / ours.error)
        lines.append(f"| {METHODS[name].label} | {cells} | {total} |")
    return "\n".join([*lines, ""])


def _spread(values: np.ndarray) -> str:
    if len(values) == 1:
        return number(values[0])
    return f"{number(np.mean(values))} ± {number(np.std(values, ddof=1))}"
