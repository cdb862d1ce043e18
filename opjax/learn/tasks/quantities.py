"""Quantities of interest of the test samples: predicted, true, and their agreement."""

import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from opjax.learn.config.quantities import Quantity
from opjax.learn.json_files import write_json
from opjax.learn.named_types import Numbers
from opjax.learn.predict.quantities import measure
from opjax.learn.tasks import scalars
from opjax.samples import Sample
from opjax.samples.normalizers import Names

FILE = "quantities.json"


def evaluate(
    wanted: Sequence[Quantity],
    physical: Sequence[Sample],
    predicted: Iterable[np.ndarray],
    names: Names,
    folder: pathlib.Path,
) -> Numbers:
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
    names: Names,
) -> tuple[Numbers, dict[str, dict[str, list[float]]]]:
    """Returns the numbers of `evaluate`, and predicted and true quantities."""
    rows: list[list[Numbers]] = []
    for sample, values in zip(physical, predicted, strict=True):
        assert sample.target is not None
        rows.append(measure(wanted, sample, [values, sample.target], names))
    values_of: dict[str, dict[str, list[float]]] = {}
    numbers: Numbers = {}
    for one in wanted:
        guess, true = (np.array([row[i][one.text] for row in rows]) for i in (0, 1))
        values_of[one.text] = {"predicted": guess.tolist(), "true": true.tolist()}
        agreement = scalars.agreement(guess, true)
        numbers |= {f"{kind}_{one.key}": value for kind, value in agreement.items()}
    return numbers, values_of
