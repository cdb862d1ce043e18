"""Operators that predict scalars of a case and no field."""

import csv
import dataclasses
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn
from opjax.learn.cli import predict as predicting
from opjax.learn.cli import report as reporting
from opjax.learn.cli import train as program
from opjax.learn.report.figures import Member, parity
from opjax.learn.tasks import scalars
from opjax.normalize import Normalizer
from opjax.samples import Sample, from_arrays
from tests.exported import FILES, results_of
from tests.learn.tiny import QUICK, TINY, report_of, run_calibrate, run_predict
from tests.refused import value_error

DRAWN = True  # tests/figures.py

SMALL = dataclasses.replace(
    TINY, models=(QUICK,), scalar_names="angle", target_scalars="lift,drag"
)
load = functools.partial(learn.load, own_model=QUICK)


def _write(folder, rows, rng, **more):
    folder.mkdir()
    for i in rows:
        points, angle = rng.random((20 + i % 3, 2)), rng.normal()
        lift, drag = angle + 0.1 * points[:, 0].mean(), 0.1 + angle**2
        arrays = {"mesh_points": points, "angle": angle, "lift": lift, "drag": drag}
        np.savez(folder / f"c{i:02}.npz", **arrays, **more)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cases")
    return _write(place / "train", range(16), np.random.default_rng(0))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    place = tmp_path_factory.mktemp("others")
    return _write(place / "new", range(30, 50), np.random.default_rng(1))


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "run"
    result = program.run(dataclasses.replace(SMALL, train=str(folder)), workdir=workdir)
    return workdir, result


def _known(trained, place):
    """Predicted and true scalars of files, by the operator itself."""
    read = trained.read(str(place))
    guess = np.stack([trained.both(sample).scalars for sample in read])
    return guess, np.stack([sample.target_scalars for sample in read])


def test_the_last_line_has_the_numbers_of_the_scalars(run):
    workdir, result = run
    trained = load(workdir)
    with np.load(trained.folder / "predictions.npz") as file:
        guess, true = file["predicted_scalars"], file["target_scalars"]
        errors = file["errors"]
    std = np.asarray(trained.normalizers["target_scalars"].std)
    expected = np.sqrt(np.mean(((guess - true) / std) ** 2, axis=1))
    assert_allclose(errors, expected, rtol=1e-5)
    assert result["error_over_std"] == pytest.approx(expected.mean(), rel=1e-5)
    assert result["error_over_std_worst"] == pytest.approx(expected.max(), rel=1e-5)
    assert "relative_l2" not in result
    for i, name in enumerate(("lift", "drag")):
        error = np.abs(guess[:, i] - true[:, i]).mean()
        assert result[f"{name}_error"] == pytest.approx(error, rel=1e-5)
        rank = scipy.stats.spearmanr(guess[:, i], true[:, i]).statistic
        assert result[f"{name}_rank"] == pytest.approx(rank, abs=1e-6)
        spread = np.sum((true[:, i] - true[:, i].mean()) ** 2)
        r2 = 1 - np.sum((guess[:, i] - true[:, i]) ** 2) / spread
        assert result[f"{name}_r2"] == pytest.approx(r2, rel=1e-4)
    assert trained.description.channels.target == 0
    assert trained.description.ranges.keys() >= {"scalars", "target_scalars"}


