"""Scalars of a case from files to predictions."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import export, files, learn, nn
from opjax.learn.cli import predict as predicting
from opjax.learn.cli import train as program
from opjax.learn.predict.prediction import Limits
from opjax.learn.registry import operators
from opjax.learn.tasks import model_data
from opjax.samples import Sample, Splits
from tests.learn.tiny import QUICK, TINY, run_predict
from tests.refused import value_error

NAMES = {"scalar_names": "angle,mach", "target_scalars": "lift"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("cases"), np.random.default_rng(0)
    rows = ["file,mach"]
    for i in range(10):
        points, (a, m) = rng.random((20 + i, 2)), rng.normal(size=2)
        target = a * np.sin(3 * points[:, 0]) + m * points[:, 1]
        arrays = {"mesh_points": points, "target": target, "angle": a, "lift": a + m}
        np.savez(folder / f"c{i}.npz", **arrays)
        rows.append(f"c{i}.npz,{m}")
    (folder / "cases.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "run"
    given = dataclasses.replace(TINY, models=(QUICK,), train=str(folder), **NAMES)
    result = program.run(given, workdir=workdir)
    return workdir, result


load = functools.partial(learn.load, own_model=QUICK)


@pytest.mark.nightly
def test_files_with_scalars_are_learned_and_predicted(folder, run, tmp_path):
    workdir, result = run
    assert {"relative_l2", "lift_error"} <= result.keys()
    trained = load(workdir)
    assert trained.description.names["scalars"] == ["angle", "mach"]
    assert trained.description.channels.target_scalars == 1
    assert len(trained.description.ranges["scalars"][0]) == 2
    run_predict(workdir, folder / "c0.npz", tmp_path)
    (row,) = json.loads((tmp_path / "report.json").read_text())
    sample = files.read(
        folder / "c0.npz",
        files.ReadOptions(scalars="angle,mach", target_scalars="lift"),
    )
    both = trained.both(sample[0])
    assert row["scalars"]["angle"] == pytest.approx(float(sample[0].scalars[0]))
    assert row["predicted_scalars"]["lift"] == pytest.approx(float(both.scalars[0]))
    error = float(both.scalars[0] - sample[0].target_scalars[0])
    assert row["scalar_errors"]["lift"] == pytest.approx(error, abs=1e-6)
    assert_array_equal(both.values, trained(sample[0]))
    assert_array_equal(
        trained(sample[0].mesh_points, scalars=sample[0].scalars), both.values
    )


@pytest.mark.nightly
def test_chunks_and_fields_see_the_scalars(folder, tmp_path):
    given = dataclasses.replace(TINY, train=str(folder), **NAMES)
    program.run(given, workdir=tmp_path)
    trained = learn.load(tmp_path)
    sample = trained.one(folder / "c3.npz")
    whole, parts = trained.both(sample), trained.both(sample, limits=Limits(8))
    assert_allclose(parts.values, whole.values, atol=1e-4)
    assert_allclose(parts.scalars, whole.scalars, atol=1e-4)
    field = trained.field(sample)
    assert_allclose(field.at(sample.mesh_points), whole.values, atol=1e-4)
    arrays = {"mesh_points": sample.mesh_points, "scalars": sample.scalars}
    streamed = np.concatenate(list(trained.stream(arrays, limits=Limits(8))))
    assert_allclose(streamed, whole.values, atol=1e-4)
    moved = trained(sample._replace(scalars=sample.scalars + 1))
    assert np.abs(moved - whole.values).max() > 1e-3


@pytest.mark.nightly
def test_samples_that_stay_on_disk_train_to_the_same_bits(folder, run, tmp_path):
    given = {"models": (QUICK,), "train": str(folder), "stream_samples": True}
    config = dataclasses.replace(TINY, **given, **NAMES)
    result = program.run(config, workdir=tmp_path / "run")
    assert result["validation"] == run[1]["validation"]
    assert result["lift_error"] == run[1]["lift_error"]


@pytest.mark.nightly
def test_scalars_that_nobody_names_change_no_bit(folder, tmp_path):
    (bare := tmp_path / "bare").mkdir()
    for path in folder.glob("*.npz"):
        with np.load(path) as file:
            arrays = {k: file[k] for k in ("mesh_points", "target")}
            np.savez(bare / path.name, **arrays)
    results, leaves = [], []
    for place in (folder, bare):
        workdir = tmp_path / f"run-{place.name}"
        given = dataclasses.replace(TINY, train=str(place))
        results.append(program.run(given, workdir=workdir))
        trained = learn.load(workdir)
        assert not isinstance(trained.model, nn.models.ScalarOperator)
        assert trained.normalizers.keys() == {"mesh_points", "target"}
        leaves.append(jax.tree.leaves((trained.model, trained.normalizers)))
    for one, other in zip(*leaves, strict=True):
        assert_array_equal(one, other)
    for name in ("relative_l2", "relative_l2_worst", "validation"):
        assert results[0][name] == results[1][name]


def test_what_does_not_go_with_scalars_is_refused(folder, run, tmp_path):
    workdir, _ = run
    trained = load(workdir)
    bare = Sample(np.ones((4, 2), np.float32), name="bare")
    with value_error(r"bare has 0 scalars.*2 \(angle, mach\)"):
        trained(bare)
    with value_error("scalars can only be passed with an array"):
        trained(bare, scalars=np.ones(2))
    with value_error("lift has no effect with time=one_step"):
        dataclasses.replace(TINY, target_scalars="lift", time="one_step")
    options = {"models": (QUICK,), "train": str(folder), "init_from": str(workdir)}
    given = dataclasses.replace(TINY, scalar_names="angle", **options)
    with value_error("init_from"):
        program.run(given, workdir=tmp_path / "again")


def test_other_units_are_told_with_both_ranges(folder, run, tmp_path):
    place = tmp_path / "input"
    place.mkdir()
    with np.load(folder / "c0.npz") as arrays:
        np.savez(place / "c0.npz", **{**arrays, "angle": 1000 * arrays["angle"]})
    (place / "cases.csv").write_text("file,mach\nc0.npz,0.3\n")
    with pytest.warns(UserWarning, match="scalar angle is .* here, and .* in training"):
        run_predict(run[0], place, tmp_path / "out")


@pytest.mark.nightly
def test_arrays_with_scalars_are_learned():
    rng = np.random.default_rng(0)
    data = {
        "mesh_points": rng.random((9, 12, 2)),
        "target": rng.normal(size=(9, 12)),
        "scalars": rng.normal(size=(9, 1)),
        "target_scalars": rng.normal(size=9),
    }
    trained = learn.train(data, config=TINY)
    found = trained(data["mesh_points"][0], scalars=data["scalars"][0])
    assert found.shape == (12, 1)


def test_samples_of_nothing_to_learn_are_refused_with_the_way_out(tmp_path):
    points = np.random.default_rng(0).random((9, 2)).astype(np.float32)
    np.savez(tmp_path / "c0.npz", mesh_points=points, angle=1.0)
    with value_error(r"c0.npz has no array 'target'.*target_scal"):
        files.splits([tmp_path], options=files.ReadOptions(scalars="angle"))
    samples = [Sample(points)]
    with value_error(r"train samples .*no targets.*target_scal"):
        model_data.check(Splits(samples, samples, samples, source="test"))


def _moved_by_scalars(trained, sample):
    there, other = trained(sample), sample._replace(scalars=sample.scalars + 1)
    return np.abs(trained(other) - there).max()


@pytest.mark.nightly
def test_scalars_modulate_the_norms_of_a_run(folder, tmp_path):
    given = dataclasses.replace(
        TINY,
        train=str(folder),
        scalar_names="angle,mach",
        model_options="scalar_modulation=true",
        num_epochs=4,
    )
    result = program.run(given, workdir=tmp_path / "run")
    trained = learn.load(tmp_path / "run")
    sample = trained.one(folder / "c3.npz")
    assert trained.model.modulation.scalar_dim == 2
    assert np.abs(trained.model.modulation.out.kernel[...]).max() > 0
    assert np.isfinite(result["relative_l2"])
    assert _moved_by_scalars(trained, sample) > 1e-3
    whole = trained(sample, limits=Limits(8))  # meshes of more points than a chunk
    assert_allclose(whole, trained(sample), atol=1e-5)
    arrays = {"mesh_points": sample.mesh_points, "scalars": sample.scalars}
    with value_error("scalars modulate its norms"):
        next(iter(trained.stream(arrays, limits=Limits(8))))
    bare = dataclasses.replace(given, scalar_names="")
    with value_error("has no effect on samples without scalars"):
        program.run(bare, workdir=tmp_path / "bare")
    other = dataclasses.replace(given, models=("gnot",))
    with value_error("scalar_modulation has no effect on"):
        operators.check_options(other, TINY)


@pytest.mark.nightly
def test_exported_operators_take_scalars_in_physical_units(folder, tmp_path):
    given = dataclasses.replace(TINY, train=str(folder), scalar_names="angle,mach")
    program.run(given, workdir=tmp_path / "run")
    predicting.run(
        predicting.PredictOptions(tmp_path / "run", export=tmp_path / "operator.jax")
    )
    trained = learn.load(tmp_path / "run")
    operator = export.load(tmp_path / "operator.jax", trusted=True)
    for name in ("c0.npz", "c7.npz"):
        sample = trained.one(folder / name)
        found = operator.call(sample.mesh_points, sample.scalars)
        assert_allclose(found, trained(sample), atol=1e-5)
