import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import scaling
from opjax.learn import operators

TINY = dataclasses.replace(
    scaling.PRESETS["smoke"],
    models=("functional", "softmax"),
    max_log2=6,
    fit_log2=5,
    repeats=1,
)


def test_every_attention_of_the_registry_is_measured():
    attentions = {k for k, v in operators.REGISTRY.items() if v.attention is not None}
    assert {"functional", "softmax", "linformer", "intention"} <= attentions
    names = {"fourier_neural_operator", *attentions}
    assert names == set(scaling.PRESETS["quick"].models)


@pytest.mark.parametrize("num_heads", [1, 2])
def test_all_layers_keep_the_shape(num_heads):
    config = dataclasses.replace(TINY, models=scaling.NAMES, num_heads=num_heads)
    x, points = np.zeros((32, 16), np.float32), np.zeros((32, 1), np.float32)
    for name in config.models:
        y = jax.eval_shape(scaling._forward, config.build(name, 32), x, points)
        assert y.shape == x.shape, name
        assert y.dtype == x.dtype, name


def test_a_slope_is_the_exponent_of_a_power_law():
    times = {n: 3.0 * n**1.5 for n in (2, 64, 128, 256)}
    times[2] = 1e9  # before the first point of the fit
    np.testing.assert_allclose(scaling.slope(times, 64), 1.5)
    assert scaling.slope(times, 256) is None


def test_a_run_writes_table_figure_and_result(tmp_path, capsys):
    result = scaling.run(TINY, workdir=tmp_path)
    assert json.loads(capsys.readouterr().out) == result
    assert result["points_functional"] == result["points_softmax"] == 64
    assert result["milliseconds_gradient_softmax"] > 0
    assert isinstance(result["slope_functional"], float)
    assert result["seed"] == 0
    rows = json.loads((tmp_path / "measurements.json").read_text())["rows"]
    assert {row["points"] for row in rows} == {32, 64}
    assert "| softmax |" in (tmp_path / "tables.md").read_text()
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    assert scaling.run(TINY, workdir=tmp_path) == result  # read, not measured again


def test_quadratic_layers_stop_earlier():
    config = dataclasses.replace(TINY, max_log2_quadratic=5)
    assert config.sizes("softmax") == [32]
    assert config.sizes("functional") == [32, 64]
    found = scaling.PROGRAM.describe(config)
    assert found["points_softmax"] == 32
    assert found["parameters"] == found["parameters_functional"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": ("functional", "sofmax")}, "choose from functional, transolver"),
        ({"models": ("fno",)}, "models='fno' is no attention; choose from functional"),
        ({"max_log2": 4}, "max_log2=4 must be at least min_log2=5"),
        ({"num_basis": 64}, "num_basis=64 must be at most the fewest points"),
        ({"num_heads": 3}, "num_heads=3 must divide features=16"),
        ({"repeats": 0}, "repeats=0 must be"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)
