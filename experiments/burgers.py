"""Burgers' equation: learns the map from initial to final state, tests on finer grids.

    python -m experiments.burgers --preset=quick
    python -m experiments.burgers --models=functional,galerkin,fno --seeds=0,1,2

Models are trained on one grid and evaluated, as they are, on others. Every model and
seed has a folder of its own inside that of the run, which continues after an
interruption.
"""

import dataclasses
import os
import time
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments import burgers_data, burgers_report
from experiments.burgers_models import (
    MODELS,
    NORMALIZATIONS,
    Objective,
    objective,
)
from opjax import metrics, training
from opjax.learn import Fitted, Settings, Task, drawing, fit, members, options
from opjax.learn import folder as run_folder
from opjax.learn.options import option

_FINEST = 8192  # points of the data


@dataclasses.dataclass(frozen=True)
class Config:
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    models: str = option("functional,galerkin", f"Some of {', '.join(MODELS)}")
    seeds: str = option("0", "Seeds of parameters and sample order")
    # Data.
    data_dir: str = option("", "Folder of the published file; empty: own solver")
    data_seed: int = option(0, "Seed of our own solver's samples", minimum=0)
    num_train: int = option(512, "Training samples", minimum=1)
    num_validation: int = option(50, "Validation samples", minimum=1)
    num_test: int = option(100, "Test samples", minimum=1)
    num_points: int = option(2048, "Points of the training grid", minimum=8)
    test_points: str = option("2048,8192", "Points of the test grids")
    # Model.
    features: int = option(48, "Channels", minimum=1)
    num_layers: int = option(4, "Encoder layers", minimum=1)
    num_heads: int = option(1, "Heads; must divide the features", minimum=1)
    num_basis: int = option(32, "Basis functions per head", minimum=1)
    feedforward: int = option(96, "Hidden width of the perceptrons", minimum=1)
    num_modes: int = option(16, "Wave numbers of the decoder", minimum=1)
    decoder_features: int = option(32, "Channels of the decoder", minimum=1)
    normalization: str = option("keys", f"One of {', '.join(NORMALIZATIONS)}")
    init_scale: float = option(1e-2, "Gain of query, key and value maps", above=0)
    init_diagonal: float = option(1e-2, "Identity added to them", minimum=0)
    # Training.
    num_epochs: int = option(20, "Passes over the training samples", minimum=1)
    batch_size: int = option(8, "Samples in a batch", minimum=1)
    learning_rate: float = option(1e-3, "Peak of the one-cycle schedule", above=0)
    clip_norm: float = option(0.999, "Largest gradient norm; 0: none", minimum=0)
    gradient_weight: float = option(0.1, "Weight of the squared slope", minimum=0)
    checkpoint_every: int = option(5, "Epochs between checkpoints", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        options.check(self)
        members.names(self.models, "models", MODELS)
        members.seed_numbers(self.seeds)
        options.check_choice("normalization", self.normalization, NORMALIZATIONS)
        for points in (self.num_points, *self.grids):
            if _FINEST % points:
                raise ValueError(
                    f"A grid of {points} points must divide the {_FINEST} points of "
                    "the data: take powers of two."
                )
        for points in (self.num_points, *self.grids):
            if self.num_modes > points // 2 + 1:
                raise ValueError(
                    f"num_modes={self.num_modes} is above Nyquist's wave number of a "
                    f"grid of {points} points, {points // 2}."
                )
        if self.features % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must divide features={self.features}."
            )
        if self.batch_size > self.num_train:
            raise ValueError(
                f"batch_size={self.batch_size} must be at most "
                f"num_train={self.num_train}."
            )

    @property
    def grids(self) -> tuple[int, ...]:
        """Points of the test grids."""
        grids = self.test_points.split(",")
        if not all(points.strip().isdecimal() and int(points) for points in grids):
            raise ValueError(
                f"test_points={self.test_points!r} must be numbers separated by commas."
            )
        return tuple(map(int, grids))

    def members(self) -> dict[tuple[str, int], "Config"]:
        """Configurations of single models and seeds."""
        return {
            (name, seed): dataclasses.replace(self, models=name, seeds=str(seed))
            for name in members.names(self.models, "models", MODELS)
            for seed in members.seed_numbers(self.seeds)
        }


