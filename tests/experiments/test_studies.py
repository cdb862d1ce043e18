import types

import jax
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import studies
from opjax.samples import Sample

ROWS = [
    {"rule": rule, "points": points, "seed": seed, "error": points * (seed + 1) / 8}
    for rule in ("uniform", "graded")
    for points in (16, 8)
    for seed in (0, 1)
]


def test_groups_keep_the_order_of_the_rows():
    assert list(studies.groups(ROWS, "rule")) == ["uniform", "graded"]
    both = studies.groups(ROWS, "rule", "points")
    assert list(both)[1] == ("uniform", 8)
    assert [row["seed"] for row in both["graded", 16]] == [0, 1]
    assert sum(both.values(), []) == ROWS
    assert studies.select(ROWS, rule="graded", points=8) == both["graded", 8]


def test_cells_are_medians_and_ranges_in_the_asked_order():
    mine = studies.select(ROWS, rule="graded")
    cells = studies.across(mine, "points", (8, 16))
    shown = [studies.spread(cell, "error", 10, digits=3) for cell in cells]
    assert shown == ["15 [10, 20]", "30 [20, 40]"]
    assert_array_equal(studies.column(cells[0], "error", 10), [10, 20])
    with pytest.raises(KeyError):
        studies.across(mine, "points", (32,))


def test_baselines_are_the_mean_field_the_nearest_case_and_pod(rng):
    points, inputs = rng.uniform(size=(5, 2)), rng.uniform(1, 2, (12, 1))
    cases = [
        Sample(points, target=value * points[:, :1] ** 2, features=value + 0 * points)
        for value in inputs
    ]
    errors = studies.baseline_errors(cases[:9], cases[9:])
    mean, seen, asked = inputs[:9].mean(), inputs[:9, 0], inputs[9:, 0]
    nearest = seen[np.abs(seen - asked[:, None]).argmin(axis=1)]
    assert_allclose(errors["mean field"], np.mean(abs(mean / asked - 1)))
    assert_allclose(errors["nearest case"], np.mean(abs(nearest / asked - 1)))
    assert errors["POD with RBF"] < errors["nearest case"]


def test_stored_rows_are_made_once(tmp_path):
    path = tmp_path / "one" / "result.json"
    first = studies.stored(path, lambda: {"rows": ROWS[:1]})
    assert first["rows"] == ROWS[:1]
    assert first["seconds"] >= 0
    assert studies.stored(path, lambda: pytest.fail("made again")) == first


def test_a_seed_has_its_own_start_and_a_stack_its_members():
    def start(seed):
        return nnx.Linear(2, 3, rngs=studies.start_of(seed))

    both = jax.vmap(start)(np.arange(2))
    for seed in (0, 1):
        expected = jax.tree.leaves(start(seed))
        actual = jax.tree.leaves(studies.one_of(both, seed))
        jax.tree.map(assert_array_equal, actual, expected)


def test_the_last_line_ends_with_seconds_seeds_and_data():
    config = types.SimpleNamespace(seeds=(0, 1))
    finished = types.SimpleNamespace(config=config, seconds=2.0, source="a line")
    report = studies.report(finished, ["a", "b"], {"error": 0.5}, "Head.")
    assert list(report.result) == ["error", "seconds", "seeds", "data"]
    assert (report.result["seeds"], report.text, report.alone) == ([0, 1], "a\nb", True)
