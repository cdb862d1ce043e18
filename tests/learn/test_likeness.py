"""Warnings of cases that are unlike the calibration cases, and intervals of numbers."""

import dataclasses
import functools
import json
import re

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn, normalize, uncertainty
from opjax.learn.cli import calibrate as program
from opjax.learn.cli import train
from opjax.learn.predict import calibration, intervals, likeness, widths
from tests.learn.test_predict import make, operator, write
from tests.learn.tiny import QUICK, report_of, run_calibrate, run_predict
from tests.refused import value_error

load = functools.partial(learn.load, own_model=QUICK)


def cases(rng, folder, count, *, stretch=1.0):
    folder.mkdir()
    for number in range(count):
        sample = make(rng, 30 + number % 4)
        points = np.asarray([stretch, 1.0], np.float32) * sample.mesh_points
        sample = sample._replace(mesh_points=points, name="")
        files.write(folder / f"{number:02d}.npz", sample)
    return folder


@pytest.fixture
def run(rng, tmp_path):
    found = operator(rng, tmp_path / "run", QUICK)
    write(found, 0.5)
    return found.folder, cases(rng, tmp_path / "new", 40)


def test_unlike_cases_are_warned_of_and_refused_when_strict(run, rng, tmp_path, capsys):
    folder, new = run
    line = run_calibrate(folder, new)
    assert line["false_alarms"] == 0.05
    odd = cases(rng, tmp_path / "odd", 3, stretch=4.0)
    capsys.readouterr()
    after = run_predict(folder, odd, tmp_path / "out")
    assert after["unlike"] == 3
    shown = "".join(capsys.readouterr())
    assert shown.count("out of distribution (p = 0.024") == 3
    for row in report_of(tmp_path / "out"):
        assert row["unlike"]
        assert row["unlike_in"] in likeness.GROUPS
        assert row["likeness_p_value"] == pytest.approx(1 / 41)
        assert row["likeness_distance"] > 3
    with value_error("3 of 3 cases are out of.*omit --strict"):
        run_predict(folder, odd, tmp_path / "strict", strict=True)
    assert len(report_of(tmp_path / "strict")) == 3  # all is written before
    one = str(odd / "00.npz")
    with value_error("1 of 1 cases"):
        run_predict(folder, one, tmp_path / "one", strict=True)


@pytest.mark.nightly
def test_cases_alike_pass_when_strict(run, tmp_path, capsys):
    folder, new = run
    run_calibrate(folder, new, false_alarms=0.03)
    # Each of them is among the 40, so that its p-value is 2 / 41 at least.
    more = [str(new / f"{i:02d}.npz") for i in range(4)]
    capsys.readouterr()
    found = run_predict(folder, more, tmp_path / "out", strict=True)
    assert found["unlike"] == 0
    shown = "".join(capsys.readouterr())
    assert (
        shown.count(": no significant difference from the calibration cases (p = ") == 4
    )
    assert not re.search("[^n]like the calibration cases", shown)  # no all-clear
    assert not any("likeness" in key for key in found)


@pytest.mark.nightly
def test_what_the_cases_are_able_to_tell_apart_is_said_before(run, tmp_path, capsys):
    folder, new = run
    line = run_calibrate(folder, new)
    (said,) = re.findall("^40 calibration cases: .*", capsys.readouterr().err, re.M)
    assert line["likeness_cases"] == 40
    shifts = line["likeness_shifts"]
    assert list(shifts) == ["moments", "shape"]  # there are no scalars
    assert "p-value is 0.024, and a case is out of distribution at p <= 0.05. " in said
    assert f"shift of one feature by {shifts['moments']:.2g} (moments)" in said
    one = str(new / "00.npz")
    result = run_predict(folder, one, tmp_path / "out")
    assert said in capsys.readouterr().err
    assert not any("likeness" in key for key in result)
    (row,) = report_of(tmp_path / "out")
    assert row["likeness_cases"] == 40
    assert row["likeness_shifts"] == shifts
    reference = learn.load_calibration(load(folder)).reference
    quiet = reference._replace(shifts=np.asarray([2.0, np.inf])).statement()
    assert "It does not detect a shift of one feature of shape at this rate" in quiet
    old = reference._replace(shifts=None)  # as an earlier opjax wrote it
    assert "shift" not in old.statement()
    assert "likeness_shifts" not in old.power()


