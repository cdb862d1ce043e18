"""Drawings of the how-to pages, 480 wide: their words can be read on a phone."""

import math
import random
from collections.abc import Callable

from sketch import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Point,
    box,
    dot,
    graph,
    line,
    link,
    node,
    picture,
    polygon,
    ring,
    shade,
    text,
    words,
)

_PALE = ("#e8eef9", "#fbeedd", "#e3f2e8", "#f8e4e2", "#f3f3f3")


def _draw(height: int, title: str, *parts: str) -> str:
    return picture(480, height, parts, title)


def index() -> str:
    """From files to a number."""
    steps = (
        ("opjax-check", "what is in", "the files"),
        ("opjax-train", "errors beside", "simple baselines"),
        ("opjax-calibrate", "error bars", "(if wanted)"),
        ("opjax-predict", "fields on your", "own meshes"),
    )
    parts = []
    for i, rows in enumerate(steps):
        parts.append(node(8 + 119 * i, 20, 106, 76, _PALE[i], *rows))
        if i:
            parts.append(link((119 * i - 4, 58), (119 * i + 8, 58)))
    return _draw(116, "Four programs, from files to predictions", *parts)


def check() -> str:
    """Ranges of fields in spreads, and what is doubtful."""
    fields = (
        ("p", -5.4, 7.5, ""),
        ("U_x", -2.2, 2.5, ""),
        ("U_y", -7.6, 7.4, ""),
        ("U_z", 0.0, 0.0, "constant"),
        ("k", -0.3, 14.0, "outlier"),
    )
    parts = [line([(235, 34), (235, 190)], "#cccccc", 1)]
    parts += [text(235, 24, "mean", fill=GREY), words(14, 24, "field", fill=GREY)]
    for i, (name, low, high, doubt) in enumerate(fields):
        y, colour = 44 + 30 * i, RED if doubt else BLUE
        parts.append(words(14, y + 12, name))
        width = max(3.0, 11 * (high - low))
        parts.append(box(235 + 11 * low, y, width, 14, colour))
        parts.append(words(400, y + 12, doubt, fill=RED))
    parts.append(text(235, 208, "range of values, in spreads", fill=GREY))
    return _draw(220, "Ranges of the fields of a data set", *parts)


def openfoam() -> str:
    """Flow past a cylinder on cells, and the force on it."""

    def place(r: float, t: float) -> Point:
        radius, angle = 34 * (110 / 34) ** r, 2 * math.pi * t
        return 130 + radius * math.cos(angle), 125 - radius * math.sin(angle)

    def speed(r: float, t: float) -> float:
        radius, angle = (110 / 34) ** r, 2 * math.pi * t
        along = 1 - math.cos(2 * angle) / radius**2
        return 1.2 * (math.hypot(along, math.sin(2 * angle) / radius**2) - 1)

    parts = ring(place, speed, rows=9, columns=30, stroke="#999999")
    parts += [link((2, y), (22, y), BLUE) for y in (85, 125, 165)]
    parts += [link((130, 125), (186, 125), "#222222", 3), text(147, 115, "drag")]
    files = ("case_000/VTK", "case_001/VTK", "...", "cases.csv")
    for i, name in enumerate(files):
        parts.append(words(270, 36 + 21 * i, name))
    parts += [link((372, 48), (404, 48)), words(412, 53, "train")]
    rows = (("p, U", "in every cell"), ("drag", "from p and U"))
    for i, (name, said) in enumerate(rows):
        parts.append(node(270, 132 + 52 * i, 196, 44, _PALE[i], name, said))
    return _draw(244, "Cells around a cylinder, coloured by speed", *parts)


