"""Darcy flow: learns the operator from permeability to pressure.

    python -m experiments.darcy --preset=quick
    python -m experiments.darcy --workdir=runs/darcy-quick-functional-0

The first line generates data, trains, and writes a folder with configuration, metrics,
checkpoints, figures and result; the second continues that run after an interruption.
The model reported is the best on validation samples, evaluated once on test samples.
"""

import dataclasses
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import darcy_data, darcy_figures, darcy_models
from experiments.darcy_models import MODELS, objective
from opjax import training
from opjax.learn import Settings, Task, drawing, fit, options
from opjax.learn import folder as run_folder
from opjax.learn.options import option
from opjax.problems import grids


@dataclasses.dataclass(frozen=True)
class Config:
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    model: str = option("functional", "Name of the model")
    seed: int = option(0, "Seed of parameters and sample order", minimum=0)
    # Data.
    data_dir: str = option("", "Folder of the published files; empty: own solver")
    data_seed: int = option(0, "Seed of our own solver's samples", minimum=0)
    num_train: int = option(900, "Training samples", minimum=2)
    num_validation: int = option(100, "Validation samples", minimum=1)
    num_test: int = option(200, "Test samples", minimum=1)
    num_points: int = option(141, "Points per side, solved or in the files", minimum=4)
    stride: int = option(5, "Keep every so many points of a side", minimum=1)
    tolerance: float = option(1e-9, "Relative residual of our own solver", above=0)
    # Model.
    features: int = option(64, "Channels", minimum=1)
    num_layers: int = option(4, "Blocks", minimum=1)
    num_heads: int = option(4, "Heads; must divide the features", minimum=1)
    num_basis: int = option(32, "Basis functions per head", minimum=1)
    mlp_ratio: int = option(1, "Hidden width of perceptrons over features", minimum=1)
    convolution: bool = option(True, "3 x 3 instead of pointwise projections")
    shared_basis: bool = option(True, "One basis module for all blocks")
    reference_points: int = option(
        8, "Reference points per side for position features; 0: coordinates", minimum=0
    )
    ridge_logit: float = option(0.0, "Initial logit of the learned ridge")
    temperature: float = option(0.5, "Initial temperature of the basis", above=0)
    min_temperature: float = option(0.1, "Smallest temperature of the basis", above=0)
    max_temperature: float = option(5.0, "Largest temperature of the basis", above=0)
    num_boxes: int = option(4, "Subdomains per side, of Schwarz models", minimum=1)
    overlap: int = option(2, "Points by which subdomains grow", minimum=0)
    coarse_points: int = option(
        0, "Points per side where galerkin2d attends; 0: half the grid's", minimum=0
    )
    num_modes: int = option(
        12, "Wave numbers of galerkin2d and fno, where the grid has them", minimum=1
    )
    rematerialize: bool = option(False, "Recompute blocks backward, to save memory")
    # Training.
    num_epochs: int = option(12, "Passes over the training samples", minimum=1)
    batch_size: int = option(4, "Samples in a batch", minimum=1)
    microbatch: int = option(
        0, "Samples differentiated at once; 0: one on CPU, else the batch", minimum=0
    )
    learning_rate: float = option(1e-3, "Peak of the one-cycle schedule", above=0)
    weight_decay: float = option(1e-5, "Decoupled decay of all parameters", minimum=0)
    clip_norm: float = option(0.1, "Largest gradient norm; 0: no clipping", minimum=0)
    gradient_weight: float = option(0.1, "Weight of the gradient's error", minimum=0)
    pct_start: float = option(
        0.3, "Fraction of the run with rising rate", minimum=0, maximum=1
    )
    div_factor: float = option(25.0, "Peak over first learning rate", above=0)
    final_div_factor: float = option(1e4, "First over last learning rate", above=0)
    cycle_momentum: bool = option(True, "Cycle beta1 0.95, 0.85, 0.95")
    beta1: float = option(0.9, "Decay of the mean if not cycled", minimum=0, below=1)
    beta2: float = option(0.999, "Decay of the mean square", above=0, below=1)
    eps: float = option(1e-8, "Added to the root mean square", above=0)
    eval_every: int = option(1, "Epochs between validations", minimum=1)
    checkpoint_every: int = option(5, "Epochs between checkpoints", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        options.check(self)
        options.check_choice("model", self.model, MODELS)
        grids.check_stride(self.num_points, self.stride, periodic=False)
        if self.features % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must divide features={self.features}."
            )
        if self.reference_points == 1:
            raise ValueError(
                "reference_points=1 must be 0, for coordinates, or at least 2."
            )
        if self.min_temperature > self.max_temperature:
            raise ValueError(
                f"min_temperature={self.min_temperature} must not be above "
                f"max_temperature={self.max_temperature}."
            )
        if self.batch_size > self.num_train:
            raise ValueError(
                f"batch_size={self.batch_size} must be at most "
                f"num_train={self.num_train}."
            )
        darcy_models.check(self)
        if self.microbatch and self.batch_size % self.microbatch:
            raise ValueError(
                f"microbatch={self.microbatch} must divide "
                f"batch_size={self.batch_size}."
            )

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Points per axis the model sees."""
        size = (self.num_points - 1) // self.stride + 1
        return size, size


PRESETS = {
    "smoke": Config(
        preset="smoke",
        num_train=32,
        num_validation=8,
        num_test=8,
        num_points=61,
        features=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_epochs=6,
        checkpoint_every=2,
    ),
    "quick": Config(),
    # As published. 24 samples validate, so that 1024, the length of the published
    # files, serve for training and validation, and --data_dir changes the source only.
    "paper": Config(
        preset="paper",
        num_train=1000,
        num_validation=24,
        num_points=421,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        num_epochs=500,
    ),
}


def run(
    config: Config,
    *,
    workdir: str | os.PathLike | None = None,
    cache_dir: str | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains one operator, or continues, or reads the result of a finished run.

    Trains in float32 whatever the caller's settings.

    Args:
      config: all that the numbers depend on.
      workdir: folder of the run; `runs/darcy-<preset>-<model>-<seed>` by default.
      cache_dir: folder of generated data, see `opjax.datasets.darcy.generate`.
      tensorboard: write TensorBoard files too.

    Returns:
      What the last line of the program says: mean and deviation of the relative L2
      error on the test samples, the validation error, and how they came about.

    Raises:
      ImportError: if matplotlib is missing.
      OSError: if data cannot be read or the folder cannot be written.
      RuntimeError: if another process works in the folder.
      ValueError: if the folder holds another configuration or data are damaged.
      opjax.training.NonFiniteError: if the loss diverges.
    """
    drawing.require_matplotlib()
    if config.data_dir:
        absolute = os.path.abspath(os.path.expanduser(config.data_dir))
        config = dataclasses.replace(config, data_dir=absolute)
    workdir = workdir or f"runs/darcy-{config.preset}-{config.model}-{config.seed}"
    return run_folder.run_once(
        workdir,
        config,
        lambda directory: train(config, directory, cache_dir, tensorboard),
    )


