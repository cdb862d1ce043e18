"""Inverse Darcy flow: learns the coefficient from noisy measurements of the solution.

    python -m experiments.darcy_inverse --preset=quick
    python -m experiments.darcy_inverse --models=galerkin,linear --seeds=0,1,2

Inputs are solutions on a fine grid, with noise, outputs are coefficients on a coarse
one. Every model is trained with every noise.
"""

import dataclasses
import itertools
import pathlib
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from opjax import learn, metrics, nn, training
from opjax.datasets import darcy_inverse, samples
from opjax.learn import (
    DataOptions,
    RunOptions,
    SizeOptions,
    TrainingOptions,
    operators,
    option,
    published,
)
from opjax.learn.benchmark import load
from opjax.learn.models import PADDING, kept_modes
from opjax.learn.tables import mean_and_deviation, table
from opjax.problems import grids

# Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), Table 3: errors x 100 at
# these noises, by the points per side of fine and coarse grid.
_NOISES = (0.0, 0.01, 0.1)
_PUBLISHED = {
    (141, 36): {
        "galerkin": ("GT Ln on K, V", (1.944, 2.552, 6.689)),
        "fourier": ("FT Ln on Q, K", (1.921, 2.717, 6.725)),
        "softmax": ("ST Ln on Q, K", (2.160, 2.807, 6.995)),
        "linear": ("LT Ln on K, V", (2.360, 3.196, 8.656)),
        "fno": ("FNO2d (only nc)", (14.17, 14.31, 17.30)),
    },
    (211, 71): {
        "galerkin": ("GT Ln on K, V", (1.651, 2.729, 7.903)),
        "fourier": ("FT Ln on Q, K", (1.523, 2.691, 8.286)),
        "softmax": ("ST Ln on Q, K", (1.889, 3.123, 8.788)),
        "linear": ("LT Ln on K, V", (2.136, 3.539, 9.622)),
        "fno": ("FNO2d (only nc)", (13.60, 13.69, 16.04)),
    },
}


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, SizeOptions, TrainingOptions):
    """All that the numbers of a run depend on."""

    models: tuple[str, ...] = option(
        ("galerkin", "fno"),
        "Models",
        choices=(*operators.ATTENTIONS, "fno"),
        members=True,
    )
    noises: tuple[float, ...] = option(
        (0.0, 0.01, 0.1),
        "Noises, in standard deviations of the data",
        minimum=0,
        members=True,
    )
    test_noises: tuple[float, ...] = option(
        (0.0, 0.01, 0.02, 0.05, 0.1),
        "Noises of test samples to try every model on besides its own",
        minimum=0,
    )
    num_points: int = option(139, "Points per side, solved or in the files", minimum=4)
    stride: int = option(3, "Points per cell of the measurements", minimum=1)
    target_stride: int = option(6, "Points per cell of the coefficient", minimum=1)
    tolerance: float = option(1e-9, "Relative residual of our own solver", above=0)
    fno_features: int = option(32, "Channels of fno", minimum=1)
    fno_layers: int = option(4, "Layers of fno", minimum=1)
    num_modes: int = option(12, "Wave numbers of fno, where the grid has them")
    dropout: float = option(
        0.0, "Share of zeros in the encoder's layers; not in fno's", minimum=0, below=1
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


_ALL: dict[str, Any] = {"weight_decay": 0.0, "clip_norm": 0.999, "div_factor": 1e4}
_FEW: dict[str, Any] = {
    "num_train": 32,
    "num_validation": 4,
    "num_test": 4,
    "num_points": 37,
}
_SOME: dict[str, Any] = {"num_train": 300, "num_validation": 50, "num_test": 100}
_MANY: dict[str, Any] = {
    "num_train": 1024,
    "num_validation": 0,
    "num_test": 100,
    "num_points": 421,
}
_TINY: dict[str, Any] = {"features": 12, "num_layers": 2, "num_heads": 2}
# Table 3 with 141 and 36 points per side, App. C.1; its 211 and 71 points per side are
# --stride=2 --target_stride=6.
_PAPER = Config(
    preset="paper",
    models=("galerkin", "fno"),
    features=192,
    num_layers=6,
    target_stride=12,
    num_epochs=100,
    batch_size=4,
    dropout=0.05,
    **{**_ALL, **_MANY, "clip_norm": 1.0, "final_div_factor": 1.0},
)
# The authors' program, whose --subsample-attn has another default than its text says.
_CODE = replace(
    _PAPER,
    preset="code",
    target_stride=6,
    batch_size=2,
    clip_norm=0.999,
    final_div_factor=1e4,
)
# The text says nothing of the dropout of softmax and linear attention.
_OTHERS: dict[str, Any] = {
    "fourier": {"learning_rate": 5e-4},
    "softmax": {"learning_rate": 5e-4, "dropout": 0.1},
    "linear": {"dropout": 0.1},
}
PRESETS = {
    "smoke": Config(
        preset="smoke",
        noises=(0.0, 0.1),
        test_noises=(0.0, 0.05),
        fno_features=8,
        fno_layers=2,
        num_epochs=4,
        batch_size=4,
        **_ALL | _FEW | _TINY,
    ),
    "quick": Config(
        features=48, num_layers=3, num_epochs=12, batch_size=4, **_ALL, **_SOME
    ),
    **published(_PAPER, **_OTHERS),
    **published(_CODE, **_OTHERS),
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
        self, operator: Any, grid_shape: tuple[int, int], step: int, *, coarse_features
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


def attention_of(config: Config) -> Any:
    """The constructor of a layer; only those between points are given what follows."""
    layer = operators.attention(
        config.model,
        operators.Sizes(2, 1, 1, box=((0.0, 0.0), (1.0, 1.0))),
        features=config.features,
        num_heads=config.num_heads,
    )
    if issubclass(layer.func, nn.PointAttention):
        return layer
    return lambda features, *, rngs, **unused: layer(features, rngs=rngs)


def build(config: Config, rngs: nnx.Rngs) -> OnCoarseGrid:
    """Builds a model."""
    fine, coarse = config.grid(config.stride), config.grid(config.target_stride)
    if config.model == "fno":
        operator = nn.FourierNeuralOperator(
            grid_shape=coarse,
            feature_dim=1,
            out_features=1,
            features=config.fno_features,
            num_layers=config.fno_layers,
            modes=kept_modes(config.num_modes, coarse),
            padding=PADDING,
            rngs=rngs,
        )
    else:
        operator = nn.inverse_transformer(
            fine,
            coarse,
            features=config.features,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            attention=attention_of(config),
            rngs=rngs,
        )
        operator = nn.with_dropout(operator, config.dropout)
    step, on_coarse = config.target_stride // config.stride, config.model == "fno"
    return OnCoarseGrid(operator, fine, step, coarse_features=on_coarse)


def make_task(config: Config, cache_dir: str | None) -> learn.Task:
    """The task of a run: loss = mean_b |p - t| / |t|, physical, on the coarse grid."""
    (noise,) = config.noises
    own = ("num_points", "stride", "target_stride", "tolerance")

    def measured(noise: float) -> samples.Splits:
        make = partial(darcy_inverse.splits, noise=noise)
        return load(config, make, *own, cache_dir=cache_dir)

    def loss(prediction: jax.Array, sample: Any) -> jax.Array:
        return metrics.relative_l2(prediction, sample["target"]) / config.batch_size

    splits = measured(noise)
    task = learn.regression(
        config,
        splits,
        build=build,
        loss=loss,
        numbers=lambda e: {"error": e.mean(), "error_std": e.std()},
    )
    # All noises are multiples of the same numbers.
    (test,) = task.test
    (one_more,) = samples.stack(measured(noise + 1).test, batch_size=1)
    drawn = one_more["features"] - test["features"]
    own_noise = task.evaluate
    assert own_noise is not None

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, Any]:
        found = own_noise(model, folder)
        for other in config.test_noises:
            noisy = test | {"features": test["features"] + (other - noise) * drawn}
            errors = training.evaluate(
                task.metric, model, noisy, batch_size=config.batch_size
            )
            found[f"error_at_{other:g}"] = float(np.mean(errors))
        return found

    return task._replace(scan=True, evaluate=evaluate)


def report(finished: learn.Finished) -> learn.Report:
    """Models by noises, beside those of the paper."""
    config = finished.config
    sides = config.grid(config.stride)[0], config.grid(config.target_stride)[0]
    paper = sides if sides in _PUBLISHED else (141, 36)
    columns, lines = ["model", "parameters", "seconds each"], []
    for noise in config.noises:
        columns += [f"noise {noise:g}", "paper"]
    parameters = {}
    for model in config.models:
        label, published = _PUBLISHED[paper].get(model, ("none", ()))
        cells = dict(zip(_NOISES, published, strict=False))
        rows = [finished.results[f"{model}_{noise:g}"] for noise in config.noises]
        seconds = np.mean([row["seconds"] for group in rows for row in group])
        parameters[f"parameters_{model}"] = rows[0][0]["parameters"]
        line = [f"{model} (paper: {label})", f"{rows[0][0]['parameters']:,}"]
        line.append(f"{seconds:.0f}")
        for noise, group in zip(config.noises, rows, strict=True):
            line.append(mean_and_deviation([row["error"] for row in group], 100))
            line.append(f"{cells[noise]:.4g}" if noise in cells else "")
        lines.append(line)
    head = (
        f"Relative L2 error x 100 of {config.num_test} test samples, mean ± standard "
        f"deviation over the seeds {','.join(map(str, config.seeds))}, beside Table 3 "
        f"of arXiv:2105.14995. Ours: {sides[0]} points per side, {sides[1]} of the "
        f"coarse grid, {config.num_train} training samples, {config.num_epochs} "
        f"epochs; the paper's: {paper[0]} and {paper[1]}, 1024, 100. "
        f"Data: {finished.source}."
    )
    result = {**parameters, "models": list(config.models)}
    text = table(columns, lines)
    if config.test_noises:
        text += "\n" + _mismatches(finished)
    return learn.Report(text=text, result=result, head=head)


def _mismatches(finished: learn.Finished) -> str:
    """Noise of training against noise of test, of which Fig. 12 shows one sample."""
    config, lines = finished.config, []
    columns = ["model", "trained with"]
    columns += [f"tested with {noise:g}" for noise in config.test_noises]
    for model, noise in itertools.product(config.models, config.noises):
        rows = finished.results[f"{model}_{noise:g}"]
        cells = [
            mean_and_deviation([row[f"error_at_{other:g}"] for row in rows], 100)
            for other in config.test_noises
        ]
        lines.append([model, f"{noise:g}", *cells])
    return table(columns, lines)


PROGRAM = learn.Program(
    "darcy_inverse", PRESETS, make_task, title="Inverse Darcy flow", report=report
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
