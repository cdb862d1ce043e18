"""A rubber cell with a random void: learns the stress from the shape.

    python -m experiments.elasticity --preset=quick
    python -m experiments.elasticity --preset=paper --data_dir=...

The benchmark of Geo-FNO, a cloud of 972 points for every cell. Without --data_dir it
takes samples of our own solver, of the same law on a mesh of our own.
"""

import dataclasses

from opjax.datasets import elasticity
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

    num_around: int = option(
        36, "Elements around the void in our own mesh, a multiple of 4", minimum=4
    )
    num_across: int = option(3, "Elements between void and sides", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.num_around % 4:
            raise ValueError(f"num_around={self.num_around} must be a multiple of 4.")


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional",),
        num_train=8,
        num_validation=4,
        num_test=4,
        num_around=12,
        num_across=1,
        features=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_epochs=2,
    ),
    "quick": Config(num_epochs=30),
    # As published, but for validation samples, which leave 980 of 1000 for training.
    "paper": Config(
        preset="paper",
        models=("functional",),
        num_train=980,
        num_validation=20,
        num_test=200,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        num_epochs=500,
        batch_size=1,
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
        train, test = elasticity.load(
            config.data_dir, num_train=count, num_test=config.num_test
        )
        source = f"published files in {config.data_dir}"
    else:
        found = elasticity.generate(
            count + config.num_test,
            seed=config.data_seed,
            num_around=config.num_around,
            num_across=config.num_across,
            cache_dir=cache_dir,
        )
        train, test = found[:count], found[count:]
        source = (
            f"own solver on {config.num_around} x {config.num_across} elements, "
            f"seed {config.data_seed}"
        )
    first = config.num_train
    return Splits(train[:first], train[first:], test, source)


def make_task(config: Config, cache_dir: str | None) -> Task:
    """The task of a run, as in `Task`."""
    return regression.regression(
        config,
        load(config, cache_dir=cache_dir),
        notes="The target is the von Mises stress.",
    )


PROGRAM = Program("elasticity", PRESETS, make_task)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
