"""Transonic flow around airfoils: learns the Mach number from the mesh around them.

    python -m experiments.airfoil --preset=quick
    python -m experiments.airfoil --preset=paper --data_dir=...

The benchmark of Geo-FNO. Without --data_dir it takes samples of our own solver: the
quick preset on a mesh of 111 x 26 points.

Shapes differ by a twentieth of a chord on meshes of forty chords. From the coordinates
alone, as published, models take long to see that; quick gives them the deviations from
the mean mesh of the training samples besides.
"""

import dataclasses

import numpy as np

from opjax.datasets import airfoil
from opjax.learn import (
    DataOptions,
    ModelOptions,
    Program,
    RunOptions,
    Splits,
    Task,
    TrainingOptions,
)
from opjax.learn import supervised as regression
from opjax.learn.options import option


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    num_airfoil: int = option(60, "Cells around the airfoil, own solver", minimum=6)
    num_wake: int = option(25, "Cells along a side of the wake, own solver", minimum=1)
    num_radial: int = option(25, "Cells outwards, own solver", minimum=2)
    tolerance: float = option(1e-4, "Residual of our own solver", minimum=1e-5, below=1)
    deviations: bool = option(
        True, "Give models how far points lie from those of the mean mesh"
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.num_airfoil % 2:
            raise ValueError(f"num_airfoil={self.num_airfoil} must be even.")


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional",),
        num_train=8,
        num_validation=4,
        num_test=4,
        num_airfoil=24,
        num_wake=6,
        num_radial=10,
        tolerance=1e-2,
        features=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_epochs=2,
    ),
    # Smaller and shorter than of other programs: there are 2886 points.
    "quick": Config(features=32, num_epochs=16),
    # As published, but for validation samples, which leave 980 of 1000 for training.
    "paper": Config(
        preset="paper",
        models=("functional",),
        deviations=False,
        num_train=980,
        num_validation=20,
        num_test=200,
        num_airfoil=120,
        num_wake=50,
        num_radial=50,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        num_epochs=500,
        batch_size=4,
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
        train, test = airfoil.load(
            config.data_dir, num_train=count, num_test=config.num_test
        )
        source = f"published files in {config.data_dir}"
    else:
        found = airfoil.generate(
            count + config.num_test,
            seed=config.data_seed,
            num_airfoil=config.num_airfoil,
            num_wake=config.num_wake,
            num_radial=config.num_radial,
            tolerance=config.tolerance,
            cache_dir=cache_dir,
        )
        train, test = found[:count], found[count:]
        source = f"own solver, seed {config.data_seed}"
    first = config.num_train
    if config.deviations:
        mean = np.mean([sample.mesh_points for sample in train[:first]], axis=0)
        train, test = (
            [s._replace(features=s.mesh_points - mean) for s in found]
            for found in (train, test)
        )
    return Splits(train[:first], train[first:], test, source)


def make_task(config: Config, cache_dir: str | None) -> Task:
    """The task of a run, as in `Task`."""
    splits = load(config, cache_dir=cache_dir)
    return regression.regression(
        config,
        splits,
        notes="The target is the Mach number.",
        # Of a mesh with a radius of 40 chords, what is near the airfoil.
        window=(-0.5, 1.5, -0.8, 0.8),
    )


PROGRAM = Program("airfoil", PRESETS, make_task)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
