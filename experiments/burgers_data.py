"""The samples of the Burgers experiment, from our own solver or the published file."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from opjax.datasets import burgers as dataset
from opjax.datasets.samples import Sample, coarsen, stack

Samples = dict[str, np.ndarray]


class Data(NamedTuple):
    """Samples as the models see them: "initial" and "solution", `(samples, n, 1)`.

    Attributes:
      train: on the training grid; likewise `validation`.
      validation: chooses the model.
      tests: by the points of their grid.
      source: where the samples come from.
    """

    train: Samples
    validation: Samples
    tests: dict[int, Samples]
    source: str


def load(config: Any, *, cache_dir: str | None = None) -> Data:
    """Generates or reads the samples.

    Args:
      config: has the data fields of `experiments.burgers.Config`.
      cache_dir: folder of generated data.

    Returns:
      The samples; training, validation and test sets have no sample in common.

    Raises:
      OSError: if the file is missing or cannot be read.
      ValueError: if it is damaged or holds too few samples.
    """
    splits = dataset.splits(
        num_train=config.num_train,
        num_validation=config.num_validation,
        num_test=config.num_test,
        data_dir=config.data_dir,
        seed=config.data_seed,
        cache_dir=cache_dir,
    )
    return Data(
        _on_grid(splits.train, config.num_points),
        _on_grid(splits.validation, config.num_points),
        {points: _on_grid(splits.test, points) for points in config.grids},
        splits.source,
    )


def mesh_points(num_points: int) -> np.ndarray:
    """Returns the points `i / n` of the periodic grid, shape `(n, 1)`."""
    return (np.arange(num_points, dtype=np.float32) / num_points)[:, None]


def _on_grid(found: Sequence[Sample], num_points: int) -> Samples:
    (stacked,) = stack(coarsen(found, found[0].num_points // num_points))
    return {"initial": stacked["features"], "solution": stacked["target"]}
