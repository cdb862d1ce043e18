r"""Combines finished runs on one page: tables, provenance and figures.

    opjax-report --runs=runs/darcy-quick,runs/rna-quick --page=results/page.md --html

Everything above the line `<!-- tables -->` of an existing Markdown page is kept. The
rest is replaced by the tables of the runs, each with its command, commit, hardware,
seeds and data. `--figures` copies the figures of the runs into the folder of the page
and shows them above the tables. `--shown=seeds,fields` selects some of them. `--html`
writes one self-contained HTML file with all figures.
"""

import base64
import dataclasses
import html as markup
import pathlib
import re
import shutil
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from opjax._files import remove_leftovers
from opjax.files.formats import OnePath
from opjax.learn.cli import command_line
from opjax.learn.config import Options, option
from opjax.learn.config.fields import required
from opjax.learn.json_files import replacing, write_text

MARK = "<!-- tables -->"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; margin-top: 2rem; }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8886; padding: .25rem .6rem; text-align: left;
  white-space: nowrap; }
code { font-size: .9em; background: #8882; border-radius: .2rem; padding: 0 .2rem; }
pre { overflow-x: auto; background: #8882; padding: .6rem; }
pre code { background: none; }
img { max-width: 100%; height: auto; background: #fff; }
small { display: block; opacity: .8; margin-bottom: 1.5rem; }
ul { padding-left: 1.2rem; }
p:has(img) { overflow-x: auto; }
@media (max-width: 40rem) { img { max-width: 44rem; }
  small { position: sticky; left: 0; } }
@media print { h2 { break-before: page; } img, tr { break-inside: avoid; } }
""".strip()
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def report(
    page: pathlib.Path,
    runs: Sequence[pathlib.Path],
    *,
    html: bool = False,
    figures: bool = False,
    shown: Sequence[str] = (),
) -> dict[str, Any]:
    """Writes a page of any number of runs.

    Args:
      page: Markdown file; created if missing.
      runs: folders that contain a `tables.md`.
      html: also write `<page>.html`, with figures.
      figures: also show figures in the Markdown page. They are stored in the folder
        `<page>-figures` beside it.
      shown: names of the figures to show, in this order; all if empty.

    Returns:
      The content of the last line of output.
    """
    text = page.read_text() if page.exists() else f"{MARK}\n"
    if text.count(MARK) != 1:
        raise ValueError(f"{page} must have one line {MARK!r}, above the tables.")
    head = text.split(MARK)[0] + MARK + "\n"
    tables = [_tables(run) for run in runs]
    escaped = [_without_tags(table) for table in tables]
    page.parent.mkdir(parents=True, exist_ok=True)
    beside = page.with_name(f"{page.stem}-figures") if figures or shown else None
    remove_leftovers(page.parent, page.stem)
    if beside is not None:
        remove_leftovers(beside)
    taken: dict[str, pathlib.Path] = {}
    text = _joined(head, escaped, runs, taken, shown, beside and beside.name)
    for name, figure in taken.items():
        target = page.parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            shutil.copyfile(figure, temporary)
    write_text(page, text)
    written = {"page": str(page), "runs": len(tables)}
    if html:
        target, taken = page.with_suffix(".html"), {}
        markdown = _joined(
            head, tables, runs, taken, shown, "figures", tables_first=True
        )
        write_text(target, to_html(markdown, taken))
        written["html"] = str(target)
    return written


def _without_tags(text: str) -> str:
    """Tags and entities as text, for readers of Markdown that take them for HTML.

    A condition `x < 1e-6` is neither, so that commands can be copied.
    """
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return re.sub(r"<(?![\s\d=])", "&lt;", text)


def _tables(run: pathlib.Path) -> str:
    """The tables of a run, its headings one level deeper: the page has a title."""
    tables = run / "tables.md"
    if not tables.is_file():
        raise FileNotFoundError(
            f"{tables} does not exist, because the run is unfinished."
        )
    return re.sub("^#", "##", tables.read_text().rstrip(), flags=re.MULTILINE) + "\n"


def _joined(
    head: str,
    tables: Sequence[str],
    runs: Sequence[pathlib.Path],
    taken: dict[str, pathlib.Path],
    shown: Sequence[str],
    folder: str | None,
    *,
    tables_first: bool = False,
) -> str:
    """The page; names in a folder, if there is one, of the figures that it takes."""
    parts = [head]
    for number, (text, run) in enumerate(zip(tables, runs, strict=True), start=1):
        title, _, text = text.partition("\n")
        parts.append(f"{title}: {run.name}\n" if len(runs) > 1 else f"{title}\n")
        drawn: list[str] = []
        for figure in [] if folder is None else _figures(run, shown):
            name = re.sub(r"[^\w.-]", "_", f"{number}-{run.name}-{figure.name}")
            taken[f"{folder}/{name}"] = figure
            words = figure.stem.replace("_", " ").capitalize()
            caption = re.sub(r"[^\w, ]", " ", f"{words}, run {run.name}")
            drawn.append(f"![{caption}]({folder}/{name})\n")
        written = [text.lstrip("\n")]
        parts += [*written, *drawn] if tables_first else [*drawn, *written]
    return "\n".join(parts)


def _figures(folder: pathlib.Path, shown: Sequence[str]) -> list[pathlib.Path]:
    """Figures of a run; those of its only member where it has none of its own."""
    files = sorted([*folder.glob("*.png"), *folder.glob("figures/*.png")])
    members = sorted(path.parent for path in folder.glob("*/result.json"))
    if not files and members:
        files = sorted(members[0].glob("figures/*.png"))
    if not shown:
        return files
    by_stem = {figure.stem: figure for figure in files}
    if unknown := [name for name in shown if name not in by_stem]:
        raise ValueError(
            f"{folder} has no figure {', '.join(unknown)}; --shown may name "
            f"{', '.join(by_stem) or 'none: the run has no figures'}."
        )
    return [by_stem[name] for name in shown]


def to_html(text: str, images: Mapping[str, pathlib.Path]) -> str:
    """Converts Markdown to one HTML page without external resources.

    All text is escaped, so nothing in a file becomes a tag or a script. `.png` images
    whose name is in `images` are embedded in the page. Other images are replaced by
    their captions.
    """
    from markdown_it import MarkdownIt

    def image(_: object, tokens: Sequence[Any], index: int, *more: object) -> str:
        token = tokens[index]
        path = images.get(urllib.parse.unquote(token.attrs["src"]))
        shown = markup.escape(token.content)
        if path is None:
            return shown
        content = base64.b64encode(path.read_bytes()).decode()
        source = f"data:image/png;base64,{content}"
        return f'<img alt="{shown}" src="{source}"><small>{shown}</small>'

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("image", image)
    text = re.sub("^<!--.*-->$", "", text, flags=re.MULTILINE)
    title = next((t[2:] for t in text.splitlines() if t.startswith("# ")), "Results")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup.escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n"
        f"<body>\n{markdown.render(text)}</body>\n</html>\n"
    )


@dataclasses.dataclass(frozen=True)
class ReportOptions(Options):
    """Options of the report: the page and its runs."""

    page: OnePath = required("Markdown page to write")
    runs: tuple[OnePath, ...] = required(
        "Folders of finished runs, separated by commas"
    )
    html: bool = option(False, "Write an HTML page with all figures inside as well")
    figures: bool = option(False, "Show figures in the Markdown page as well")
    shown: tuple[str, ...] = option(
        (),
        "Names of the figures to show, as in the run's folder figures. If empty, all",
    )


def run(options: ReportOptions) -> dict[str, Any]:
    """Writes the page according to the options, see `report`."""
    page, *runs = (pathlib.Path(p).expanduser() for p in (options.page, *options.runs))
    return report(
        page, runs, html=options.html, figures=options.figures, shown=options.shown
    )


def main() -> None:
    """Writes the page according to the flags."""
    command_line.launch(ReportOptions, run, doc=__doc__)


if __name__ == "__main__":
    main()