@pytest.fixture
def loaded(rng, tmp_path):
    """Returns an operator that takes a load and a modulus, and cases within range."""
    found = operator(rng, tmp_path / "run")
    normalizers = {"scalars": normalize.Normalizer(np.asarray([0.5, 50]), LOADS)}
    known = found.description
    ranges = known.ranges | {"scalars": [[0.0, 0.0], [1.0, 100.0]]}
    description = dataclasses.replace(
        known,
        channels=known.channels._replace(scalars=2),
        measured={**known.measured, "ranges": ranges},
        names={"scalars": ["load", "modulus"]},
    )
    found = found._replace(
        normalizers=found.normalizers | normalizers, description=description
    )
    return found, [with_scalars(rng, *rng.uniform([0, 0], [1, 100])) for _ in range(20)]


LOADS = np.asarray([1.0, 100.0]) / np.sqrt(12)  # the standard deviations


def with_scalars(rng, load, modulus):
    return make(rng, 30)._replace(scalars=np.asarray([load, modulus], np.float32))


@pytest.mark.nightly
def test_a_scalar_beyond_training_is_unlike_with_twenty_cases(rng, loaded):
    trained, cases = loaded
    flat = np.zeros((30, 1), np.float32)
    reference = likeness.refer(trained, cases, [flat] * 20, false_alarms=None)
    for scalars in ((0.5, -40), (0.5, 140), (1.4, 50)):
        for _ in range(5):
            row = reference.row(trained, with_scalars(rng, *scalars), flat)
            assert row["unlike"]
            assert row["unlike_in"] == "scalars"
    assert set(row["likeness_shifts"]) == {"moments", "shape", "scalars"}
    for modulus in (10, 50, 90):
        row = reference.row(trained, with_scalars(rng, 0.5, modulus), flat)
        assert row["unlike_in"] != "scalars"
    # They are no part of the moments, where they were one of many numbers.
    groups = [one for one in reference._groups(trained, *parts(reference))]
    assert [len(g.features) for g in groups] == [14, 192, 2]


def parts(reference):
    shapes = reference.shapes
    return shapes, reference.features[0], shapes.means[0], shapes.noise[0]


@pytest.mark.nightly
def test_the_sentence_names_scalars_outside_the_training(rng, loaded):
    trained, cases = loaded
    flat = np.zeros((30, 1), np.float32)
    reference = likeness.refer(trained, cases, [flat] * 20, false_alarms=None)
    found = calibration.Calibration(
        trained, "constant", lambda *_: flat, 0.9, {}, np.zeros(1), reference=reference
    )
    bands = program.Bands(found, "whole_field")
    odd = with_scalars(rng, 0.5, 140)
    row = reference.row(trained, odd, flat)
    said = bands._sentence(odd, row)
    assert "distance, in the scalars load = 0.5, modulus = 140)" in said
    said = bands._sentence(odd, row | {"unlike_in": "moments"})
    assert "distance, outside the training range in modulus)" in said
    said = bands._sentence(odd, row | {"unlike": False})
    assert said.endswith("), but outside the training range in modulus")
    inside = with_scalars(rng, 0.5, 50)
    said = bands._sentence(inside, reference.row(trained, inside, flat))
    assert re.fullmatch(r"no significant .* calibration cases \(p = 0\.\d+\)", said)


@pytest.mark.nightly
def test_about_as_many_new_cases_are_unlike_as_promised(run, rng):
    trained = load(run[0])
    result = learn.calibrate(trained, trained.read(str(run[1])), false_alarms=0.25)
    more = [make(rng, 30 + i % 4) for i in range(60)]
    alarms = [result.likeness(sample)["unlike"] for sample in more]
    assert 0.05 < np.mean(alarms) < 0.5  # the theorem is tested in tests/uncertainty