def calculix() -> str:
    """Stress around a hole, by Kirsch's formula."""

    def place(r: float, t: float) -> Point:
        square = 1 / max(abs(math.cos(2 * math.pi * t)), abs(math.sin(2 * math.pi * t)))
        radius = 32 + (95 * square - 32) * r**1.5
        angle = 2 * math.pi * t
        return 150 + radius * math.cos(angle), 110 - radius * math.sin(angle)

    def stress(r: float, t: float) -> float:
        x, y = place(r, t)
        a = 32 / math.hypot(x - 150, y - 110)
        twice = 4 * math.pi * t
        radial = (1 - a**2 + (1 - 4 * a**2 + 3 * a**4) * math.cos(twice)) / 2
        hoop = (1 + a**2 - (1 + 3 * a**4) * math.cos(twice)) / 2
        shear = -(1 + 2 * a**2 - 3 * a**4) * math.sin(twice) / 2
        mises = radial**2 - radial * hoop + hoop**2 + 3 * shear**2
        return 0.75 * (math.sqrt(mises) - 1)

    parts = ring(place, stress, rows=8, columns=40, stroke="#999999")
    parts += [link((52, y), (18, y), GREY, 2) for y in (50, 110, 170)]
    parts += [link((248, y), (282, y), GREY, 2) for y in (50, 110, 170)]
    parts += [link((332, 62), (162, 80), "#222222"), words(338, 66, "largest stress")]
    parts += [words(338, 110, "S_Mises = load/t", "× learned field")]
    parts += [words(338, 160, "on the nodes of", "your own mesh", fill=GREY)]
    return _draw(220, "Plate with a hole under tension, coloured by stress", *parts)


def _triangles(n: int) -> tuple[list[Point], list[tuple[int, int, int]]]:
    """A mesh of the unit disc: rings of points, and triangles between them."""
    points, cells, first = [(0.0, 0.0)], [], [0]
    for k in range(1, n + 1):
        first.append(len(points))
        for i in range(6 * k):
            angle = 2 * math.pi * i / (6 * k)
            points.append((k / n * math.cos(angle), k / n * math.sin(angle)))
    for k in range(1, n + 1):
        for side in range(6):
            for i in range(k):
                outer = [first[k] + (side * k + i + d) % (6 * k) for d in (0, 1)]
                m = max(6 * (k - 1), 1)
                inner = [first[k - 1] + (side * (k - 1) + i + d) % m for d in (0, 1)]
                cells.append((outer[0], outer[1], inner[0]))
                if i < k - 1:
                    cells.append((outer[1], inner[1], inner[0]))
    return points, cells


def fenics() -> str:
    """A finite element solution on triangles becomes a file, a sample, a prediction."""
    points, cells = _triangles(5)

    def value(x: float, y: float) -> float:
        return math.sin(2.5 * x + 0.6) * math.cos(2 * y)

    parts = []
    for cell in cells:
        corners = [points[i] for i in cell]
        middle = [sum(c[d] for c in corners) / 3 for d in (0, 1)]
        moved = [(105 + 88 * x, 105 - 88 * y) for x, y in corners]
        parts.append(polygon(moved, shade(value(*middle)), "#888888"))
    parts += [link((196, 105), (219, 105))]
    parts.append(node(222, 20, 124, 48, _PALE[0], "case.vtu", "FEniCSx, FreeFEM"))
    parts.append(node(222, 80, 124, 48, _PALE[1], "case.npz", "scikit-fem"))
    parts.append(node(222, 140, 124, 48, _PALE[2], "Sample", "in memory"))
    parts += [link((349, y), (379, 105)) for y in (44, 104, 164)]
    parts.append(node(382, 77, 92, 56, _PALE[3], "opjax-train", "learn.train"))
    return _draw(212, "A solution on triangles, as a file or a sample", *parts)


def ansys() -> str:
    """Programs, the formats they export, and opjax."""
    programs = ("Fluent", "STAR-CCM+", "CFX", "Mechanical")
    formats = ("CGNS", "EnSight", "VTK")
    exports = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 2))
    parts = [
        link((124, 34 + 50 * a), (188, 44 + 66 * b), COLOURS[b]) for a, b in exports
    ]
    for i, name in enumerate(programs):
        parts.append(node(10, 16 + 50 * i, 112, 36, _PALE[4], name))
    for i, name in enumerate(formats):
        parts.append(node(192, 24 + 66 * i, 96, 40, _PALE[i], name))
        parts.append(link((290, 44 + 66 * i), (356, 110)))
    parts.append(node(360, 82, 112, 56, _PALE[3], "opjax-check", "opjax-train"))
    return _draw(220, "Programs, formats and opjax", *parts)


