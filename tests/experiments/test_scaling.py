import dataclasses
import importlib.util
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import scaling, scaling_flops, scaling_layers, scaling_torch
from opjax.learn.registry import operators
from tests import refused

TINY = dataclasses.replace(
    scaling.PRESETS["smoke"],
    models=("functional", "softmax", "model:deeponet"),
    max_log2=6,
    step_log2=1,
    fit_log2=5,
    repeats=1,
)


def test_every_attention_of_the_registry_is_measured():
    attentions = {k for k, v in operators.REGISTRY.items() if v.attention is not None}
    assert {"functional", "softmax", "linformer", "intention"} <= attentions
    names = {"fourier_neural_operator", *attentions}
    assert names == set(scaling.PRESETS["quick"].models)
    whole = {f"model:{name}" for name in ("functional", "flare", "lno", "ono", "gnot")}
    whole |= {"model:deeponet", "model:fno"}
    assert whole <= set(scaling.PRESETS["models"].models)


def check_shape(name, num_heads):
    def output():
        given = scaling_layers.inputs(TINY, name, 32)
        layer = TINY.build(name, num_heads, 32)
        return given[0], scaling_layers.forward(name, layer, *given)

    x, y = jax.eval_shape(output)
    assert (y.shape, y.dtype) == (x.shape, jnp.float32), name


@pytest.mark.nightly
@pytest.mark.parametrize("num_heads", [1, 2])
def test_all_layers_keep_the_shape(num_heads):
    for name in scaling_layers.names():
        check_shape(name, num_heads)


@pytest.mark.nightly
def test_whole_models_map_functions_to_functions():
    for name in ("functional", "lno", "ono", "gnot", "deeponet", "fno"):
        check_shape(f"model:{name}", 2)


def count(name, heads, n, config=scaling.PRESETS["quick"], kind="forward"):
    given = jax.eval_shape(
        lambda: (
            config.build(name, heads, n),
            *scaling_layers.inputs(config, name, n),
        )
    )
    return scaling_flops.count(scaling._functions(name)[kind], *given)


@pytest.mark.parametrize("heads", [1, 8])
def test_the_work_of_galerkin_attention_is_that_counted_by_hand(heads):
    n, c, d = 4096, 128, 128 // heads + 1  # with a coordinate
    projections = 2 * n * c * c  # of keys and of values
    products = heads * n * d * d  # of keys with values
    expanded = heads * d * d * c  # coefficients, by the output map
    queries = heads * (d - 1) * c * (c + 1)  # of which channels and a one make queries
    output = n * (c + 1) * c  # of channels and the coordinate
    by_hand = 2 * (projections + products + expanded + queries + output)
    assert count("galerkin", heads, n) == by_hand
    # Both factors of a product have a gradient, the points excepted.
    gradient = count("galerkin", heads, n, kind="gradient")
    assert 2.9 * by_hand < gradient < 3.1 * by_hand


def test_the_work_of_functional_attention_is_that_counted_by_hand():
    n, c, k = 4096, 128, 64
    work = count("functional", 1, n)
    at_points = 2 * n * 3 * c * k  # scores, coefficients, reconstruction
    assert at_points < work < 1.15 * at_points  # and what does not grow with n
    # Eight heads of 16 channels: two projections, three products of heads, one output.
    d = c // 8
    assert count("functional", 8, n) >= 2 * n * (3 * c * c + 8 * 3 * d * k)


@pytest.mark.nightly
def test_work_per_point_grows_where_a_layer_is_quadratic():
    ratio = {
        name: count(name, 1, 2**13) / count(name, 1, 2**12)
        for name in ("functional", "galerkin", "softmax", "fourier")
    }
    assert ratio["functional"] < 2
    assert ratio["galerkin"] < 2
    assert min(ratio["softmax"], ratio["fourier"]) > 3.8


def test_loops_count_as_often_as_they_run_and_repetitions_once():
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    once = 2 * 3 * 4 * 5
    assert scaling_flops.count(jnp.matmul, a, b) == once
    loop = jax.jit(lambda a, b: jax.lax.map(lambda _: a @ b, jnp.arange(7)))
    assert scaling_flops.count(loop, a, b) == 7 * once
    assert scaling_flops.count(lambda a, b: (a @ b, a @ b), a, b) == once
    assert scaling_flops.count(lambda a, b: (a @ b, a + 1)[1], a, b) == 0
    assert scaling_flops.count(jnp.matmul, a + 0j, b + 0j) == 4 * once
    square = np.ones((6, 6), np.float32)
    assert scaling_flops.count(jnp.linalg.cholesky, square) == 6**3 / 3
    line = np.ones(64, np.float32)
    assert scaling_flops.count(jnp.fft.rfft, line) == 2.5 * 64 * 6


