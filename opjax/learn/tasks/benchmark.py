"""The plain benchmark: a data set, a few options of its own, and three presets.

A program of such a benchmark is

    class Config(FieldOptions): ...  # with options of its own

    PRESETS = {
        "smoke": Config(**SMOKE, ...),
        **quick(Config()),
        **published(Config(**PAPER, ...)),
    }
    make_task = benchmark(dataset.splits, "names", "of", "own", "options")
    PROGRAM = learn.Program(name, PRESETS, make_task)

and starts with `PROGRAM.launch()`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from opjax.learn.config import (
    DataOptions,
    ModelOptions,
    RunOptions,
    TrainingOptions,
    option,
)
from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.evaluation import Evaluation
from opjax.learn.tasks.supervised import Encoding, regression
from opjax.learn.tasks.task import Task
from opjax.samples import Splits

# A model that is trained in seconds.
SMOKE: dict[str, Any] = {
    "preset": "smoke",
    "models": ("functional",),
    "width": 16,
    "num_layers": 2,
    "num_heads": 2,
    "num_basis": 8,
    "num_epochs": 2,
}
# The model and the epochs of the functional attention paper. No validation samples, as
# published: the model is that of the last epoch.
PAPER: dict[str, Any] = {
    "preset": "paper",
    "models": ("functional",),
    "equal_parameters": False,
    "num_validation": 0,
    "width": 128,
    "num_layers": 8,
    "num_heads": 8,
    "num_basis": 64,
    "num_epochs": 500,
}
# What `--preset=fast` has otherwise than `quick`, see results/recipes.md.
FAST: dict[str, Any] = {
    "optimizer": "muon",
    "learning_rate": 3e-3,
    "ridge_unit": "mean",
    "initial_kernels": "unit_variance",
}
# What the published set-ups of other models have in common.
FLARE_RECIPE: dict[str, Any] = {
    "width": 64,
    "mlp_ratio": 1,
    "batch_size": 2,
    "mean_loss": True,
    "clip_norm": 1.0,
    "pct_start": 0.1,
    "div_factor": 1e4,
}
LNO_RECIPE: dict[str, Any] = {
    "num_basis": 256,
    "batch_size": 4,
    "weight_decay": 5e-5,
    "beta2": 0.99,
    "clip_norm": 1e3,
    "pct_start": 0.2,
    "div_factor": 1e4,
}
GNOT_RECIPE: dict[str, Any] = {"width": 128, "batch_size": 4, "clip_norm": 0.0}


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All options that benchmarks have in common."""


@dataclasses.dataclass(frozen=True)
class FieldOptions(BenchmarkOptions):
    """Fields and their loss."""

    normalize_target: bool = option(True, "Train models to predict normalised values")
    mean_loss: bool = option(
        False,
        "Average the loss over a batch instead of summing it. Gradient clipping "
        "depends on this scale",
    )


def quick(config: Any) -> dict[str, Any]:
    """Returns the preset `quick`, and `fast`, the same with the recipe `FAST`.

    Args:
      config: the preset, of the name `quick`.
    """
    fast = dataclasses.replace(config, **{**FAST, "preset": "fast"})
    return {config.preset: config, fast.preset: fast}


def published(paper: Any, **models: dict[str, Any]) -> dict[str, Any]:
    """Returns the preset of a paper, and one for every model that differs from it.

    Args:
      paper: the preset, called as it says.
      **models: by the name of a model, what its published set-up has otherwise.

    Returns:
      Presets by name; `--preset=paper --models=fno` takes `paper_fno` where there is
      one, see `fields.preset_of`.
    """
    found = {paper.preset: paper}
    for model, changes in models.items():
        given = {"preset": f"{paper.preset}_{model}", "models": (model,), **changes}
        found[given["preset"]] = dataclasses.replace(paper, **given)
    return found


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
