"""Small plates of CalculiX with second-order cells: C3D10 and C3D20.

Needs ccx (calculix-ccx of Debian, 2.20) and `pip install gmsh ccx2paraview`. Writes
FOLDER/c3d10.vtu and FOLDER/c3d20.vtu as ccx2paraview does; only the last frame is kept.
Usage: python make_plates.py FOLDER
"""

import pathlib
import subprocess
import sys

import gmsh

SIZE = 4.0, 2.0, 1.0
# Order of Abaqus's nodes among gmsh's.
ORDERS = {
    "C3D10": (11, [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]),
    "C3D20": (
        17,
        [*range(8), 8, 11, 13, 9, 16, 18, 19, 17, 10, 12, 14, 15],
    ),
}
STEP = """*MATERIAL,NAME=M
*ELASTIC
1000.,0.3
*SOLID SECTION,ELSET=ALL,MATERIAL=M
*BOUNDARY
CLAMP,1,3
*STEP
*STATIC
*CLOAD
TIP,3,-0.1
*NODE FILE
U,RF
*EL FILE
S
*END STEP
"""


def plate(folder: pathlib.Path, kind: str) -> None:
    """Meshes a box with a hole, bends it and converts the results."""
    number, order = ORDERS[kind]
    gmsh.initialize()
    gmsh.option.setNumber("General.Terminal", 0)
    gmsh.option.setNumber("Mesh.MeshSizeMin", 1.5)
    gmsh.option.setNumber("Mesh.ElementOrder", 2)
    gmsh.option.setNumber("Mesh.SecondOrderIncomplete", 1)
    occ = gmsh.model.occ
    if kind == "C3D10":
        occ.cut(
            [(3, occ.addBox(0, 0, 0, *SIZE))],
            [(3, occ.addCylinder(2, 1, -1, 0, 0, 3, 0.5))],
        )
    else:
        base = occ.addRectangle(0, 0, 0, *SIZE[:2])
        occ.extrude([(2, base)], 0, 0, SIZE[2], [2], recombine=True)
        gmsh.option.setNumber("Mesh.RecombineAll", 1)
    occ.synchronize()
    if kind == "C3D20":
        for _, curve in gmsh.model.getEntities(1):
            gmsh.model.mesh.setTransfiniteCurve(curve, 3)
        for _, surface in gmsh.model.getEntities(2):
            gmsh.model.mesh.setTransfiniteSurface(surface)
    gmsh.model.mesh.generate(3)
    tags, points, _ = gmsh.model.mesh.getNodes()
    kinds, _, nodes = gmsh.model.mesh.getElements(3)
    cells = nodes[list(kinds).index(number)].reshape(-1, len(order))[:, order]
    used = set(cells.ravel().tolist())
    every = zip(tags.tolist(), points.reshape(-1, 3).tolist(), strict=True)
    where = {tag: point for tag, point in every if tag in used}
    gmsh.finalize()
    lines = ["*NODE,NSET=NALL"]
    lines += [f"{tag},{','.join(map(repr, p))}" for tag, p in where.items()]
    lines += [f"*ELEMENT,TYPE={kind},ELSET=ALL"]
    for row, cell in enumerate(cells.tolist(), 1):
        numbers = [row, *cell]
        lines += [",".join(map(str, numbers[:11])) + "," * (len(numbers) > 11)]
        lines += [",".join(map(str, numbers[11:]))] * (len(numbers) > 11)
    for name, x in (("CLAMP", 0.0), ("TIP", SIZE[0])):
        members = [str(tag) for tag, p in where.items() if abs(p[0] - x) < 1e-6]
        lines += [f"*NSET,NSET={name}", *(f"{tag}," for tag in members)]
    stem = kind.lower()
    (folder / f"{stem}.inp").write_text("\n".join(lines) + "\n" + STEP)
    subprocess.run(["ccx", stem], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    converter = pathlib.Path(sys.executable).with_name("ccx2paraview")
    subprocess.run([converter, f"{stem}.frd", "vtu"], cwd=folder, check=True)


if __name__ == "__main__":
    place = pathlib.Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for one in ORDERS:
        plate(place, one)
