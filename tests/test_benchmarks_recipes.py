"""The comparison of recipes reads finished runs."""

import json

import pytest

from benchmarks import recipes


def run(folder, errors):
    for seed, error in enumerate(errors):
        member = folder / f"functional-{seed}"
        member.mkdir(parents=True)
        result = {"relative_l2": error, "validation": 1.0, "seconds": 10.0 + seed}
        (member / "result.json").write_text(json.dumps(result))
        rows = [{"epoch": e, "seconds": 5.0 * e, "validation": 1 / e} for e in (1, 2)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (member / "metrics.jsonl").write_text(lines)
    return str(folder)


def test_medians_ranges_and_curves_of_every_recipe(tmp_path):
    runs = [run(tmp_path / "a", [0.3, 0.1, 0.2]), run(tmp_path / "b", [0.05])]
    folders = recipes.by_problem(runs, ["pipe:old", "pipe:new"])
    lines = recipes.text(folders, "functional").splitlines()
    assert lines[2] == "| pipe | old | 3 | relative l2 | 0.2 [0.1, 0.3] | 11 [10, 12] |"
    assert lines[3] == "| pipe | new | 1 | relative l2 | 0.05 | 10 |"
    (axis,) = recipes.curves(folders, "functional").axes
    assert len(axis.lines) == 4
    assert axis.lines[0].get_xydata().tolist() == [[5.0, 1.0], [10.0, 0.5]]
    shown = [text.get_text() for text in axis.get_legend().get_texts()]
    assert shown == ["old", "new"]
    over = recipes.curves(folders, "functional", "epoch").axes[0].lines[0]
    assert over.get_xydata().tolist() == [[1.0, 1.0], [2.0, 0.5]]


def test_a_model_that_is_not_there_is_named(tmp_path):
    folders = recipes.by_problem([run(tmp_path / "a", [0.3])], ["pipe:old"])
    with pytest.raises(ValueError, match="no finished member of --model=flare"):
        recipes.text(folders, "flare")


@pytest.mark.parametrize("names", [["pipe:old"], ["pipe:old", "pipe"]])
def test_names_that_do_not_fit_are_refused(names):
    with pytest.raises(ValueError, match="must be one problem:recipe"):
        recipes.by_problem(["a", "b"], names)


def test_results_without_a_curve_are_marks_over_logarithmic_seconds(tmp_path):
    folders = recipes.by_problem([run(tmp_path / "a", [0.3])], ["pipe:fast"])
    ends = recipes.read_ends(
        ["pipe:published:100:0.2", "pipe:published:120:0.2", "RNA:published:400:0.11"]
    )
    pipe, rna = recipes.curves(folders, "functional", ends=ends).axes
    assert [len(axis.lines) for axis in (pipe, rna)] == [1, 0]
    assert pipe.collections[0].get_offsets().tolist() == [[100.0, 0.2]]
    assert rna.collections[0].get_offsets().tolist() == [[400.0, 0.11]]
    shown = [text.get_text() for text in pipe.get_legend().get_texts()]
    assert shown == ["fast", "published"]
    assert pipe.get_xscale() == rna.get_xscale() == "log"


@pytest.mark.parametrize("value", ["pipe:published:100", "pipe:published:100:few"])
def test_ends_that_cannot_be_read_are_refused(value):
    with pytest.raises(ValueError, match="must be problem:recipe:seconds:error"):
        recipes.read_ends([value])


def test_ends_have_no_epochs(tmp_path):
    folders = recipes.by_problem([run(tmp_path / "a", [0.3])], ["pipe:fast"])
    ends = recipes.read_ends(["pipe:published:100:0.2"])
    with pytest.raises(ValueError, match="no meaning for --over=epoch"):
        recipes.curves(folders, "functional", "epoch", ends)
