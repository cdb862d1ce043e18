"""Where lines may break on narrow screens, and what the list of contents shows."""

import re
from typing import Any

# Code between words, not a block: blocks follow <pre> or <pre><span></span>.
_INLINE = re.compile(r"(?<!<pre>)(?<!</span>)<code>([^<]+)</code>")
_FLAG = re.compile(r"(?<![^\s\[(])(--?\w[\w-]*)(=[\w./-]*)?")
_LONG = re.compile(r"[\w./]{14,}")  # names and paths
_WHOLE = 16  # letters of a flag and its value that stay together
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_NUMBER = re.compile(r"(?<=>)[^<]*\d")
_EXPONENT = re.compile(r"\d[\d.]*e-\d+")
_NAME = re.compile(r'(<span class="doc doc-object-name[^>]*>)([\w.]+)(</span>)')
# Pages of the API whose methods readers call; elsewhere they are steps of layers.
_METHODS = ("api/learn.md", "api/data.md")


def _whole(text: str) -> str:
    return f'<span class="whole">{text}</span>'


def _flag(found: re.Match) -> str:
    flag, value = found[1], found[2] or ""
    if len(found[0]) <= _WHOLE or not value:
        return _whole(found[0])
    return _whole(f"{flag}=") + "<wbr>" + _parts(value[1:])


def _parts(text: str) -> str:
    """Text with long names that may break between their parts."""
    return _LONG.sub(lambda name: re.sub(r"(?<=[./_])(?=\w)", "<wbr>", name[0]), text)


def _inline(found: re.Match) -> str:
    pieces, end = [], 0
    for flag in _FLAG.finditer(found[1]):
        pieces += [_parts(found[1][end : flag.start()]), _flag(flag)]
        end = flag.end()
    return f"<code>{''.join(pieces)}{_parts(found[1][end:])}</code>"


def _cell(found: re.Match) -> str:
    def numbers(text: re.Match) -> str:
        return _EXPONENT.sub(lambda number: _whole(number[0]), text[0])

    return _NUMBER.sub(numbers, found[0])


def _name(found: re.Match) -> str:
    return found[1] + found[2].replace(".", ".<wbr>") + found[3]


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Leaves methods of layers out of the list of contents, and names modules there.

    Modules, where two of a page have functions of one name.
    """
    if not page.file.src_uri.startswith("api/"):
        return content
    items = [item for top in page.toc for item in top.children]
    titles = [item.title for item in items]
    for item in items:
        if page.file.src_uri not in _METHODS:
            item.children = []
        if len(set(titles)) < len(titles):
            item.title = ".".join(item.id.split(".")[-2:])
    return content


def on_post_page(output: str, **_: Any) -> str:
    """Keeps flags and numbers together, and breaks long names between their parts.

    It comes after the search has its words.
    """
    output = _INLINE.sub(_inline, _CELL.sub(_cell, output))
    return _NAME.sub(_name, output)
