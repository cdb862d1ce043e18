"""Where lines may break on narrow screens, and what the list of contents shows."""

import re
from typing import Any

# Code between words, not a block: blocks follow <pre> or <pre><span></span>.
_INLINE = re.compile(r"(?<!<pre>)(?<!</span>)<code>([^<]+)</code>")
_FLAG = re.compile(r"(?<![^\s\[(])--?\w[\w-]*=?")
_LONG = re.compile(r"[\w./]{14,}")  # names and paths
_NAME = re.compile(r'(<span class="doc doc-object-name[^>]*>)([\w.]+)(</span>)')
# Pages of the API whose methods readers call; elsewhere they are steps of layers.
_METHODS = ("api/learn.md", "api/data.md")


def _inline(found: re.Match) -> str:
    text = _LONG.sub(lambda name: re.sub(r"(?<=[./_])(?=\w)", "<wbr>", name[0]), found[1])
    return f"<code>{_FLAG.sub(_flag, text)}</code>"


def _flag(found: re.Match) -> str:
    end = "<wbr>" if found[0].endswith("=") else ""
    return f'<span class="whole">{found[0]}</span>{end}'


def _name(found: re.Match) -> str:
    return found[1] + found[2].replace(".", ".<wbr>") + found[3]


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Leaves methods out of the list of contents, where they are steps of layers."""
    if page.file.src_uri.startswith("api/") and page.file.src_uri not in _METHODS:
        for top in page.toc:
            for item in top.children:
                item.children = []
    return content


def on_post_page(output: str, **_: Any) -> str:
    """Keeps flags together, and breaks long names at their points.

    It comes after the search has its words.
    """
    return _NAME.sub(_name, _INLINE.sub(_inline, output))