def data() -> str:
    """Three layouts of arrays: grid, equal meshes, different meshes."""
    rng, parts = random.Random(1), []

    def value(x: float, y: float) -> float:
        return math.sin(4 * x + 3 * y)

    for i in range(8):
        for j in range(8):
            fill = shade(value(i / 8, j / 8))
            parts.append(box(24 + 13 * j, 34 + 13 * i, 13.2, 13.2, fill))
    for _ in range(90):
        x, y = rng.random(), rng.random()
        parts.append(dot(188 + 104 * x, 34 + 104 * y, 4.5, shade(value(y, x))))
    for k, (left, size, count) in enumerate(((346, 52, 30), (410, 60, 45))):
        for _ in range(count):
            angle, radius = 6.3 * rng.random(), math.sqrt(rng.random())
            x = left + size * (0.5 + 0.5 * radius * math.cos(angle))
            y = 84 + size * 0.5 * radius * math.sin(angle) * (1 + 0.5 * k)
            parts.append(dot(x, y, 3.6, shade(value(y / 104, x / 104))))
    names = ("grids", "meshes of one size", "meshes of any size")
    shapes = ("(b, h, w, c)", "(b, n, p) and (b, n, c)", "a list of samples")
    for x, name, shape in zip((76, 240, 404), names, shapes, strict=True):
        parts += [text(x, 22, name, size=15), text(x, 162, shape, fill=GREY)]
    return _draw(176, "Arrays on grids, on meshes of one size and of any size", *parts)


def meshes() -> str:
    """Points and cells have values; parts of the boundary have names."""

    def place(r: float, t: float) -> Point:
        bump = 22 * math.exp(-(((t - 0.5) / 0.16) ** 2))
        return 130 * t, 100 - (100 - bump) * r - bump

    def value(r: float, t: float) -> float:
        return math.sin(5 * t) * math.cos(2 * r)

    parts, rows, columns = [], 4, 6
    for left in (20, 175, 330):
        cells = ring(
            lambda r, t, left=left: (left + place(r, t)[0], 40 + place(r, t)[1]),
            value if left == 175 else lambda r, t: 0.0,
            rows=rows,
            columns=columns,
            stroke="#777777",
        )
        parts += cells
    for i in range(rows + 1):
        for j in range(columns + 1):
            x, y = place(i / rows, j / columns)
            parts.append(dot(20 + x, 40 + y, 4.8, "#999999"))
            parts.append(dot(20 + x, 40 + y, 4, shade(value(i / rows, j / columns))))
    sides = {
        "inlet": ([(0, 0), (1, 0)], BLUE),
        "outlet": ([(0, 1), (1, 1)], GREEN),
        "wall": ([(0, j / 24) for j in range(25)], RED),
    }
    for points, colour in sides.values():
        moved = [place(*p) for p in points]
        parts.append(line([(330 + x, 40 + y) for x, y in moved], colour, 4))
    for x, said in ((85, "values at points"), (240, "values of cells")):
        parts.append(text(x, 26, said, size=15))
    parts.append(text(395, 26, "named boundaries", size=15))
    for x, (name, (_, colour)) in zip((340, 402, 444), sides.items(), strict=True):
        parts.append(text(x, 164, name, fill=colour, size=14))
    parts.append(text(85, 164, "(n, c)", fill=GREY))
    parts.append(text(240, 164, "--location=cells", fill=GREY))
    return _draw(178, "Values at points, values of cells, named boundaries", *parts)


def _airfoil(
    x: float, y: float, scale: float, degrees: float, *, thickness: float = 0.12
) -> list[Point]:
    """The outline of NACA 0012, from the trailing edge along the bottom to the nose."""
    outline, turn = [], math.radians(degrees)
    for i in range(-30, 31):
        t = (1 - math.cos(math.pi * i / 30)) / 2
        root, powers = 0.2969 * math.sqrt(t), (-0.1260, -0.3516, 0.2843, -0.1036)
        half = (
            5 * thickness * (root + sum(c * t ** (k + 1) for k, c in enumerate(powers)))
        )
        u, v = t - 0.3, math.copysign(half, -i)
        outline.append(
            (
                x + scale * (u * math.cos(turn) - v * math.sin(turn)),
                y + scale * (u * math.sin(turn) + v * math.cos(turn)),
            )
        )
    return outline


