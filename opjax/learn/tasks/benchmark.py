"""Simple benchmarks: a data set, a few options, and three presets.

A program for such a benchmark is

    class Config(FieldOptions): ...  # with options of its own

    PRESETS = {
        "smoke": SMOKE(Config(...)),
        **quick(Config()),
        **published(PAPER(Config(...)), {...}),
    }

    def splits(config: Config, cache_dir: str | None) -> Splits:
        asked = request(config, cache_dir)
        return dataset.splits(asked, num_points=config.num_points)

    PROGRAM = learn.Program(name, PRESETS, benchmark(splits))

and is started by `PROGRAM.launch()`.
"""

from collections.abc import Callable
from typing import TypeVar

from opjax.datasets.requests import Request
from opjax.learn.config import DataOptions
from opjax.learn.config.presets import FieldOptions
from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.evaluation import Evaluation
from opjax.learn.tasks.model_data import Encoding
from opjax.learn.tasks.supervised import regression
from opjax.learn.tasks.task import Task
from opjax.samples import Splits

_Config = TypeVar("_Config", bound=FieldOptions)


def request(config: DataOptions, cache_dir: str | None) -> Request:
    """Returns the data set request of a configuration."""
    return Request(
        config.num_train,
        config.num_validation,
        config.num_test,
        config.data_dir,
        config.data_seed,
        cache_dir,
    )


def benchmark(
    splits: Callable[[_Config, str | None], Splits],
    *,
    notes: str = "",
    window: tuple[float, float, float, float] | None = None,
) -> Callable[[_Config, str | None], Task]:
    """Creates `make_task` of a program whose task is `regression` on a data set.

    Args:
      splits: `splits(config, cache_dir)` returns the samples of a configuration.
      notes: as in `Task`.
      window: left, right, bottom and top limits of figures; None for the full domain.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn, samples
      >>> def splits(config, cache_dir):
      ...     x = np.random.default_rng(config.data_seed).normal(size=(8, 6, 5))
      ...     cases = samples.from_arrays(features=x, target=np.sin(x))
      ...     return learn.Splits.divide(cases)._replace(source="sines")
      >>> make_task = learn.benchmark(splits)
      >>> program = learn.Program("sines", learn.quick(learn.FieldOptions()), make_task)
      >>> sorted(program.presets)
      ['fast', 'quick']
    """

    def make_task(config: _Config, cache_dir: str | None) -> Task:
        return regression(
            config,
            splits(config, cache_dir),
            encoding=Encoding(target=config.normalize_target),
            loss=Loss(mean=config.mean_loss),
            evaluation=Evaluation(window=window),
            notes=notes,
        )

    return make_task
