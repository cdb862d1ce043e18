r"""Puts finished runs on one page: tables, where they come from, and figures.

    opjax-report --runs=runs/darcy-quick,runs/rna-quick --page=results/page.md --html

The Markdown page keeps all that is above its line `<!-- tables -->`; the rest is
replaced by the `tables.md` of the runs, each with its command, commit, hardware, seeds
and data. With `--figures` their figures are copied beside the page, into a folder of
its name, and shown. With `--html` the page is written as HTML too, in one file with all
figures inside, to be sent or read anywhere.
"""

import json
import pathlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from opjax.learn import pages
from opjax.learn.json_files import replacing, write_text
from opjax.learn.options import console

MARK = "<!-- tables -->"


def report(
    page: pathlib.Path,
    runs: Sequence[pathlib.Path],
    *,
    html: bool = False,
    figures: bool = False,
) -> dict[str, Any]:
    """Writes a page of any number of runs.

    Args:
      page: Markdown file; created if missing.
      runs: folders with a `tables.md`.
      html: write `<page>.html` beside it too, with figures.
      figures: show figures in the Markdown page too, from the folder
        `<page>-figures` beside it.

    Returns:
      What the last line of the program says.

    Raises:
      FileNotFoundError: if a run has no tables: it is not finished.
      OSError: if a file cannot be read or written.
      ValueError: if the page has text but no mark.
    """
    text = page.read_text() if page.exists() else f"{MARK}\n"
    if text.count(MARK) != 1:
        raise ValueError(f"{page} must have one line {MARK!r}, above the tables.")
    head = text.split(MARK)[0] + MARK + "\n"
    tables = [_tables(run) for run in runs]
    # For readers of Markdown that take tags for HTML; in `code` too, where it is ugly.
    escaped = [t.replace("&", "&amp;").replace("<", "&lt;") for t in tables]
    page.parent.mkdir(parents=True, exist_ok=True)
    beside = page.with_name(f"{page.stem}-figures")
    shown = _shown(runs, beside) if figures else [""] * len(tables)
    write_text(page, "\n".join([head, *map(_joined, escaped, shown)]))
    written = {"page": str(page), "runs": len(tables)}
    if html:
        target = page.with_suffix(".html")
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            shown = _shown(runs, root / "figures")
            markdown = "\n".join([head, *map(_joined, tables, shown)])
            write_text(target, pages.to_html(markdown, folder=root))
        written["html"] = str(target)
    return written


def _joined(tables: str, shown: str) -> str:
    return f"{tables}\n{shown}" if shown else tables


def _tables(run: pathlib.Path) -> str:
    """The tables of a run, its headings one level deeper: the page has a title."""
    tables = run / "tables.md"
    if not tables.is_file():
        raise FileNotFoundError(f"{tables} does not exist: the run is unfinished.")
    lines = tables.read_text().rstrip().splitlines()
    lines = [f"#{line}" if line.startswith("#") else line for line in lines]
    return "\n".join(lines) + "\n"


def _shown(runs: Sequence[pathlib.Path], beside: pathlib.Path) -> list[str]:
    """Copies the figures of all runs; returns the Markdown that shows them, by run."""
    found = []
    for number, folder in enumerate(runs, start=1):
        lines = []
        for figure in _figures(folder):
            name = re.sub(r"[^\w.-]", "_", f"{number}-{folder.name}-{figure.name}")
            beside.mkdir(parents=True, exist_ok=True)
            with replacing(beside / name) as temporary:
                shutil.copyfile(figure, temporary)
            caption = re.sub(r"[^\w ]", " ", f"{folder.name} {figure.stem}")
            lines.append(f"![{caption}]({beside.name}/{name})\n")
        found.append("\n".join(lines))
    return found


def _figures(folder: pathlib.Path) -> list[pathlib.Path]:
    """Figures of a run; those of its only member where it has none of its own."""
    found = sorted([*folder.glob("*.png"), *folder.glob("figures/*.png")])
    members = sorted(path.parent for path in folder.glob("*/result.json"))
    if not found and members:
        found = sorted(members[0].glob("figures/*.png"))
    return found


def main() -> None:
    """Writes the page that the flags ask for."""
    flags.DEFINE_string("page", None, "Markdown page to write.", required=True)
    flags.DEFINE_list("runs", None, "Folders of finished runs.", required=True)
    flags.DEFINE_bool("html", False, "Write an HTML page with figures beside it too.")
    flags.DEFINE_bool("figures", False, "Show figures in the Markdown page too.")
    app.run(_main)


def _main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    given = flags.FLAGS
    with console():
        result = report(
            pathlib.Path(given.page).expanduser(),
            [pathlib.Path(run).expanduser() for run in given.runs],
            html=given.html,
            figures=given.figures,
        )
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