def cases() -> str:
    """Numbers beside the mesh go in, a number beside the field comes out."""
    parts = [polygon(_airfoil(90, 92, 150, 9), "#dddddd", "#555555")]
    parts += [line([(10, 92), (190, 92)], "#aaaaaa", 1), words(150, 86, "angle")]
    parts += [link((10, y), (38, y), BLUE, 2) for y in (40, 60)]
    parts += [words(44, 54, "mach"), link((206, 92), (232, 92))]
    parts.append(node(236, 66, 84, 52, _PALE[0], "operator"))
    parts += [link((324, 80), (350, 60)), link((324, 104), (350, 130))]
    parts += [words(356, 58, "p", "the field", fill="#222222")]
    parts += [words(356, 130, "lift", "a number")]
    header, row = ("case", "angle", "mach", "lift"), ("wing_001", "2.5", "0.30", "0.27")
    for i, (a, b) in enumerate(zip(header, row, strict=True)):
        colour = RED if i == 3 else BLUE if i else "#222222"
        parts += [box(20 + 110 * i, 168, 108, 26, "#f3f3f3")]
        parts += [text(74 + 110 * i, 186, a, fill=colour, size=15)]
        parts += [text(74 + 110 * i, 214, b, size=15)]
    return _draw(226, "Scalars of a case: angle and Mach number in, lift out", *parts)


def quantities() -> str:
    """Pressure on a wall adds up to a force."""
    outline = _airfoil(120, 116, 250, 6, thickness=0.2)
    parts = [polygon(outline, "#e8e8e8", "#555555")]
    for i in range(6, 55, 4):
        (x, y), (a, b), (c, d) = outline[i], outline[i - 1], outline[i + 1]
        length = math.hypot(c - a, d - b)
        normal = ((d - b) / length, (a - c) / length)
        bottom = i < 30
        size = (22 if bottom else 60) * math.sin(math.pi * i / 60) ** 1.5
        far = (x + (size + 3) * normal[0], y + (size + 3) * normal[1])
        near = (x + 3 * normal[0], y + 3 * normal[1])
        if size > 9 and i != 30:
            parts.append(link(far, near, BLUE) if bottom else link(near, far, RED))
    parts += [link((128, 116), (141, 14), "#222222", 3), words(150, 24, "lift")]
    parts += [words(322, 60, "lift:p@wall")]
    parts += [words(322, 84, "sum of pressure", "× normal × area", fill=GREY)]
    parts += [words(322, 146, "also: largest value,", "mean, flux, moment", fill=GREY)]
    return _draw(196, "Pressure on an airfoil adds up to its lift", *parts)


def time() -> str:
    """Frames that a model advances one by one."""
    n, parts = 10, []

    def heat(x: float, y: float, t: float) -> float:
        width = 0.02 + 0.06 * t
        one = math.exp(-((x - 0.35) ** 2 + (y - 0.4) ** 2) / width) * 0.02 / width
        two = math.exp(-((x - 0.7) ** 2 + (y - 0.7) ** 2) / width) * 0.02 / width
        return 1.6 * (one - 0.7 * two)

    for k, t in enumerate((0.0, 0.15, 0.5, 1.2)):
        left = 14 + 125 * k
        for i in range(n):
            for j in range(n):
                fill = shade(heat((j + 0.5) / n, (i + 0.5) / n, t))
                parts.append(box(left + 7.8 * j, 30 + 7.8 * i, 8.0, 8.0, fill))
        parts.append(box(left, 30, 78, 78, "none", "#999999"))
        name = f"u(t<tspan font-size='11' dy='4'>{k}</tspan><tspan dy='-4'>)</tspan>"
        parts.append(text(left + 39, 130, name, size=15))
        if k:
            parts.append(link((left - 41, 71), (left - 6, 71), GREY, 2))
            parts.append(text(left - 23, 62, "model"))
    parts.append(text(240, 20, "each prediction is the next input", fill=GREY))
    return _draw(144, "Frames of spreading heat, advanced by a model", *parts)


