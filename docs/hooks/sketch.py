"""Parts of drawings, plain SVG by the standard library: the same bytes every time."""

import math
from collections.abc import Callable, Iterable

Point = tuple[float, float]
BLUE, ORANGE, GREEN, RED, GREY = "#3a5fb0", "#d9822b", "#3c8d5a", "#b5413a", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, RED)


def picture(width: int, height: int, parts: Iterable[str], title: str) -> str:
    """An SVG file of parts."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" '
            'font-size="13">',
            f"<title>{title}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(
    x: float, y: float, words: str, *, fill: str = "#222222", size: int = 13
) -> str:
    """Centred words."""
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size}" '
        f'text-anchor="middle">{words}</text>'
    )


def line(points: Iterable[tuple[float, float]], colour: str, width: float = 1.5) -> str:
    """A polygonal line."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" '
        f'stroke-width="{width:g}"/>'
    )


def box(x: float, y: float, w: float, h: float, fill: str, stroke: str = "none") -> str:
    """A rectangle."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )


def dot(x: float, y: float, r: float, fill: str) -> str:
    """A disc."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" fill="{fill}"/>'


def arrow(x: float, y: float, length: float, colour: str = GREY) -> str:
    """An arrow to the right."""
    end = x + length
    head = f"{end:g},{y:g} {end - 8:g},{y - 4:g} {end - 8:g},{y + 4:g}"
    return (
        line([(x, y), (end - 6, y)], colour)
        + f'<polygon points="{head}" fill="{colour}"/>'
    )


def shade(value: float) -> str:
    """A colour between blue (-1), white and red (1)."""
    value = max(-1.0, min(1.0, value))
    end = (0xB5, 0x41, 0x3A) if value > 0 else (0x3A, 0x5F, 0xB0)
    mixed = (round(255 + (c - 255) * abs(value)) for c in end)
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def graph(
    function: Callable[[float], float],
    x: float,
    y: float,
    w: float,
    h: float,
    colour: str,
) -> str:
    """The graph of a function on [0, 1], its zero at `y`, one at `y - h`."""
    points = [(x + w * i / 80, y - h * function(i / 80)) for i in range(81)]
    return line(points, colour)


def words(x: float, y: float, *rows: str, size: int = 15, fill: str = "#222222") -> str:
    """Rows of text that start at `x`."""
    return "".join(
        f'<text x="{x:g}" y="{y + 1.35 * size * i:g}" fill="{fill}" '
        f'font-size="{size}">{row}</text>'
        for i, row in enumerate(rows)
    )


def node(x: float, y: float, w: float, h: float, fill: str, *rows: str) -> str:
    """A box with centred rows of text, of which all but the first are small."""
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" '
        f'fill="{fill}" stroke="#999999"/>'
    ]
    top = y + h / 2 + 5 - 9 * (len(rows) - 1)
    for i, row in enumerate(rows):
        fill, size = (
            ("#222222", 15 if w > 8 * len(row) else 14) if i == 0 else ("#555555", 13)
        )
        parts.append(text(x + w / 2, top + 18 * i, row, fill=fill, size=size))
    return "".join(parts)


def link(start: Point, end: Point, colour: str = GREY, width: float = 1.5) -> str:
    """An arrow between any two points."""
    (x, y), (u, v) = start, end
    length = math.hypot(u - x, v - y)
    a, b = (u - x) / length, (v - y) / length
    tip = [(u, v), (u - 9 * a - 4 * b, v - 9 * b + 4 * a)]
    tip.append((u - 9 * a + 4 * b, v - 9 * b - 4 * a))
    return line([start, (u - 7 * a, v - 7 * b)], colour, width) + polygon(tip, colour)


def polygon(points: Iterable[Point], fill: str, stroke: str = "none") -> str:
    """A filled polygon."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polygon points="{path}" fill="{fill}" stroke="{stroke}" stroke-width="0.4"/>'
    )


def ring(
    place: Callable[[float, float], Point],
    value: Callable[[float, float], float],
    *,
    rows: int,
    columns: int,
    stroke: str = "#ffffff",
) -> list[str]:
    """Cells of the unit square, moved by `place` and coloured by `value`."""
    parts = []
    for i in range(rows):
        for j in range(columns):
            corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
            moved = [place(a / rows, b / columns) for a, b in corners]
            fill = shade(value((i + 0.5) / rows, (j + 0.5) / columns))
            parts.append(polygon(moved, fill, stroke))
    return parts
