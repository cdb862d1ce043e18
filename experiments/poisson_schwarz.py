"""Learns the inverse Laplacian by two-level Schwarz attention.

    python -m experiments.poisson_schwarz --preset=quick
    python -m experiments.poisson_schwarz --preset=paper --sweep

The first line trains our default beside the global baselines and a closed form. The
second repeats the Schwarz paper, its tables and figures, and goes on to more points,
two dimensions and an ablation. Both write a folder with tables, figures and result, and
continue it when they are interrupted and run again.
"""

import dataclasses
import os
import time
from typing import Any

import jax

from experiments import poisson_drawing, poisson_studies, poisson_tables
from experiments.poisson_evaluation import closed_form_errors, problem
from experiments.poisson_models import COARSE_SPACES, STARTS, Setup, Study, build
from experiments.poisson_rows import Row
from experiments.poisson_training import train
from opjax.learn import drawing, members, options
from opjax.learn import folder as run_folder
from opjax.learn.options import option


@dataclasses.dataclass(frozen=True)
class Config:
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    preset: str = option("quick", "Values of all flags that are not given")
    # Problem.
    dim: int = option(1, "Dimension", minimum=1, maximum=3)
    n: int = option(256, "Interior points per axis", minimum=2)
    modes: int = option(16, "Sine and cosine modes per axis", minimum=1)
    decay: float = option(1.5, "Damping exponent of combinations", minimum=0)
    # Model.
    subdomains: int = option(8, "Subdomains per axis", minimum=1)
    overlap: int = option(2, "Points by which subdomains grow", minimum=0)
    local_rank: int = option(4, "Columns of local factors", minimum=1)
    coarse_rank: int = option(8, "Columns of coarse factors", minimum=1)
    coarse_space: str = option("interface", f"One of {', '.join(COARSE_SPACES)}")
    coarse_hats: int = option(7, "Hats per axis of the uniform space", minimum=1)
    levels: int = option(2, "Levels; more than two divide the coarse block", minimum=2)
    coarse_subdomains: int = option(4, "Subdomains per axis of that", minimum=2)
    global_rank: int = option(40, "Columns of the global baseline", minimum=1)
    # Training.
    init: str = option("whitened", f"How training starts: {', '.join(STARTS)}")
    learning_rate: float = option(0.0, "Rate; 0: the one of the start", minimum=0)
    steps: int = option(2000, "Optimizer steps", minimum=1)
    batch_size: int = option(256, "Right-hand sides of a step", minimum=2)
    seeds: str = option("0,1,2,3,4,5,6,7,8,9", "Seeds, separated by commas")
    sweep: bool = option(False, "Also train at all learning rates of the paper")
    beyond: bool = option(False, "Also more points, two dimensions and an ablation")

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        options.check(self)
        options.check_choice("init", self.init, STARTS)
        options.check_choice("coarse_space", self.coarse_space, COARSE_SPACES)
        members.seed_numbers(self.seeds)
        if self.modes > self.n:
            raise ValueError(
                f"modes={self.modes} is more than the n={self.n} points of an axis can "
                "tell apart."
            )
        if (2 * self.modes) ** self.dim > 4096:
            raise ValueError(
                f"modes={self.modes} in {self.dim} dimensions span "
                f"{(2 * self.modes) ** self.dim} functions; at most 4096 are tabulated."
            )
        # Covers and coarse spaces refuse what does not fit.
        jax.eval_shape(lambda: build(self.setup, STARTS["paper"], jax.random.key(0)))

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """Seeds as numbers."""
        return members.seed_numbers(self.seeds)

    @property
    def setup(self) -> Setup:
        """Domain and Schwarz model."""
        return Setup(
            grid_shape=(self.n,) * self.dim,
            num_boxes=self.subdomains,
            overlap=self.overlap,
            local_rank=self.local_rank,
            coarse_rank=self.coarse_rank,
            coarse_space=self.coarse_space,
            coarse_hats=self.coarse_hats,
            levels=self.levels,
            coarse_boxes=self.coarse_subdomains,
        )

    @property
    def rate(self) -> float:
        """Learning rate of the main study."""
        return self.learning_rate or STARTS[self.init].learning_rate


PRESETS = {
    "smoke": Config(
        preset="smoke",
        n=64,
        modes=8,
        subdomains=4,
        global_rank=20,
        steps=60,
        batch_size=32,
        seeds="0,1",
    ),
    "quick": Config(),
    # Section 6 of the paper at the rate of its Table 2.
    "paper": Config(preset="paper", init="paper", learning_rate=1e-3, beyond=True),
}


def run(
    config: Config, *, workdir: str | os.PathLike | None = None, **unused: Any
) -> dict[str, Any]:
    """Trains all models of a configuration, or continues, or reads a finished run.

    Trains in float32 whatever the caller's settings, evaluates in float64.

    Args:
      config: all that the numbers depend on.
      workdir: folder of the run; `runs/poisson_schwarz-<preset>-<init>` by default.
      **unused: options of other programs.

    Returns:
      What the last line of the program says: of the Schwarz model, medians over the
      seeds of the population's weighted MSE, of the relative L2 error and of the
      relative error of the operator; and the same of all other models.

    Raises:
      ImportError: if matplotlib is missing.
      OSError: if the folder cannot be written.
      RuntimeError: if another process works in the folder.
      ValueError: if the folder holds another configuration.
      opjax.training.NonFiniteError: if all runs of a model diverge.
    """
    del unused
    drawing.require_matplotlib()
    workdir = workdir or f"runs/poisson_schwarz-{config.preset}-{config.init}"
    return run_folder.run_once(
        workdir, config, lambda directory: _run(config, directory)
    )


def _run(config: Config, directory: run_folder.RunDirectory) -> dict[str, Any]:
    begin = time.monotonic()
    sections = {"main": poisson_studies.main(config)}
    if config.beyond:
        sections["growth"] = poisson_studies.growth(config)
        sections["ablation"] = poisson_studies.ablation(config)
        sections["two_dimensions"] = poisson_studies.two_dimensions(config)
    rows = {
        section: {label: _study(study, directory) for label, study in studies.items()}
        for section, studies in sections.items()
    }
    data = problem(sections["main"]["schwarz"])
    seconds = time.monotonic() - begin
    poisson_tables.write(directory.path, config, rows, seconds=seconds)
    poisson_drawing.draw(directory.path / "figures", config, rows, data)
    main = rows["main"]["schwarz"]
    device = jax.devices()[0]
    return {
        **main.summary(config.rate),
        "parameters": main.parameters,
        # Of everything in this process; `train_seconds` are of the Schwarz model, all
        # rates and seeds, without compilation.
        "seconds": time.monotonic() - begin,
        "train_seconds": main.seconds,
        "preset": config.preset,
        "init": config.init,
        "learning_rate": config.rate,
        "seeds": list(config.seed_numbers),
        "data": "own solver: finite differences, exact discrete inverse",
        "device": f"{device.platform} ({device.device_kind})",
        "workdir": str(directory.path),
    }


def _study(study: Study, directory: run_folder.RunDirectory) -> Row:
    data = problem(study)
    outcome = train(study, data, directory.checkpoints / study.name)
    return Row(
        study,
        poisson_studies.num_parameters(study),
        outcome,
        closed_form_errors(study, data),
    )


if __name__ == "__main__":
    options.launch(PRESETS, run, program="poisson_schwarz")
