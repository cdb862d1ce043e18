"""Solves small flows past a cylinder in a channel with OpenFOAM's simpleFoam.

Meshes of 112 cells, one cell thick, with the patches inlet, outlet, walls and cylinder.
Usage: python make_flows.py FOLDER FIRST LAST, which makes FOLDER/case_000 and so on,
and FOLDER/cases.csv with the columns case, Uin, R, y0.
"""

import itertools
import math
import os
import pathlib
import random
import subprocess
import sys

HEAD = "FoamFile {{ version 2.0; format ascii; class {}; object {}; }}\n"
SIDES = "walls { type slip; } sides { type empty; }"
FILES = {
    ("constant", "transportProperties"): "transportModel Newtonian;\n"
    "nu [0 2 -1 0 0 0 0] 0.06;",
    ("constant", "turbulenceProperties"): "simulationType laminar;",
    ("system", "controlDict"): "application simpleFoam; startFrom startTime; "
    "startTime 0; stopAt endTime; endTime 30; deltaT 1; writeControl timeStep; "
    "writeInterval 30; writeFormat ascii;",
    ("system", "fvSchemes"): "ddtSchemes { default steadyState; } "
    "gradSchemes { default Gauss linear; } divSchemes { default none; "
    "div(phi,U) bounded Gauss upwind; "
    "div((nuEff*dev2(T(grad(U))))) Gauss linear; } "
    "laplacianSchemes { default Gauss linear corrected; } "
    "interpolationSchemes { default linear; } snGradSchemes { default corrected; }",
    ("system", "fvSolution"): "solvers { p { solver PCG; preconditioner DIC; "
    "tolerance 1e-8; relTol 0.01; } U { solver PBiCGStab; preconditioner DILU; "
    "tolerance 1e-8; relTol 0.01; } } "
    "SIMPLE { consistent yes; } "
    "relaxationFactors { equations { U 0.9; } fields { p 1; } }",
}


def mesh(radius: float, height: float) -> str:
    """The blocks: nine squares, of which the middle one has a hole."""
    s = radius / math.sqrt(2)
    xs, ys = (-4, -1.5, 1.5, 8), (-4, height - 1.5, height + 1.5, 4)
    plane = [(x, y) for y in ys for x in xs]
    plane += [(i * s, height + j * s) for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    n, ring, outer = len(plane), (16, 17, 18, 19), (5, 6, 10, 9)
    blocks: list[str] = []

    def block(corners: tuple[int, ...], nx: int, ny: int) -> None:
        both = " ".join(str(k + up) for up in (0, n) for k in corners)
        blocks.append(f"hex ({both}) ({nx} {ny} 1) simpleGrading (1 1 1)")

    for j, i in itertools.product(range(3), repeat=2):
        k = 4 * j + i
        if (i, j) != (1, 1):
            block((k, k + 1, k + 5, k + 4), (2, 4, 4)[i], (2, 4, 2)[j])
    arcs: list[str] = []
    for k, middle in enumerate(((0, -1), (1, 0), (0, 1), (-1, 0))):
        after = (k + 1) % 4
        block((ring[k], outer[k], outer[after], ring[after]), 3, 4)
        x, y = radius * middle[0], height + radius * middle[1]
        for up, z in ((0, 0.0), (n, 0.2)):
            arcs.append(f"arc {ring[k] + up} {ring[after] + up} ({x} {y} {z})")

    def patch(name: str, kind: str, ends: list[tuple[int, int]]) -> str:
        faces = " ".join(f"({p} {q} {q + n} {p + n})" for p, q in ends)
        return f"{name} {{ type {kind}; faces ({faces}); }}"

    patches = [
        patch("inlet", "patch", [(4 * j, 4 * j + 4) for j in range(3)]),
        patch("outlet", "patch", [(4 * j + 3, 4 * j + 7) for j in range(3)]),
        patch(
            "walls", "patch", [(i + k, i + k + 1) for k in (0, 12) for i in range(3)]
        ),
        patch("cylinder", "wall", [(ring[k], ring[(k + 1) % 4]) for k in range(4)]),
    ]
    points = [f"({x} {y} {z})" for z in (0.0, 0.2) for x, y in plane]
    return (
        f"vertices ({' '.join(points)}); blocks ({' '.join(blocks)}); "
        f"edges ({' '.join(arcs)}); boundary ({' '.join(patches)}); "
        "defaultPatch { type empty; name sides; }"
    )


def solve(folder: pathlib.Path, speed: float, radius: float, height: float) -> None:
    """Writes and runs a case."""
    wind = f"uniform ({speed} 0 0)"
    files = {
        **FILES,
        ("system", "blockMeshDict"): mesh(radius, height),
        ("0", "U"): f"dimensions [0 1 -1 0 0 0 0]; internalField {wind}; "
        f"boundaryField {{ inlet {{ type fixedValue; value {wind}; }} "
        f"outlet {{ type zeroGradient; }} cylinder {{ type noSlip; }} {SIDES} }}",
        ("0", "p"): "dimensions [0 2 -2 0 0 0 0]; internalField uniform 0; "
        "boundaryField { inlet { type zeroGradient; } outlet { type fixedValue; "
        f"value uniform 0; }} cylinder {{ type zeroGradient; }} {SIDES} }}",
    }
    kinds = {"U": "volVectorField", "p": "volScalarField"}
    for (where, name), text in files.items():
        path = folder / where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD.format(kinds.get(name, "dictionary"), name) + text + "\n")
    place = {"WM_PROJECT_DIR": "/usr/share/openfoam"} | os.environ
    with (folder / "log").open("w") as log:
        for program in ("blockMesh", "simpleFoam"):
            subprocess.run([program], cwd=folder, stdout=log, check=True, env=place)


if __name__ == "__main__":
    root, first, last = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
    rows = ["case,Uin,R,y0"]
    for number in range(first, last):
        draw = random.Random(number).uniform
        given = draw(0.5, 2), draw(0.35, 0.65), draw(-0.8, 0.8)
        solve(root / f"case_{number:03d}", *given)
        rows.append(f"case_{number:03d},{','.join(f'{one:.4f}' for one in given)}")
    (root / "cases.csv").write_text("\n".join(rows) + "\n")
