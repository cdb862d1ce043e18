"""Inverse Darcy flow: predicts the coefficient from noisy measurements of the solution.

    python -m experiments.darcy_inverse --preset=quick
    python -m experiments.darcy_inverse --models=galerkin,linear --seeds=0,1,2

The input is a noisy solution on a fine grid, the output a coefficient on a coarse grid.
Every model is trained with every noise level.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.burgers import MODELS, is_between_points
from experiments.studies import spread
from opjax import learn, nn, samples, training
from opjax.datasets import darcy_inverse
from opjax.learn import ModelOptions, option, recipe
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Layer, Operator
from opjax.learn.registry.models import PADDING, kept_modes
from opjax.learn.tables import table
from opjax.learn.tasks.benchmark import request
from opjax.problems import grids

# Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), Table 3: label, errors x
# 100 at these noises with these points per side of fine and coarse grid.
_NOISES = (0.0, 0.01, 0.1)
_SIDES = (141, 36), (211, 71)
_PUBLISHED = {
    "galerkin": ("GT Ln on K, V", (1.944, 2.552, 6.689), (1.651, 2.729, 7.903)),
    "fourier": ("FT Ln on Q, K", (1.921, 2.717, 6.725), (1.523, 2.691, 8.286)),
    "softmax": ("ST Ln on Q, K", (2.160, 2.807, 6.995), (1.889, 3.123, 8.788)),
    "linear": ("LT Ln on K, V", (2.360, 3.196, 8.656), (2.136, 3.539, 9.622)),
    "fno": ("FNO2d (only nc)", (14.17, 14.31, 17.30), (13.60, 13.69, 16.04)),
}


@dataclasses.dataclass(frozen=True)
class Config(
    learn.RunOptions, learn.DataOptions, learn.SizeOptions, learn.TrainingOptions
):
    """All that the numbers of a run depend on."""

    models: tuple[str, ...] = option(
        ("galerkin", "fno"), "Models to train", choices=MODELS, members=True
    )
    noises: tuple[float, ...] = option(
        _NOISES,
        "Noise levels to train with, in standard deviations of the data",
        minimum=0,
        members=True,
    )
    test_noises: tuple[float, ...] = option(
        (0.0, 0.01, 0.02, 0.05, 0.1),
        "Noise levels that every model is tested with, besides its own",
        minimum=0,
    )
    num_points: int = option(
        139,
        "Number of grid points per side, in the solver or in the published files",
        minimum=4,
    )
    stride: int = option(3, "Spacing of the measurements, in grid points", minimum=1)
    target_stride: int = option(
        6, "Spacing of the predicted coefficient, in grid points", minimum=1
    )
    tolerance: float = option(
        1e-9, "Relative residual at which our own solver stops", above=0
    )
    fno_width: int = option(32, "Width of fno, in channels", minimum=1)
    fno_layers: int = option(4, "Number of layers of fno", minimum=1)
    num_modes: int = option(12, "Number of Fourier modes of fno, limited by the grid")
    normalization: str = option(
        "keys",
        "Where attention between points normalises: features (after each layer) or "
        "keys (within each head)",
        choices=("features", "keys"),
    )
    dropout: float = option(
        0.0, "Dropout rate of the encoder. fno has none", minimum=0, below=1
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.target_stride % self.stride:
            raise ValueError(
                f"target_stride={self.target_stride} must be a multiple of "
                f"stride={self.stride}: coarse cells are made of fine ones."
            )
        # Then points of both grids lie in the middle of their cells.
        grids.check_stride(self.num_points, self.target_stride, periodic=False)

    def grid(self, stride: int) -> tuple[int, int]:
        """Points per axis of measurements or coefficients."""
        size = (self.num_points - 1) // stride + 1
        return size, size

    def variants(self) -> dict[str, "Config"]:
        """One for each noise."""
        return {f"{noise:g}": replace(self, noises=(noise,)) for noise in self.noises}


_ALL = Config(weight_decay=0.0, div_factor=1e4, batch_size=4)
_CLIPPED = recipe(Config, clip_norm=0.999)
_TINY = recipe(
    Config,
    width=12,
    num_layers=2,
    num_heads=2,
    fno_width=8,
    fno_layers=2,
    num_epochs=4,
)
_FEW = recipe(
    Config,
    num_train=32,
    num_validation=4,
    num_test=4,
    num_points=37,
    noises=(0.0, 0.1),
    test_noises=(0.0, 0.05),
)
_SOME = recipe(Config, num_train=300, num_validation=50, num_test=100)
_MANY = recipe(
    Config,
    num_train=1024,
    num_validation=0,
    num_test=100,
    num_points=421,
    target_stride=12,
)
# Table 3 with 141 and 36 points per side, App. C.1; its 211 and 71 points per side are
# --stride=2 --target_stride=6.
_CAO = recipe(
    Config,
    preset="paper",
    width=192,
    num_layers=6,
    dropout=0.05,
    num_epochs=100,
    clip_norm=1.0,
    final_div_factor=1.0,
)
_PAPER = (_MANY | _CAO)(_ALL)
# The authors' program, whose --subsample-attn has another default than its text says.
_CODE = recipe(
    Config,
    preset="code",
    target_stride=6,
    batch_size=2,
    clip_norm=0.999,
    final_div_factor=1e4,
)(_PAPER)
# The text says nothing of the dropout of softmax and linear attention.
_SLOW, _DROPOUT = recipe(Config, learning_rate=5e-4), recipe(Config, dropout=0.1)
_OTHERS = {"fourier": _SLOW, "softmax": _SLOW | _DROPOUT, "linear": _DROPOUT}
_SHORT = recipe(Config, width=48, num_layers=3, num_epochs=12)
PRESETS = {
    "smoke": (_CLIPPED | _FEW | _TINY | recipe(Config, preset="smoke"))(_ALL),
    "quick": (_CLIPPED | _SOME | _SHORT)(_ALL),
    **learn.published(_PAPER, _OTHERS),
    **learn.published(_CODE, _OTHERS),
}


class OnCoarseGrid(nnx.Module):
    """An operator whose output lies at every `step`-th point of the grid of its input.

    Args:
      operator: called with the points of its output.
      grid_shape: points per axis of the input.
      step: points of the input per point of the output, along each axis.
      coarse_features: whether the operator sees only these points of the input.
    """

    def __init__(
        self,
        operator: Operator,
        grid_shape: tuple[int, int],
        step: int,
        *,
        coarse_features: bool,
    ):
        self.operator, self.coarse_features = operator, coarse_features
        self.grid_shape, self.step = grid_shape, step

    def __call__(self, mesh_points: jax.Array, features: jax.Array) -> jax.Array:
        """Maps values `(n, 1)` at the points `(n, 2)` of the fine grid to `(m, 1)`."""
        if self.coarse_features:
            features = self._coarse(features)
        return self.operator(self._coarse(mesh_points), features)

    def _coarse(self, values: jax.Array) -> jax.Array:
        field = values.reshape(*self.grid_shape, -1)[:: self.step, :: self.step]
        return field.reshape(-1, values.shape[1])


def attention_of(config: Config) -> Layer:
    """The constructor of a layer; only those between points are given what follows."""
    layer = operators.attention(
        config.model,
        operators.Sizes(2, 1, 1, box=((0.0, 0.0), (1.0, 1.0))),
        ModelOptions(width=config.width, num_heads=config.num_heads),
    )
    if is_between_points(layer):
        return layer
    return partial(_without_options, layer)


def _without_options(
    layer: Callable[..., nnx.Module], features: int, *, rngs: nnx.Rngs, **_: Any
) -> nnx.Module:
    return layer(features, rngs=rngs)


def build(config: Config, rngs: nnx.Rngs) -> OnCoarseGrid:
    """Builds a model."""
    fine, coarse = config.grid(config.stride), config.grid(config.target_stride)
    if on_coarse := config.model == "fno":
        operator = nn.FourierNeuralOperator(
            grid_shape=coarse,
            feature_dim=1,
            out_features=1,
            features=config.fno_width,
            num_layers=config.fno_layers,
            modes=kept_modes(config.num_modes, coarse),
            padding=PADDING,
            rngs=rngs,
        )
    else:
        attention = attention_of(config)
        regular = config.normalization == "features"
        operator = nn.models.inverse_transformer(
            fine,
            coarse,
            features=config.width,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            attention=attention,
            outer_norm=regular and is_between_points(attention),
            rngs=rngs,
        )
        operator = nn.models.with_dropout(operator, config.dropout)
    step = config.target_stride // config.stride
    return OnCoarseGrid(operator, fine, step, coarse_features=on_coarse)


def make_task(config: Config, cache_dir: str | None) -> learn.Task:
    """The task of a run: loss = mean_b |p - t| / |t|, physical, on the coarse grid."""
    (noise,) = config.noises

    def measured(noise: float) -> samples.Splits:
        return darcy_inverse.splits(
            request(config, cache_dir),
            num_points=config.num_points,
            stride=config.stride,
            target_stride=config.target_stride,
            noise=noise,
            tolerance=config.tolerance,
        )

    task = learn.regression(
        config,
        measured(noise),
        build=build,
        loss=learn.Loss(mean=True),
        evaluation=learn.Evaluation(
            numbers=lambda e: {"error": e.mean(), "error_std": e.std()}
        ),
    )
    # All noises are multiples of the same numbers.
    (test,) = task.test
    (one_more,) = samples.stack(measured(noise + 1).test, batch_size=1)
    drawn = one_more["features"] - test["features"]
    own_noise = task.evaluate
    assert own_noise is not None
    look = partial(training.evaluate, task.metric, batch_size=config.batch_size)

    def evaluate(model: Operator, folder: pathlib.Path) -> dict[str, Any]:
        own = own_noise(model, folder)
        for other in config.test_noises:
            noisy = test | {"features": test["features"] + (other - noise) * drawn}
            own[f"error_at_{other:g}"] = float(np.mean(look(model, noisy)))
        return own

    return dataclasses.replace(task, scan=True, evaluate=evaluate)


def report(finished: learn.Finished) -> learn.Report:
    """Models by noises, beside those of the paper, and by noises of the test."""
    config = finished.config
    sides = config.grid(config.stride)[0], config.grid(config.target_stride)[0]
    paper = sides if sides in _SIDES else _SIDES[0]
    parameters, lines, mismatches = {}, [], []
    for model in config.models:
        by_noise = {n: finished.results[f"{model}_{n:g}"] for n in config.noises}
        rows = [row for group in by_noise.values() for row in group]
        label, *errors = _PUBLISHED.get(model, ("none", (), ()))
        beside = zip(_NOISES, errors[_SIDES.index(paper)], strict=False)
        published = {noise: f"{error:.4g}" for noise, error in beside}
        parameters[f"parameters_{model}"] = count = rows[0]["parameters"]
        seconds = np.mean([row["seconds"] for row in rows])
        line = [f"{model} (paper: {label})", f"{count:,}", f"{seconds:.0f}"]
        for noise, group in by_noise.items():
            line += [spread(group, "error", 100), published.get(noise, "")]
            # Noise of training against noise of test: Fig. 12 shows one sample.
            tested = [f"error_at_{n:g}" for n in config.test_noises]
            cells = [spread(group, name, 100) for name in tested]
            mismatches.append([model, f"{noise:g}", *cells])
        lines.append(line)
    columns = ["model", "parameters", "seconds each"]
    for noise in config.noises:
        columns += [f"noise {noise:g}", "paper"]
    text = table(columns, lines)
    if config.test_noises:
        tested = [f"tested with {noise:g}" for noise in config.test_noises]
        text += "\n" + table(["model", "trained with", *tested], mismatches)
    head = (
        f"Relative L2 error x 100 of {config.num_test} test samples, median "
        f"[smallest, largest] over the seeds {','.join(map(str, config.seeds))}, "
        f"beside Table 3 of arXiv:2105.14995. Ours: {sides[0]} points per side, "
        f"{sides[1]} of the coarse grid, {config.num_train} training samples, "
        f"{config.num_epochs} epochs; the paper's: {paper[0]} and {paper[1]}, 1024, "
        f"100. Data: {finished.source}."
    )
    result = {**parameters, "models": list(config.models)}
    return learn.Report(text=text, result=result, head=head)


PROGRAM = learn.Program(
    "darcy_inverse", PRESETS, make_task, title="Inverse Darcy flow", report=report
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
