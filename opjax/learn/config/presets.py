"""Presets: configurations composed of recipes with type-checked options.

SMALL = recipe(Config, width=16, num_layers=2)
PRESETS = {
    "small": SMALL(Config(num_train=8)),
    "slow": (SMALL | recipe(Config, num_epochs=99))(Config()),
}
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from opjax.learn.config import fields
from opjax.learn.config.fields import option
from opjax.learn.config.groups import (
    DataOptions,
    ModelOptions,
    RunOptions,
    TrainingOptions,
)

_P = ParamSpec("_P")
_Config = TypeVar("_Config", bound=fields.Configuration)
_Preset = TypeVar("_Preset", bound=fields.Preset)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Values of some options, for every configuration that has these options.

    Use `recipe` to create one, so that a type checker checks the names and types.

    Attributes:
      values: values by option name.

    Examples:
      >>> from opjax import learn
      >>> SMALL = learn.recipe(learn.FieldOptions, width=16, num_layers=2)
      >>> SHORT = learn.recipe(learn.FieldOptions, num_epochs=2)
      >>> config = (SMALL | SHORT)(learn.FieldOptions())
      >>> config.width, config.num_layers, config.num_epochs
      (16, 2, 2)
    """

    values: Mapping[str, object]

    def __or__(self, other: "Recipe") -> "Recipe":
        """Returns both together, with the values of `other` where both have one."""
        return Recipe({**self.values, **other.values})

    def __call__(self, config: _Config) -> _Config:
        """Returns a configuration with these values."""
        return dataclasses.replace(config, **self.values)


def recipe(
    cls: Callable[_P, fields.Configuration], /, *args: _P.args, **values: _P.kwargs
) -> Recipe:
    """Returns values of some options of a configuration.

    Args:
      cls: class of the configuration.
      *args: not supported; pass options by name.
      **values: values by option name.

    Examples:
      >>> from opjax import learn
      >>> SMALL = learn.recipe(learn.FieldOptions, width=16, num_layers=2)
      >>> SMALL(learn.FieldOptions()).width
      16
    """
    if args:
        raise TypeError(
            f"{args} were passed without names; pass options as name=value."
        )
    return Recipe(values)


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """Options that all benchmarks share.

    Examples:
      >>> from opjax import learn
      >>> config = learn.BenchmarkOptions(models=("functional", "fno"), seeds=(0, 1, 2))
      >>> config.num_train, config.num_epochs
      (200, 20)
    """


@dataclasses.dataclass(frozen=True)
class FieldOptions(BenchmarkOptions):
    """Fields and their loss.

    Examples:
      >>> from opjax import learn
      >>> learn.FieldOptions(mean_loss=True).mean_loss
      True
    """

    normalize_target: bool = option(True, "Train models to predict normalised values")
    mean_loss: bool = option(
        False,
        "Average the loss over a batch instead of summing it. Gradient clipping "
        "depends on this scale",
    )


# A model that is trained in seconds.
SMOKE = recipe(
    BenchmarkOptions,
    preset="smoke",
    models=("functional",),
    width=16,
    num_layers=2,
    num_heads=2,
    num_basis=8,
    num_epochs=2,
)
# The model and the epochs of the functional attention paper. No validation samples, as
# published: the model is that of the last epoch.
PAPER = recipe(
    BenchmarkOptions,
    preset="paper",
    models=("functional",),
    equal_parameters=False,
    num_validation=0,
    width=128,
    num_layers=8,
    num_heads=8,
    num_basis=64,
    num_epochs=500,
)
# What `--preset=fast` has otherwise than `quick`, see results/recipes.md.
FAST = recipe(
    BenchmarkOptions,
    preset="fast",
    optimizer="muon",
    learning_rate=3e-3,
    ridge_unit="mean",
    initial_kernels="unit_variance",
)
# What the published set-ups of other models have in common.
FLARE_RECIPE = recipe(
    FieldOptions,
    width=64,
    mlp_ratio=1,
    batch_size=2,
    mean_loss=True,
    clip_norm=1.0,
    pct_start=0.1,
    div_factor=1e4,
)
LNO_RECIPE = recipe(
    BenchmarkOptions,
    num_basis=256,
    batch_size=4,
    weight_decay=5e-5,
    beta2=0.99,
    clip_norm=1e3,
    pct_start=0.2,
    div_factor=1e4,
)
GNOT_RECIPE = recipe(BenchmarkOptions, width=128, batch_size=4, clip_norm=0.0)


def quick(config: _Preset) -> dict[str, _Preset]:
    """Returns the presets `quick` and `fast`; `fast` also uses the recipe `FAST`.

    Args:
      config: the preset named `quick`.

    Examples:
      >>> from opjax import learn
      >>> presets = learn.quick(learn.FieldOptions())
      >>> {name: preset.optimizer for name, preset in presets.items()}
      {'quick': 'adamw', 'fast': 'muon'}
    """
    return {config.preset: config, "fast": FAST(config)}


def published(paper: _Preset, models: Mapping[str, Recipe]) -> dict[str, _Preset]:
    """Returns the preset of a paper, and one for each model that deviates from it.

    Args:
      paper: the preset; its name is in its field `preset`.
      models: deviations of the published set-up, by model name.

    Returns:
      Presets by name. `--preset=paper --models=fno` uses `paper_fno` if it exists, see
      `fields.preset_of`.

    Examples:
      >>> from opjax import learn
      >>> paper = learn.PAPER(learn.FieldOptions())
      >>> presets = learn.published(paper, {"flare": learn.FLARE_RECIPE})
      >>> {name: preset.width for name, preset in presets.items()}
      {'paper': 128, 'paper_flare': 64}
    """
    presets = {paper.preset: paper}
    for model, changes in models.items():
        name = f"{paper.preset}_{model}"
        named = recipe(RunOptions, preset=name, models=(model,))
        presets[name] = (named | changes)(paper)
    return presets
