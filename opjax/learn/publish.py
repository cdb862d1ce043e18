"""Puts the tables of finished runs on a page of `results/`, below its text.

    python -m experiments.publish --page=results/benchmarks.md \
        --runs=runs/elasticity-quick,runs/rna-quick

The page keeps all that is above its line `<!-- tables -->`; the rest is replaced by the
`tables.md` of the runs, each with its command, commit, hardware, seeds and data.
"""

import pathlib
from collections.abc import Sequence

from absl import app, flags

from opjax.learn.folder import write_text
from opjax.learn.options import console

MARK = "<!-- tables -->"


def publish(page: pathlib.Path, runs: Sequence[pathlib.Path]) -> None:
    """Replaces the tables of a page.

    Args:
      page: Markdown file; created if missing.
      runs: folders with a `tables.md`.

    Raises:
      FileNotFoundError: if a run has no tables: it is not finished.
      ValueError: if the page has text but no mark.
    """
    text = page.read_text() if page.exists() else f"{MARK}\n"
    if text.count(MARK) != 1:
        raise ValueError(f"{page} must have one line {MARK!r}, above the tables.")
    parts = [text.split(MARK)[0] + MARK + "\n"]
    for run in runs:
        tables = run / "tables.md"
        if not tables.is_file():
            raise FileNotFoundError(f"{tables} does not exist: the run is unfinished.")
        lines = tables.read_text().rstrip().splitlines()
        # One level deeper: the page has a title of its own.
        lines = [f"#{line}" if line.startswith("#") else line for line in lines]
        parts.append("\n".join(lines) + "\n")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, "\n".join(parts))


def main() -> None:
    """Publishes what the flags name."""
    flags.DEFINE_string("page", None, "Page to write.", required=True)
    flags.DEFINE_list("runs", None, "Folders of finished runs.", required=True)
    app.run(_main)


def _main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    given = flags.FLAGS
    with console():
        publish(pathlib.Path(given.page), [pathlib.Path(r) for r in given.runs])