def model() -> str:
    """Your model in the place of a model of the library."""
    parts = [
        words(12, 52, "mesh_points", "features", "quadrature_weights", "scalars"),
        link((160, 76), (186, 76), GREY, 2),
        node(190, 40, 116, 72, _PALE[1], "your model", "an nnx.Module"),
        link((310, 76), (336, 76), GREY, 2),
        words(344, 70, "values (n, c)"),
        words(344, 92, "at the points", fill=GREY),
    ]
    names = ("normalisers", "training", "resume", "report")
    for i, name in enumerate(names):
        parts.append(node(14 + 116 * i, 146, 104, 32, _PALE[4], name))
    parts.append(text(240, 136, "what the programs do around it", fill=GREY))
    return _draw(192, "A model of yours between the programs' parts", *parts)


def basis() -> str:
    """Monomials, and a function projected on the first two, three and four."""
    parts = [line([(20, 120), (200, 120)], "#cccccc", 1)]
    for k in range(4):
        parts.append(
            graph(lambda x, k=k: (2 * x - 1) ** k, 20, 120, 180, 78, COLOURS[k])
        )
    for k, name in enumerate(("1", "x", "x²", "x³")):
        parts.append(text(60 + 35 * k, 228, name, fill=COLOURS[k], size=16))
    parts += [text(110, 24, "functions"), text(368, 24, "projections")]

    def exact(x: float) -> float:
        return math.exp(1.2 * (2 * x - 1)) / 3.4

    curves = [(exact, "#222222")]
    for k, colour in ((1, ORANGE), (3, GREEN)):
        curves.append((_projected(exact, k), colour))
    for function, colour in curves:
        parts.append(graph(function, 270, 176, 190, 130, colour))
    parts += [words(270, 228, "exact", size=16), text(362, 228, "1, x", fill=ORANGE)]
    parts += [text(426, 228, "1, x, x², x³", fill=GREEN)]
    parts += [line([(270, 198), (460, 198)], "#cccccc", 1)]
    return _draw(244, "Monomials, and a function in their span", *parts)


def _projected(function, degree: int):
    """Least squares on 60 points, by Gram and Schmidt."""
    points = [(i + 0.5) / 60 for i in range(60)]
    basis: list[list[float]] = []
    values = [function(x) for x in points]
    fitted = [0.0] * 60
    for k in range(degree + 1):
        new = [(2 * x - 1) ** k for x in points]
        for old in basis:
            share = sum(a * b for a, b in zip(new, old, strict=True))
            new = [a - share * b for a, b in zip(new, old, strict=True)]
        size = math.sqrt(sum(a * a for a in new))
        basis.append([a / size for a in new])
        share = sum(a * b for a, b in zip(values, basis[-1], strict=True))
        fitted = [f + share * b for f, b in zip(fitted, basis[-1], strict=True)]

    def between(x: float) -> float:
        i = min(58, max(0, int(60 * x - 0.5)))
        return fitted[i] + (60 * x - 0.5 - i) * (fitted[i + 1] - fitted[i])

    return between


def attention() -> str:
    """A block of the transformer, with the attention that you write."""
    parts = [
        words(8, 78, "features", "(n, c)"),
        link((76, 80), (96, 80)),
        node(98, 60, 52, 40, _PALE[4], "norm"),
        link((150, 80), (166, 80)),
        node(168, 50, 108, 60, _PALE[1], "your layer", "mixes points"),
        link((276, 80), (296, 80)),
        dot(306, 80, 10, "#dddddd"),
        text(306, 86, "+", size=18),
        link((316, 80), (334, 80)),
        node(336, 60, 62, 40, _PALE[4], "MLP"),
        link((398, 80), (414, 80)),
        dot(424, 80, 10, "#dddddd"),
        text(424, 86, "+", size=18),
        link((434, 80), (472, 80)),
        line([(88, 80), (88, 28), (306, 28), (306, 70)], GREY),
        line([(326, 80), (326, 28), (424, 28), (424, 70)], GREY),
        text(240, 144, "a permutation of the points permutes the result", fill=GREY),
    ]
    return _draw(160, "A block of the transformer around your attention", *parts)


