import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import (
    ablation,
    ablation_studies,
    burgers_models,
    darcy,
    darcy_figures,
    darcy_models,
)
from opjax import training

TINY = dataclasses.replace(
    ablation.PRESETS["smoke"],
    studies="ridge,initialization",
    num_train=8,
    num_test=2,
    num_epochs=1,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Returns the folder and the result of a run with few variants, one diverging."""
    trained = darcy.train

    def train(member, *arguments):
        if member.ridge_logit < 0:
            raise training.NonFiniteError("Step 1 has loss nan.")
        return trained(member, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablation_studies, "RIDGE_LOGITS", (-4.0, 0.0))
        patch.setattr(ablation_studies, "STARTS", {"small": (1e-2, 0.0)})
        patch.setattr(burgers_models, "NORMALIZATIONS", ("keys",))
        patch.setattr(darcy, "train", train)
        patch.setattr(darcy_figures, "draw", lambda *_: None)  # test_darcy.py has them
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
    assert (workdir / "conditions.png").stat().st_size > 1000
    text = (workdir / "tables.md").read_text()
    for study in ("ridge", "initialization"):
        assert f"## {ablation_studies.STUDIES[study]}" in text
    assert "## How small a ridge float32 allows" in text


@pytest.mark.slow
def test_a_variant_that_diverges_is_a_row(finished):
    workdir, result = finished
    assert result["error_logit_-4"] is None
    text = (workdir / "tables.md").read_text()
    assert "| logit_-4 | – | 1, 1 diverged | diverged | – | – |" in text
    stored = json.loads((workdir / "ridge" / "logit_-4-0" / "result.json").read_text())
    assert stored["diverged"] == "Step 1 has loss nan."


@pytest.mark.slow
def test_a_finished_run_is_read_and_not_repeated(finished, monkeypatch, capsys):
    workdir, result = finished
    monkeypatch.setattr(ablation, "train", None)
    monkeypatch.setattr(darcy, "fit", None)
    assert ablation.run(TINY, workdir=workdir) == result
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.slow
def test_the_errors_of_float32_grow_as_the_ridge_falls(finished):
    workdir, _ = finished
    rows = json.loads((workdir / "studies.json").read_text())["boundary"]
    by_logit = {row["logit"]: row for row in rows}
    falling = [by_logit[logit] for logit in (3, 0, -4, -8, -12)]
    for name in ("condition", "value_error", "gradient_error"):
        assert all(np.isfinite(row[name]) for row in rows)
        assert np.all(np.diff([row[name] for row in falling]) > 0)
    start = by_logit[0]
    assert start["ridge"] == 0.5
    assert max(start["value_error"], start["gradient_error"]) < 1e-4
    assert by_logit[-12]["value_error"] > 0.5
    # The error is that of rounding times the condition number, up to a modest factor.
    epsilon = np.finfo(np.float32).eps
    for row in falling[1:4]:
        assert row["value_error"] < 10 * epsilon * row["condition"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"studies": "ridge,ridges"},
            "studies='ridges' is unknown; choose from bases, choice, projection, "
            "ridge, initialization",
        ),
        ({"seeds": "0,0"}, "contains a seed twice"),
        ({"base": "tiny"}, "choose from smoke, quick, paper"),
        ({"features": 10}, "num_heads=4 must divide features=10"),
        ({"num_points": 96}, "A grid of 96 points must divide the 8192"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


@pytest.mark.parametrize("study", ablation_studies.STUDIES)
def test_all_variants_of_a_study_build_and_evaluate(study):
    config = dataclasses.replace(TINY, studies=study)
    variants = ablation_studies.variants(config)[study]
    assert len(variants) >= 3
    with jax.enable_x64(False):
        for (name, _), member in variants.items():
            if isinstance(member, darcy.Config):
                models, key, shape = darcy_models.MODELS, member.model, (169, 2)
            else:
                models, key, shape = burgers_models.MODELS, member.models, (64, 1)

            def output(member=member, build=models[key], shape=shape):
                model = build(member, rngs=nnx.Rngs(0))
                return model(jnp.zeros(shape), jnp.zeros((shape[0], 1)))

            assert jax.eval_shape(output).shape == (shape[0], 1), name


def test_every_seed_is_a_member_and_only_the_choice_differs():
    config = dataclasses.replace(TINY, studies="ridge", seeds="0,3")
    variants = ablation_studies.variants(config)["ridge"]
    assert len(variants) == 2 * len(ablation_studies.RIDGE_LOGITS)
    first, other = variants["logit_-16", 3], variants["logit_6", 3]
    assert first.seed == other.seed == 3
    assert dataclasses.replace(first, ridge_logit=6.0) == other