def train(
    config: Config,
    directory: run_folder.RunDirectory,
    cache_dir: str | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains one operator in an open folder, evaluates it and draws its figures.

    Args:
      config: all that the numbers depend on.
      directory: open folder of the run.
      cache_dir: folder of generated data.
      tensorboard: write TensorBoard files too.

    Returns:
      As `run`.
    """
    begin = time.monotonic()
    data = darcy_data.load(config, cache_dir=cache_dir)
    goal = objective(config, data.normalizers)
    settings = Settings(
        num_epochs=config.num_epochs,
        batch_size=config.batch_size,
        seed=config.seed,
        eval_every=config.eval_every,
        checkpoint_every=config.checkpoint_every,
        microbatch=config.microbatch or (1 if jax.default_backend() == "cpu" else None),
        tensorboard=tensorboard,
        optimizer=lambda total_steps: _optimizer(config, total_steps),
    )
    loaded = time.monotonic()
    fitted = fit(
        Task(
            train=(data.train,),
            validation=(data.validation,),
            loss=goal.loss,
            metric=goal.error,
            extra={"normalizers": data.normalizers},
            probe=_probe(config, data),
        ),
        MODELS[config.model](config, rngs=nnx.Rngs(config.seed)),
        settings,
        folder=directory,
    )
    trained = time.monotonic()
    model = fitted.best_model
    errors = training.evaluate(
        goal.error, model, data.test, batch_size=config.batch_size
    )
    errors = np.asarray(errors, np.float64)
    darcy_figures.draw(config, directory, data, goal.predict, fitted, errors)
    steps_per_epoch = config.num_train // config.batch_size
    device = jax.devices()[0]
    return {
        "relative_l2": float(np.mean(errors)),
        "relative_l2_std": float(np.std(errors)),
        "validation": fitted.best_metric,
        "best_epoch": fitted.best_step // steps_per_epoch,
        # Those of interrupted parts are in `fitted.seconds`.
        "seconds": loaded - begin + fitted.seconds + time.monotonic() - trained,
        "data_seconds": loaded - begin,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
        "condition": fitted.history[-1].get("condition"),
        "epochs": config.num_epochs,
        "preset": config.preset,
        "model": config.model,
        "seed": config.seed,
        "data": data.source,
        "device": f"{device.platform} ({device.device_kind})",
        "workdir": str(directory.path),
    }


def _probe(config: Config, data: darcy_data.Data) -> Any:
    """The mean condition number of a model's small systems, on one sample."""
    if config.model != "functional":
        return None
    points = darcy_data.mesh_points(config.grid_shape)
    coefficient = jnp.asarray(data.validation["coefficient"][0])

    def probe(model: Any) -> dict[str, jax.Array]:
        return {"condition": jnp.mean(model.condition_numbers(points, coefficient))}

    return probe


def _optimizer(config: Config, total_steps: int) -> Any:
    return training.adamw_onecycle(
        config.learning_rate,
        total_steps,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm or None,
        b1=config.beta1,
        b2=config.beta2,
        eps=config.eps,
        cycle_momentum=config.cycle_momentum,
        pct_start=config.pct_start,
        div_factor=config.div_factor,
        final_div_factor=config.final_div_factor,
    )


if __name__ == "__main__":
    options.launch(PRESETS, run, program="darcy")