def uncertainty() -> str:
    """A band around a prediction; errors of calibration give its width."""

    def truth(x: float) -> float:
        return 0.5 + 0.32 * math.sin(6 * x) + 0.06 * math.sin(21 * x)

    def predicted(x: float) -> float:
        return 0.5 + 0.3 * math.sin(6 * x + 0.08)

    def width(x: float) -> float:
        return 0.09 + 0.07 * x

    xs = [i / 60 for i in range(61)]
    upper = [(20 + 220 * x, 180 - 140 * (predicted(x) + width(x))) for x in xs]
    lower = [(20 + 220 * x, 180 - 140 * (predicted(x) - width(x))) for x in xs]
    parts = [polygon([*upper, *reversed(lower)], "#cfdcf3")]
    parts.append(graph(predicted, 20, 180, 220, 140, BLUE))
    parts.append(graph(truth, 20, 180, 220, 140, "#222222"))
    scores = [0.18 + 0.7 * (i / 19) ** 1.6 for i in range(20)]
    for i, score in enumerate(scores):
        fill = BLUE if i < 18 else RED
        parts.append(box(290 + 9 * i, 180 - 140 * score, 7, 140 * score, fill))
    cut = 180 - 140 * scores[17]
    parts += [line([(284, cut), (474, cut)], ORANGE, 2)]
    parts += [text(130, 22, "prediction, band, truth", size=15)]
    parts += [text(378, 22, "errors of calibration cases", size=15)]
    parts += [words(290, cut - 6, "90 % are below", fill=ORANGE)]
    return _draw(196, "A band, and the sorted errors that give its width", *parts)


def resume() -> str:
    """A loss that goes on where it was stopped."""

    def loss(x: float) -> float:
        return 0.9 * math.exp(-4 * x) + 0.05 + 0.03 * math.sin(40 * x) * (1 - x)

    def curve(low: float, high: float) -> list[Point]:
        xs = [low + (high - low) * i / 60 for i in range(61)]
        return [(40 + 400 * x, 150 - 120 * loss(x)) for x in xs]

    parts = [line([(40, 20), (40, 150), (450, 150)], "#999999", 1)]
    parts.append(line([(240, 30), (240, 150)], RED, 1.5))
    parts += [line(curve(0, 0.5), BLUE, 2.5), line(curve(0.5, 1), GREEN, 2.5)]
    for x in (0.15, 0.3, 0.45):
        parts.append(dot(40 + 400 * x, 150 - 120 * loss(x), 5, ORANGE))
    parts += [
        words(246, 44, "killed", fill=RED),
        text(250, 172, "epochs", fill=GREY, size=15),
    ]
    parts += [words(150, 72, "checkpoints", fill=ORANGE)]
    parts += [words(296, 112, "same command: same bits", fill=GREEN)]
    parts.append(words(46, 32, "loss", fill=GREY))
    return _draw(184, "A run that was killed and goes on", *parts)


def fine_tuning() -> str:
    """A frozen matrix and two thin factors that are trained."""
    parts = [box(24, 46, 92, 92, "#e4e4e4", "#999999"), text(70, 98, "W", size=17)]
    parts += [text(140, 98, "+", size=17), box(164, 46, 18, 92, _PALE[1], ORANGE)]
    parts += [text(173, 98, "A", size=15), box(194, 46, 92, 18, _PALE[1], ORANGE)]
    parts += [text(240, 60, "B", size=15), link((300, 92), (346, 92))]
    parts += [box(360, 46, 92, 92, _PALE[2], GREEN)]
    parts += [
        text(406, 98, "W + A B", size=15),
        text(70, 32, "frozen", fill=GREY, size=15),
    ]
    parts += [text(228, 32, "trained", fill=ORANGE, size=15)]
    parts += [text(406, 32, "ordinary", fill=GREEN, size=15)]
    return _draw(160, "A low-rank update is trained beside a frozen matrix", *parts)


def cluster() -> str:
    """Two ways to share work: samples, or points."""
    parts = []
    for left, points in ((24, False), (264, True)):
        for sample in range(2):
            rng = random.Random(5 + sample)
            x0 = left + 100 * sample
            parts.append(box(x0, 34, 90, 90, "#ffffff", "#999999"))
            for _ in range(40):
                x, y = rng.random(), rng.random()
                device = int(x > 0.5) if points else sample
                place = (x0 + 6 + 78 * x, 40 + 78 * y)
                parts.append(dot(*place, 4, COLOURS[device]))
    for x, name, said in (
        (119, "batch:2", "each device has samples"),
        (359, "points:2", "each device has parts of all"),
    ):
        parts += [text(x, 24, name, size=15), text(x, 146, said, fill=GREY)]
    parts += [dot(170, 170, 5, BLUE), words(180, 175, "device 1", fill=BLUE)]
    parts += [dot(256, 170, 5, ORANGE), words(266, 175, "device 2", fill=ORANGE)]
    return _draw(188, "Two devices share samples, or the points of each", *parts)


