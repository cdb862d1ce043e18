"""Draws the pictures of the site: `python docs/hooks/drawings.py`."""

import math
import pathlib
import random
from collections.abc import Callable

import how_to
from sketch import (
    COLOURS,
    GREY,
    arrow,
    box,
    dot,
    graph,
    line,
    picture,
    shade,
    text,
)

FOLDER = pathlib.Path(__file__).parents[1] / "drawings"


def attention() -> str:
    """Points, coefficients, the map, coefficients, query points."""
    rng, parts = random.Random(3), []

    def field(u: float, v: float) -> float:
        return math.sin(4 * u + 1) * math.cos(3 * v)

    def transported(u: float, v: float) -> float:
        return math.sin(3 * u + 3 * v)

    for _ in range(110):
        u, v = rng.random(), rng.random()
        if (u - 0.5) ** 2 + (v - 0.5) ** 2 < 0.25:
            parts.append(dot(20 + 130 * u, 45 + 130 * v, 4.2, shade(field(u, v))))
    for i in range(11):
        for j in range(11):
            u, v = (i + 0.5) / 11, (j + 0.5) / 11
            fill = shade(transported(u, v))
            parts.append(box(610 + 130 * i / 11, 45 + 130 * j / 11, 11.2, 11.2, fill))
    bars = [0.9, -0.6, 0.4, 0.7, -0.3, 0.2]
    mapped = [-0.4, 0.8, 0.6, -0.7, 0.3, -0.2]
    for x, values in ((235, bars), (505, mapped)):
        parts += [box(x, 62 + 16 * k, 15, 15, shade(c)) for k, c in enumerate(values)]
    for i in range(6):
        for j in range(6):
            value = math.exp(-abs(i - j)) * math.cos(1.7 * i + j) * 1.2
            parts.append(box(330 + 16 * j, 62 + 16 * i, 15, 15, shade(value)))
    parts += [arrow(162, 110, 60), arrow(262, 110, 56), arrow(437, 110, 56)]
    parts += [arrow(535, 110, 62)]
    parts += [text(192, 100, "project"), text(566, 100, "reconstruct", size=12)]
    parts += [
        text(85, 28, "function at mesh points"),
        text(243, 48, "coefficients"),
        text(378, 48, "functional map C"),
        text(512, 48, "coefficients"),
        text(675, 28, "function at query points"),
        text(85, 196, "n points, any mesh", fill=GREY),
        text(243, 178, "k numbers", fill=GREY),
        text(378, 178, "k x k, a small solve", fill=GREY),
        text(512, 178, "k numbers", fill=GREY),
        text(675, 196, "m points, any mesh", fill=GREY),
    ]
    return picture(760, 210, parts, "Functional attention")


def bases() -> str:
    """Four families of functions on an interval."""
    parts = []
    peaks = (0.1, 0.37, 0.63, 0.9)

    def softmax(j: int) -> Callable[[float], float]:
        def value(x: float) -> float:
            scores = [math.exp(-((x - p) ** 2) / 0.02) for p in peaks]
            return scores[j] / sum(scores)

        return value

    def indicator(j: int) -> Callable[[float], float]:
        return lambda x: float(min(range(4), key=lambda i: abs(x - peaks[i])) == j)

    def hat(j: int) -> Callable[[float], float]:
        return lambda x: max(0.0, 1 - abs(3 * x - j))

    def wave(j: int) -> Callable[[float], float]:
        if j % 2:
            return lambda x: 0.5 + 0.5 * math.sin((j + 1) * math.pi * x)
        return lambda x: 0.5 + 0.5 * math.cos((j + 2) * math.pi * x)

    families = (
        ("softmax", softmax),
        ("indicator", indicator),
        ("hat", hat),
        ("Fourier", wave),
    )
    for number, (name, family) in enumerate(families):
        x = 20 + 185 * number
        parts.append(line([(x, 110), (x + 165, 110)], GREY, 1))
        for j, colour in enumerate(COLOURS):
            parts.append(graph(family(j), x, 110, 165, 70, colour))
        parts.append(text(x + 82, 25, name))
    words = (
        "learned from features",
        "hard partition",
        "finite elements",
        "global waves",
    )
    for number, said in enumerate(words):
        parts.append(text(102 + 185 * number, 134, said, fill=GREY))
    return picture(760, 150, parts, "Bases")


def schwarz() -> str:
    """Overlapping subdomains, their weights, and the hats of the coarse space."""
    parts = [line([(40, 60), (720, 60)], GREY, 1)]
    for i in range(35):
        parts.append(dot(40 + 20 * i, 60, 2.5, "#444444"))
    starts = [(0, 10), (8, 19), (17, 27), (25, 34)]
    for i, (a, b) in enumerate(starts):
        x, w, y = 36 + 20 * a, 20 * (b - a) + 8, 72 + 13 * (i % 2)
        parts.append(box(x, y, w, 9, COLOURS[i]))
        height = [130.0 + 40 * (1 - _weight(p, starts)) for p in range(a, b + 1)]
        points = [
            (40 + 20 * p, h) for p, h in zip(range(a, b + 1), height, strict=True)
        ]
        parts.append(line(points, COLOURS[i], 2))
    parts.append(line([(40, 170), (720, 170)], GREY, 1))
    for i, peak in enumerate((9, 18, 26)):
        left, right = (0, 9, 18)[i], (18, 26, 34)[i]
        ends = [(40 + 20 * left, 240), (40 + 20 * peak, 196), (40 + 20 * right, 240)]
        parts.append(line(ends, COLOURS[i], 2))
    parts.append(line([(40, 240), (720, 240)], GREY, 1))
    parts += [
        text(380, 28, "subdomains overlap; each sees its own points: R"),
        text(
            380,
            120,
            "partition of unity: the weights D of a point add up to one",
            size=12,
        ),
        text(380, 190, "coarse hats reach across: &#934;", size=12),
    ]
    return picture(760, 255, parts, "Two-level Schwarz attention")


def _weight(point: int, starts: list[tuple[int, int]]) -> float:
    return 1 / sum(a <= point <= b for a, b in starts)


def layers() -> str:
    """What imports what."""
    rows = [
        ("experiments, notebooks", "one program for one question", "#f3f3f3"),
        (
            "opjax.learn",
            "programs, runs, resume, registry, figures, reports",
            "#e8eef9",
        ),
        (
            "opjax.training, streaming, export, samples, files",
            "steps of any pytree; samples on meshes and their files",
            "#fbeedd",
        ),
        ("opjax.nn", "Flax NNX modules own parameters, and no mathematics", "#e3f2e8"),
        (
            "opjax: attention, basis, linalg, quadrature, schwarz ...",
            "pure functions",
            "#f8e4e2",
        ),
    ]
    parts = []
    for i, (name, what, fill) in enumerate(rows):
        inset = 30 * (len(rows) - 1 - i) * 0.6
        parts.append(box(40 + inset, 16 + 52 * i, 680 - 2 * inset, 44, fill, "#999999"))
        parts.append(text(380, 35 + 52 * i, name))
        parts.append(text(380, 52 + 52 * i, what, fill="#555555", size=12))
    return picture(760, 284, parts, "Layers: each imports only what is below")


DRAWINGS = {
    "attention": attention,
    "bases": bases,
    "schwarz": schwarz,
    "layers": layers,
    **{f"how-to/{name}": draw for name, draw in how_to.DRAWINGS.items()},
}


def main() -> None:
    """Writes all drawings."""
    (FOLDER / "how-to").mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
