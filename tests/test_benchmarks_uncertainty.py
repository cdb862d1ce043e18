"""The comparison of widths: scores of a division, table and figure."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks import uncertainty
from opjax.learn.predict import widths
from opjax.samples import Sample
from tests.learn.test_predict import make, operator


@pytest.fixture
def known(rng, tmp_path):
    """Returns cases, and what three seeds predict for them: noise where x is large."""
    cases = [make(rng, 30 + i % 3) for i in range(60)]
    made = [
        [
            (s.target + s.mesh_points[:, :1] * rng.normal(size=s.target.shape)).astype(
                np.float32
            )
            for s in cases
        ]
        for _ in range(3)
    ]
    first, *others = made
    return cases, uncertainty.Known(operator(rng, tmp_path), first, others, 2.0)


@pytest.mark.nightly
def test_the_width_of_the_error_itself_has_all_scores_at_their_best(rng):
    errors = [rng.normal(size=10 + i % 2) for i in range(40)]
    half = [2 * np.abs(error) for error in errors]
    found, curve = uncertainty.judge(errors, half, np.arange(20), np.arange(20, 40))
    assert found["coverage"] == found["pointwise"] == 1
    assert found["rank_points"] == pytest.approx(1)
    assert found["rank_cases"] > 0.7
    width = np.mean([np.abs(errors[i]).mean() for i in range(20, 40)])
    assert found["width"] == pytest.approx(2 * width)
    assert curve.shape == (19,)
    flat = [np.ones_like(error) for error in errors]
    found, _ = uncertainty.judge(errors, flat, np.arange(20), np.arange(20, 40))
    largest = np.sort([np.abs(errors[i]).max() for i in range(20)])
    assert found["width"] == pytest.approx(2 * largest[18])  # ceil(21 * 0.9) = 19
    assert np.isnan([found["rank_cases"], found["rank_points"]]).all()


def test_the_ensemble_is_that_of_the_package(known):
    cases, found = known
    half = uncertainty.ensemble(found, 0.5)
    place = 4
    apart = [other[place] - found.predictions[place] for other in found.others]
    spread = np.sqrt(np.mean(np.square(apart), axis=0))
    expected = spread + 0.5 * np.sqrt(np.mean(spread**2, axis=0))
    assert_allclose(half[place], expected, rtol=1e-3)
    members = [uncertainty.Stored(each[place]) for each in found.others]
    own = widths.Ensemble(widths.scale_of(found.operator), members)
    values = found.predictions[place]
    assert_array_equal(
        uncertainty.ensemble(found, None)[place], own(Sample(values, values), values)
    )


@pytest.mark.nightly
def test_every_width_has_a_row_and_the_constant_is_the_unit(known, monkeypatch):
    monkeypatch.setattr(uncertainty, "_DIVISIONS", 2)
    monkeypatch.setattr(uncertainty, "_CALIBRATION", 36)
    cases, found = known
    result = uncertainty.compare(cases, found, [0.1])
    names = ["constant", "relative", "ensemble", "ensemble, floor 0.1"]
    names += ["residual", "combined"]
    assert list(result.scores) == names
    assert result.scores["constant"]["width"] == 1
    assert result.scores["residual"]["width"] < 1
    # Seconds of an ensemble are those of all its members.
    assert result.scores["ensemble"]["seconds"] >= 4
    assert result.scores["combined"]["seconds"] >= 4
    rows = uncertainty.lines("noise", [result, result])
    assert [row[:2] for row in rows] == [["noise", name] for name in names]
    assert rows[0][-2] == ""  # no rank correlation of equal widths
    figure = uncertainty.draw({"noise": [result]})
    assert len(figure.axes[0].lines) == 5


def test_oracles_know_the_errors(known):
    cases, _ = known
    rng = np.random.default_rng(0)
    errors = [rng.normal(size=case.num_points) for case in cases]
    found = {name: make() for name, make in uncertainty.oracles(cases, errors).items()}
    nearby = found["oracle: RMS error of the nearest 9 points"][0]
    place = np.argsort(
        np.linalg.norm(cases[0].mesh_points - cases[0].mesh_points[3], axis=1)
    )
    expected = np.sqrt(np.mean(errors[0][place[:9]] ** 2))
    expected += 0.1 * np.sqrt(np.mean(errors[0] ** 2))
    assert_allclose(nearby[3], expected)
    assert (
        "oracle: mean error of each point over the cases" not in found
    )  # meshes differ
    same = [cases[0]] * 2
    means = uncertainty.oracles(same, errors[:1] * 2)[
        "oracle: mean error of each point over the cases"
    ]()
    assert_allclose(means[1], np.abs(errors[0]))


def test_no_band_that_knows_the_errors_is_narrower_than_the_bound(rng):
    sizes = rng.exponential(size=100)
    errors = [size * rng.normal(size=12) for size in sizes]
    found = uncertainty.bounds(errors)
    flat = found["bound for widths that are constant within a case"]
    largest = np.array([np.abs(e).max() for e in errors])
    # A band that is as wide as the largest error of its case where that is not among
    # the ten largest of all: it covers ninety of a hundred cases.
    half = np.where(largest <= np.sort(largest)[89], largest, 0)
    assert np.mean(half >= largest) == flat["coverage"] == 0.9
    assert flat["width"] == pytest.approx(2 * half.mean())
    # As wide as the largest error of every case it covers all, and is wider.
    assert flat["width"] < 2 * largest.mean()
    assert found["bound"]["width"] < flat["width"]
    every = [2 * np.abs(e) for e in errors]
    judged, _ = uncertainty.judge(errors, every, np.arange(50), np.arange(50, 100))
    own = uncertainty.bounds(errors[50:])
    assert own["bound"]["width"] < judged["width"]


def test_a_relative_width_is_the_size_of_the_prediction(known):
    _, found = known
    half = uncertainty.relative(found)
    size = np.sqrt(np.mean(found.predictions[3] ** 2))
    assert_allclose(half[3], size, rtol=1e-6)
    assert half[3].shape == found.predictions[3].shape