def test_permuting_points_or_a_masked_point_changes_nothing(rng, tmp_path):
    found = operator(rng, tmp_path, weighted=True)
    sample = make(rng, 20, weighted=True)
    sample.quadrature_weights[5:] = 0
    values = rng.normal(size=(20, 1)).astype(np.float32)
    expected = likeness.features_of(found, sample, values)
    order = rng.permutation(20)
    moved = sample._replace(
        mesh_points=sample.mesh_points[order],
        features=sample.features[order],
        quadrature_weights=sample.quadrature_weights[order],
    )
    actual = likeness.features_of(found, moved, values[order])
    assert_allclose(actual, expected, rtol=1e-9)
    waves = rng.normal(size=(2, 5))
    assert_allclose(
        likeness.shape_of(found, moved, waves),
        likeness.shape_of(found, sample, waves),
        rtol=1e-9,
    )
    assert likeness.noise_of(moved) == pytest.approx(likeness.noise_of(sample))
    sample.features[6:] = 1e6
    assert_array_equal(likeness.features_of(found, sample, values), expected)


@pytest.mark.nightly
def test_numbers_beyond_all_bounds_are_unlike(run, rng):
    folder, new = run
    trained = load(folder)
    result = learn.calibrate(trained, trained.read(str(new)))
    sample = make(rng, 30)
    values = trained(sample)
    huge = sample._replace(mesh_points=sample.mesh_points.astype(np.float64) * 1e200)
    row = result.likeness(huge, values)
    assert row["unlike"]
    assert row["likeness_p_value"] == 1 / 41
    assert row["likeness_distance"] is None


@pytest.mark.nightly
def test_a_calibration_keeps_what_its_cases_are_like(run, tmp_path):
    folder, new = run
    trained = load(folder)
    result = learn.calibrate(trained, trained.read(str(new)), false_alarms=0.1)
    path = result.save()
    loaded = learn.load_calibration(load(folder))
    sample = trained.read(str(new))[0]
    assert loaded.likeness(sample) == result.likeness(sample)
    assert loaded.reference.false_alarms == 0.1
    with np.load(path) as arrays:
        kept = dict(arrays)
    for name in ("", "_waves", "_means", "_noise", "_shifts"):
        bad = {f"likeness{name}": kept[f"likeness{name}"] * np.nan}
        np.savez(path, **kept | bad)
        with value_error("is damaged.*moments|shapes|shifts"):
            learn.load_calibration(trained)
    bad = {"likeness_means": kept["likeness_means"][1:]}
    np.savez(path, **kept | bad)
    with value_error("is damaged.*shapes belong to other"):
        learn.load_calibration(trained)
    bare = dict(kept)
    del bare["likeness_means"]
    np.savez(path, **bare)
    with value_error("is damaged.*shapes"):
        learn.load_calibration(trained)
    description = json.loads(str(kept["description"]))
    del description["false_alarms"], description["half_widths"], kept["likeness"]
    np.savez(path, **kept | {"description": np.asarray(json.dumps(description))})
    old = learn.load_calibration(trained)  # as before there were any
    assert old.likeness(sample) is None
    with value_error("--strict .* earlier opjax.* 19 cases"):
        run_predict(folder, new, tmp_path / "out", strict=True)


@pytest.mark.nightly
def test_a_calibration_that_knows_moments_alone_is_read_as_before(run):
    """As opjax wrote it before shapes were compared."""
    trained = load(run[0])
    cases = trained.read(str(run[1]))
    path = learn.calibrate(trained, cases).save()
    with np.load(path) as arrays:
        kept = dict(arrays)
    np.savez(path, **{k: a for k, a in kept.items() if "likeness_" not in k})
    old = learn.load_calibration(trained)
    assert old.reference.shapes is None
    row = old.likeness(cases[0])
    features = likeness.features_of(trained, cases[0], trained(cases[0]))
    with jax.enable_x64(True):
        expected = uncertainty.likeness(features, kept["likeness"])
    assert row["likeness_p_value"] == float(expected.p_value)
    assert row["likeness_distance"] == pytest.approx(float(expected.distance))
    assert row["unlike_in"] is None


