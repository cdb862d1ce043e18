"""Writes what this version leaves behind: `python -m tests.compatibility`.

To be run once for a release, and committed: a finished run of `opjax-train`, the same
stopped half-way, its operator exported, and what it predicts, in the folder of the
version.
"""

import contextlib
import dataclasses
import pathlib
import sys
import tarfile
import tempfile
from unittest import mock

import numpy as np

import opjax
from opjax import learn
from opjax.learn.cli import predict, train
from opjax.learn.run import fitting

FOLDER = pathlib.Path(__file__).parent
CONFIG = dataclasses.replace(
    train.PRESETS["smoke"],
    models=("functional",),
    width=8,
    num_layers=1,
    num_heads=2,
    num_basis=4,
    num_epochs=4,
)


def stop_after(batches: int):
    """Tells a training to stop after so many questions whether it should."""
    asked = []

    def told() -> bool:
        asked.append(0)
        return len(asked) == batches

    stop = contextlib.nullcontext(told)
    return mock.patch.object(fitting, "put_off", return_value=stop)


def pack(folder: pathlib.Path, archive: pathlib.Path) -> None:
    """Packs a folder without what is only to be looked at."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        drawn = (
            member.name.endswith((".png", ".md", ".html")) or "/figures" in member.name
        )
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if drawn else member

    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, arcname="run", filter=kept)


def write(target: pathlib.Path) -> None:
    """Writes all files of this version."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        whole, half = pathlib.Path(name, "whole"), pathlib.Path(name, "half")
        train.run(CONFIG, workdir=whole)
        with stop_after(2), contextlib.suppress(learn.Stopped):
            train.run(CONFIG, workdir=half)
            raise AssertionError("The run was not stopped.")
        pack(whole, target / "whole.tar.gz")
        pack(half, target / "half.tar.gz")
        trained = learn.load(whole)
        sample = train.load(CONFIG)[0].test[0]
        np.savez_compressed(
            target / "predicted.npz",
            mesh_points=sample.mesh_points,
            features=sample.features,
            values=trained(sample),
        )
        predict.run(predict.PredictOptions(whole, export=target / "operator.jax"))


if __name__ == "__main__":
    write(FOLDER / opjax.__version__)
    sizes = {p.name: p.stat().st_size for p in (FOLDER / opjax.__version__).iterdir()}
    print(sizes, sum(sizes.values()), file=sys.stderr)
