"""The comparison of rollouts: flows, table and figures of finished runs."""

import json

import jax
import numpy as np
import pytest
from PIL import Image

from benchmarks import rollouts
from opjax.files.series import read_series
from opjax.learn.report import drawing


def member(run, seed, error, *, start=""):
    folder = run / f"fno-{seed}"
    folder.mkdir(parents=True)
    steps = {"step_1": error, "step_10": 2 * error, "step_50": 3 * error}
    result = {**steps, "relative_l2": error, "correlation_steps": 40, "drift": 0.1}
    result |= {"persistence": 0.5, "mean": 1.0, "seconds": 10.0 + seed}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "config.json").write_text(json.dumps({"init_from": start}))
    np.savez(
        folder / "predictions.npz",
        errors=np.ones(2),
        rows=np.zeros(0, int),
        series=error * np.ones((2, 50)),
        series_baseline=np.ones(50),
    )


def test_medians_ranges_and_curves_of_every_training(tmp_path):
    for seed, error in enumerate((0.3, 0.1, 0.2)):
        member(tmp_path / f"one-{seed}", seed, error)
    member(tmp_path / "four", 0, 0.05, start=str(tmp_path / "one-1"))
    runs = {
        "one": [tmp_path / f"one-{i}" for i in range(3)],
        "four": [tmp_path / "four"],
    }
    one, four, still, mean = rollouts.rows(runs)
    assert one[:3] == ["one", "3", "0.2 [0.1, 0.3]"]
    assert one[4] == "0.6 [0.3, 0.9]"
    assert one[-1] == "11 [10, 12]"
    assert four[-1] == "21"  # with the seconds of the run that it started from
    assert (still[5], mean[5]) == ("0.5", "1")
    (axis,) = rollouts.draw(runs).axes
    shown = [text.get_text() for text in axis.get_legend().get_texts()]
    assert shown == ["one", "four", "persistence"]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), 0.2)
    with pytest.raises(FileNotFoundError, match="nothing has no finished members"):
        rollouts.members([tmp_path / "nothing"])


def test_a_picture_of_few_colours_is_smaller(tmp_path):
    figure = drawing.new_figure(2, 2)
    values = np.random.default_rng(0).normal(size=16)
    points = np.stack(np.meshgrid(*2 * [np.arange(4.0)], indexing="ij"), -1)
    points = points.reshape(-1, 2)
    drawing.field(figure.subplots(), points, values, grid_shape=(4, 4))
    drawing.save(figure, tmp_path / "all.png")  # of 100 dpi
    rollouts.save_small(figure, tmp_path / "few.png", dpi=100, colours=8)
    with Image.open(tmp_path / "few.png") as picture:
        assert len(picture.getcolors()) <= 8
        with Image.open(tmp_path / "all.png") as every:
            assert picture.size == every.size
    sizes = [(tmp_path / f"{name}.png").stat().st_size for name in ("few", "all")]
    assert sizes[0] < sizes[1] / 2


@pytest.mark.slow
def test_flows_are_series_on_a_grid(tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts, "_SPLITS", {"train": 1, "test": 1})
    monkeypatch.setattr(rollouts, "_START", 1)
    monkeypatch.setattr(rollouts, "_STEPS", 2)
    with jax.enable_x64(False):
        rollouts.write_flows(tmp_path)
    for part in ("train", "test"):
        (flow,), _ = read_series(tmp_path / part, grid_axes=2)
        assert flow.values.shape == (3, 256, 1)
        assert flow.times.tolist() == [1, 2, 3]
        assert flow.grid_shape == (16, 16)
