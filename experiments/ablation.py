"""What matters in functional and Galerkin-type attention, one choice at a time.

    python -m experiments.ablation --preset=quick
    python -m experiments.ablation --studies=ridge,projection --seeds=0,1,2

Small models of Darcy flow and of Burgers' equation that differ in one choice. Every
variant and seed has a folder of its own inside that of the run, which continues after
an interruption.
"""

import dataclasses
import os
import time
from typing import Any

import jax

from experiments import ablation_report, ablation_studies, burgers, burgers_data, darcy
from experiments.ablation_studies import STUDIES
from opjax import training
from opjax.learn import drawing, members, options
from opjax.learn import folder as run_folder
from opjax.learn.options import option


@dataclasses.dataclass(frozen=True)
class Config:
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    studies: str = option(",".join(STUDIES), "Names, separated by commas")
    seeds: str = option("0,1,2", "Seeds of parameters and sample order")
    base: str = option("quick", "Preset of the programs whose models are varied")
    num_train: int = option(200, "Training samples", minimum=8)
    num_test: int = option(100, "Test samples of Darcy flow", minimum=1)
    num_epochs: int = option(10, "Passes over the training samples", minimum=1)
    features: int = option(32, "Channels; 4 must divide them", minimum=4)
    num_layers: int = option(2, "Layers", minimum=1)
    num_points: int = option(512, "Points of Burgers' equation", minimum=64)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        options.check(self)
        members.names(self.studies, "studies", STUDIES)
        members.seed_numbers(self.seeds)
        options.check_choice("base", self.base, darcy.PRESETS)
        ablation_studies.variants(self)  # refuses what a program refuses


PRESETS = {
    "smoke": Config(
        preset="smoke",
        studies="projection",
        seeds="0",
        base="smoke",
        num_train=16,
        num_test=4,
        num_epochs=2,
        features=8,
        num_layers=1,
        num_points=64,
    ),
    "quick": Config(),
    "paper": Config(
        preset="paper",
        base="paper",
        num_train=1000,
        num_test=200,
        num_epochs=100,
        features=128,
        num_layers=8,
        num_points=2048,
    ),
}


def run(
    config: Config,
    *,
    workdir: str | os.PathLike | None = None,
    cache_dir: str | None = None,
    **unused: Any,
) -> dict[str, Any]:
    """Trains all variants of the studies, or continues, or reads a finished run.

    Args:
      config: all that the numbers depend on.
      workdir: folder of the run; `runs/ablation-<preset>` by default.
      cache_dir: folder of generated data.
      **unused: options of other programs.

    Returns:
      What the last line of the program says: mean and standard deviation over the
      seeds of every variant's relative L2 error.

    Raises:
      ImportError: if matplotlib is missing.
      OSError: if data cannot be read or a folder cannot be written.
      RuntimeError: if another process works in the folder.
      ValueError: if the folder holds another configuration.
    """
    del unused
    drawing.require_matplotlib()
    workdir = workdir or f"runs/ablation-{config.preset}"

    def work(directory: run_folder.RunDirectory) -> dict[str, Any]:
        begin = time.monotonic()
        results = {
            study: members.run_all(
                directory.path / study,
                variants,
                lambda member, folder: train(member, folder, cache_dir),
            )
            for study, variants in ablation_studies.variants(config).items()
        }
        boundary = ablation_studies.ridge_boundary() if "ridge" in results else []
        seconds = time.monotonic() - begin
        found = ablation_report.write(
            directory.path, config, results, boundary, seconds=seconds
        )
        device = jax.devices()[0]
        return {
            **found,
            "seconds": seconds,
            "preset": config.preset,
            "seeds": list(members.seed_numbers(config.seeds)),
            "data": "own solvers",
            "device": f"{device.platform} ({device.device_kind})",
            "workdir": str(directory.path),
        }

    return run_folder.run_once(workdir, config, work)


def train(
    member: Any, directory: run_folder.RunDirectory, cache_dir: str | None
) -> dict[str, Any]:
    """Trains one variant; one that diverges is a result, not an end.

    Args:
      member: a configuration of `experiments.darcy` or `experiments.burgers`.
      directory: open folder of the member.
      cache_dir: folder of generated data.

    Returns:
      At least "error", "parameters" and "seconds"; the error is NaN after divergence.
    """
    try:
        if isinstance(member, darcy.Config):
            result = darcy.train(member, directory, cache_dir)
            return {**result, "error": result["relative_l2"]}
        data = burgers_data.load(member, cache_dir=cache_dir)
        result = burgers.train(member, directory, data)
        return {**result, "error": result[f"error_{member.grids[0]}"]}
    except training.NonFiniteError as error:
        return {"error": float("nan"), "parameters": 0, "diverged": str(error)}


if __name__ == "__main__":
    options.launch(PRESETS, run, program="ablation")
