import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import (
    ablation,
    ablation_cost,
    ablation_figures,
    ablation_ridge,
    ablation_start,
    airfoil,
    burgers,
    darcy,
    elasticity,
)
from opjax import learn
from opjax.learn.registry import operators
from opjax.samples import Sample, Splits
from tests import refused
from tests.experiments.results import read_result
from tests.selection import by_day

TINY = dataclasses.replace(
    ablation.PRESETS["smoke"],
    studies=("ridge", "initialization"),
    num_train=8,
    num_test=2,
    num_epochs=1,
)


SIZES = operators.Sizes(2, 1, 1, (13, 13), box=((0.0, 0.0), (1.0, 1.0)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Returns the folder and the result of a run with few variants, one diverging."""
    make_task = darcy.make_task

    def diverging(config, cache_dir):
        task = make_task(config, cache_dir)

        def loss(model, batch):
            return jnp.nan * task.loss(model, batch)

        if config.ridge_logit < 0:
            return dataclasses.replace(task, loss=loss)
        return task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablation, "RIDGE_LOGITS", (0.0, -4.0))
        patch.setattr(
            ablation, "STARTS", {"small": {"init_scale": 1e-2, "init_diagonal": 0.0}}
        )
        patch.setattr(burgers, "NORMALIZATIONS", ("keys",))
        patch.setitem(ablation.TASKS, darcy.Config, diverging)
        workdir = tmp_path_factory.mktemp("run")
        cache_dir = str(tmp_path_factory.mktemp("cache"))
        return workdir, ablation.run(TINY, workdir=workdir, cache_dir=cache_dir)


@pytest.mark.nightly
def test_a_run_writes_tables_figure_and_result(finished):
    workdir, result = finished
    assert read_result(workdir) == result
    assert 0 < result["error_logit_0"] < 2
    assert 0 < result["error_keys_small"] < 3
    studies = json.loads((workdir / "studies.json").read_text())
    assert studies.keys() == {"ridge", "initialization", "boundary"}
    assert studies["ridge"]["logit_0"][0]["condition"] >= 1
    assert (workdir / "ridge" / "figures" / "curves.png").stat().st_size > 1000
    for name in ("errors", "condition_ridge"):
        assert 1e3 < (workdir / "figures" / f"{name}.png").stat().st_size < 1e5
    text = (workdir / "tables.md").read_text()
    for study in ("ridge", "initialization"):
        assert f"## {ablation.STUDIES[study]}" in text
    assert "## How small a ridge float32 allows" in text


@pytest.mark.slow
@pytest.mark.nightly
def test_a_variant_that_diverges_is_a_row(finished):
    workdir, result = finished
    assert result["error_logit_-4"] is None
    text = (workdir / "tables.md").read_text()
    assert "| logit_-4 | – | 1, 1 diverged | diverged | – | – |" in text
    stored = json.loads((workdir / "ridge" / "logit_-4-0" / "result.json").read_text())
    assert stored["diverged"].startswith("Step 0 (epoch 0) has loss nan")


@pytest.mark.nightly
def test_the_errors_of_float32_grow_as_the_ridge_falls(monkeypatch):
    falling = (3, 0, -4, -8, -12)
    monkeypatch.setattr(ablation_ridge, "LOGITS", falling)
    rows = ablation_ridge.boundary()
    by_logit = {row["logit"]: row for row in rows}
    for name in ("condition", "value_error", "gradient_error"):
        assert all(np.isfinite(row[name]) for row in rows)
        assert np.all(np.diff([row[name] for row in rows]) > 0)
    start = by_logit[0]
    assert start["ridge"] == 0.5
    assert max(start["value_error"], start["gradient_error"]) < 1e-4
    assert by_logit[-12]["value_error"] > 0.5
    # The error is that of rounding times the condition number, up to a modest factor.
    epsilon = np.finfo(np.float32).eps
    for row in rows[1:4]:
        assert row["value_error"] < 10 * epsilon * row["condition"]


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        (
            {"studies": ("ridge", "ridges")},
            "studies='ridges' is unknown; choose from bases, choice, projection, "
            "ridge, sharing, adaptive, initialization",
        ),
        ({"seeds": (0, 0)}, "contains 0 twice"),
        ({"base": "tiny"}, "choose from smoke, quick, fast, paper"),
        ({"base": "fast"}, "base='fast' is no preset of experiments.burgers"),
        ({"problem": "pipe"}, "problem='pipe' is unknown; choose from darcy, elastic"),
        ({"width": 10}, "num_heads=4 must divide width=10"),
        ({"data_dir": "files"}, "run it by itself"),
        ({"num_points": 96}, "A grid of 96 points must divide the 8192"),
    ],
)


@pytest.mark.parametrize("study", by_day(ablation.STUDIES, ["bases", "projection"]))
def test_all_variants_of_a_study_build_and_evaluate(study):
    variants = ablation.variants(TINY, study)
    assert len(variants) >= 3
    sizes = SIZES

    def build(member):
        if isinstance(member, darcy.Config):
            return operators.build(member, sizes, rngs=nnx.Rngs(0))
        return burgers.build(member, nnx.Rngs(0))

    with jax.enable_x64(False):
        for name, member in variants.items():
            shape = (169, 2) if isinstance(member, darcy.Config) else (64, 1)
            points = jax.ShapeDtypeStruct(shape, "float32")

            def output(points, member=member):
                return build(member)(points, points[:, :1])

            found: Any = jax.eval_shape(output, points)
            assert found.shape == (shape[0], 1), name


def test_the_paper_preset_is_app_d():
    paper = ablation.PRESETS["paper"]
    found = [one.num_basis for one in ablation.variants(paper, "bases").values()]
    assert found == [16, 32, 64, 128, 256, 512]
    members = [one for (_, seed), one in paper.members().items() if seed == 0]
    sizes = {(m.width, m.num_layers, m.num_heads, m.num_epochs) for m in members}
    assert sizes == {(128, 8, 8, 500)}
    choice = ablation.variants(paper, "choice").values()
    assert {one.num_basis for one in choice} == {81}  # the least odd square above 64
    quick = ablation.variants(ablation.PRESETS["quick"], "choice").values()
    assert {one.num_basis for one in quick} == {25}


@pytest.mark.parametrize("problem", ["airfoil", "darcy", "elasticity"])
def test_the_preset_fast_is_the_recipe_fast_on_its_data(problem):
    fast = dataclasses.replace(ablation.PRESETS["fast"], problem=problem)
    program = ablation.PROBLEMS[problem]
    recipe = ("optimizer", "learning_rate", "ridge_unit", "initial_kernels")
    for member in fast.members().values():
        assert isinstance(member, program.Config)
        for name in recipe:
            assert getattr(member, name) == getattr(program.PRESETS["fast"], name)
    elasticity_fast = elasticity.PRESETS["fast"]
    for name in ("num_train", "num_validation", "num_test", "num_epochs"):
        if problem == "elasticity":
            assert getattr(member, name) == getattr(elasticity_fast, name)


def counted(member):
    def build():
        return operators.build(member, SIZES, rngs=nnx.Rngs(0))

    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(build)))


def test_blocks_that_share_a_basis_have_fewer_parameters():
    config = dataclasses.replace(TINY, num_layers=3)
    sizes = {k: counted(v) for k, v in ablation.variants(config, "sharing").items()}
    assert sizes["functional_shared"] < sizes["functional_own"]
    assert sizes["transolver_shared"] < sizes["transolver_own"]
    # Three ridges, one of each layer.
    assert sizes["functional_own"] - sizes["transolver_own"] == 3
    assert sizes["functional_shared"] - sizes["transolver_shared"] == 3


def test_only_learned_ridges_are_parameters():
    variants = ablation.variants(TINY, "adaptive")
    fixed = ["1.13e-07", "0.000335", "0.018", "0.5", "0.953", "0.998"]
    assert list(variants) == ["learned", "gcv", *(f"fixed_{ridge}" for ridge in fixed)]
    assert variants["fixed_0.018"].ridge_logit == -4
    learned = counted(variants["learned"])
    sizes = {counted(one) for name, one in variants.items() if name != "learned"}
    assert sizes == {learned - TINY.num_layers}


def test_published_runs_choose_no_epoch():
    paper, quick = (ablation.PRESETS[name] for name in ("paper", "quick"))
    for config, wanted in ((paper, 0), (quick, 20)):
        for study in config.studies:
            found = ablation.variants(config, study).values()
            assert {one.num_validation for one in found} == {wanted}


@pytest.mark.nightly
def test_the_cost_is_measured_and_stands_beside_the_published_one(rng):
    def samples(count):
        mesh = rng.uniform(size=(count, 30, 2)).astype(np.float32)
        return [Sample(one, one[:, :1] ** 2) for one in mesh]

    config = ablation.variants(
        dataclasses.replace(TINY, problem="elasticity", bases=(4, 16)), "bases"
    )["k_16"]
    splits = Splits(samples(4), samples(2), samples(2), "made up")
    with jax.enable_x64(False):
        task = learn.regression(config, splits)
        found = ablation_cost.measure(task, config)
    assert found.keys() == {"predict_ms", "predict_mib", "step_ms", "step_mib"}
    assert all(value > 0 for value in found.values())
    # A step holds gradients and two moments of the parameters besides.
    assert found["step_mib"] > found["predict_mib"]
    rows = [{"error": 0.5, "parameters": 3, **found}]
    results = {"k_16": rows, "k_7": rows, "k_8": [{"diverged": "", "parameters": 0}]}
    lines = ablation_cost.text(results, "elasticity").splitlines()
    assert len(lines) == 6
    ms, mib = (f"{found[name]:.3g}" for name in ("predict_ms", "predict_mib"))
    assert lines[-2].startswith(f"| k_16 | 0.65 | {ms} | 12.52 | {mib} | 0.02 |")
    assert lines[-1].startswith(f"| k_7 |  | {ms} |  | {mib} |  |")


@pytest.mark.nightly
def test_maps_of_the_transpose_start_small(monkeypatch):
    """By products of two weights of functions, about `1 / k` each."""
    monkeypatch.setattr(ablation_start, "_SIDE", 9)
    variants = ablation.variants(TINY, "projection")
    text = ablation_start.text(variants, (0,))
    rows = [line.split(" | ") for line in text.splitlines()[-3:]]
    assert [row[0].strip("| ") for row in rows] == list(variants)
    same, norms, conditions = (
        [float(row[k].strip(" |")) for row in rows] for k in (1, 2, 3)
    )
    assert max(same) < 1
    assert 0.5 < norms[1] / norms[0] * TINY.num_basis**2 < 4
    assert norms[0] < norms[2]
    assert all(number >= 1 for number in conditions)
    assert "learned_softmax" not in ablation_start.text(
        {"learned_softmax": ablation.variants(TINY, "choice")["learned_softmax"]}, (0,)
    )


def test_condition_numbers_are_medians_and_ranges_of_the_seeds(tmp_path):
    def write(name, conditions):
        folder = tmp_path / name
        folder.mkdir()
        rows = [{"epoch": i + 1, "condition": c} for i, c in enumerate(conditions)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "metrics.jsonl").write_text(text)
        return folder

    seeds = [[1.0, 100.0], [2.0, 10.0], [4.0, 1000.0]]
    first = [write(f"a-{seed}", values) for seed, values in enumerate(seeds)]
    other = [write("b-0", [None, None]), tmp_path / "c-0"]
    figure = ablation_figures.conditions({"a": first, "b": other}, "title")
    (axis,) = figure.axes
    (line,) = axis.lines
    np.testing.assert_allclose(line.get_xydata(), [[1, 2], [2, 100]])
    (band,) = axis.collections
    low, high = band.get_datalim(axis.transData).get_points()
    np.testing.assert_allclose([low, high], [[1, 1], [2, 1000]])
    assert axis.get_yscale() == "log"
    assert ablation_figures.conditions({"b": other}, "title") is None


@pytest.mark.parametrize("program", [elasticity, airfoil])
def test_other_problems_have_the_same_studies(program):
    name = program.__name__.removeprefix("experiments.")
    studies = tuple(study for study in ablation.STUDIES if study != "initialization")
    config = dataclasses.replace(TINY, problem=name, studies=studies, base="quick")
    for one in config.members().values():
        assert isinstance(one, program.Config)
        assert len(one.models) == 1
        assert not one.equal_parameters
        assert (one.num_heads, one.num_epochs, one.num_test) == (4, 1, 2)
    assert ablation.TASKS[program.Config] == program.PROGRAM.make_task


def test_every_seed_is_a_member_and_only_the_choice_differs():
    config = dataclasses.replace(TINY, studies=("ridge",), seeds=(0, 3))
    members = config.members()
    assert len(members) == 2 * len(ablation.RIDGE_LOGITS)
    first, other = members["ridge/logit_-16", 3], members["ridge/logit_6", 3]
    assert first.seed == other.seed == 3
    assert dataclasses.replace(first, ridge_logit=6.0) == other
