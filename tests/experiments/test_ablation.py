import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from experiments import ablation, ablation_ridge, airfoil, burgers, darcy, elasticity
from opjax import training
from opjax.learn import operators

TINY = dataclasses.replace(
    ablation.PRESETS["smoke"],
    studies=("ridge", "initialization"),
    num_train=8,
    num_test=2,
    num_epochs=1,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Returns the folder and the result of a run with few variants, one diverging."""
    make_task = darcy.make_task

    def diverging(config, cache_dir):
        def loss(model, batch):
            raise training.NonFiniteError("Step 1 has loss nan.")

        task = make_task(config, cache_dir)
        return task._replace(loss=loss) if config.ridge_logit < 0 else task

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


@pytest.mark.slow
def test_a_run_writes_tables_figure_and_result(finished):
    workdir, result = finished
    assert json.loads((workdir / "result.json").read_text()) == result
    assert 0 < result["error_logit_0"] < 2
    assert 0 < result["error_keys_small"] < 3
    studies = json.loads((workdir / "studies.json").read_text())
    assert studies.keys() == {"ridge", "initialization", "boundary"}
    assert studies["ridge"]["logit_0"][0]["condition"] >= 1
    assert (workdir / "ridge" / "figures" / "curves.png").stat().st_size > 1000
    text = (workdir / "tables.md").read_text()
    for study in ("ridge", "initialization"):
        assert f"## {ablation.STUDIES[study]}" in text
    assert "## How small a ridge float32 allows" in text


@pytest.mark.slow
def test_a_variant_that_diverges_is_a_row(finished):
    workdir, result = finished
    assert result["error_logit_-4"] is None
    text = (workdir / "tables.md").read_text()
    assert "| logit_-4 | – | 1, 1 diverged | diverged | – | – |" in text
    stored = json.loads((workdir / "ridge" / "logit_-4-0" / "result.json").read_text())
    assert stored["diverged"] == "Step 1 has loss nan."


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"studies": ("ridge", "ridges")},
            "studies='ridges' is unknown; choose from bases, choice, projection, "
            "ridge, initialization",
        ),
        ({"seeds": (0, 0)}, "has 0 twice"),
        ({"base": "tiny"}, "choose from smoke, quick, paper"),
        ({"problem": "pipe"}, "problem='pipe' is unknown; choose from darcy, elastic"),
        ({"features": 10}, "num_heads=4 must divide features=10"),
        ({"num_points": 96}, "A grid of 96 points must divide the 8192"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


@pytest.mark.parametrize("study", ablation.STUDIES)
def test_all_variants_of_a_study_build_and_evaluate(study):
    variants = ablation.variants(TINY, study)
    assert len(variants) >= 3
    sizes = operators.Sizes(2, 1, 1, (13, 13), box=((0.0, 0.0), (1.0, 1.0)))

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
    sizes = {(m.features, m.num_layers, m.num_heads, m.num_epochs) for m in members}
    assert sizes == {(128, 8, 8, 500)}
    choice = ablation.variants(paper, "choice").values()
    assert {one.num_basis for one in choice} == {81}  # the least odd square above 64
    quick = ablation.variants(ablation.PRESETS["quick"], "choice").values()
    assert {one.num_basis for one in quick} == {25}


@pytest.mark.parametrize("program", [elasticity, airfoil])
def test_other_problems_have_the_same_studies(program):
    name = program.__name__.removeprefix("experiments.")
    config = dataclasses.replace(TINY, problem=name, studies=("choice",))
    for one in ablation.variants(config, "choice").values():
        assert isinstance(one, program.Config)
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
