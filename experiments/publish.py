"""Puts the tables of finished runs on a page of `results/`, below its text.

    python -m experiments.publish --page=results/benchmarks.md \
        --runs=runs/elasticity-quick,runs/rna-quick

The page keeps all that is above its line `<!-- tables -->`; the rest is replaced by the
`tables.md` of the runs, each with its command, commit, hardware, seeds and data.
"""

import pathlib
from collections.abc import Sequence

from absl import app, flags

from experiments.options import console
from experiments.run_directory import write_text

MARK = "<!-- tables -->"

_PAGE = flags.DEFINE_string("page", None, "Page to write.", required=True)
_RUNS = flags.DEFINE_list("runs", None, "Folders of finished runs.", required=True)


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


def main(argv: Sequence[str]) -> None:
    """Publishes what the flags name."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    with console():
        publish(pathlib.Path(_PAGE.value), [pathlib.Path(r) for r in _RUNS.value])


if __name__ == "__main__":
    app.run(main)
