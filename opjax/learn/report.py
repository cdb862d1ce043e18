r"""Puts finished runs on one page: tables, where they come from, and figures.

    opjax-report --runs=runs/darcy-quick,runs/rna-quick --page=results/page.md --html

The Markdown page keeps all that is above its line `<!-- tables -->`; the rest is
replaced by the `tables.md` of the runs, each with its command, commit, hardware, seeds
and data. With `--figures` their figures are copied beside the page, into a folder of
its name, and shown. With `--html` the page is written as HTML too, in one file with all
figures inside, to be sent or read anywhere.
"""

import pathlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

from absl import flags

from opjax.learn import options, pages
from opjax.learn.json_files import replacing, write_text

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
    beside = page.with_name(f"{page.stem}-figures") if figures else None
    write_text(page, _joined(head, escaped, runs, beside))
    written = {"page": str(page), "runs": len(tables)}
    if html:
        target = page.with_suffix(".html")
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            markdown = _joined(head, tables, runs, root / "figures")
            write_text(target, pages.to_html(markdown, folder=root))
        written["html"] = str(target)
    return written


def _tables(run: pathlib.Path) -> str:
    """The tables of a run, its headings one level deeper: the page has a title."""
    tables = run / "tables.md"
    if not tables.is_file():
        raise FileNotFoundError(f"{tables} does not exist: the run is unfinished.")
    return re.sub("^#", "##", tables.read_text().rstrip(), flags=re.MULTILINE) + "\n"


def _joined(
    head: str,
    tables: Sequence[str],
    runs: Sequence[pathlib.Path],
    beside: pathlib.Path | None,
) -> str:
    """The page; figures of all runs are copied to a folder, if there is one."""
    parts = [head]
    for number, (text, run) in enumerate(zip(tables, runs, strict=True), start=1):
        parts.append(text)
        for figure in [] if beside is None else _figures(run):
            assert beside is not None
            name = re.sub(r"[^\w.-]", "_", f"{number}-{run.name}-{figure.name}")
            beside.mkdir(parents=True, exist_ok=True)
            with replacing(beside / name) as temporary:
                shutil.copyfile(figure, temporary)
            caption = re.sub(r"[^\w ]", " ", f"{run.name} {figure.stem}")
            parts.append(f"![{caption}]({beside.name}/{name})\n")
    return "\n".join(parts)


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
    given = flags.FLAGS

    def work() -> dict[str, Any]:
        page, *runs = (pathlib.Path(p).expanduser() for p in [given.page, *given.runs])
        return report(page, runs, html=given.html, figures=given.figures)

    options.start(work)


if __name__ == "__main__":
    main()