PRESETS = {
    "smoke": Config(
        preset="smoke",
        num_train=16,
        num_validation=8,
        num_test=8,
        num_points=128,
        test_points="128,512",
        features=16,
        num_layers=2,
        num_basis=8,
        feedforward=16,
        num_modes=8,
        decoder_features=8,
        num_epochs=2,
    ),
    "quick": Config(),
    # As published, with our own solver's data unless --data_dir is given.
    "paper": Config(
        preset="paper",
        models="functional",
        num_train=974,
        features=96,
        num_basis=64,
        feedforward=192,
        decoder_features=48,
        num_epochs=100,
    ),
}


def run(
    config: Config,
    *,
    workdir: str | os.PathLike | None = None,
    cache_dir: str | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains all models and seeds, or continues, or reads a finished run.

    Args:
      config: all that the numbers depend on.
      workdir: folder of the run; `runs/burgers-<preset>` by default.
      cache_dir: folder of generated data.
      tensorboard: write TensorBoard files too.

    Returns:
      What the last line of the program says: of every model the relative L2 error on
      every test grid, mean and standard deviation over the seeds, and the ratio of the
      errors on the last and first grid.

    Raises:
      ImportError: if matplotlib is missing.
      OSError: if data cannot be read or a folder cannot be written.
      RuntimeError: if another process works in the folder.
      ValueError: if the folder holds another configuration or data are damaged.
      opjax.training.NonFiniteError: if a loss diverges.
    """
    drawing.require_matplotlib()
    if config.data_dir:
        absolute = os.path.abspath(os.path.expanduser(config.data_dir))
        config = dataclasses.replace(config, data_dir=absolute)

    def work(directory: run_folder.RunDirectory) -> dict[str, Any]:
        begin = time.monotonic()
        data = burgers_data.load(config, cache_dir=cache_dir)
        results = members.run_all(
            directory.path,
            config.members(),
            lambda member, folder: train(member, folder, data, tensorboard),
        )
        seconds = time.monotonic() - begin
        return burgers_report.write(
            directory.path, config, results, data, seconds=seconds
        )

    workdir = workdir or f"runs/burgers-{config.preset}"
    return run_folder.run_once(workdir, config, work)


def train(
    config: Config,
    directory: run_folder.RunDirectory,
    data: burgers_data.Data,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains one model with one seed and evaluates it on the test grids.

    Args:
      config: of one model and one seed.
      directory: open folder of the member.
      data: from `burgers_data.load`.
      tensorboard: write TensorBoard files too.

    Returns:
      `error_<points>` on every test grid, `ratio` of the last to the first,
      `validation`, `parameters`, `seconds`.
    """
    goal = objective(config)
    seed = int(config.seeds)
    settings = Settings(
        num_epochs=config.num_epochs,
        batch_size=config.batch_size,
        seed=seed,
        checkpoint_every=config.checkpoint_every,
        microbatch=1 if jax.default_backend() == "cpu" else None,
        tensorboard=tensorboard,
        optimizer=partial(
            training.adamw_onecycle,
            config.learning_rate,
            weight_decay=0.0,
            clip_norm=config.clip_norm or None,
            div_factor=1e4,
            final_div_factor=1e4,
        ),
    )
    fitted = fit(
        Task(
            train=(data.train,),
            validation=(data.validation,),
            loss=goal.loss,
            metric=goal.error,
        ),
        MODELS[config.models](config, rngs=nnx.Rngs(seed)),
        settings,
        folder=directory,
    )
    return _evaluate(config, goal, fitted, data, directory)


def _evaluate(
    config: Config,
    goal: Objective,
    fitted: Fitted,
    data: burgers_data.Data,
    directory: run_folder.RunDirectory,
) -> dict[str, Any]:
    def both(model: Any, sample: Any) -> tuple[jax.Array, jax.Array]:
        prediction = goal.predict(model, sample)
        return metrics.relative_l2(prediction, sample["solution"]), prediction

    errors, predictions = {}, {}
    batch = min(config.batch_size, config.num_test)
    for points in config.grids:
        found, predicted = training.evaluate(
            both, fitted.best_model, data.tests[points], batch_size=batch
        )
        errors[f"error_{points}"] = float(np.mean(np.asarray(found, np.float64)))
        predictions[str(points)] = np.asarray(predicted)[:4, :, 0]
    np.savez(directory.path / "predictions.npz", **predictions)
    values = list(errors.values())
    return {
        **errors,
        "ratio": values[-1] / values[0],
        "validation": fitted.best_metric,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(fitted.model)),
        "seconds": fitted.seconds,
    }


if __name__ == "__main__":
    options.launch(PRESETS, run, program="burgers")