def precision() -> str:
    """Bits of the data types."""
    types = (
        ("float64", 11, 52),
        ("float32", 8, 23),
        ("TF32", 8, 10),
        ("bfloat16", 8, 7),
        ("float16", 5, 10),
    )
    parts = []
    for i, (name, exponent, fraction) in enumerate(types):
        y, x = 36 + 32 * i, 92.0
        parts.append(words(10, y + 15, name))
        sections = ((1, GREY), (exponent, ORANGE), (fraction, BLUE))
        for count, colour in sections:
            parts.append(box(x, y, 4.6 * count - 1, 20, colour))
            x += 4.6 * count
        digits = (fraction + 1) * math.log10(2)
        parts.append(words(x + 8, y + 15, f"{digits:.1f} digits", fill=GREY))
    parts += [words(92, 24, "sign", fill=GREY), words(128, 24, "exponent", fill=ORANGE)]
    parts += [words(204, 24, "fraction", fill=BLUE)]
    return _draw(200, "Bits of the sign, the exponent and the fraction", *parts)


def chunks() -> str:
    """Chunks of points add to the same few coefficients."""
    rng, parts = random.Random(2), []
    for k in range(4):
        y = 26 + 46 * k
        parts.append(box(14, y, 120, 38, "#ffffff", "#999999"))
        for _ in range(26):
            place = (20 + 108 * rng.random(), y + 6 + 26 * rng.random())
            parts.append(dot(*place, 3, COLOURS[k]))
        parts += [link((138, y + 19), (196, 88 + 8 * k), COLOURS[k], 2)]
        parts += [link((282, 88 + 8 * k), (340, y + 19), COLOURS[k], 2)]
        parts.append(box(344, y, 120, 38, "#ffffff", "#999999"))
        for _ in range(26):
            x, v = rng.random(), rng.random()
            fill = shade(math.sin(5 * x) * math.cos(3 * (k + v)))
            parts.append(dot(350 + 108 * x, y + 6 + 26 * v, 3, fill))
    bars = (0.9, -0.6, 0.4, 0.7, -0.3, 0.2)
    parts += [box(226, 54 + 16 * k, 26, 15, shade(c)) for k, c in enumerate(bars)]
    parts += [text(239, 40, "coefficients", size=15)]
    parts += [text(239, 170, "one sum", fill=GREY), text(74, 18, "chunks of points")]
    parts += [text(404, 18, "values, chunk by chunk")]
    return _draw(220, "Chunks of points add to one set of coefficients", *parts)


def export() -> str:
    """A run folder becomes one file, that JAX runs without opjax."""
    parts = [
        node(10, 50, 106, 60, _PALE[0], "runs/mine", "a run folder"),
        link((120, 80), (172, 80), GREY, 2),
        node(176, 40, 124, 80, _PALE[1], "operator.jax", "StableHLO,", "parameters"),
        text(146, 68, "export", fill=GREY),
        link((304, 62), (348, 40), GREY, 2),
        link((304, 98), (348, 122), GREY, 2),
        node(352, 14, 118, 52, _PALE[2], "JAX", "without opjax"),
        node(352, 96, 118, 52, _PALE[3], "opjax", "checks the file"),
        text(238, 146, "any number of points", fill=GREY),
    ]
    return _draw(164, "A run folder becomes one file", *parts)


def publish() -> str:
    """A run folder becomes a folder that a name loads anywhere."""
    parts = [
        node(10, 50, 106, 60, _PALE[0], "runs/mine", "a run folder"),
        link((120, 80), (172, 80), GREY, 2),
        node(176, 34, 124, 92, _PALE[1], "weights", "model card", "checksums"),
        text(146, 68, "publish", fill=GREY),
        link((304, 62), (348, 40), GREY, 2),
        link((304, 98), (348, 122), GREY, 2),
        node(352, 14, 118, 52, _PALE[2], "a folder", "learn.load(path)"),
        node(352, 96, 118, 52, _PALE[3], "the hub", "hf://owner/name"),
    ]
    return _draw(164, "A run folder becomes a folder to share", *parts)


