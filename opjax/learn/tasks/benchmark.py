"""The plain benchmark: a data set, a few options of its own, and three presets.

A program of such a benchmark is

    class Config(FieldOptions): ...  # with options of its own

    PRESETS = {
        "smoke": SMOKE(Config(...)),
        **quick(Config()),
        **published(PAPER(Config(...)), {...}),
    }
    make_task = benchmark(dataset.splits, "names", "of", "own", "options")
    PROGRAM = learn.Program(name, PRESETS, make_task)

and starts with `PROGRAM.launch()`.
"""

from collections.abc import Callable
from typing import Any

from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.evaluation import Evaluation
from opjax.learn.tasks.supervised import Encoding, regression
from opjax.learn.tasks.task import Task
from opjax.samples import Splits


def load(
    config: Any, splits: Callable[..., Splits], *own: str, cache_dir: str | None = None
) -> Splits:
    """Reads or generates the samples that a configuration asks for, see `benchmark`."""
    names = ("num_train", "num_validation", "num_test", "data_dir", *own)
    given = {name: getattr(config, name) for name in names}
    return splits(**given, seed=config.data_seed, cache_dir=cache_dir)


def benchmark(
    splits: Callable[..., Splits],
    *own: str,
    notes: str = "",
    window: tuple[float, float, float, float] | None = None,
) -> Callable[[Any, str | None], Task]:
    """Makes `make_task` of a program whose task is `regression` on a data set.

    Its configurations have `FieldOptions`.

    Args:
      splits: of a module of `opjax.datasets`.
      *own: fields of the configuration that are options of the data set.
      notes: as in `Task`.
      window: left, right, bottom and top of what figures show; None for all.
    """

    def make_task(config: Any, cache_dir: str | None) -> Task:
        found = load(config, splits, *own, cache_dir=cache_dir)
        return regression(
            config,
            found,
            encoding=Encoding(target=config.normalize_target),
            loss=Loss(mean=config.mean_loss),
            evaluation=Evaluation(window=window),
            notes=notes,
        )

    return make_task
