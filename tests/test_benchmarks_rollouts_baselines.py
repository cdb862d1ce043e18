"""Baselines of rollouts: what they predict where the answer is known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks import rollouts_baselines as baselines
from benchmarks import rollouts_data
from opjax.files import ReadOptions
from opjax.files.series import read_series
from opjax.problems import advection
from opjax.samples import Series


def line(frames):
    """A series on a periodic line."""
    frames = np.asarray(frames, float)[:, :, None]
    points = np.linspace(0, 1, frames.shape[1], endpoint=False)[:, None]
    return Series(points, np.arange(len(frames)), frames, grid_shape=frames.shape[1:2])


def test_a_field_fades_to_its_own_weighted_mean_at_the_rate_of_training():
    rng = np.random.default_rng(0)
    weights, times = rng.uniform(1, 2, 9), np.arange(4) / 2
    several = []
    for _ in range(2):
        first = rng.normal(size=9)
        mean = np.average(first, weights=weights)
        decay = np.exp(-baselines._RATES[40] * times)
        values = mean + decay[:, None] * (first - mean)
        several.append(
            Series(
                np.zeros((9, 1)), times, values[..., None], quadrature_weights=weights
            )
        )
    rate = baselines.fit_rate(several)
    assert rate == pytest.approx(baselines._RATES[40])
    kept = baselines.fading(several[1], rate=np.inf)
    assert_allclose(kept, mean)
    exact = baselines.measure(several[1], baselines.fading(several[1], rate=rate))
    assert_allclose(exact, [0, 0, 0, 0, 3, 0], atol=1e-6)


def test_a_step_of_products_of_neighbours_is_found_by_the_stencil_that_reaches_them():
    start = 0.1 * np.random.default_rng(0).normal(size=(3, 32))
    frames = [start]
    for _ in range(4):
        u = frames[-1]
        frames.append(u + 0.5 * np.roll(u, 1, axis=-1) * u - 0.2 * np.roll(u, -1, -1))
    *train, test = map(line, np.swapaxes(frames, 0, 1))
    found = baselines.fit_stencil(train, 1)(test)
    assert_allclose(found, test.values[1:, :, 0], rtol=1e-8)
    too_short = baselines.fit_stencil(train, 0)(test)
    assert baselines.errors(test, too_short)[0] > 0.05


def test_a_linear_step_is_found_and_its_rollout_followed():
    rng = np.random.default_rng(0)
    step = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    frames = [rng.normal(size=(4, 6))]
    for _ in range(8):
        frames.append(frames[-1] @ step + 0.1)
    *train, test = map(line, np.swapaxes(frames, 0, 1))
    found = baselines.fit_linear_step(train)(test)
    assert baselines.errors(test, found).max() < 1e-3


def test_the_velocity_of_a_file_gives_back_its_stream_function():
    shape = advection.Shape(waves=3, depth=0.1)
    nodes, cells = advection.mesh(shape, spacing=0.1)
    stream = (1 - shape.relative(nodes) ** 2) * (0.3 + 0.2 * nodes[:, 0])
    velocity = advection.velocity(nodes, cells, stream)
    found = baselines.stream_function(nodes, cells, velocity)
    assert np.linalg.norm(found - stream) < 0.05 * np.linalg.norm(stream)
    assert (found[advection.boundary_nodes(cells)] == 0).all()


def test_the_solver_on_the_mesh_of_a_file_needs_no_training(tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts_data, "STEPS", 10)
    rollouts_data.write_advection(tmp_path, {"train": 1, "test": 1})
    rows = {row[0]: row[1:] for row in baselines.rows("advection", tmp_path)}
    assert len(rows) == 4
    still, solver = (
        [float(x) for x in rows[name][:4]]
        for name in ("persistence", "solver on the mesh of the file")
    )
    assert solver[3] < 0.1 < still[3]
    assert rows["conserved mean"][2] == rows["conserved mean"][1]  # of ten steps


def test_rollouts_that_blow_up_count_as_the_largest_error():
    series = line(np.ones((3, 4)))
    frames = np.array([[np.nan] * 4, [1e200] * 4])
    assert_array_equal(baselines.errors(series, frames), [1e3, 1e3])


def test_the_solver_on_the_grid_of_a_flow_is_near_that_of_the_data(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(rollouts_data, "_START", 1)
    monkeypatch.setattr(rollouts_data, "STEPS", 2)
    rollouts_data.write_flow(tmp_path, {"test": 1})
    (series,) = read_series(tmp_path / "test", ReadOptions(grid_axes=2)).series
    assert baselines.errors(series, baselines.flow(series)).max() < 0.1
