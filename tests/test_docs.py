"""The examples of the site run, and its commands exist."""

import ast
import contextlib
import dataclasses
import importlib
import inspect
import re
import shlex
import sys
import textwrap
from pathlib import Path

import jax
import pytest
from absl import flags

import opjax
from opjax import learn, nn

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BLOCK = re.compile(r"^( *)```(.*?)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
THEIRS = ".theirs"  # shown, and run by nobody here


def blocks(page, language):
    """Blocks of a page, behind as many empty lines as are above them."""
    whole = page.read_text()
    for found in BLOCK.finditer(whole):
        _, info, text = found.groups()
        words = info.strip(" {}").replace(".", " .").split()
        if THEIRS not in words and words and words[0].strip(".") == language:
            lines = whole.count("\n", 0, found.start(3))
            yield "\n" * lines + textwrap.dedent(text)


@pytest.fixture(scope="module")
def hooks():
    sys.path.insert(0, str(DOCS / "hooks"))
    names = ("breaks", "drawings", "generated", "programs")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(DOCS / "hooks"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a reader of the Start page is after its commands."""
    from opjax.datasets import heat
    from opjax.learn.cli import train

    place = tmp_path_factory.mktemp("reader")
    config = dataclasses.replace(train.PRESETS["smoke"], num_epochs=1)
    with contextlib.chdir(place), jax.numpy_dtype_promotion("standard"):
        heat.write("data/new", 1, seed=1)
        with jax.numpy_rank_promotion("allow"), jax.enable_x64(False):
            train.run(config, workdir="runs/mine")
    return place


@pytest.mark.nightly
def test_every_python_example_of_the_site_runs(folder):
    for page in PAGES:
        names = {}
        for code in blocks(page, "python"):
            # A user's session is neither strict nor in double precision.
            with (
                contextlib.chdir(folder),
                jax.enable_x64(False),
                jax.numpy_dtype_promotion("standard"),
                jax.numpy_rank_promotion("allow"),
            ):
                exec(compile(code, str(page), "exec"), names)


def test_tests_that_check_propositions_exist():
    page = (ROOT / "results" / "propositions.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 30
    for file, name in named:
        assert f"\ndef {name}(" in (ROOT / file).read_text(), f"{file}::{name}"


def commands():
    for page in [*PAGES, ROOT / "README.md"]:
        for text in blocks(page, "bash"):
            for line in text.replace("\\\n", " ").splitlines():
                yield page, line.partition(" #")[0]


def test_every_command_of_the_site_exists(hooks):
    known = hooks["programs"].commands()
    seen = set()
    for page, line in commands():
        for part in line.split("&&"):
            words = shlex.split(part)
            if words[:2] == ["python", "-m"] and words[2].startswith("experiments."):
                command, given = " ".join(words[:3]), words[3:]
            elif words and words[0].startswith("opjax-"):
                command, given = words[0], words[1:]
            else:
                assert not words or words[0] in {
                    "python",
                    "python3",
                    "source",
                    "git",
                }, line
                continue
            assert command in known, f"{page}: {line}"
            module = importlib.import_module(known[command])
            found = hooks["programs"].flags_of(module)
            values = flags.FlagValues()
            for flag in (flag for group in found.values() for flag in group):
                values[flag.name] = flag
            seen.add(command)
            operands = values([command, *given])[1:]
            assert len(operands) == (command == "opjax-check"), f"{page}: {line}"
    programs = {"check", "train", "predict", "report", "calibrate"}
    assert {f"opjax-{name}" for name in programs} < seen


def docstrings():
    """Module docstrings that `--help` prints or that the site shows, by file."""
    for folder in ("benchmarks", "experiments", "opjax/learn"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.get_docstring(ast.parse(path.read_text())) or ""


def test_commands_of_docstrings_keep_their_line_breaks(hooks):
    """A backslash at the end of a line, unless raw, would join it to the next one."""
    texts = {uri: text for uri, _, text in hooks["programs"].pages()}
    assert "--feature_names=k,f \\\n" in texts["programs/opjax-train.md"]
    for place, text in [*texts.items(), *docstrings()]:
        joined = re.findall(r"^ {4}.*\S {2,}--.*$", text, re.MULTILINE)
        assert not joined, f"{place}: {joined}"


def test_every_public_name_is_in_the_api(hooks):
    pages = "\n".join(text for *_, text in hooks["generated"].api_pages())
    shown = set(re.findall(r"^::: \S+\.(\w+)$", pages, re.MULTILINE))
    for module in (opjax, nn, learn):
        found = {n for n in module.__all__ if not inspect.ismodule(getattr(module, n))}
        assert found <= shown


def test_drawings_are_those_of_their_script(hooks):
    for name, draw in hooks["drawings"].DRAWINGS.items():
        assert (DOCS / "drawings" / f"{name}.svg").read_text() == draw()


def test_every_how_to_page_has_a_picture():
    for page in sorted((DOCS / "how-to").glob("*.md")):
        pictures = re.findall(r"!\[[^\]]+\]\((\S+)\)", page.read_text())
        sizes = [(page.parent / name).stat().st_size for name in pictures]
        assert sizes, page
        assert max(sizes) <= 60_000, page


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("<code>darcy --preset=fast</code>", ["darcy --preset=fast"]),
        ("<code>--start_from=baseline</code>", ["--start_from=", "baseline"]),
        ("<code>opjax.nn.attention</code>", ["opjax.", "nn.", "attention"]),
        ("<pre><span></span><code>--start_from=baseline</code></pre>", None),
        ("<code>x - y</code>", ["x - y"]),
        ("<td>1.5e-3 [1e-3, 2e-3]</td>", ["1.5e-3 [1e-3, 2e-3]"]),
    ],
)
def test_lines_break_between_parts_of_names_and_nowhere_else(text, lines, hooks):
    output = hooks["breaks"].on_post_page(text)
    plain = re.sub(r"</?span[^>]*>", "", output)
    assert plain.replace("<wbr>", "") == re.sub(r"</?span[^>]*>", "", text)  # copied
    if lines is None:
        assert output == text
        return
    assert re.sub(r"</?(code|td)>", "", plain).split("<wbr>") == lines
    for part in re.findall(r"\S*-\S*", " ".join(lines).replace("x - y", "")):
        assert part.strip("[],") in re.findall(r'"whole">([^<]*)', output)


def test_formulas_of_docstrings_become_latex():
    pytest.importorskip("latex2mathml", reason="needs `pip install 'opjax[docs]'`")
    sys.path.insert(0, str(DOCS / "hooks"))
    formulas = importlib.import_module("formulas")
    sys.path.remove(str(DOCS / "hooks"))
    text = "C = argmin_C |C K - Q|_F^2 + ridge |C|_F^2"
    source = formulas.latex(text)
    fit, penalty = r"|C K - Q|_{F}^{2}", r"\mathrm{ridge}\, |C|_{F}^{2}"
    assert source == rf"C = \operatorname{{argmin}}_{{C}} {fit} + {penalty}"
    assert formulas.latex("sum_i R_i^T D_i") == r"\sum _{i} R_{i}^{T} D_{i}"
    assert "<msubsup>" in formulas.mathml(source, display=True)
