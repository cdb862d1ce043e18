"""Solves small plates with a hole with CalculiX (ccx 2.20): 96 cells C3D8.

Plates of 100 x 40, clamped at x = 0, are pulled at x = 100. Usage:
python make_holes.py FOLDER FIRST LAST, which makes FOLDER/plate_000.frd and so on, and
FOLDER/cases.csv with file, load, angle, modulus, t, hx, hy, r.
"""

import math
import pathlib
import random
import subprocess
import sys

AROUND, LAYERS = 24, 2  # cells around the hole, and from it to the outside
DECK = """*MATERIAL,NAME=M
*ELASTIC
{modulus},0.3
*SOLID SECTION,ELSET=ALL,MATERIAL=M
*BOUNDARY
CLAMP,1,3
*STEP
*STATIC
*CLOAD
END,1,{fx}
END,2,{fy}
*NODE FILE
U,RF
*EL FILE
S
*END STEP
"""


def outside(place: float) -> tuple[float, float]:
    """A point of the rim of the plate; the corners are at 0, 10/28, 1/2 and 24/28."""
    along = place * 280
    if along <= 100:
        return along, 0.0
    if along <= 140:
        return 100.0, along - 100
    return (240 - along, 40.0) if along <= 240 else (0.0, 280 - along)


def solve(folder: pathlib.Path, stem: str, given: dict[str, float]) -> None:
    """Writes and runs a plate."""
    corners = [0, 10 / 28, 14 / 28, 24 / 28, 1]
    counts = [8, 4, 8, 4]
    rim = [
        outside(a + (b - a) * i / count)
        for a, b, count in zip(corners, corners[1:], counts, strict=False)
        for i in range(count)
    ]
    points: list[tuple[float, float, float]] = []
    for z in (0.0, given["t"] / 2, given["t"]):
        for layer in range(LAYERS + 1):
            for x, y in rim:
                dx, dy = x - given["hx"], y - given["hy"]
                near = given["r"] / math.hypot(dx, dy)
                share = near + (1 - near) * layer / LAYERS
                points.append((given["hx"] + share * dx, given["hy"] + share * dy, z))

    def number(z: int, layer: int, i: int) -> int:
        return 1 + (z * (LAYERS + 1) + layer) * AROUND + i % AROUND

    cells = [
        [
            number(z + up, layer + out, i + on)
            for up in (0, 1)
            for on, out in ((0, 0), (0, 1), (1, 1), (1, 0))
        ]
        for z in range(2)
        for layer in range(LAYERS)
        for i in range(AROUND)
    ]
    lines = ["*NODE,NSET=NALL"]
    lines += [f"{k},{x!r},{y!r},{z!r}" for k, (x, y, z) in enumerate(points, 1)]
    lines += ["*ELEMENT,TYPE=C3D8,ELSET=ALL"]
    lines += [f"{k},{','.join(map(str, cell))}" for k, cell in enumerate(cells, 1)]
    ends: dict[str, list[int]] = {}
    for name, x in (("CLAMP", 0.0), ("END", 100.0)):
        found = [k for k, point in enumerate(points, 1) if abs(point[0] - x) < 1e-9]
        ends[name] = found
        lines += [f"*NSET,NSET={name}", *(f"{k}," for k in found)]
    angle, each = math.radians(given["angle"]), given["load"] / len(ends["END"])
    force = {"fx": each * math.cos(angle), "fy": each * math.sin(angle)}
    deck = DECK.format(modulus=given["modulus"], **force)
    (folder / f"{stem}.inp").write_text("\n".join(lines) + "\n" + deck)
    subprocess.run(["ccx", stem], cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    root, first, last = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
    root.mkdir(parents=True, exist_ok=True)
    names = ("load", "angle", "modulus", "t", "hx", "hy", "r")
    low = (1000, -20, 7e4, 5, 40, 17, 5)
    high = (3000, 20, 2e5, 10, 60, 23, 9)
    rows = [f"file,{','.join(names)}"]
    for case in range(first, last):
        draw = random.Random(case).uniform
        drawn = [draw(*ends) for ends in zip(low, high, strict=True)]
        solve(root, f"plate_{case:03d}", dict(zip(names, drawn, strict=True)))
        rows.append(f"plate_{case:03d}.vtu,{','.join(f'{one:.6g}' for one in drawn)}")
    (root / "cases.csv").write_text("\n".join(rows) + "\n")
