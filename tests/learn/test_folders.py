"""Cases in folders, from their training to results in their folders."""

import dataclasses
import json

import jax
import pytest

from opjax.learn.cli import predict, train
from tests import sessions
from tests.learn.tiny import QUICK, TINY
from tests.solved import pyvista, solved, table


@pytest.mark.parametrize(
    "time", [pytest.param("none", marks=pytest.mark.nightly), "one_step"]
)
def test_predictions_of_cases_in_folders_are_in_their_folders(time, tmp_path):
    steady = time == "none"
    solved(
        tmp_path / "cases", count=4, times=(1,) if steady else (0, 1, 2), stems=False
    )
    table(tmp_path / "cases", [f"case_{i},{i}" for i in range(4)])
    config = dataclasses.replace(
        TINY,
        models=(QUICK,),
        train=str(tmp_path / "cases"),
        location="cells",
        target_names="p",
        scalar_names="load",
        boundary_names="wall",
        time=time,
        num_epochs=1,
        batch_size=1,
    )
    with sessions.lenient():
        with jax.enable_x64(False):
            train.run(config, workdir=tmp_path / "run")
        given = {"input": str(tmp_path / "cases"), "output": tmp_path / "out"}
        options = predict.PredictOptions(
            tmp_path / "run", **given, steps=2 * (not steady), own_model=QUICK
        )
        predict.run(options)
    names = ["flow_1.vtu"] if steady else [f"flow/flow_{i:04d}.vtu" for i in range(3)]
    for case in range(4):
        for name in names:
            found = pyvista.read(tmp_path / "out" / f"case_{case}" / name)
            assert found.cell_data["prediction_p"].shape == (6,)
    rows = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [row["scalars"] for row in rows] == [{"load": i} for i in range(4)]