def gradients() -> str:
    """Arrows on a body: how a force changes when its wall moves."""

    def radius(a: float) -> float:
        return 52 + 8 * math.cos(3 * a)

    angles = [2 * math.pi * i / 28 for i in range(28)]
    wall = [
        (112 + radius(a) * math.cos(a), 92 - radius(a) * math.sin(a)) for a in angles
    ]
    parts = [polygon(wall, "#eeeeee", "#666666")]
    for a, (x, y) in zip(angles, wall, strict=True):
        slope = 24 * math.cos(a + 0.1) * math.cos(2 * a - 0.4)
        if abs(slope) < 5:
            continue
        colour = RED if slope > 0 else BLUE
        end = (x + slope * math.cos(a), y - slope * math.sin(a))
        parts.append(link((x, y), end, colour, 2))
    parts += [text(112, 98, "force", size=16), text(112, 184, "slope at each point")]
    rows = (
        ("jax.grad", "points and scalars", BLUE),
        ("jax.vmap", "batches of cases", ORANGE),
        ("jax.hessian", "curvatures", GREEN),
        ("export", "slopes without opjax", RED),
    )
    for i, (name, said, colour) in enumerate(rows):
        y = 22 + 40 * i
        parts += [words(228, y + 14, name, fill=colour), words(322, y + 14, said)]
    return _draw(200, "How a force changes when points of the wall move", *parts)


def design() -> str:
    """A prediction that falls where it is wrong, and the region it is trusted in."""

    def solved(t: float) -> float:
        return 0.55 - 0.9 * t + 0.85 * t * t

    def predicted(t: float) -> float:
        return solved(t) - 1.1 * max(0.0, t - 0.45) ** 2

    def curve(function: Callable[[float], float]) -> list[Point]:
        steps = [i / 40 for i in range(41)]
        return [(30 + 420 * t, 150 - 190 * function(t)) for t in steps]

    inside, best, wrong = (curve(predicted)[i] for i in (22, 21, 40))
    parts = [
        box(30, 30, inside[0] - 30, 130, _PALE[2]),
        line(curve(solved), BLUE, 2.5),
        line(curve(predicted), RED, 2.5),
        dot(*best, 5, GREEN),
        dot(*wrong, 5, RED),
        text((30 + inside[0]) / 2, 48, "the operator knows such cases", fill=GREEN),
        text(best[0] - 6, best[1] + 24, "with the guard", fill=GREEN),
        text(wrong[0] - 62, wrong[1] + 4, "without it", fill=RED),
        text(432, 46, "solved", fill=BLUE),
        text(240, 190, "scalars and shape"),
    ]
    return _draw(200, "An optimiser goes to where the prediction is wrong", *parts)


def migrate() -> str:
    """Calls of other packages and ours."""
    rows = (
        ("neuralop FNO", "FourierNeuralOperator", BLUE),
        ("Transolver", "PhysicsAttention", ORANGE),
        ("FUNCATTN", "FunctionalAttention", GREEN),
        ("Trainer", "learn.train", RED),
    )
    parts = [text(100, 22, "theirs", fill=GREY), text(340, 22, "ours", fill=GREY)]
    for i, (theirs, ours, colour) in enumerate(rows):
        y = 34 + 42 * i
        parts.append(node(20, y, 160, 34, _PALE[4], theirs))
        parts.append(link((184, y + 17), (236, y + 17), colour, 2))
        parts.append(node(240, y, 200, 34, _PALE[i], ours))
    return _draw(210, "Calls of other packages and those of opjax", *parts)


DRAWINGS = {
    draw.__name__: draw
    for draw in (
        (index, check, openfoam, calculix, fenics, ansys, data, meshes, cases)
        + (quantities, time, model, basis, attention, uncertainty, resume)
        + (fine_tuning, cluster, precision, chunks, gradients, design, publish)
        + (export, migrate)
    )
}
