"""The samples of the Burgers experiment, from our own solver or the published file."""

from typing import Any, NamedTuple

import numpy as np

from opjax.datasets import burgers as dataset

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
    sizes = config.num_train, config.num_validation, config.num_test
    if config.data_dir:
        first, test = dataset.load(
            config.data_dir,
            num_train=config.num_train + config.num_validation,
            num_test=config.num_test,
        )
        train = {name: values[: sizes[0]] for name, values in first.items()}
        validation = {name: values[sizes[0] :] for name, values in first.items()}
        source = config.data_dir
    else:
        # A seed for each set: none changes with the size of another.
        train, validation, test = (
            dataset.generate(size, seed=3 * config.data_seed + i, cache_dir=cache_dir)
            for i, size in enumerate(sizes)
        )
        source = f"own solver, seed {config.data_seed}"
    return Data(
        _on_grid(train, config.num_points),
        _on_grid(validation, config.num_points),
        {points: _on_grid(test, points) for points in config.grids},
        source,
    )


def mesh_points(num_points: int) -> np.ndarray:
    """Returns the points `i / n` of the periodic grid, shape `(n, 1)`."""
    return (np.arange(num_points, dtype=np.float32) / num_points)[:, None]


def _on_grid(arrays: dict[str, np.ndarray], num_points: int) -> Samples:
    stride = arrays["a"].shape[1] // num_points
    return {
        "initial": np.asarray(arrays["a"][:, ::stride, None], np.float32),
        "solution": np.asarray(arrays["u"][:, ::stride, None], np.float32),
    }
