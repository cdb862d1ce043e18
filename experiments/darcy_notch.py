"""Darcy flow in a notched triangle: learns the solution from the boundary values.

    python -m experiments.darcy_notch --preset=quick
    python -m experiments.darcy_notch --preset=paper --data_dir=...

The benchmark of the wavelet neural operator. Without --data_dir it takes samples of our
own solver. On a mesh the domain is that of the equation. On a grid of the square around
it, as in the papers, the solution is extended to the outside and that counts as well.
"""

import dataclasses

from opjax.datasets import darcy_notch
from opjax.learn import (
    DataOptions,
    ModelOptions,
    Program,
    RunOptions,
    Splits,
    Task,
    TrainingOptions,
    options,
)
from opjax.learn import supervised as regression
from opjax.learn.options import option
from opjax.problems.darcy_notch import NOTCHES


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    layout: str = option("mesh", f"One of {', '.join(darcy_notch.LAYOUTS)}")
    num_columns: int = option(
        30, "Elements of our own mesh on either side of the notch", minimum=2
    )
    num_points: int = option(51, "Points per side of our own grid", minimum=2)
    stride: int = option(
        2, "Keep every so many points of the published grid", minimum=1
    )
    notch: str = option("boundary", f"Of our own solver: {', '.join(NOTCHES)}")

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        options.check_choice("layout", self.layout, darcy_notch.LAYOUTS)
        options.check_choice("notch", self.notch, NOTCHES)


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional",),
        num_train=8,
        num_validation=4,
        num_test=4,
        num_columns=6,
        features=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_epochs=2,
    ),
    "quick": Config(num_epochs=40),
    # As published, but for validation samples, which leave 1880 of 1900 for training.
    "paper": Config(
        preset="paper",
        models=("functional",),
        layout="grid",
        num_train=1880,
        num_validation=20,
        num_test=100,
        num_columns=46,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        num_epochs=500,
        batch_size=25,
    ),
}


def load(config: Config, *, cache_dir: str | None = None) -> Splits:
    """Reads or generates the samples of a run.

    Args:
      config: with `data_dir` for the published files.
      cache_dir: folder of generated data.

    Returns:
      Training, validation (the last ones of the published training samples) and test
      samples.
    """
    count = config.num_train + config.num_validation
    if config.data_dir:
        train, test = darcy_notch.load(
            config.data_dir,
            layout=config.layout,
            stride=config.stride,
            num_train=count,
            num_test=config.num_test,
        )
        source = f"published {config.layout} in {config.data_dir}"
    else:
        found = darcy_notch.generate(
            count + config.num_test,
            seed=config.data_seed,
            layout=config.layout,
            num_columns=config.num_columns,
            num_points=config.num_points,
            notch=config.notch,
            cache_dir=cache_dir,
        )
        train, test = found[:count], found[count:]
        source = (
            f"own solver, {config.layout} of {found[0].num_points} points, "
            f"notch: {config.notch}, seed {config.data_seed}"
        )
    first = config.num_train
    return Splits(train[:first], train[first:], test, source)


def make_task(config: Config, cache_dir: str | None) -> Task:
    """The task of a run, as in `Task`."""
    notes = ""
    if config.layout == "grid":
        notes = "Points outside of the triangle count in the error."
    return regression.regression(config, load(config, cache_dir=cache_dir), notes=notes)


PROGRAM = Program(
    "darcy_notch", PRESETS, make_task, title="Darcy flow in a notched triangle"
)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
