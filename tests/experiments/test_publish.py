import subprocess
import sys

import pytest

from opjax.learn import publish


def test_a_page_keeps_its_text_and_gets_new_tables(tmp_path):
    run, page = tmp_path / "run", tmp_path / "results" / "page.md"
    run.mkdir()
    with pytest.raises(FileNotFoundError, match="unfinished"):
        publish.publish(page, [run])
    (run / "tables.md").write_text("# Pipe\n\n| a |\n")
    publish.publish(page, [run])
    page.write_text("# Title\n\nText.\n\n" + page.read_text())
    (run / "tables.md").write_text("# Pipe\n\n| b |\n")
    publish.publish(page, [run, run])
    assert page.read_text() == (
        "# Title\n\nText.\n\n<!-- tables -->\n\n## Pipe\n\n| b |\n\n## Pipe\n\n| b |\n"
    )
    page.write_text("text without a mark")
    with pytest.raises(ValueError, match="must have one line"):
        publish.publish(page, [run])


def test_the_program_reports_a_bad_run(tmp_path):
    command = [sys.executable, "-m", "experiments.publish"]
    command += [f"--page={tmp_path}/page.md", f"--runs={tmp_path}/none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "unfinished" in done.stderr
    assert "Traceback" not in done.stderr