@pytest.mark.nightly
def test_a_wavy_edge_is_seen_by_its_shape_and_not_by_moments(rng, tmp_path, capsys):
    """Points on rings of equal means and covariances, with and without seven waves."""
    found = operator(rng, tmp_path)

    def ring(depth):
        angle = (np.arange(64) + rng.random()) * 2 * np.pi / 64
        radius = 1 + 0.02 * rng.normal() + depth * np.cos(7 * angle + rng.random())
        points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return make(rng, 64)._replace(mesh_points=points.astype(np.float32))

    cases = [ring(0.0) for _ in range(40)]
    flat = np.zeros((64, 1), np.float32)
    reference = likeness.refer(found, cases, [flat] * 40, false_alarms=0.05)
    alike, wavy = ring(0.0), ring(0.25)
    assert not reference.row(found, alike, flat)["unlike"]
    row = reference.row(found, wavy, flat)
    assert row["unlike"]
    assert row["unlike_in"] == "shape"
    moments = likeness.features_of(found, wavy, flat)
    with jax.enable_x64(True):
        assert uncertainty.likeness(moments, reference.features).p_value > 0.05


@pytest.mark.nightly
def test_fewer_points_alone_are_no_alarm(rng, tmp_path):
    """Scattered points: means over a quarter of them differ twice as much."""
    found = operator(rng, tmp_path)
    values = np.zeros((200, 1), np.float32)
    cases = [make(rng, 200) for _ in range(60)]
    reference = likeness.refer(found, cases, [values] * 60, false_alarms=0.1)
    few = [reference.row(found, make(rng, 50), values[:50]) for _ in range(30)]
    assert np.mean([row["unlike"] for row in few]) < 0.3
    quiet = reference._replace(
        shapes=reference.shapes._replace(noise=np.ones(60))  # no noise is expected
    )
    few = [quiet.row(found, make(rng, 50), values[:50]) for _ in range(30)]
    assert np.mean([row["unlike"] for row in few]) > 0.6


@pytest.mark.nightly
def test_few_cases_give_no_warning_but_a_note(run, tmp_path, capsys):
    folder, new = run
    few = ",".join(str(new / f"{i:02d}.npz") for i in range(10))
    line = run_calibrate(folder, few.split(","))
    assert "false_alarms" not in line
    assert "10 cases are too few for out-of-distribution warnings" in "".join(
        capsys.readouterr()
    )
    found = run_predict(folder, few.split(","), tmp_path / "out")
    assert "unlike" not in found
    with value_error("10 .* too few for false_alarms=0.05.* 19"):
        run_calibrate(folder, few.split(","), false_alarms=0.05)
    for rate in (0.0, 1.0, -1.0):
        with value_error("false_alarms=.* inside"):
            run_calibrate(folder, new, false_alarms=rate)


