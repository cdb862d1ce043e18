"""The benchmark of training steps times the models that it names."""

import pytest
from flax import nnx

from benchmarks import speed
from tests.nn.parameters import size


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("darcy_b1", 752_977),
        ("points_972", 737_873),
        # Seven bases more, no ridges.
        ("transolver_points_972", 737_873 + 7 * 34_120 - 8),
    ],
)
def test_models_have_the_published_size(name, parameters):
    model = nnx.eval_shape(
        lambda: speed.build(speed.CASES[name].model, chunk_size=None)
    )
    found = size(nnx.state(model, nnx.Param))
    assert found == parameters


def test_ratios_are_of_medians_and_round_by_round():
    theirs = [{"step_ms": [4.0, 4.0, 9.0]}, {"step_ms": [6.0]}]
    ours = [{"step_ms": [2.0]}, {"step_ms": [2.0, 2.0, 1.0]}]
    assert speed.ratio(theirs, ours) == {"median": 2.5, "rounds": [2.0, 3.0]}


def test_the_report_has_a_row_for_every_side_that_can_run_a_case():
    row = {"parameters": 1000, "forward_ms": 1.0, "step_ms": 2.0}
    row |= {"peak_mib": 3.0, "increment_mib": 4.0}
    compared = {"torch": {"median": 1.5, "rounds": [1.4, 1.6]}, "compile_s": 5.0}
    results = {"darcy_b1": {"torch": row, "opjax": row | compared}}
    text = speed.report(speed.Config(cases=("darcy_b1",)), results, {"commit": "abc"})
    rows = [line for line in text.splitlines() if line.startswith("| darcy_b1")]
    assert [line.split(" | ")[1] for line in rows] == ["torch", "opjax"]
    assert "| 1.50 (1.40–1.60) | – |" in rows[1]
