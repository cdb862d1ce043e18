"""Pages of the notebooks, from their committed outputs, and a gallery of them."""

import base64
import json
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
_LONGEST = 30  # lines of an output that are shown
_HEAD = """# Notebooks

Lessons that run on two CPU cores. Each page shows what the committed notebook printed
and drew; the files are in `notebooks/`, as `.ipynb` and as `.py`.

<div class="grid" markdown>
"""


class Notebook(NamedTuple):
    """A notebook as pages of the site.

    Attributes:
      name: of the file, without its ending.
      title: first heading.
      text: of the page.
      pictures: by their addresses.
    """

    name: str
    title: str
    text: str
    pictures: dict[str, bytes]


def _shown(text: str) -> str:
    """An output in a block, in the middle of which lines may be left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > _LONGEST:
        half = _LONGEST // 2
        lines = [*lines[:half], "...", *lines[-half:]]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def _read(path: pathlib.Path) -> Notebook:
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source + "\n")
            continue
        parts.append(f"```python\n{source}\n```\n")
        parts.append(_printed(cell["outputs"]))
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
    return Notebook(path.stem, title, "\n".join(parts), pictures)


def _printed(outputs: list[dict[str, Any]]) -> str:
    """What a cell printed, in one block."""
    text = "".join("".join(output.get("text", ())) for output in outputs)
    return _shown(text) if text.strip() else ""


def notebooks() -> list[Notebook]:
    """All notebooks in the order of their numbers."""
    return [_read(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


def gallery(pages: list[Notebook]) -> str:
    """The page with the last picture of each notebook."""
    parts = [_HEAD]
    for page in pages:
        link = f"{page.name}.md"
        picture = pathlib.Path(list(page.pictures)[-1]).name if page.pictures else ""
        image = f"[![{page.title}]({picture})]({link})\n\n" if picture else ""
        number = page.name.partition("_")[0]
        parts.append(
            f"<div markdown>\n\n{image}**[{number}  {page.title}]({link})**\n\n</div>\n"
        )
    return "\n".join([*parts, "</div>\n"])


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
