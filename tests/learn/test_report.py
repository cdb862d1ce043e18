"""Pages of results: what is kept, what is embedded, and that nothing runs in them."""

import base64
import pathlib
import subprocess
import sys

import pytest

from opjax.learn import tables
from opjax.learn.cli import report
from tests.refused import value_error

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJ"
    "RU5ErkJggg=="
)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    (folder / "figures").mkdir(parents=True)
    (folder / "tables.md").write_text("# Pipe\n\n| a |\n")
    (folder / "figures" / "curves.png").write_bytes(PNG)
    return folder


def test_a_page_keeps_its_text_and_gets_new_tables(tmp_path, run):
    page = tmp_path / "results" / "page.md"
    (run / "tables.md").unlink()
    with pytest.raises(FileNotFoundError, match="unfinished"):
        report.report(page, [run])
    (run / "tables.md").write_text("# Pipe\n\n| a |\n")
    report.report(page, [run])
    page.write_text("# Title\n\nText.\n\n" + page.read_text())
    (run / "tables.md").write_text("# Pipe\n\n| b |\n")
    report.report(page, [run, run])
    assert page.read_text() == (
        "# Title\n\nText.\n\n<!-- tables -->\n\n## Pipe: run\n\n| b |\n\n"
        "## Pipe: run\n\n| b |\n"
    )
    page.write_text("text without a mark")
    with value_error("must have one line"):
        report.report(page, [run])


def test_figures_are_beside_the_page_and_inside_the_html(tmp_path, run):
    page = tmp_path / "results" / "page.md"
    result = report.report(page, [run], html=True, figures=True)
    assert result["html"] == str(tmp_path / "results" / "page.html")
    assert "](page-figures/1-run-curves.png)" in page.read_text()
    copied = tmp_path / "results" / "page-figures" / "1-run-curves.png"
    assert copied.read_bytes() == PNG
    text = pathlib.Path(result["html"]).read_text()
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in text
    assert "<h2>Pipe</h2>" in text
    assert 'name="viewport"' in text
    assert "http:" not in text
    assert "https:" not in text


def test_figures_of_a_member_stand_for_a_run_without_its_own(tmp_path, run):
    member = run / "functional-0"
    (run / "figures").rename(tmp_path / "figures")
    member.mkdir()
    (member / "result.json").write_text("{}")
    (tmp_path / "figures").rename(member / "figures")
    report.report(tmp_path / "page.md", [run], figures=True)
    assert (tmp_path / "page-figures" / "1-run-curves.png").is_file()


def test_nothing_in_a_file_becomes_a_tag(tmp_path, run):
    bad = "<script>alert(1)</script>"
    text = f"# A {bad}\n\n- x \\`a`{bad}`\n- [a](javascript:alert(1))\n\n"
    text += tables.table([bad], [[f"a|b {bad}"]]) + f"\n![{bad}](../../secret.png)\n"
    (run / "tables.md").write_text(text)
    page = tmp_path / "page.md"
    report.report(page, [run], html=True)
    assert "<script" not in page.read_text()
    html = (tmp_path / "page.html").read_text()
    assert "<script" not in html
    assert "<a " not in html
    assert html.count("<img") == 1  # the run's own figure
    assert "<td>a|b &lt;script&gt;" in html


def test_a_command_of_the_page_can_be_copied(tmp_path, run):
    command = "- command: `opjax-train --boundary='low: x < 1e-6 & y <= 2'`"
    (run / "tables.md").write_text(f"# Run\n\n{command} and a &lt;\n")
    report.report(tmp_path / "page.md", [run])
    text = (tmp_path / "page.md").read_text()
    assert command in text
    assert "a &amp;lt;" in text


def test_markdown_of_the_programs_becomes_html():
    text = "\n".join(
        [
            "# Title",
            "",
            "Two **bold**",
            "lines, `a < b`, [a page](https://example.org/x).",
            "",
            "- one",
            "  more",
            "- two",
            "",
            "```",
            "- code <b>",
            "```",
            "| a | b |",
            "| --- | --- |",
            "| 1 | 2 |",
        ]
    )
    html = report.to_html(text, {})
    assert "<title>Title</title>" in html
    expected = [
        "<p>Two <strong>bold</strong>\nlines, <code>a &lt; b</code>, "
        '<a href="https://example.org/x">a page</a>.</p>',
        "<ul><li>one\nmore</li><li>two</li></ul>",
        "<pre><code>- code &lt;b&gt;\n</code></pre>",
        "<thead><tr><th>a</th><th>b</th></tr></thead>"
        "<tbody><tr><td>1</td><td>2</td></tr></tbody>",
    ]
    for part in expected:
        assert part in html.replace(">\n<", "><")


@pytest.mark.nightly
def test_the_program_reports_a_bad_run(tmp_path):
    command = [sys.executable, "-m", "opjax.learn.cli.report"]
    command += [f"--page={tmp_path}/page.md", f"--runs={tmp_path}/none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "unfinished" in done.stderr
    assert "Traceback" not in done.stderr


def test_figures_asked_for_are_above_the_tables(tmp_path, run):
    (run / "figures" / "other.png").write_bytes(PNG)
    page = tmp_path / "page.md"
    report.report(page, [run], shown=["curves"])
    text = page.read_text()
    title, image, table = (text.index(words) for words in ("\n## ", "![", "| "))
    assert title < image < table
    assert "other" not in text
    with value_error("no figure none; .* curves, other"):
        report.report(page, [run], shown=["none"])
