"""Figures of cases with their band and their error, and when they are refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import files
from opjax.learn.cli import predict
from opjax.learn.report import drawing, figures_bands
from opjax.samples import Sample
from tests.learn.test_predict import make, operator, write
from tests.learn.tiny import run_calibrate
from tests.refused import value_error

DRAWN = True  # tests/figures.py


def labels(figure):
    return [axis.get_title() for axis in figure.axes]


def test_prediction_width_and_error_are_drawn_as_they_are(rng):
    sample = make(rng, 40)
    values = sample.target + rng.normal(size=(40, 1)).astype(np.float32)
    half = np.abs(rng.normal(size=(40, 1)))
    half[0] = 9.0
    figure = figures_bands.band(sample, values, half, title="a case")
    names = ["prediction", "half width of the band", "size of the error"]
    assert labels(figure)[:3] == names
    shown = [np.asarray(a.collections[0].get_array()) for a in figure.axes[:3]]
    error = np.abs(values - sample.target)[:, 0]
    expected = (values[:, 0], half[:, 0], error)
    for one, other in zip(shown, expected, strict=True):
        assert_allclose(one, other, rtol=1e-6)
    one, other = (a.collections[0].get_clim() for a in figure.axes[1:3])
    assert one == other == (0.0, 9.0)
    share = 100 * np.mean(error > half[:, 0])
    assert figure.axes[3].get_title() == f"{share:.3g} % of points outside"
    x, y = figure.axes[3].lines[0].get_data()
    assert_allclose(x, half[:, 0])
    assert_allclose(y, error)


def test_a_case_on_a_line_is_drawn_in_its_band(rng):
    points = rng.random((20, 1)).astype(np.float32)
    sample = Sample(points, points**2, name="line")
    figure = figures_bands.band(sample, points**2 + 0.1, np.full((20, 1), 0.2))
    assert labels(figure) == ["", "0 % of points outside"]
    low = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1].min()
    assert low == pytest.approx(float(np.min(points**2)) - 0.1, abs=1e-6)


def test_a_case_without_its_target_has_no_figure(rng, tmp_path):
    bare = make(rng, 9)._replace(target=None)
    with value_error("made up has no target"):
        figures_bands.band(bare, np.ones((9, 1)), np.ones((9, 1)))
    pictures = figures_bands.Pictures(tmp_path / "figures", 2)
    pictures.add(bare, np.ones((9, 1)), np.ones((9, 1)))
    assert pictures.drawn == []
    assert not (tmp_path / "figures").exists()


@pytest.mark.nightly
def test_the_program_draws_as_many_cases_as_asked_for(rng, tmp_path, monkeypatch):
    found = operator(rng, tmp_path / "run")
    write(found, 0.5)
    for i in range(10):
        sample = make(rng, 12)._replace(name="")
        files.write(tmp_path / "new" / f"{i:02d}.npz", sample)
    given = {"input": str(tmp_path / "new"), "output": tmp_path / "out"}
    with value_error("--band_figures=2 .* opjax-calibrate first"):
        predict.run(predict.PredictOptions(found.folder, **given, band_figures=2))
    run_calibrate(found.folder, given["input"])
    with value_error("--band_figures=2 .* slices"):
        predict.run(
            predict.PredictOptions(found.folder, **given, band_figures=2, stream=True)
        )
    saved = []
    monkeypatch.setattr(drawing, "save", lambda figure, path: saved.append(path.name))
    line = predict.run(predict.PredictOptions(found.folder, **given, band_figures=2))
    assert line["figures"] == 2
    assert saved == ["band_00_00.png", "band_01_01.png"]
    assert "figures" not in predict.run(predict.PredictOptions(found.folder, **given))
