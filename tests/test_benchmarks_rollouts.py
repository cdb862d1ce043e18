"""The comparison of rollouts: flows, table and figures of finished runs."""

import json
import sys
import types

import jax
import numpy as np
import pytest
from PIL import Image

from benchmarks import rollouts, rollouts_data
from opjax.files import ReadOptions
from opjax.files.series import read_series
from opjax.learn.report import drawing
from tests import sessions


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


@pytest.mark.nightly
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


def test_growth_and_high_waves_are_those_of_the_rollout(tmp_path, monkeypatch):
    x = np.arange(16) * 2 * np.pi / 16
    low, high = np.cos(x), np.cos(6 * x)
    assert rollouts.high_share(low + high / 2, (16,), 5) == pytest.approx(0.2)
    member(tmp_path / "run", 0, 0.1)
    (tmp_path / "test").mkdir()
    frames = np.stack([low] * 51).astype(np.float32)
    np.savez(tmp_path / "test" / "line.npz", target=frames, times=np.arange(51.0))

    class Predicted:
        description = types.SimpleNamespace(
            config={"test": str(tmp_path / "test"), "grid_axes": 1}
        )

        def rollout(self, series, num_steps):
            assert num_steps == 50
            return ((low + (i > 9) * high / 2)[:, None] for i in range(num_steps))

    monkeypatch.setattr(rollouts.trained, "load", lambda run: Predicted())
    with pytest.warns(UserWarning, match="All frames are equal"):
        run, truth = rollouts.growth("one", tmp_path / "run", 5)
    assert run[:2] == ["one", "1.0"]
    assert truth[0] == "truth"
    shares = [float(share.removesuffix(" %")) for share in run[2:] + truth[2:]]
    assert shares == pytest.approx([0, 20, 0, 0], abs=1e-6)


def test_a_picture_of_few_colours_is_smaller(tmp_path):
    figure = drawing.new_figure(2, 2)
    values = np.random.default_rng(0).normal(size=16)
    points = np.stack(np.meshgrid(*2 * [np.arange(4.0)], indexing="ij"), -1)
    points = points.reshape(-1, 2)
    drawing.field(figure.subplots(), points, values, grid_shape=(4, 4))
    drawing.save(figure, tmp_path / "all.png")  # of 100 dpi
    drawing.save_lines(figure, tmp_path / "few.png", colours=8)
    with Image.open(tmp_path / "few.png") as picture:
        assert len(picture.getcolors()) <= 8
        with Image.open(tmp_path / "all.png") as every:
            assert picture.size == every.size
    sizes = [(tmp_path / f"{name}.png").stat().st_size for name in ("few", "all")]
    assert sizes[0] < sizes[1] / 2


@pytest.mark.slow
def test_flows_are_series_on_a_grid(tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts_data, "_START", 1)
    monkeypatch.setattr(rollouts_data, "STEPS", 2)
    with jax.enable_x64(False):
        rollouts_data.write_flow(tmp_path, {"train": 1, "test": 1})
    for part in ("train", "test"):
        (flow,), _ = read_series(tmp_path / part, ReadOptions(grid_axes=2))
        assert flow.values.shape == (3, 256, 1)
        assert flow.times.tolist() == [1, 2, 3]
        assert flow.grid_shape == (16, 16)


def test_parts_of_advection_have_cases_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts_data, "STEPS", 2)
    rollouts_data.write_advection(tmp_path, {"train": 1, "test": 1})
    names = {"target": "u", "features": "velocity", "scalars": "diffusivity"}
    both = [
        read_series(tmp_path / part, ReadOptions(**names)).series
        for part in ("train", "test")
    ]
    (train,), (test,) = both
    assert train.values.shape == (3, train.num_points, 1)
    assert train.scalars != test.scalars


def test_lines_of_exponax_are_chaotic_series_with_a_mean_of_zero(tmp_path):
    pytest.importorskip("exponax", reason="needs `pip install 'opjax[benchmark]'`")
    with sessions.user():
        rollouts_data.write_kuramoto_sivashinsky(tmp_path, {"train": 2})
    first, second = read_series(tmp_path / "train", ReadOptions(grid_axes=1)).series
    assert first.values.shape == (51, 160, 1)
    assert first.grid_shape == (160,)
    for one in (first, second):
        np.testing.assert_allclose(one.values.mean(axis=1), 0, atol=1e-5)
        assert 0.5 < one.values.std() < 2  # on the attractor
    values = first.values[:, :, 0].astype(float)
    off = np.linalg.norm(one_step_of_a_line(values[0]) - values[1])
    # exponax is of second order in time.
    assert off < 0.1 * np.linalg.norm(values[1] - values[0])


def one_step_of_a_line(values, *, substeps=50):
    """Integrates u_t = (u^2)_x / 320 + alpha_2 u_xx + alpha_4 u_xxxx over a step."""
    count, size = len(values), 1 / substeps
    slope = 2j * np.pi * np.fft.rfftfreq(count, 1 / count)
    linear = -2 * slope**2 / (2 * count**2) - 18 * slope**4 / (8 * count**4)
    half, waves = np.exp(linear * size / 2), np.fft.rfft(values)

    def advect(waves):
        return slope * np.fft.rfft(np.fft.irfft(waves, count) ** 2) / (2 * count)

    for _ in range(substeps):  # Runge-Kutta of order 4, with an integrating factor
        a = advect(waves)
        b = advect(half * (waves + size / 2 * a))
        c = advect(half * waves + size / 2 * b)
        d = advect(half**2 * waves + size * half * c)
        waves = half**2 * (waves + size / 6 * a) + size / 6 * (2 * half * (b + c) + d)
    return np.fft.irfft(waves, count)


def test_a_missing_exponax_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "exponax", None)
    with pytest.raises(ImportError, match=r"needs exponax: pip install .*benchmark"):
        rollouts_data.write_kuramoto_sivashinsky(tmp_path, {"train": 1})
