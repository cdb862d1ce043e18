import dataclasses
import json

import jax
import numpy as np
import pytest

import opjax
from experiments import scaling
from experiments.scaling_layers import layers

TINY = dataclasses.replace(
    scaling.PRESETS["smoke"],
    attentions="functional,softmax",
    max_log2=6,
    fit_log2=5,
    repeats=1,
)


def test_all_layers_are_finite_and_keep_the_shape():
    x = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)

    @jax.jit  # one program: compiling every operation of every layer takes 20 s
    def outputs(x):
        key = jax.random.key(0)
        return {
            name: layer.apply(layer.init(key, 16, 8, 4), x)
            for name, layer in layers(4).items()
        }

    for name, y in outputs(x).items():
        assert y.shape == x.shape, name
        assert np.isfinite(y).all(), name


def test_maps_of_coefficients_equal_maps_of_features():
    layer = layers(4)["functional"]
    p = layer.init(jax.random.key(0), 16, 8, 4)
    x = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    basis = opjax.softmax_basis((x @ p["features"]) @ p["scores"], temperature=0.5)
    tokens = opjax.project(x @ p["values"], basis, method="mean")
    q, k, v = (tokens @ p[name] for name in ("query", "key", "value"))
    moved = opjax.transport(q, k, v, ridge=0.5, regularization="convex")
    expected = opjax.reconstruct(moved, basis) @ p["out"]
    found = jax.jit(layer.apply)(p, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_slope_is_the_exponent_of_a_power_law():
    rows = [
        {"attention": "a", "points": n, "forward": {"ms": [3.0 * n**1.5] * 3}}
        for n in (2, 64, 128, 256)
    ]
    rows[0]["forward"]["ms"] = [1e9]  # before the first point of the fit
    np.testing.assert_allclose(scaling.slope(rows, "a", "forward", 64), 1.5)
    assert scaling.slope(rows, "a", "forward", 256) is None


def test_a_run_writes_table_figure_and_result(tmp_path, capsys):
    result = scaling.run(TINY, workdir=tmp_path)
    assert json.loads(capsys.readouterr().out) == result
    assert result["points_functional"] == result["points_softmax"] == 64
    assert result["milliseconds_gradient_softmax"] > 0
    assert isinstance(result["slope_functional"], float)
    rows = json.loads((tmp_path / "measurements.json").read_text())["rows"]
    assert {row["points"] for row in rows} == {32, 64}
    assert "| softmax |" in (tmp_path / "tables.md").read_text()
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    assert scaling.run(TINY, workdir=tmp_path) == result  # read, not measured again


def test_quadratic_layers_stop_earlier():
    config = dataclasses.replace(TINY, max_log2_quadratic=5)
    assert [row["attention"] for row in scaling.measure(config, 64)] == ["functional"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attentions": "functional,sofmax"}, "choose from functional, physics"),
        ({"max_log2": 4}, "max_log2=4 must be at least min_log2=5"),
        ({"num_basis": 64}, "num_basis=64 must be at most the fewest points"),
        ({"repeats": 0}, "repeats=0 must be"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)
