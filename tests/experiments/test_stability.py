import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from experiments import burgers, stability, stability_spaces
from opjax.learn.json_files import read_object
from tests import refused, sessions
from tests.experiments.results import read_result
from tests.learn.tiny import filled
from tests.selection import by_day

TINY = dataclasses.replace(
    stability.PRESETS["smoke"],
    models=("linear",),
    normalizations=("none",),
    num_train=8,
    num_epochs=1,
)


def spaces(query, key, value, raw_key=None):
    return stability_spaces.Spaces(query, key, value, value, raw_key)


def waves(points, *frequencies):
    x = np.arange(points) / points
    return np.stack([np.cos(2 * np.pi * f * x) for f in frequencies], axis=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder of a run of one model."""
    cache_dir = tmp_path_factory.mktemp("cache")
    folder = tmp_path_factory.mktemp("stability") / "run"
    with sessions.lenient():
        stability.run(TINY, workdir=folder, cache_dir=str(cache_dir))
    return folder


@pytest.mark.nightly
def test_a_run_leaves_constants_of_all_grids_tables_and_a_figure(folder):
    result = read_result(folder)
    rows = read_object(folder / "linear_none-0" / "constants.json")["rows"]
    assert len(rows) == 2 * TINY.num_layers * TINY.num_heads * TINY.num_samples
    for row in rows:
        assert row["points"] == [64, 128]
        assert all(0 <= c <= 1 + 1e-9 for c in (*row["value"], *row["key"]))
    assert np.isfinite(result["slope_value_after_linear_none"])
    # The layer divides its averages by the number of points, and so does the softmax.
    for form in ("operator", "softmax"):
        slope = result[f"slope_{form}_before_linear_none"]
        assert_allclose(slope, -1, atol=0.1)
    assert (folder / "stability.png").exists()
    assert "Slope of log c" in (folder / "tables.md").read_text()


@pytest.mark.parametrize(
    "model", by_day(stability.MODELS, ["functional", "fourier", "softmax"])
)
def test_attention_of_the_spaces_is_that_of_the_layer(model, rng):
    kind = "none" if model == "functional" else "keys"
    wide = dataclasses.replace(TINY, models=(model,), normalizations=(kind,))
    (member,) = wide.members().values()
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        model = filled(lambda rngs: burgers.build(member, rngs))
        attention = jax.tree.map(lambda leaf: leaf[0], model.layers).attention
        points = np.arange(20, dtype=np.float32)[:, None] / 20
        x = rng.normal(size=(20, TINY.width)).astype(np.float32)
        found = stability_spaces.spaces(attention, x, points)
        merged = np.concatenate(list(found.attended), axis=1)
        expected = attention(x, mesh_points=points)
        assert_allclose(attention.out(merged), expected, atol=1e-5)


def test_constants_are_those_of_the_functions_whatever_the_grid():
    grids = [
        spaces(waves(n, 1, 2), waves(n, 1, 2, 3), waves(n, 1, 2) + waves(n, 2, 3))
        for n in (32, 64, 128)
    ]
    found, ranks = stability_spaces.constants(grids, tolerance=1e-3)
    assert ranks == {"query": 2, "key": 3, "value": 2}
    for one in found:
        assert_allclose(one["key"], 1, rtol=1e-10)
        # cos x - cos 2x is the worst tested of cos x and cos 2x.
        assert_allclose(one["value"], 3**-0.5, rtol=1e-10)


def test_functions_that_nearly_depend_on_others_do_not_count():
    query = waves(64, 1, 2) @ np.array([[1.0, 1.0], [0.0, 1e-6]])
    found, ranks = stability_spaces.constants(
        [spaces(query, query, waves(64, 1, 3))] * 2, tolerance=1e-3
    )
    assert ranks["query"] == 1
    assert_allclose(found[0]["value"], 1, rtol=1e-6)


def test_slopes_are_those_of_the_logarithms():
    points = [64, 128, 256]
    rows = [
        {"state": state, "points": points, "value": [(n / 64) ** p for n in points]}
        for state, p in (("before", 0.01), ("before", -0.02), ("after", -1.0))
    ]
    found = stability.slopes(rows)
    assert_allclose(found["slope_value_before"], -0.005)
    assert_allclose(found["slope_value_after"], -1)
    assert (found["flat_value_before"], found["flat_value_after"]) == (1, 0)
    assert "slope_key_after" not in found


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        ({"eval_points": (128, 64)}, "must rise from few points to many"),
        ({"eval_points": (64,)}, "at least two, for a slope"),
        ({"num_samples": 9}, "num_samples=9 must be at most num_test=4"),
        ({"models": ("functional",), "normalizations": ("keys",)}, "functional has"),
        ({"num_points": 96}, "A grid of 96 points must divide the 8192"),
    ],
)


@pytest.mark.nightly
def test_each_attention_has_the_normalizations_that_it_can_have():
    members = stability.Config(seeds=(0,)).members()
    names = [name for name, _ in members]
    assert len(names) == 14
    assert [name for name in names if "functional" in name] == ["functional_none"]
    assert [name for name in names if "features" in name] == ["galerkin_features"]
    for (name, _), member in members.items():
        model = jax.eval_shape(lambda one=member: burgers.build(one, nnx.Rngs(0)))
        attention = model.layers.attention
        norm = getattr(attention, "key_norm", None)
        kind = None if norm is None else norm.normalization
        expected = {"keys": "layer", "instance": "instance"}
        assert kind == expected.get(name.rpartition("_")[2])
