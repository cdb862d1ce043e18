"""Markdown as one HTML page without outside resources, readable on a phone.

What is text stays text: every character of it is escaped, and nothing in a file becomes
a tag or a script.
"""

import base64
import html
import pathlib
import re
import urllib.parse
from typing import Any

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
small { display: block; opacity: .8; }
""".strip()
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def to_html(text: str, *, folder: pathlib.Path) -> str:
    """Converts a page.

    Args:
      text: Markdown.
      folder: where its images are, `.png` files below it, which become part of the
        page; others are left out, with their captions in place.

    Returns:
      A complete HTML document.
    """
    from markdown_it import MarkdownIt

    folder = folder.resolve()

    def image(_: Any, tokens: Any, index: int, *more: Any) -> str:
        token = tokens[index]
        path = (folder / urllib.parse.unquote(token.attrs["src"])).resolve()
        shown = html.escape(token.content)
        inside = path.is_relative_to(folder) and path.suffix == ".png"
        if not (inside and path.is_file()):
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
        f"<title>{html.escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n"
        f"<body>\n{markdown.render(text)}</body>\n</html>\n"
    )
