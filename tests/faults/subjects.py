"""Tiny runs of real programs, which are killed: what each does in a folder.

Clocks stand still in them, so that all that they write can be compared; see
`test_folders.py` for clocks that jump.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import h5py
import jax

import tests.hosts as line
from experiments import burgers
from opjax import files, learn
from opjax.datasets import heat
from opjax.learn.cli import predict, program, report, study, train
from opjax.learn.run import batches, loop
from tests.learn import resumable

_STILL = SimpleNamespace(monotonic=lambda: 0.0)
_TIMED = (batches, loop, predict, program, study)
_OWN: dict[str, Any] = {"width": 8, "num_layers": 1, "num_heads": 2, "num_basis": 4}
_OWN |= {"num_epochs": 3, "batch_size": 4, "checkpoint_every": 1}


def inputs(folder: pathlib.Path) -> None:
    """Writes the files that subjects read."""
    heat.write(folder / "samples", 14, num_points=(24, 24))
    with h5py.File(folder / "new.h5", "w") as file:
        for sample in files.read(folder / "samples")[:3]:
            group = file.create_group(pathlib.Path(sample.name).stem)
            for name in ("mesh_points", "features", "target"):
                group[name] = getattr(sample, name)


def two_seeds(root: pathlib.Path, given: pathlib.Path) -> None:
    """A study of two members, one after the other, with a table and figures."""
    del given
    config = dataclasses.replace(line.PRESETS["quick"], seeds=(0, 1), num_epochs=4)
    line.PROGRAM.run(config, workdir=root / "run")


def drawn(root: pathlib.Path, given: pathlib.Path) -> None:
    """Batches that are drawn anew, a checkpoint after every call."""
    del given
    task, settings = line.drawn()
    settings = dataclasses.replace(settings, num_steps=12, checkpoint_seconds=-1.0)
    with jax.enable_x64(False):
        _print(learn.fit(task, line.start(), settings, folder=root / "run"))


def noisy(root: pathlib.Path, given: pathlib.Path) -> None:
    """Noise, averaged weights, a best model, checkpoints within epochs."""
    del given
    with jax.enable_x64(False):
        more = {"quiet": True, "checkpoint_seconds": -1.0}
        _print(resumable.run(root / "run", **more))


def own_files(root: pathlib.Path, given: pathlib.Path) -> None:
    """Training on files, predictions on files of both formats, a page."""
    changes = {**_OWN, "train": str(given / "samples"), "equal_parameters": False}
    config = dataclasses.replace(
        train.PRESETS["quick"], models=("functional",), **changes
    )
    train.run(config, workdir=root / "run")
    for file in (given / "new.h5", given / "samples" / "heat_0013.npz"):
        output = root / "predicted" / file.stem
        print(
            json.dumps(
                predict.run(
                    predict.PredictOptions(root / "run", input=str(file), output=output)
                )
            )
        )
    page = root / "pages" / "page.md"
    print(json.dumps(report.report(page, [root / "run"], html=True, figures=True)))


def generated(root: pathlib.Path, given: pathlib.Path) -> None:
    """Data of our own solver, in the cache, and a model on them."""
    del given
    config = dataclasses.replace(
        burgers.PRESETS["smoke"], models=("functional",), checkpoint_every=1
    )
    burgers.PROGRAM.run(config, workdir=root / "run", cache_dir=str(root / "cache"))


# The quickest ones first.
SUBJECTS = {
    run.__name__: run for run in (drawn, two_seeds, noisy, own_files, generated)
}


@contextlib.contextmanager
def still() -> Iterator[None]:
    """Clocks of training that do not move, in the modules that look at them."""
    with contextlib.ExitStack() as stack:
        for module in _TIMED:
            stack.enter_context(mock.patch.object(module, "time", _STILL))
        yield


def _print(fitted: learn.Fitted) -> None:
    rows = [row["train_loss"] for row in fitted.history]
    print(json.dumps({"best": fitted.best_metric, "losses": rows}))
