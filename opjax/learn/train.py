"""Trains operators on your own data: files of samples on meshes of any size.

    opjax-train --train=data/train --test=data/test --feature_names=k,f \
      --target_names=u --workdir=runs/mine
    opjax-predict --workdir=runs/mine --input=new --output=predicted

Formats and names of the arrays are those of `opjax.datasets.own`. The folder of every
model keeps the operator with its normalisers, channels and the ranges of the training
samples, which predictions are compared with. Data that do not fit into memory are
trained on with `--stream_samples`, which reads samples when their batch comes: results
are the same, bit for bit, and a run continues after any step, see `learn.buckets`.
`--models=package.module:function` trains a model or an attention of your own, see
`opjax.learn.operators`.
"""

import contextlib
import dataclasses
import os
import tempfile
from functools import partial
from typing import Any

from opjax import learn
from opjax.datasets import heat, own, own_splits
from opjax.learn.config import ModelOptions, RunOptions, TrainingOptions
from opjax.learn.fields import option

DEMONSTRATION = "demonstration"


def _listed(paths: str) -> list[str]:
    return [path.strip() for path in paths.split(",") if path.strip()]


def _absolute(paths: str) -> str:
    if paths == DEMONSTRATION:
        return paths
    return ",".join(os.path.abspath(os.path.expanduser(p)) for p in _listed(paths))


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, ModelOptions, TrainingOptions):
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
    data_seed: int = option(0, "Seed of the division of the samples", minimum=0)
    stacked: bool = option(
        False,
        "Files hold many samples, along axis 0 of every array: .h5 files, or folders "
        "of one .npy file for each array",
    )
    stream_samples: bool = option(
        False,
        "Read samples when their batch comes, rather than all at the start; for data "
        "that do not fit into memory, with the same results",
    )
    num_train: int = option(0, "Most training samples; 0: all", minimum=0)
    num_validation: int = option(0, "Most validation samples; 0: all", minimum=0)
    num_test: int = option(0, "Most test samples; 0: all", minimum=0)

    def __post_init__(self):
        """Makes paths absolute, so that the folder of a run says where they are."""
        super().__post_init__()
        for name in ("stream_samples", "stacked"):
            if getattr(self, name) and self.train == DEMONSTRATION:
                raise ValueError(
                    f"{name} means nothing with train={DEMONSTRATION}, whose few "
                    "samples are made on the spot; leave it out."
                )
        for name in ("train", "test"):
            object.__setattr__(self, name, _absolute(getattr(self, name)))


# Convolutions are off: they tie a model to one grid.
_DEFAULTS: dict[str, Any] = {
    "models": ("functional",),
    "num_epochs": 100,
    "convolution": False,
}
_TRIAL = {"train": DEMONSTRATION, "num_epochs": 30, "num_buckets": 1}
PRESETS = {
    "smoke": Config(**(_DEFAULTS | learn.SMOKE | _TRIAL)),
    **learn.quick(Config(**_DEFAULTS)),
    "paper": Config(**(_DEFAULTS | learn.PAPER)),
}


# Options that are arguments of `own_splits.splits`.
_OF_SPLITS = ("quadrature", "stacked", "validation_fraction", "test_fraction")
_OF_SPLITS += ("num_train", "num_validation", "num_test")


def make_task(config: Config, cache_dir: str | None = None) -> learn.Task:
    """Reads the samples and builds the task, see `learn.regression`."""
    del cache_dir
    splits, names = load(config)
    return learn.regression(config, splits, encode_points=True, names=names)


def load(config: Config) -> tuple[learn.Splits, dict[str, tuple[str, ...]]]:
    """Reads and divides the samples; names the channels of `features` and `target`."""
    if not config.train:
        raise ValueError(
            "Give the training samples, --train=FOLDER or files; or "
            f"--train={DEMONSTRATION} to try the program."
        )
    shown = config.train == DEMONSTRATION
    with contextlib.ExitStack() as stack:
        paths = _listed(config.train)
        if shown:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            paths = [heat.write(folder, 40)]
        channels = partial(own.channels, stacked=config.stacked)
        names = {
            "features": channels(paths, config.feature_names or "features"),
            "target": channels(paths, config.target_names or "target"),
        }
        splits = own_splits.splits(
            paths,
            _listed(config.test),
            features=config.feature_names,
            target=config.target_names,
            point_dim=config.point_dim or None,
            seed=config.data_seed,
            in_memory=not config.stream_samples,
            **{name: getattr(config, name) for name in _OF_SPLITS},
        )
    if len(splits.train) < config.batch_size:
        raise ValueError(
            f"{len(splits.train)} training samples are left, fewer than "
            f"batch_size={config.batch_size}; give more samples."
        )
    if shown:
        splits = splits._replace(source="our demonstration of heat that spreads")
    return splits, {name: listed or () for name, listed in names.items()}


PROGRAM = learn.Program(
    "train", PRESETS, make_task, title="Your own data", command="opjax-train"
)
run, main = PROGRAM.run, PROGRAM.launch


if __name__ == "__main__":
    main()
