"""Turbulent flow: ten frames of vorticity in, the ten frames that follow out.

    python -m experiments.navier_stokes --preset=quick
    python -m experiments.navier_stokes --preset=paper --data_dir=<folder>

Operators learn one step, from ten frames to the next one. In training all inputs are
true frames ("teacher forcing"); in validation and test the operator is applied to its
own predictions, ten times, so its errors grow. The error of every step is reported.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import navier_stokes_figures
from opjax import metrics, training
from opjax.datasets import navier_stokes as dataset
from opjax.datasets import samples
from opjax.learn import (
    DataOptions,
    ModelOptions,
    Program,
    RunOptions,
    Splits,
    Task,
    TrainingOptions,
    operators,
    options,
)
from opjax.learn import supervised as regression
from opjax.learn.options import option
from opjax.problems import grids

_STEPS = 10  # predicted frames, and frames of every input


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    # Data.
    num_train: int = option(96, "Training flows", minimum=1)
    num_validation: int = option(16, "Validation flows", minimum=1)
    num_test: int = option(32, "Test flows", minimum=1)
    solver_points: int = option(
        128, "Points per side of our own solver; 256 were published", minimum=8
    )
    stride: int = option(
        4, "Keep every such point of our own solver's grid per side", minimum=1
    )
    file_stride: int = option(
        1, "Keep every such point of the published grid per side", minimum=1
    )
    coordinates: str = option("nodes", f"One of {', '.join(dataset.COORDINATES)}")
    # Model.
    features: int = option(32, "Channels of functional attention", minimum=1)
    num_layers: int = option(3, "Blocks", minimum=1)
    # Training.
    num_epochs: int = option(10, "Passes over the training flows", minimum=1)
    batch_size: int = option(2, "Flows in a batch", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        options.check_choice("coordinates", self.coordinates, dataset.COORDINATES)
        grids.check_stride(self.solver_points, self.stride, periodic=True)


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional",),
        num_train=4,
        num_validation=2,
        num_test=2,
        solver_points=32,
        features=8,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_modes=3,
        num_epochs=1,
    ),
    # A fine enough solver would take an hour: these flows are another operator.
    "quick": Config(),
    # Table 10 of the paper, with our own solver's data unless --data_dir is given.
    "paper": Config(
        preset="paper",
        models=("functional",),
        num_train=980,
        num_validation=20,
        num_test=200,
        solver_points=256,
        features=256,
        num_layers=8,
        num_heads=8,
        num_basis=32,
        num_epochs=500,
        checkpoint_every=1,
    ),
}


def load(config: Config, *, cache_dir: str | None = None) -> Splits:
    """Generates or reads the flows.

    Args:
      config: has the data fields of `Config`.
      cache_dir: folder of generated data.

    Returns:
      The flows; training, validation and test sets have none in common.

    Raises:
      OSError: if the file is missing or cannot be read.
      ValueError: if it is damaged or holds too few flows.
    """
    if config.data_dir:
        first, test = dataset.load(
            config.data_dir,
            num_train=config.num_train + config.num_validation,
            num_test=config.num_test,
            stride=config.file_stride,
            coordinates=config.coordinates,
        )
        train, validation = first[: config.num_train], first[config.num_train :]
        return Splits(train, validation, test, config.data_dir)
    # A seed for each set: none changes with the size of another.
    sizes = config.num_train, config.num_validation, config.num_test
    train, validation, test = (
        dataset.generate(
            size,
            seed=3 * config.data_seed + i,
            num_points=config.solver_points,
            stride=config.stride,
            coordinates=config.coordinates,
            cache_dir=cache_dir,
        )
        for i, size in enumerate(sizes)
    )
    points = config.solver_points
    source = f"own solver on {points} x {points} points, seed {config.data_seed}"
    return Splits(train, validation, test, source)


def step_errors(model: Any, sample: Any) -> jax.Array:
    """Relative L2 errors of single steps from true frames, shape `(10,)`.

    Args:
      model: operator from ten frames, `(n, 10)`, to the next one, `(n, 1)`.
      sample: `mesh_points (n, 2)`, `features (n, 10)`, `target (n, 10)`.
    """
    frames = jnp.concatenate([sample["features"], sample["target"]], axis=1)

    def error(start: jax.Array) -> jax.Array:
        history = jax.lax.dynamic_slice_in_dim(frames, start, _STEPS, axis=1)
        truth = jax.lax.dynamic_slice_in_dim(frames, start + _STEPS, 1, axis=1)
        prediction = operators.call(model, {**sample, "features": history})
        return metrics.relative_l2(prediction, truth)

    return jax.vmap(error)(jnp.arange(_STEPS))


def rollout(model: Any, sample: Any) -> jax.Array:
    """Predicts ten frames, each from the ten before it, true or predicted.

    Args:
      model: as for `step_errors`.
      sample: `mesh_points (n, 2)` and `features (n, 10)`.

    Returns:
      The frames, shape `(n, 10)`.
    """

    def advance(history: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        frame = operators.call(model, {**sample, "features": history})
        return jnp.concatenate([history[:, 1:], frame], axis=1), frame[:, 0]

    _, frames = jax.lax.scan(advance, sample["features"], length=_STEPS)
    return frames.T


def loss(model: Any, batch: Any) -> jax.Array:
    """Sum of `step_errors` over all steps and flows of a batch."""
    return jnp.sum(jax.vmap(step_errors, in_axes=(None, 0))(model, batch))


def error(model: Any, sample: Any) -> jax.Array:
    """Relative L2 error of a rollout, over all its frames together."""
    return metrics.relative_l2(rollout(model, sample), sample["target"])


def make_task(config: Config, cache_dir: str | None = None) -> Task:
    """Builds the task; fields are not normalised, as in the published runs."""
    splits = load(config, cache_dir=cache_dir)
    regression.check(splits)
    shape = regression.common_grid(regression.all_samples(splits))
    if shape is None:
        raise ValueError("The flows are on different grids; they must share one.")
    train, validation, test = (
        samples.stack(getattr(splits, name)) for name in ("train", "validation", "test")
    )
    side = " x ".join(map(str, shape))
    return Task(
        train=train,
        validation=validation,
        test=test,
        build=regression.builder(
            splits.train[0], splits.train, out_features=1, grid_shape=shape
        ),
        loss=loss,
        metric=error,
        evaluate=_evaluator(config, test[0]),
        extra={},
        source=splits.source,
        draw=partial(navier_stokes_figures.draw, splits.test),
        notes=f"Fields of {side} points; errors of rollouts from ten true frames, over "
        "all ten predicted frames, and of each one.",
    )


def _evaluator(
    config: Config, test: Any
) -> Callable[[Any, pathlib.Path], dict[str, float]]:
    def look(model: Any, sample: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        frames = rollout(model, sample)
        by_step = jax.vmap(metrics.relative_l2, in_axes=1)(frames, sample["target"])
        return metrics.relative_l2(frames, sample["target"]), by_step, frames

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        batch = min(config.batch_size, config.num_test)
        found, by_step, frames = training.evaluate(look, model, test, batch_size=batch)
        by_step = np.asarray(by_step, np.float64)
        np.savez(
            folder / "predictions.npz",
            step_errors=by_step,
            frames=np.asarray(frames)[: navier_stokes_figures.NUM_SHOWN],
        )
        steps = {f"step_{t + 1}": float(e) for t, e in enumerate(by_step.mean(axis=0))}
        return {"relative_l2": float(np.mean(np.asarray(found, np.float64))), **steps}

    return evaluate


PROGRAM = Program("navier_stokes", PRESETS, make_task, title="Navier-Stokes")
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
