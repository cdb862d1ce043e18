"""Quantities of interest of the test samples: predicted, true, and their agreement."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

import jax
import numpy as np

from opjax import metrics
from opjax.learn.config.quantities import Quantity
from opjax.learn.json_files import write_json
from opjax.learn.predict.quantities import measure
from opjax.samples import Sample

FILE = "quantities.json"


def evaluate(
    wanted: Sequence[Quantity],
    physical: Sequence[Sample],
    predicted: Iterable[np.ndarray],
    names: Mapping[str, Sequence[str]],
    folder: pathlib.Path,
) -> dict[str, float]:
    """Computes quantities for all test samples, and writes `quantities.json`.

    Args:
      wanted: the requested quantities.
      physical: the test samples, with targets, in physical units.
      predicted: predictions for them in the same order, `(n, q)`.
      names: names of the channels.
      folder: folder of the member.

    Returns:
      `r2_...` and `rank_...` of every quantity: the coefficient of determination and
      Spearman's rank correlation over the samples. Both are omitted if all true values
      are equal, and the rank correlation if all predicted values are equal.
    """
    numbers, values = compare(wanted, physical, predicted, names)
    samples = [sample.name for sample in physical]
    write_json(folder / FILE, {"samples": samples, "quantities": values})
    return numbers


def compare(
    wanted: Sequence[Quantity],
    physical: Sequence[Sample],
    predicted: Iterable[np.ndarray],
    names: Mapping[str, Sequence[str]],
) -> tuple[dict[str, float], dict[str, dict[str, list[float]]]]:
    """Returns the numbers of `evaluate`, and predicted and true quantities."""
    rows: list[list[dict[str, float]]] = []
    for sample, values in zip(physical, predicted, strict=True):
        assert sample.target is not None
        rows.append(measure(wanted, sample, [values, sample.target], names))
    found: dict[str, dict[str, list[float]]] = {}
    numbers: dict[str, float] = {}
    for one in wanted:
        guess, true = (np.array([row[i][one.text] for row in rows]) for i in (0, 1))
        found[one.text] = {"predicted": guess.tolist(), "true": true.tolist()}
        if np.ptp(true) > 0:
            with jax.enable_x64(True):
                numbers[f"r2_{one.key}"] = float(metrics.r_squared(guess, true))
                if np.ptp(guess) > 0:
                    rank = metrics.rank_correlation(guess, true)
                    numbers[f"rank_{one.key}"] = float(rank)
    return numbers, found
