"""The plain benchmark: a data set, a few options of its own, and three presets.

Config: options of its own on top of `BenchmarkOptions`;
PRESETS: {"smoke": Config(**SMOKE, ...), "quick": Config(), "paper": Config(...)};
PROGRAM = learn.Program(name, PRESETS, benchmark(dataset.splits, "own", "options"))
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from opjax.datasets.samples import Splits
from opjax.learn.config import (
    DataOptions,
    ModelOptions,
    RunOptions,
    TrainingOptions,
)
from opjax.learn.supervised import regression
from opjax.learn.task import Task

# A model that is trained in seconds.
SMOKE: dict[str, Any] = {
    "preset": "smoke",
    "models": ("functional",),
    "features": 16,
    "num_layers": 2,
    "num_heads": 2,
    "num_basis": 8,
    "num_epochs": 2,
}
# The model and the epochs of the functional attention paper.
PAPER: dict[str, Any] = {
    "preset": "paper",
    "models": ("functional",),
    "features": 128,
    "num_layers": 8,
    "num_heads": 8,
    "num_basis": 64,
    "num_epochs": 500,
}


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All options that benchmarks have in common."""


def load(
    config: Any,
    splits: Callable[..., Splits],
    *own: str,
    cache_dir: str | None = None,
) -> Splits:
    """Reads or generates the samples that a configuration asks for, see `benchmark`."""
    return splits(
        num_train=config.num_train,
        num_validation=config.num_validation,
        num_test=config.num_test,
        data_dir=config.data_dir,
        seed=config.data_seed,
        cache_dir=cache_dir,
        **{name: getattr(config, name) for name in own},
    )


def benchmark(
    splits: Callable[..., Splits], *own: str, **options: Any
) -> Callable[[Any, str | None], Task]:
    """Makes `make_task` of a program whose task is `regression` on a data set.

    Args:
      splits: of a module of `opjax.datasets`.
      *own: fields of the configuration that are options of the data set.
      **options: further arguments of `regression`.
    """

    def make_task(config: Any, cache_dir: str | None) -> Task:
        found = load(config, splits, *own, cache_dir=cache_dir)
        return regression(config, found, **options)

    return make_task
