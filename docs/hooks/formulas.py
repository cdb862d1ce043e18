"""Formulas as MathML, made when the site is built: pages need no script to show them.

`$...$` and `$$...$$` of pages are LaTeX. The indented formulas of docstrings are plain
text, `C = argmin_C |C K - Q|_F^2`: `latex` writes them as LaTeX.
"""

import html
import logging
import re
from typing import Any

from latex2mathml.converter import convert

_GREEK = "alpha beta gamma delta kappa lambda mu nu phi pi psi rho sigma tau theta xi "
_GREEK += "eta omega zeta Phi Psi"
_SYMBOLS = {name: rf"\{name} " for name in _GREEK.split()} | {
    "sum": r"\sum ",
    "int": r"\int ",
    "grad": r"\nabla ",
    "Laplace": r"\Delta ",
}
_OPERATORS = {
    "<->": r"\leftrightarrow ",
    "<=": r"\le ",
    ">=": r"\ge ",
    "!=": r"\ne ",
    "<-": r"\leftarrow ",
    "->": r"\to ",
    "...": r"\ldots ",
    "*": r"\odot ",
    "~": r"\sim ",
}
_TOKEN = re.compile(
    r"(?P<tilde>\b[A-Z]~)"
    r"|(?P<word>[A-Za-z]{2,}(?:(?:_[a-z]{1,2})*_[a-z]{3,}(?:_[a-z]+)*)?)"
    r"|(?P<call>`[^`]*`)"
    r"|(?P<operator><->|<=|>=|!=|<-|->|\.\.\.|\*|~)"
    r"|(?P<number>\d[\d.]*e-?\d+)"
    r"|(?P<script>[_^])(?P<what>\{|-?\d+(?:/\d+)?|[A-Za-z]+|\([^()]*\))"
    r"|(?P<gap>\s{2,})"
)
_NAMED = frozenset(
    ("argmin", "argmax", "cos", "det", "diag", "div", "exp", "log", "max", "mean")
    + ("min", "sin", "trace", "tr")
)
_PROSE = frozenset(
    ("and", "about", "becomes", "containing", "else", "every", "for", "if", "in", "of")
    + ("on", "or", "the", "with", "without", "zero", "over", "points", "layer")
    + ("number", "inner", "products", "least", "squares", "probability", "channel")
)
_DISPLAY = re.compile(r'<(div|span) class="arithmatex">(.*?)</\1>', re.DOTALL)
# What the highlighter makes of an indented block, which names no language.
_BLOCK = re.compile(
    r'<div class="(?:language-text )?highlight"><pre>(?:<span></span>)?'
    r"<code>(.*?)</code></pre></div>",
    re.DOTALL,
)
_IS_FORMULA = re.compile(r"[=^]|<-|->|_\w")
_IS_PROSE = re.compile(
    r">>>|--|[a-z]+\.[a-z]+\(|:=|@|import |def |python |\(n, |\b[a-z]{4,} [a-z]{2,} "
)


def latex(text: str) -> str:
    """Returns LaTeX of one line of a docstring's formula."""
    parts, end = [], 0
    for found in _TOKEN.finditer(text):
        parts.append(_escaped(text[end : found.start()]))
        parts.append(_one(found))
        end = found.end()
    parts.append(_escaped(text[end:]))
    return "".join(parts)


def _escaped(text: str) -> str:
    text = re.sub(r"([#%&])", r"\\\1", text)
    return text.replace("'", r"^{\prime}")


def _one(found: re.Match) -> str:
    kind = found.lastgroup
    if kind == "what":
        inner = found["what"]
        if inner == "{":
            return f"{found['script']}{{"
        if inner.startswith("("):
            inner = inner if found["script"] == "^" else inner[1:-1]
        return f"{found['script']}{{{_script(inner)}}}"
    text = found[0]
    if kind == "operator":
        return _OPERATORS[text]
    if kind == "tilde":
        return rf"\tilde{{{text[0]}}}"
    if kind == "gap":
        return r"\quad "
    if kind == "number":
        mantissa, power = text.split("e")
        factor = "" if mantissa == "1" else rf"{mantissa} \cdot "
        return rf"{factor}10^{{{int(power)}}}"
    return _word(text.strip("`"))


def _script(text: str) -> str:
    """An index or exponent: letters side by side are indices, words are words."""
    if re.fullmatch("[A-Za-z]{3,}", text):
        return _word(text)
    return latex(text) if text.startswith("(") else " ".join(text)


def _word(text: str) -> str:
    if text in _SYMBOLS:
        return _SYMBOLS[text]
    head, _, index = text.partition("_")
    if head in _SYMBOLS and index:
        return rf"{_SYMBOLS[head]}_{{{_word(index)}}}"
    if re.fullmatch("[A-Z][a-z]", text):  # Qc: coefficients of Q
        return f"{text[0]}_{text[1]}"
    if re.fullmatch("[A-Z]{2}", text):
        return " ".join(text)
    if text in _PROSE:
        return rf"\;\text{{{text}}}\;"
    name = text.replace("_", r"\_")
    return rf"\operatorname{{{name}}}" if text in _NAMED else rf"\mathrm{{{name}}}\,"


def mathml(source: str, *, display: bool) -> str:
    """Returns MathML of LaTeX; raises what the converter raises for bad LaTeX."""
    found = convert(source, display="block" if display else "inline")
    # Indented lines stay apart in text readers and search.
    return found.replace("&#x0005F;", "_")


def _of_page(found: re.Match) -> str:
    source = html.unescape(found[2]).strip()
    display = source.startswith(r"\[")
    written = mathml(source[2:-2], display=display)
    return f'<div class="display">{written}</div>' if display else written


def _of_docstring(found: re.Match) -> str:
    text = html.unescape(re.sub("<[^>]+>", "", found[1])).strip("\n")
    if not _IS_FORMULA.search(text) or _IS_PROSE.search(text):
        return found[0]
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        rows = [mathml(latex(line.strip()), display=True) for line in lines]
    except Exception as error:  # a new way of writing: shown as it is written
        logging.getLogger("mkdocs").info("no formula: %r: %r", text, error)
        return found[0]
    rows = "".join(f"<div>{row}</div>" for row in rows)
    return f'<div class="formula" title="{html.escape(text)}">{rows}</div>'


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Replaces all formulas of a page."""
    content = _DISPLAY.sub(_of_page, content)
    if page.file.src_uri.startswith("api/"):
        content = _BLOCK.sub(_of_docstring, content)
    return content
