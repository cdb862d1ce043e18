"""Markdown as one HTML page without outside resources, readable on a phone.

The Markdown is what the programs write: headings, paragraphs, lists, tables, fenced
code, images, and `code`, **bold** and [links](https://...) in a line. All else is text,
and every character of it is escaped: nothing in a file becomes a tag or a script.
"""

import base64
import html
import pathlib
import re
from collections.abc import Iterator

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { border-bottom: 1px solid #8886; padding: .25rem .6rem; text-align: left;
  white-space: nowrap; }
code { font-size: .9em; background: #8882; border-radius: .2rem; padding: 0 .2rem; }
pre { overflow-x: auto; background: #8882; padding: .6rem; }
pre code { background: none; }
img { max-width: 100%; height: auto; background: #fff; }
figure { margin: 1rem 0; }
figcaption { font-size: .85rem; opacity: .8; }
""".strip()
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^()\s]+)\)\s*")
_INLINE = re.compile(
    r"(?P<code>`[^`]+`)|\*\*(?P<bold>[^*]+)\*\*"
    r"|\[(?P<text>[^\]]+)\]\((?P<link>https?://[^()\s]+)\)"
)


def to_html(text: str, *, folder: pathlib.Path) -> str:
    """Converts a page.

    Args:
      text: Markdown.
      folder: where its images are, `.png` files below it, which become part of the
        page; others are left out, with their captions in place.

    Returns:
      A complete HTML document.
    """
    title = next((t[2:] for t in text.splitlines() if t.startswith("# ")), "Results")
    body = "\n".join(_blocks(text.splitlines(), folder.resolve()))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _blocks(lines: list[str], folder: pathlib.Path) -> Iterator[str]:
    """Yields the HTML of one block of lines after the other."""
    at = 0
    while at < len(lines):
        start, line = at, lines[at]
        at += 1
        image = _IMAGE.fullmatch(line)
        if line.startswith("```"):
            while at < len(lines) and not lines[at].startswith("```"):
                at += 1
            code = html.escape("\n".join(lines[start + 1 : at]))
            at += 1
            yield f"<pre><code>{code}</code></pre>"
        elif heading := re.match(r"(#{1,6}) +(.*)", line):
            level = len(heading[1])
            yield f"<h{level}>{_inline(heading[2])}</h{level}>"
        elif image:
            yield _figure(image[1], image[2], folder)
        elif line.startswith("|"):
            at = _while(lines, at, lambda line: line.startswith("|"))
            yield _table(lines[start:at])
        elif line.startswith("- "):
            at = _while(lines, at, lambda line: line.startswith(("- ", "  ")))
            items = re.split(r"^- ", "\n".join(lines[start:at]), flags=re.MULTILINE)
            listed = "".join(f"<li>{_inline(item)}</li>" for item in items[1:])
            yield f"<ul>{listed}</ul>"
        elif line.strip() and not re.fullmatch(r"<!--.*-->", line.strip()):
            at = _while(lines, at, lambda line: not _starts_block(line))
            yield f"<p>{_inline(' '.join(lines[start:at]))}</p>"


def _while(lines: list[str], at: int, belongs) -> int:
    while at < len(lines) and belongs(lines[at]):
        at += 1
    return at


def _starts_block(line: str) -> bool:
    return not line.strip() or line.startswith(("#", "|", "- ", "```", "![", "<!--"))


def _inline(text: str) -> str:
    """Converts code, bold and links; all else is escaped."""
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        parts.append(_plain(text[end : found.start()]))
        end = found.end()
        if found["code"]:
            parts.append(f"<code>{html.escape(found['code'][1:-1])}</code>")
        elif found["bold"]:
            parts.append(f"<strong>{_plain(found['bold'])}</strong>")
        else:
            link = html.escape(found["link"])
            parts.append(f'<a href="{link}">{_plain(found["text"])}</a>')
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    return html.escape(text.replace(r"\|", "|"))


def _table(lines: list[str]) -> str:
    def cells(line: str, tag: str) -> str:
        found = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        row = "".join(f"<{tag}>{_inline(cell.strip())}</{tag}>" for cell in found)
        return f"<tr>{row}</tr>"

    rows = [line for line in lines[1:] if not re.fullmatch(r"[|\s:-]+", line)]
    body = "".join(cells(line, "td") for line in rows)
    return (
        f'<div class="wide"><table><thead>{cells(lines[0], "th")}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _figure(caption: str, place: str, folder: pathlib.Path) -> str:
    path = (folder / place).resolve()
    inside = path.is_relative_to(folder) and path.suffix == ".png" and path.is_file()
    if not inside:
        return f"<p>{_inline(caption)}</p>"
    content = base64.b64encode(path.read_bytes()).decode()
    shown = html.escape(caption, quote=True)
    return (
        f'<figure><img alt="{shown}" src="data:image/png;base64,{content}">'
        f"<figcaption>{shown}</figcaption></figure>"
    )
