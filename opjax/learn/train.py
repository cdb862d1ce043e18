"""Trains operators on your own data: files of samples on meshes of any size.

    python -m experiments.train --train=data/train --test=data/test \
      --feature_names=k,f --target_names=u --workdir=runs/mine
    python -m experiments.predict --workdir=runs/mine --input=new --output=predicted

Formats and names of the arrays are those of `opjax.datasets.own`. The folder of every
model keeps the operator with its normalisers, channels and the ranges of the training
samples, which predictions are compared with.
"""

import dataclasses
import os
import pathlib
import tempfile
from typing import Any

import numpy as np

from opjax.datasets import own
from opjax.datasets.samples import Sample
from opjax.learn import (
    DataOptions,
    ModelOptions,
    Program,
    RunOptions,
    Splits,
    Task,
    TrainingOptions,
    options,
    trained,
)
from opjax.learn import demonstration as own_demonstration
from opjax.learn import supervised as regression
from opjax.learn.options import option

DEMONSTRATION = "demonstration"
_ALL = 10**9
_CONVOLUTIONAL = ("functional", "transolver", "orthogonal")


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All that the numbers of a run depend on."""

    train: str = option(
        "", f"Folder, files or patterns, separated by commas; or {DEMONSTRATION!r}"
    )
    test: str = option("", "Likewise; empty: a part of the training samples")
    feature_names: str = option("", "Fields of the input; empty: features, if there")
    target_names: str = option("", "Fields to predict; empty: target")
    point_dim: int = option(
        0, "Leading axes of VTK points that are space; 0: those not all zero", minimum=0
    )
    quadrature: bool = option(
        False, "Weigh points by their cells, where files have no quadrature_weights"
    )
    validation_fraction: float = option(
        0.1, "Part of the training samples that chooses the model", above=0, below=1
    )
    test_fraction: float = option(
        0.2, "Part of the training samples for tests, without --test", above=0, below=1
    )
    data_dir: str = option("", "Not for this program: see --train")
    data_seed: int = option(0, "Seed of the division of the samples", minimum=0)
    num_train: int = option(_ALL, "Largest number of training samples", minimum=1)
    num_validation: int = option(_ALL, "Largest number for validation", minimum=1)
    num_test: int = option(_ALL, "Largest number of test samples", minimum=1)
    models: tuple[str, ...] = option(("functional",), "Models by name", members=True)
    convolution: bool = option(
        False, "3 x 3 projections where samples are on a grid, which ties models to it"
    )
    num_epochs: int = option(100, "Passes over the training samples", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.data_dir:
            raise ValueError("This program has --train and --test, not --data_dir.")


PRESETS = {
    "smoke": Config(
        preset="smoke",
        train=DEMONSTRATION,
        features=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_epochs=30,
        num_buckets=1,
    ),
    "quick": Config(),
    "paper": Config(
        preset="paper",
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        num_epochs=500,
    ),
}


def make_task(config: Config, cache_dir: str | None = None) -> Task:
    """Reads the samples and builds the task, see `regression.task`."""
    splits, names = load(config)
    task = regression.regression(config, splits, encode_points=True)
    grid_shape = regression.common_grid(regression.all_samples(splits))
    description = {
        fixed: trained.describe(
            splits.train, grid_shape=grid_shape if fixed else None, names=names
        )
        for fixed in (False, True)
    }

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        assert task.evaluate is not None
        numbers = task.evaluate(model, folder)
        name = folder.name.rpartition("-")[0]
        fixed = name == "fno" or (config.convolution and name in _CONVOLUTIONAL)
        trained.save(folder, model, task.extra, description[fixed])
        return numbers

    return task._replace(evaluate=evaluate)


def load(config: Config) -> tuple[Splits, dict[str, tuple[str, ...]]]:
    """Reads and divides the samples.

    Args:
      config: says where they are.

    Returns:
      The samples, and the names of the channels of `features` and `target`.

    Raises:
      OSError: if there are no files.
      ValueError: if a file is damaged, the samples do not agree, or they are too few.
    """
    if config.train == DEMONSTRATION:
        with tempfile.TemporaryDirectory() as folder:
            return _load(config, [str(own_demonstration.write(folder, 40))], [])
    return _load(config, _listed(config.train), _listed(config.test))


def _load(
    config: Config, train_paths: list[str], test_paths: list[str]
) -> tuple[Splits, dict[str, tuple[str, ...]]]:
    given = reading(config)
    train = own.read(train_paths, **given)
    if train[0].target is None:
        raise ValueError(
            f"{train[0].name} has no array 'target'; name what to predict, "
            "--target_names=..."
        )
    shuffled = np.random.default_rng(config.data_seed).permutation(len(train))
    train = [train[i] for i in shuffled]
    if test_paths:
        _check_disjoint(train_paths, test_paths)
        test = own.read(test_paths, **given)
    else:
        train, test = _divide(train, config.test_fraction, "test_fraction")
    train, validation = _divide(
        train, config.validation_fraction, "validation_fraction"
    )
    train = train[: config.num_train]
    if len(train) < config.batch_size:
        raise ValueError(
            f"{len(train)} training samples are left, fewer than "
            f"batch_size={config.batch_size}; give more samples."
        )
    names = {}
    for field, wanted in (
        ("features", config.feature_names),
        ("target", config.target_names),
    ):
        names[field] = own.channels(train_paths, wanted or field) or ()
    splits = Splits(
        train,
        validation[: config.num_validation],
        test[: config.num_test],
        "our demonstration of heat that spreads"
        if config.train == DEMONSTRATION
        else f"own files ({config.train})",
    )
    return splits, names


def reading(config: Any) -> dict[str, Any]:
    """Returns the options of `own.read` that a configuration asks for."""
    return {
        "features": config.feature_names,
        "target": config.target_names,
        "point_dim": config.point_dim or None,
        "quadrature": config.quadrature,
    }


def _divide(
    found: list[Sample], fraction: float, name: str
) -> tuple[list[Sample], list[Sample]]:
    """Splits off a part of the samples, at least one."""
    count = max(1, round(fraction * len(found)))
    if count >= len(found):
        raise ValueError(
            f"{name}={fraction} of {len(found)} samples leaves none for training; give "
            "more samples."
        )
    return found[:-count], found[-count:]


def _check_disjoint(train: list[str], test: list[str]) -> None:
    both = {p.resolve() for p in own.find(train)} & {
        p.resolve() for p in own.find(test)
    }
    if both:
        raise ValueError(
            f"{len(both)} files are in --train and in --test, such as {min(both)}; a "
            "test needs other samples."
        )


def _listed(paths: str) -> list[str]:
    return [path.strip() for path in paths.split(",") if path.strip()]


def _absolute(paths: str) -> str:
    if paths == DEMONSTRATION:
        return paths
    return ",".join(os.path.abspath(os.path.expanduser(p)) for p in _listed(paths))


PROGRAM = Program("train", PRESETS, make_task, title="Your own data")


def run(config: Config, **given: Any) -> dict[str, Any]:
    """Trains all models and seeds, see `Program.run`."""
    if not config.train:
        raise ValueError(
            "Give the training samples, --train=FOLDER or files; or "
            f"--train={DEMONSTRATION} to try the program."
        )
    config = dataclasses.replace(
        config, train=_absolute(config.train), test=_absolute(config.test)
    )
    return PROGRAM.run(config, **given)


def main() -> None:
    """Runs the program on its flags."""
    options.launch(PRESETS, run, program="train", describe=PROGRAM.describe)