def test_a_slope_is_the_exponent_of_a_power_law():
    times = {n: 3.0 * n**1.5 for n in (2, 64, 128, 256)}
    times[2] = 1e9  # before the first point of the fit
    np.testing.assert_allclose(scaling.slope(times, 64), 1.5)
    assert scaling.slope(times, 256) is None


@pytest.mark.nightly
def test_a_run_writes_table_figure_and_result(tmp_path, capsys):
    result = scaling.run(TINY, workdir=tmp_path)
    assert json.loads(capsys.readouterr().out) == result
    assert result["points_functional"] == result["points_softmax"] == 64
    assert result["milliseconds_gradient_softmax"] > 0
    assert isinstance(result["slope_functional"], float)
    assert result["milliseconds_functional_2_heads"] > 0
    assert "milliseconds_model_deeponet_2_heads" not in result  # it has none
    assert result["kflop_per_point_softmax"] > 0
    assert result["seed"] == 0
    rows = json.loads((tmp_path / "measurements.json").read_text())["rows"]
    assert {row["points"] for row in rows} == {32, 64}
    assert {row["heads"] for row in rows} == {1, 2}
    tables = (tmp_path / "tables.md").read_text()
    assert "| softmax |" in tables
    assert "## Gradient, 2 heads, kFLOP per point" in tables
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    assert scaling.run(TINY, workdir=tmp_path) == result  # read, not measured again


@pytest.mark.nightly
def test_encoder_layers_stand_beside_the_published_numbers(tmp_path, capsys):
    paper = scaling.PRESETS["encoder"]
    assert paper.all_sizes() == [8192]
    assert (paper.num_layers, paper.batch_size, paper.width) == (10, 4, 128)
    rows = [
        {
            "attention": name,
            "heads": 1,
            "points": 8192,
            "gradient": {"ms": [500.0], "flops": 2e11, "bytes": 3e9},
        }
        for name in ("softmax", "galerkin")
    ]
    text = scaling._published(paper, rows)
    assert "| galerkin | 8192 | 1 | 200 | 3 | 2 | 412 | 2.33 | 2.53 | 19.20 |" in text
    config = dataclasses.replace(TINY, models=("galerkin",), heads=(1,), max_log2=5)
    config = dataclasses.replace(config, num_layers=2, batch_size=2)
    one = count("galerkin", 1, 32, dataclasses.replace(config, num_layers=1))
    assert count("galerkin", 1, 32, config) == 2 * one
    scaling.run(config, workdir=tmp_path)
    tables = (tmp_path / "tables.md").read_text()
    assert "2 encoder layers" in tables
    assert "| 412 |" not in tables  # published for another set-up


def test_quadratic_layers_stop_earlier():
    config = dataclasses.replace(TINY, max_log2_quadratic=5)
    assert config.sizes("softmax") == [32]
    assert config.sizes("functional") == [32, 64]
    found = scaling.PROGRAM.describe(config)
    assert found["points_softmax"] == 32
    assert found["parameters"] == found["parameters_functional"] > 0
    quick = scaling.PRESETS["quick"]
    assert quick.sizes("softmax") == [2**10, 2**12, 2**13]
    assert quick.sizes("functional") == [2**k for k in (10, 12, 14, 16)]


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        ({"models": ("functional", "sofmax")}, "choose from functional, transolver"),
        ({"models": ("fno",)}, "models='fno' is no attention; .* model:fno"),
        ({"num_layers": 2}, "num_layers=2 has no model:deeponet"),
        ({"max_log2": 4}, "max_log2=4 must be at least min_log2=5"),
        ({"num_basis": 64}, "num_basis=64 must be at most the fewest points"),
        ({"heads": (1, 3)}, "heads=3 must divide width=16"),
        ({"repeats": 0}, "repeats=0 must be"),
    ],
)


def test_pytorch_is_measured_where_it_is_and_refused_where_it_is_not(
    monkeypatch, tmp_path
):
    config = dataclasses.replace(TINY, models=("softmax", scaling_torch.NAME))
    find = importlib.util.find_spec
    missing = lambda name: None if name == "torch" else find(name)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", missing)
        with pytest.raises(ImportError, match=r"opjax\[benchmark\]"):
            scaling.run(config, workdir=tmp_path / "run")
    pytest.importorskip("torch")
    ours, theirs = scaling.measure(config, 32)[:2]
    for kind in ("forward", "gradient"):
        assert theirs[kind]["ms"][0] > 0
        # Theirs multiplies the output map apart; ours may fold it into the values.
        assert 0.5 < theirs[kind]["flops"] / ours[kind]["flops"] < 2
    with pytest.raises(ValueError, match="num_layers=1 has no torch:softmax"):
        dataclasses.replace(config, num_layers=1)
