"""Flow through deformed pipes: learns the velocity along them from their shape.

    python -m experiments.pipe --preset=quick
    python -m experiments.pipe --preset=paper --data_dir=... --split=functional

The benchmark of Geo-FNO. Without --data_dir it takes samples of our own solver: the
quick preset keeps every second node of a solve on 32 x 32 elements.
"""

import dataclasses

from opjax.datasets import pipe
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


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    split: str = option(
        "transolver", f"Of the published files: {', '.join(pipe.SPLITS)}"
    )
    num_elements: int = option(32, "Elements a side of our own solver", minimum=1)
    stride: int = option(2, "Keep every so many of its nodes", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        options.check_choice("split", self.split, pipe.SPLITS)
        if 2 * self.num_elements % self.stride:
            raise ValueError(
                f"stride={self.stride} must divide 2 num_elements="
                f"{2 * self.num_elements}."
            )


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional",),
        num_train=8,
        num_validation=4,
        num_test=4,
        num_elements=8,
        stride=1,
        features=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_epochs=2,
    ),
    "quick": Config(),
    # As published, but for validation samples, which leave 980 of 1000 for training.
    "paper": Config(
        preset="paper",
        models=("functional",),
        num_train=980,
        num_validation=20,
        num_test=200,
        num_elements=64,
        stride=1,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        num_epochs=500,
        batch_size=4,
        clip_norm=1.0,
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
        train, test = pipe.load(
            config.data_dir,
            num_train=count,
            num_test=config.num_test,
            split=config.split,
        )
        source = f"published files in {config.data_dir}, split {config.split}"
    else:
        found = pipe.generate(
            count + config.num_test,
            seed=config.data_seed,
            num_elements=config.num_elements,
            stride=config.stride,
            cache_dir=cache_dir,
        )
        train, test = found[:count], found[count:]
        source = (
            f"own solver on {config.num_elements} x {config.num_elements} elements, "
            f"seed {config.data_seed}"
        )
    first = config.num_train
    return Splits(train[:first], train[first:], test, source)


def make_task(config: Config, cache_dir: str | None) -> Task:
    """The task of a run, as in `Task`."""
    return regression.regression(
        config,
        load(config, cache_dir=cache_dir),
        encode_points=True,
        notes="The target is the velocity along x.",
    )


PROGRAM = Program("pipe", PRESETS, make_task)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
