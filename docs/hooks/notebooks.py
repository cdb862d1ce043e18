"""Pages of the notebooks, from their committed outputs, and a gallery of them.

A notebook prints what it has found on lines that begin with `Result: `. The gallery
shows them; `python docs/hooks/notebooks.py` prints them as a table.
"""

import base64
import json
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
_LONGEST = 30  # lines of an output that are shown
_RESULT = "Result: "
_HEAD = """# Notebooks

Lessons that run on one CPU core. Each page shows what the committed notebook printed
and drew. Errors and times are those of the last run that was committed. Times are
CPU time with compilation. `python -m tests.notebooks` runs all of them again.

<div class="grid" markdown>
"""
_TABLE = """## What they find

Printed by the notebooks themselves, and collected by `python docs/hooks/notebooks.py`.
"""


class Notebook(NamedTuple):
    """A notebook as pages of the site.

    Attributes:
      name: of the file, without its ending.
      title: first heading.
      text: of the page.
      pictures: by their addresses.
      results: what it has found, by its last run.
      cpu_seconds: of its last run.
    """

    name: str
    title: str
    text: str
    pictures: dict[str, bytes]
    results: list[str]
    cpu_seconds: int | None

    @property
    def duration(self) -> str:
        """CPU time of the last run, in words."""
        return f"{self.cpu_seconds} s" if self.cpu_seconds is not None else ""


def _shown(text: str) -> str:
    """An output in a block, in the middle of which lines may be left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    if len(lines) > _LONGEST:
        half = _LONGEST // 2
        lines = [*lines[:half], "...", *lines[-half:]]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def _read(path: pathlib.Path) -> Notebook:
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    results: list[str] = []
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source + "\n")
            continue
        parts.append(f"```python\n{source}\n```\n")
        printed = _printed(cell["outputs"])
        parts.append(_shown(printed))
        lines = printed.splitlines()
        results += [line[len(_RESULT) :] for line in lines if line.startswith(_RESULT)]
        for output in cell["outputs"]:
            if picture := output.get("data", {}).get("image/png"):
                uri = f"notebooks/{path.stem}_{len(pictures)}.png"
                pictures[uri] = base64.b64decode("".join(picture))
                parts.append(
                    f"![Picture of the cell above]({pathlib.Path(uri).name})\n"
                )
    title = parts[0].partition("\n")[0].removeprefix("# ")
    link = f"[Download the notebook]({path.name})"
    parts[0] = parts[0].replace("\n", f"\n\n{link}\n", 1)
    seconds = notebook["metadata"].get("cpu_seconds")
    return Notebook(path.stem, title, "\n".join(parts), pictures, results, seconds)


def _printed(outputs: list[dict[str, Any]]) -> str:
    """What a cell printed."""
    return "".join("".join(output.get("text", ())) for output in outputs)


def notebooks() -> list[Notebook]:
    """All notebooks in the order of their numbers."""
    return [_read(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


def gallery(pages: list[Notebook]) -> str:
    """The page with last picture, results, time and file of each notebook."""
    return "\n".join([_HEAD, *map(_card, pages), "</div>\n", _TABLE, table(pages)])


def _card(page: Notebook) -> str:
    link, number = f"{page.name}.md", page.name.partition("_")[0]
    parts = [f"**[{number}  {page.title}]({link})**", *page.results]
    if page.pictures:
        picture = pathlib.Path(list(page.pictures)[-1]).name
        parts.insert(0, f"[![{page.title}]({picture})]({link})")
    time = f"{page.duration} of CPU time · " if page.duration else ""
    parts.append(f"{time}[download]({page.name}.ipynb)")
    return "<div markdown>\n\n" + "\n\n".join(parts) + "\n\n</div>\n"


def table(pages: list[Notebook]) -> str:
    """A row for each notebook: what it has found, and its time."""
    rows = ["| notebook | result | CPU time |", "| --- | --- | ---: |"]
    for page in pages:
        found = "; ".join(page.results)
        link = f"[{page.name.replace('_', ' ')}]({page.name}.md)"
        rows.append(f"| {link} | {found} | {page.duration} |")
    return "\n".join([*rows, ""])


def pages() -> Iterator[tuple[str, str, str]]:
    """Address, title and text of every page."""
    known = notebooks()
    yield "notebooks/index.md", "", gallery(known)
    for page in known:
        yield f"notebooks/{page.name}.md", page.title, page.text


def files() -> Iterator[tuple[str, bytes]]:
    """Address and content of the pictures, and of the notebooks themselves."""
    for page in notebooks():
        yield from page.pictures.items()
        path = ROOT / "notebooks" / f"{page.name}.ipynb"
        yield f"notebooks/{path.name}", path.read_bytes()


if __name__ == "__main__":
    print(table(notebooks()))