@pytest.mark.nightly
def test_strict_needs_a_calibration(run, tmp_path):
    folder, new = run
    given = folder, new, tmp_path / "out"
    with value_error("--strict .* opjax-calibrate first"):
        run_predict(*given, strict=True)
    run_calibrate(folder, new)
    with value_error("--strict .* slices"):
        run_predict(*given, strict=True, stream=True)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Returns a run with scalars and a quantity, and a folder of other cases."""
    place, rng = tmp_path_factory.mktemp("numbers"), np.random.default_rng(0)
    for part, count in (("train", 6), ("new", 12)):
        (place / part).mkdir()
        for i in range(count):
            points, a = rng.random((16, 2)), rng.normal()
            arrays = {"mesh_points": points, "load": a, "lift": 2 * a}
            arrays["target"] = a * np.sin(3 * points[:, 0])
            np.savez(place / part / f"c{i:02d}.npz", **arrays)
    given = dataclasses.replace(
        learn.TRAIN_PRESETS["smoke"],
        train=str(place / "train"),
        width=8,
        num_layers=1,
        num_basis=4,
        num_epochs=1,
        num_buckets=1,
        scalar_names="load",
        target_scalars="lift",
        quantities="max:target",
    )
    train.run(given, workdir=place / "run")
    return place / "run", place / "new"


@pytest.mark.nightly
def test_scalars_and_quantities_have_intervals(numbers, tmp_path):
    folder, new = numbers
    line = run_calibrate(folder, new, coverage=0.75)
    assert set(line["half_widths"]) == {"lift", "max:target"}
    result = run_predict(folder, new, tmp_path)
    # Of the calibration cases themselves, ceil(13 * 0.75) = 10 of 12 lie inside.
    assert result["coverage_lift"] == result["coverage_max_target"] == 10 / 12
    rows = report_of(tmp_path)
    errors = np.sort([abs(row["scalar_errors"]["lift"]) for row in rows])
    assert line["half_widths"]["lift"] == pytest.approx(errors[9], rel=1e-6)
    for row in rows:
        value = row["quantities"]["max:target"]
        half = line["half_widths"]["max:target"]
        low, high = (row[f"quantities_{e}"]["max:target"] for e in ("lower", "upper"))
        assert (low, high) == pytest.approx((value - half, value + half))
    other = run_predict(folder, new, tmp_path / "min", quantities="min:target")
    assert "coverage_min_target" not in other  # it was not calibrated
    assert "coverage_lift" in other


@pytest.mark.nightly
def test_cases_without_target_scalars_give_none_an_interval(numbers, capsys):
    trained = load(numbers[0])
    several = trained.read(str(numbers[1]))
    bare = [s._replace(target_scalars=None) for s in several]
    found = learn.calibrate(trained, bare, coverage=0.75)
    assert set(found.half_widths) == {"quantities"}
    assert "No intervals for scalars: " in "".join(capsys.readouterr())


def test_intervals_are_the_quantile_of_the_errors(rng):
    with value_error("lift is not finite"):
        intervals._quantile("lift", [np.nan] * 20, 0.9)
    row = {"predicted_scalars": {"a": 2.0, "b": 1.0}, "target_scalars": {"a": 2.5}}
    row |= intervals.row_of({"scalars": {"a": 0.5}}, row)
    # Rounded outwards, so that the case that gave the width is inside in float32, too.
    assert row["scalars_lower"] == {"a": pytest.approx(1.5, rel=1e-6)}
    assert row["scalars_upper"] == {"a": pytest.approx(2.5, rel=1e-6)}
    assert row["scalars_lower"]["a"] < 1.5 < 2.5 < row["scalars_upper"]["a"]
    assert intervals.summary([row, {}]) == {"coverage_a": 1.0}
    assert set(intervals.ROW) <= set(calibration.ROW)


def test_meshes_of_all_sizes_are_described_in_few_shapes(rng, tmp_path, monkeypatch):
    found, shapes = operator(rng, tmp_path), set()
    moments = likeness.uncertainty.field_moments

    def counted(fields, *, quadrature_weights):
        shapes.add(fields.shape)
        return moments(fields, quadrature_weights=quadrature_weights)

    monkeypatch.setattr(likeness.uncertainty, "field_moments", counted)
    for count in range(20, 130, 7):
        sample = make(rng, count)
        values = likeness.features_of(found, sample, sample.target)
        fields = np.concatenate(
            [
                widths.encoded(found, name, getattr(sample, name))
                for name in ("mesh_points", "features", "target")
            ],
            axis=1,
        )
        spread = np.cov(fields, rowvar=False, bias=True)[np.triu_indices(4)]
        assert_allclose(values, [*fields.mean(axis=0), *spread], rtol=1e-9)
    assert {shape[0] for shape in shapes} == {64, 128}
