"""Published operators: written, named, downloaded, and those that ship with opjax."""

import json
import sys
import types

import numpy as np
import pytest

from opjax import learn
from opjax.learn.cli import publish
from opjax.learn.cli.publish import PublishOptions
from opjax.learn.json_files import write_json
from opjax.learn.predict import named, published
from opjax.learn.report.card import _ranges
from tests.learn.test_predict import make, operator
from tests.refused import value_error

SHIPPED = named._SHIPPED


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, with test cases."""
    folder = tmp_path_factory.mktemp("run") / "data" / "run"
    rng = np.random.default_rng(0)
    operator(rng, folder, train=str(folder / "train")).save(folder)
    return folder, [make(rng, n) for n in (20, 25)]


@pytest.fixture(scope="module")
def half(run, tmp_path_factory):
    """The run, published in half precision."""
    folder, cases = run
    output = tmp_path_factory.mktemp("half") / "squares"
    options = PublishOptions(
        folder, output, summary="Sums.", licence="mit", not_for="Products."
    )
    return output, publish.run(options, cases)


def test_a_published_operator_predicts_as_the_run(run, tmp_path):
    folder, cases = run
    options = PublishOptions(folder, tmp_path / "one", precision="single")
    done = publish.run(options, cases)
    expected, found = learn.load(folder), learn.load(tmp_path / "one")
    np.testing.assert_array_equal(found(cases[1]), expected(cases[1]))
    assert done["precision"] == "single"
    with pytest.raises(FileExistsError, match="one is not empty"):
        publish.run(options, cases)
    with value_error("one is published already"):
        publish.run(PublishOptions(tmp_path / "one", tmp_path / "two"))


def test_half_precision_keeps_the_errors_and_the_normalisers(run, half):
    (folder, cases), (output, done) = run, half
    assert done["precision"] == "half"
    found, expected = learn.load(output), learn.load(folder)
    before, after = (publish.errors_of(one, cases) for one in (expected, found))
    for key, value in before.items():
        assert after[key] == pytest.approx(value, rel=1e-2)
    kinds = {n[2:7]: a.dtype for n, a in published.read(output).arrays.items()}
    assert kinds == {"model": np.float16, "norma": np.float64}
    example = found.example()
    np.testing.assert_array_equal(example.target, cases[0].target)
    stored = published.read_config(output)["errors"]["example"]
    assert publish.errors_of(found, [example]) == pytest.approx(stored)


def test_half_precision_is_not_used_where_it_would_change_an_error(run, tmp_path):
    folder, cases = run
    trained = learn.load(folder)
    exact = [case._replace(target=trained(case) * (1 + 1e-6)) for case in cases]
    done = publish.run(PublishOptions(folder, tmp_path / "auto"), exact)
    assert done["precision"] == "single"
    options = PublishOptions(folder, tmp_path / "half", precision="half")
    with value_error("changes an error by .* --precision=single"):
        publish.run(options, exact)
    with value_error("precision=half needs test cases"):
        publish.run(options)


def test_the_card_has_what_a_reader_needs(half):
    output, _ = half
    card = (output / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: opjax\nlicense: "mit"\n')
    row, use = "| input field | k |", 'learn.load("squares")'
    for words in ("Sums.", "- Products.", use, row):
        assert words in card


def test_local_paths_are_not_published(run, half):
    (folder, _), (output, _) = run, half
    for file in ("README.md", "config.json"):
        assert str(folder.parent) not in (output / file).read_text()


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("opjax-train --train=/clients/acme/train", "opjax-train --train=train"),
        ("--train=../../acme/train --test=~/acme/test", "--train=train --test=test"),
        ("own files (/clients/acme/train)", "own files (train)"),
        ("/clients/acme/train", "train"),
        ("see [/clients/acme/train]", "see [train]"),
        ("data:/clients/acme/x", "data:x"),
        ("a;`~/acme/x`", "a;`x`"),
        ("--scales='S: load/(t)/E/2, p: U/2/rho'",) * 2,
    ],
)
def test_paths_are_shortened_and_formulas_kept(text, public):
    assert publish._public(text, {}) == public


def test_errors_of_all_seeds_and_provenance_are_those_of_the_study(run, tmp_path):
    _, cases = run
    study = tmp_path / "study"
    for seed in (3, 4):
        member = study / f"functional-{seed}"
        made = operator(np.random.default_rng(seed), member, seeds=(seed,))
        made.save(member)
        write_json(member / "result.json", {"validation": 1.0 / seed})
    rows = [{"relative_l2": 0.25, "seconds": 1.0}, {"relative_l2": 0.125}]
    write_json(study / "members.json", {"functional": rows})
    write_json(study / "config.json", {"seeds": [3, 4]})
    found = {"relative_l2": 0.5}
    result = {"data": "sums", "baselines": {"mean_field": found}}
    write_json(study / "result.json", result | {"baseline_wins": {}})
    facts = {"command": f"opjax-train --train={tmp_path}/there", "git_commit": "abc"}
    facts |= {"git_modified": True, "starts": ["2026-11-27T10:00:00"], "packages": {}}
    write_json(study / "environment.json", facts | {"processor": "Abacus"})
    for name, workdir in (("best", study), ("asked", study / "functional-3")):
        publish.run(PublishOptions(workdir, tmp_path / name), cases)
    best, asked = ((tmp_path / n / "README.md").read_text() for n in ("best", "asked"))
    assert "|  | seed 3 | seed 4 (this one) | mean field |" in best
    assert "| relative l2 | 0.25 | 0.125 | 0.5 |" in best
    assert "published: 4, the smallest validation error of all seeds" in best
    assert "published: 3, as asked for" in asked
    assert "- command: `opjax-train --train=there`" in best
    assert "- commit: abc with uncommitted changes" in best
    assert "- hardware: Abacus" in best


def test_unknown_names_list_the_operators_and_folders_take_precedence(
    half, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="burger .* ships with opjax: .*darcy"):
        learn.load("burger")
    assert named.resolve("darcy") == SHIPPED / "darcy"
    assert named.resolve("./darcy") == tmp_path.joinpath("darcy").relative_to(tmp_path)
    (tmp_path / "darcy").mkdir()
    with pytest.raises(FileNotFoundError, match="takes precedence over the operator"):
        learn.load("darcy")
    (tmp_path / "darcy").rmdir()
    (tmp_path / "darcy").symlink_to(half[0])
    assert learn.load("darcy").description.names["target"] == ["u"]


def test_the_hub_is_asked_only_for_its_prefix(half, monkeypatch):
    asked = []

    def snapshot_download(**given):
        asked.append(given)
        return str(half[0])

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    learn.load(half[0])
    assert not asked
    assert learn.load("hf://me/squares@v2").example().num_points == 20
    learn.load("hf://me/squares")
    files = list(published.FILES)
    assert asked == [
        {"repo_id": "me/squares", "revision": "v2", "allow_patterns": files},
        {"repo_id": "me/squares", "revision": None, "allow_patterns": files},
    ]
    with value_error("hf://squares.* must be hf://owner/name"):
        learn.load("hf://squares")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        learn.load("hf://me/squares")


def test_run_folders_have_no_example(run):
    with pytest.raises(FileNotFoundError, match=r"has no example\.npz"):
        learn.load(run[0]).example()


@pytest.mark.parametrize("name", sorted(learn.list_operators()))
def test_operators_that_ship_predict_with_the_error_on_their_card(name):
    trained = learn.load(name)
    config = published.read_config(SHIPPED / name)
    found = publish.errors_of(trained, [trained.example()])
    expected = config["errors"]["example"]
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-3, abs=1e-7)
    card = (SHIPPED / name / "README.md").read_text()
    for value in expected.values():
        assert f"{value:.4g}" in card
    assert config["licence"] == "mit"
    assert config["provenance"]["commit"]


def test_operators_that_ship_are_small():
    sizes = [f.stat().st_size for f in SHIPPED.rglob("*") if f.is_file()]
    assert sum(sizes) < 8e6
    pictures = [f.stat().st_size for f in SHIPPED.rglob("*.png")]
    assert all(size < 40_000 for size in pictures)
    assert set(learn.list_operators()) == {f.name for f in SHIPPED.iterdir()}
    assert all(json.loads((f / "config.json").read_text()) for f in SHIPPED.iterdir())


def test_without_safetensors_the_error_names_the_extra(half, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r"needs safetensors.*opjax\[learn\]"):
        learn.load(half[0])


def test_the_card_names_the_axes_of_a_plane(half):
    config = json.loads((half[0] / "config.json").read_text())
    for axes, second in (([], "y"), ([0, 2], "z")):
        config["operator"]["axes"] = axes
        lines = [
            line.split("|")[2].strip() for line in _ranges(config).splitlines()[2:4]
        ]
        assert lines == ["x", second]