def test_the_best_epoch_is_that_of_the_scalars(run):
    trained = load(run[0])
    lines = (trained.folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    found = [row["validation"] for row in rows if row.get("validation") is not None]
    assert run[1]["validation"] == pytest.approx(min(found))


def test_loss_and_gradient_are_those_of_the_formula():
    found, true = jnp.array([1.0, -2.0]), jnp.array([0.5, 1.0])
    normalizer = Normalizer(jnp.zeros(2), jnp.array([2.0, 0.5]))

    def loss(found):
        return scalars.over_std(found, true, normalizer.std)

    scaled = np.array([0.25, -6.0])
    value = np.sqrt(np.mean(scaled**2))
    assert_allclose(jax.jit(loss)(found), value, rtol=1e-6)
    expected = scaled / np.array([2.0, 0.5]) / (2 * value)
    assert_allclose(jax.jit(jax.grad(loss))(found), expected, rtol=1e-6)
    assert_allclose(jax.jit(jax.grad(loss))(true), 0)  # and no NaN


def test_predictions_are_a_table_and_no_fields(run, others, tmp_path):
    workdir, _ = run
    result = run_predict(workdir, others, tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "report.json",
        "scalars.csv",
    ]
    rows = report_of(tmp_path / "out")
    with open(tmp_path / "out/scalars.csv", newline="") as file:
        table = list(csv.DictReader(file))
    columns = ["file", "angle", "lift", "drag", "lift_true", "drag_true"]
    assert list(table[0]) == [*columns, "outside_training"]
    guess, true = _known(load(workdir), others)
    for i, (row, line) in enumerate(zip(rows, table, strict=True)):
        assert line["file"] == row["name"]
        assert float(line["lift"]) == row["predicted_scalars"]["lift"]
        assert float(line["drag"]) == pytest.approx(float(guess[i, 1]))
        assert float(line["drag_true"]) == pytest.approx(float(true[i, 1]))
        assert "relative_l2" not in row
    spread = np.sum((true[:, 0] - true[:, 0].mean()) ** 2)
    r2 = 1 - np.sum((guess[:, 0] - true[:, 0]) ** 2) / spread
    assert result["lift_r2"] == pytest.approx(r2, rel=1e-4)
    assert {"drag_error", "drag_rank"} <= result.keys()


def test_scalars_outside_the_training_are_named_with_their_values(
    run, tmp_path, capsys
):
    """In the words, in the report, in the table and in the last line."""
    workdir, _ = run
    low, high = np.ravel(load(workdir).description.ranges["scalars"])
    place = _write(tmp_path / "new", range(3), np.random.default_rng(2))
    for number, angle in enumerate((low, 40.0, -30.0)):
        path = place / f"c{number:02}.npz"
        np.savez(path, **{**np.load(path), "angle": angle})
    result = run_predict(workdir, place, tmp_path / "out")
    assert result["scalars_beyond"] == {"angle": 2}
    inside, above, below = report_of(tmp_path / "out")
    assert inside["scalars_beyond"] == {}
    known = {"value": 40, "training": pytest.approx([low, high])}
    assert above["scalars_beyond"] == {"angle": known}
    assert below["scalars_beyond"]["angle"]["value"] == -30
    with open(tmp_path / "out/scalars.csv", newline="") as file:
        names = [line["outside_training"] for line in csv.DictReader(file)]
    assert names == ["", "angle", "angle"]
    shown = capsys.readouterr().err
    assert f"of its width: angle = 40 ({low:.6g} to {high:.6g} in training)" in shown
    assert "c00" not in shown.replace(str(tmp_path), "").split("angle = ")[0]


@pytest.mark.nightly
def test_intervals_are_the_conformal_quantiles(run, others, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(run[0], workdir)
    found = run_calibrate(workdir, others, coverage=0.8)
    trained = load(workdir)
    guess, true = _known(trained, others)
    rank = int(np.ceil(21 * 0.8)) - 1
    for i, name in enumerate(("lift", "drag")):
        error = np.sort(np.abs(guess[:, i].astype(float) - true[:, i]))
        assert found["half_widths"][name] == pytest.approx(error[rank], rel=1e-5)
    assert not [key for key in found if key.startswith("factor")]
    known = learn.load_calibration(trained)
    std = np.asarray(trained.normalizers["target_scalars"].std)
    scores = np.sort(np.max(np.abs(guess - true) / std, axis=1))
    assert_allclose(known.scores, scores, rtol=1e-4)
    sample = trained.one(others / "c30.npz")
    assert known.likeness(sample)["unlike"] in (True, False)
    with value_error("predicts only scalars, which have interv"):
        known.band(sample)
    result = run_predict(workdir, others, tmp_path / "out")
    assert result["coverage_lift"] >= 0.8
    with open(tmp_path / "out/scalars.csv", newline="") as file:
        line = next(csv.DictReader(file))
    half = float(line["lift_upper"]) - float(line["lift"])
    assert half == pytest.approx(found["half_widths"]["lift"], rel=1e-5)
    with value_error("--band=pointwise has no effect here"):
        run_predict(workdir, others, tmp_path / "out", band="pointwise")
    with value_error("--band_figures=1 has no effect here"):
        run_predict(workdir, others, tmp_path / "out", band_figures=1)
    with value_error("width='residual' has no effect"):
        run_calibrate(workdir, others, width="residual")


def test_the_report_has_table_and_parity_plot(run, tmp_path):
    folder = load(run[0]).folder
    assert (folder / "figures/quantities.png").is_file()
    assert not (folder / "figures/fields.png").exists()
    assert parity([Member("functional", 0, folder)]) is not None
    page = tmp_path / "page.md"
    reporting.report(page, [run[0]], html=True, figures=True)
    assert "lift r2 | lift rank" in page.read_text()
    assert "quantities.png" in page.read_text()


@pytest.mark.parametrize("file", FILES)
def test_exported_operators_return_the_scalars(file, run, others, tmp_path):
    trained, path = load(run[0]), tmp_path / file
    predicting.run(predicting.PredictOptions(run[0], export=path, own_model=QUICK))
    case = trained.one(others / "c30.npz")
    inputs = {"mesh_points": case.mesh_points, "scalars": case.scalars}
    found = results_of(path, inputs)
    expected = dict(zip(["lift", "drag"], trained.both(case).scalars, strict=True))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_what_needs_a_field_is_refused(run, folder, others, tmp_path):
    workdir, _ = run
    trained = load(workdir)
    sample = trained.one(others / "c30.npz")
    for call in (
        lambda: trained(sample),
        lambda: trained.field(sample),
        lambda: trained.stream({"mesh_points": sample.mesh_points}),
    ):
        with value_error(r"trained.both\(sample\).scalars"):
            call()
    with value_error("omit --quantities"):
        run_predict(workdir, others, tmp_path, quantities="max:p")
    given = dataclasses.replace(SMALL, train=str(folder), quantities="max:p")
    with value_error("max:p needs a predicted field"):
        program.run(given, workdir=tmp_path / "run")
    bare = dataclasses.replace(SMALL, train=str(folder), target_scalars="")
    with value_error(r"target_names=... or target_scalars=..."):
        program.run(bare, workdir=tmp_path / "run")


@pytest.mark.nightly
def test_samples_that_stay_on_disk_train_to_the_same_bits(folder, run, tmp_path):
    given = dataclasses.replace(SMALL, train=str(folder), stream_samples=True)
    result = program.run(given, workdir=tmp_path / "run")
    for name in ("validation", "error_over_std"):
        assert result[name] == run[1][name]
    # In physical units, from normalisers of doubles as they are on the disk.
    assert result["lift_r2"] == pytest.approx(run[1]["lift_r2"], rel=1e-6)


def test_a_field_called_target_is_predicted_too(tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    rng = np.random.default_rng(2)
    for i in range(8):
        points = rng.random((12, 2))
        arrays = {"mesh_points": points, "target": points[:, 0], "lift": float(i)}
        np.savez(place / f"c{i}.npz", **arrays)
    (sample, *_) = files.read(place, files.ReadOptions(target_scalars="lift"))
    assert sample.target.shape == (12, 1)
    assert sample.target_scalars.shape == (1,)


@pytest.mark.nightly
def test_arrays_without_a_field_are_learned_in_memory():
    rng = np.random.default_rng(0)
    data = {
        "features": rng.random((9, 20)),
        "mesh_points": rng.random((9, 20, 2)),
        "target_scalars": rng.normal(size=9),
    }
    single = {name: array.astype(np.float32) for name, array in data.items()}
    config = dataclasses.replace(SMALL, scalar_names="", target_scalars="")
    trained = learn.train(data, config=config)
    sample = from_arrays(**single)[0]
    values, found = trained.both(sample)
    assert values.shape == (20, 0)
    assert found.shape == (1,)
    with value_error("predicts only scalars"):
        trained(sample)


def test_features_alone_may_be_on_a_grid():
    values, numbers = np.random.default_rng(0).random((3, 4, 5)), np.arange(3.0)
    found = from_arrays(features=values, target_scalars=numbers)
    assert found[1].grid_shape == (4, 5)
    assert found[1].target is None
    assert_array_equal(found[1].features[:, 0], values[1].ravel())
    assert_array_equal(found[2].target_scalars, [2])


def test_arrays_of_nothing_to_predict_are_refused():
    points = np.random.default_rng(0).random((9, 20, 2))
    with value_error("Pass target or target_scalars"):
        from_arrays(mesh_points=points)
    with value_error("contain no target; add the array to predict"):
        learn.train({"mesh_points": points}, config=SMALL)
    with value_error("Pass mesh_points, or a target or features"):
        from_arrays(target_scalars=np.ones(9))
    with value_error("one row for each of the 1 samples"):
        from_arrays(mesh_points=points[:1], target_scalars=np.float32(1.0))


def test_calibration_cases_without_the_scalars_are_refused(run):
    trained = load(run[0])
    points = np.random.default_rng(0).random((9, 2)).astype(np.float32)
    one = Sample(points, scalars=np.ones(1, np.float32), name="bare")
    with value_error("bare has no target scalars"):
        learn.calibrate(trained, [one] * 20)


def test_equal_predictions_have_no_rank_correlation():
    true = np.arange(4.0, dtype=np.float32)[:, None]
    found = scalars.errors(np.full_like(true, 1.5), true, ["lift"])
    assert found == {"lift_error": 1, "lift_r2": pytest.approx(0)}
