"""Inverse Darcy flow: learns the coefficient from noisy measurements of the solution.

    python -m experiments.darcy_inverse --preset=quick
    python -m experiments.darcy_inverse --models=galerkin,linear --seeds=0,1,2

Inputs are solutions on a fine grid, with noise, outputs are coefficients on a coarse
one. Every model, noise and seed has a folder of its own inside that of the run, which
continues after an interruption.
"""

import dataclasses
import os
import time
from typing import Any

from experiments import darcy_inverse_data, darcy_inverse_report
from experiments.darcy_inverse_models import MODELS
from experiments.darcy_inverse_training import train
from opjax.learn import drawing, members, options
from opjax.learn import folder as run_folder
from opjax.learn.options import option
from opjax.problems import grids


@dataclasses.dataclass(frozen=True)
class Config:
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    models: str = option("galerkin,fno", f"Some of {', '.join(MODELS)}")
    noises: str = option("0,0.01,0.1", "Noises, in standard deviations of the data")
    seeds: str = option("0", "Seeds of parameters and sample order")
    # Data.
    data_dir: str = option("", "Folder of the published files; empty: own solver")
    data_seed: int = option(0, "Seed of noise and of our own solver", minimum=0)
    num_train: int = option(300, "Training samples", minimum=2)
    num_validation: int = option(50, "Validation samples", minimum=1)
    num_test: int = option(100, "Test samples", minimum=1)
    num_points: int = option(139, "Points per side, solved or in the files", minimum=4)
    stride: int = option(3, "Points per cell of the measurements", minimum=1)
    target_stride: int = option(6, "Points per cell of the coefficient", minimum=1)
    tolerance: float = option(1e-9, "Relative residual of our own solver", above=0)
    # Model.
    features: int = option(48, "Channels of the transformers", minimum=3)
    num_layers: int = option(3, "Layers of the transformers", minimum=1)
    num_heads: int = option(4, "Heads; must divide the features", minimum=1)
    fno_features: int = option(32, "Channels of fno", minimum=1)
    fno_layers: int = option(4, "Layers of fno", minimum=1)
    num_modes: int = option(
        12, "Wave numbers of fno, where the grid has them", minimum=1
    )
    # Training.
    num_epochs: int = option(12, "Passes over the training samples", minimum=1)
    batch_size: int = option(4, "Samples in a batch", minimum=1)
    learning_rate: float = option(1e-3, "Peak of the one-cycle schedule", above=0)
    clip_norm: float = option(0.999, "Largest gradient norm; 0: none", minimum=0)
    checkpoint_every: int = option(5, "Epochs between checkpoints", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        options.check(self)
        members.names(self.models, "models", MODELS)
        members.seed_numbers(self.seeds)
        darcy_inverse_data.noise_sizes(self.noises)
        if self.target_stride % self.stride:
            raise ValueError(
                f"target_stride={self.target_stride} must be a multiple of "
                f"stride={self.stride}: coarse cells are made of fine ones."
            )
        # Then points of both grids lie in the middle of their cells.
        grids.check_stride(self.num_points, self.target_stride, periodic=False)
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
    def grid_shape(self) -> tuple[int, int]:
        """Points per axis of the measurements."""
        size = (self.num_points - 1) // self.stride + 1
        return size, size

    @property
    def coarse_shape(self) -> tuple[int, int]:
        """Points per axis of the coefficients."""
        size = (self.num_points - 1) // self.target_stride + 1
        return size, size

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models, one by one."""
        return members.names(self.models, "models", MODELS)

    @property
    def noise_sizes(self) -> tuple[float, ...]:
        """The noises, one by one."""
        return darcy_inverse_data.noise_sizes(self.noises)

    def members(self) -> dict[tuple[str, int], "Config"]:
        """Configurations of single models, noises and seeds."""
        return {
            (darcy_inverse_report.member_name(name, noise), seed): dataclasses.replace(
                self, models=name, noises=f"{noise:g}", seeds=str(seed)
            )
            for noise in self.noise_sizes
            for name in self.model_names
            for seed in members.seed_numbers(self.seeds)
        }


PRESETS = {
    "smoke": Config(
        preset="smoke",
        noises="0,0.1",
        num_train=32,
        num_validation=4,
        num_test=4,
        num_points=37,
        features=12,
        num_layers=2,
        num_heads=2,
        fno_features=8,
        fno_layers=2,
        num_epochs=4,
    ),
    "quick": Config(),
    # As in the published program; Table 3 has target_stride=12, or stride=2. 24 samples
    # validate, so that the published files serve for training and validation.
    "paper": Config(
        preset="paper",
        models="galerkin,fourier,softmax,linear,fno",
        num_train=1000,
        num_validation=24,
        num_points=421,
        features=192,
        num_layers=6,
        num_epochs=100,
        batch_size=2,
    ),
}


def run(
    config: Config,
    *,
    workdir: str | os.PathLike | None = None,
    cache_dir: str | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Trains all models with all noises and seeds, or continues, or reads the result.

    Args:
      config: all that the numbers depend on.
      workdir: folder of the run; `runs/darcy_inverse-<preset>` by default.
      cache_dir: folder of generated data.
      tensorboard: write TensorBoard files too.

    Returns:
      What the last line of the program says: the relative L2 error of every model and
      noise, `error_<model>_<noise>`, and how it came about.

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
        data = darcy_inverse_data.load(config, cache_dir=cache_dir)
        results = members.run_all(
            directory.path,
            config.members(),
            lambda member, folder: train(member, folder, data, tensorboard=tensorboard),
        )
        seconds = time.monotonic() - begin
        return darcy_inverse_report.write(
            directory.path, config, results, data, seconds=seconds
        )

    workdir = workdir or f"runs/darcy_inverse-{config.preset}"
    return run_folder.run_once(workdir, config, work)


if __name__ == "__main__":
    options.launch(PRESETS, run, program="darcy_inverse")
