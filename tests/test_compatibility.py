"""What every release left behind is read, continued and run by this one."""

import json
import pathlib
import tarfile

import numpy as np
import pytest

import opjax
from opjax import export, learn
from opjax.learn.cli import train
from opjax.samples import Sample
from tests.compatibility.__main__ import CONFIG
from tests.selection import by_day

FOLDER = pathlib.Path(__file__).parent / "compatibility"
VERSIONS = sorted(path.parent.name for path in FOLDER.glob("*/predicted.npz"))
# Sums round differently in other versions of XLA.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
versions = pytest.mark.parametrize("version", by_day(VERSIONS, day=["0.2.0"]))


def unpack(version, name, target):
    with tarfile.open(FOLDER / version / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / "run"


def predicted(version):
    with np.load(FOLDER / version / "predicted.npz") as file:
        return dict(file)


def test_this_release_left_something_small():
    assert opjax.__version__ in VERSIONS, "run `python -m tests.compatibility`"
    for version in VERSIONS:
        files = (FOLDER / version).iterdir()
        assert sum(file.stat().st_size for file in files) < 400_000


@versions
def test_operators_predict_what_they_predicted(version, tmp_path):
    trained, known = learn.load(unpack(version, "whole", tmp_path)), predicted(version)
    values = known.pop("values")
    sample = Sample(**known, target=None)
    np.testing.assert_allclose(trained(sample), values, **CLOSE)


@versions
def test_exported_operators_run(version):
    pytest.importorskip("flatbuffers", reason="needs `pip install 'opjax[export]'`")
    known = predicted(version)
    values = known.pop("values")
    # Those of 0.1.0 have no checksum.
    operator = export.load(FOLDER / version / "operator.jax", trusted=True)
    given = (known[name].astype(np.float32) for name in ("mesh_points", "features"))
    found = operator.call(*given)
    np.testing.assert_allclose(found, values, **CLOSE)


@versions
def test_finished_runs_are_read_and_not_repeated(version, tmp_path, capfd):
    folder = unpack(version, "whole", tmp_path)
    before = json.loads(next(folder.glob("*/result.json")).read_text())
    found = train.run(CONFIG, workdir=folder)
    assert found["validation"] == before["validation"]
    assert "epoch" not in capfd.readouterr().err


@pytest.mark.nightly
@versions
def test_stopped_runs_go_on_to_the_same_end(version, tmp_path, capfd):
    whole, half = (unpack(version, n, tmp_path / n) for n in ("whole", "half"))
    expected = json.loads(next(whole.glob("*/result.json")).read_text())
    found = train.run(CONFIG, workdir=half)
    assert "Continuing from" in capfd.readouterr().err
    assert found["validation"] == pytest.approx(expected["validation"], rel=1e-3)
