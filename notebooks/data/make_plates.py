"""Plates with a hole, solved by CalculiX: makes data like `plates.zip` of notebook 13.

The plates there were drawn by an earlier form of this program, from the same ranges by
other seeds, and with elastic moduli that differ, on which the stress does not depend.

Needs ccx (calculix-ccx of Debian, 2.20) and `pip install gmsh ccx2paraview pyvista`.
Usage: python make_plates.py FOLDER [NUM_KNOWN NUM_NEW]; raw files stay in FOLDER.
"""

import io
import math
import pathlib
import subprocess
import sys
import zipfile

import gmsh
import numpy as np
import pyvista

LENGTH, HEIGHT = 100.0, 40.0  # mm
COLUMNS = ("load", "angle", "t", "hx", "hy", "r")
STEP = """*MATERIAL,NAME=STEEL
*ELASTIC
210000.,0.3
*SOLID SECTION,ELSET=ALL,MATERIAL=STEEL
*BOUNDARY
CLAMP,1,3
*STEP
*STATIC
*CLOAD
{loads}
*NODE FILE
U
*EL FILE
S
*END STEP
"""


def draw(rng):
    """Numbers of a plate: N, degrees, mm."""
    ranges = ((500, 5000), (-60, 60), (3, 10), (25, 75), (16, 24), (4, 12))
    numbers = [rng.uniform(*limits) for limits in ranges]
    return dict(zip(COLUMNS, numbers, strict=True))


def mesh(plate):
    """Points, second-order tetrahedra, clamped nodes, and shares of the load."""
    gmsh.initialize()
    options = {"MeshSizeMax": 6, "MeshSizeMin": 1.5, "MeshSizeFromCurvature": 14}
    for name, value in (options | {"ElementOrder": 2}).items():
        gmsh.option.setNumber(f"Mesh.{name}", value)
    gmsh.option.setNumber("General.Terminal", 0)
    occ, t = gmsh.model.occ, plate["t"]
    box = occ.addBox(0, 0, 0, LENGTH, HEIGHT, t)
    hole = occ.addCylinder(plate["hx"], plate["hy"], -1, 0, 0, t + 2, plate["r"])
    occ.cut([(3, box)], [(3, hole)])
    occ.synchronize()
    gmsh.model.mesh.generate(3)
    tags, points, _ = gmsh.model.mesh.getNodes()
    points = points.reshape(-1, 3)[np.argsort(tags)]  # tags are 1, 2, ...
    kinds, _, nodes = gmsh.model.mesh.getElements(3)
    cells = nodes[list(kinds).index(11)].reshape(-1, 10).astype(int) - 1
    kinds, _, nodes = gmsh.model.mesh.getElements(2)
    faces = nodes[list(kinds).index(9)].reshape(-1, 6).astype(int) - 1
    gmsh.finalize()
    faces = faces[(points[faces, 0] > LENGTH - 1e-6).all(axis=1)]
    a, b, c = np.moveaxis(points[faces[:, :3]], 1, 0)
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
    shares = np.zeros(len(points))  # a constant traction acts on the middles of edges
    np.add.at(shares, faces[:, 3:], areas[:, None] / areas.sum() / 3)
    cells = cells[:, [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]]  # the order of Abaqus
    return points, cells, np.flatnonzero(points[:, 0] < 1e-6), shares


def numbered(rows):
    """Lines of an input file."""
    return [",".join(map(str, (i, *row))) for i, row in enumerate(rows, 1)]


def solve(folder, stem, plate):
    """Writes the input, runs CalculiX and converts; returns the `.vtu` file.

    Raises:
      CalledProcessError: if CalculiX refuses the mesh, as one with a curved tetrahedron
        that is inside out.
    """
    points, cells, clamp, shares = mesh(plate)
    angle = math.radians(plate["angle"])
    force = plate["load"] * math.cos(angle), plate["load"] * math.sin(angle)
    lines = ["*NODE,NSET=NALL"]
    lines += numbered(points.tolist())
    lines += ["*ELEMENT,TYPE=C3D10,ELSET=ALL"]
    lines += numbered((cells + 1).tolist())
    lines += ["*NSET,NSET=CLAMP", *(f"{node + 1}," for node in clamp)]
    loads = (
        f"{node + 1},{axis},{shares[node] * force[axis - 1]}"
        for node in np.flatnonzero(shares)
        for axis in (1, 2)
    )
    text = "\n".join(lines) + "\n" + STEP.format(loads="\n".join(loads))
    (folder / f"{stem}.inp").write_text(text)
    subprocess.run(["ccx", stem], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    converter = pathlib.Path(sys.executable).with_name("ccx2paraview")
    subprocess.run([converter, f"{stem}.frd", "vtu"], cwd=folder, check=True)
    return folder / f"{stem}.vtu"


def surface(path):
    """Corners of the face z = 0, the triangles between them and the stress there."""
    found = pyvista.read(path)
    points, cells = np.asarray(found.points), found.cells_dict[24][:, :4]
    triangles = cells[:, [[0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]]].reshape(-1, 3)
    triangles = triangles[(np.abs(points[triangles, 2]) < 1e-6).all(axis=1)]
    used, triangles = np.unique(triangles, return_inverse=True)
    flat, triangles = points[used, :2], triangles.reshape(-1, 3)
    order = np.lexsort(flat.T[::-1])
    return flat[order], np.argsort(order)[triangles], found["S_Mises"][used][order]


def short(values):
    """Numbers of ten binary digits, which compress well."""
    mantissa, exponent = np.frexp(np.asarray(values, float))
    return np.ldexp(np.round(mantissa * 2**10) / 2**10, exponent).astype(np.float32)


def main(folder, num_known=120, num_new=24):
    folder, rng = pathlib.Path(folder), np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    table = [",".join(("file", *COLUMNS))]
    stems = [f"plate_{i:03d}" for i in range(num_known)]
    stems += [f"new_{i:03d}" for i in range(num_new)]
    with zipfile.ZipFile(folder / "plates.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for stem in stems:
            while True:
                plate = draw(rng)
                try:
                    path = solve(folder, stem, plate)
                    break
                except subprocess.CalledProcessError:
                    print(f"{stem} is drawn again: CalculiX refused its mesh.")
            points, cells, stress = surface(path)
            stream = io.BytesIO()
            np.savez(
                stream,
                mesh_points=np.round(points, 2).astype(np.float32),
                cells=cells.astype(np.uint16),
                S_Mises=short(stress),
            )
            archive.writestr(f"{stem}.npz", stream.getvalue())
            numbers = (f"{plate[name]:.6g}" for name in COLUMNS)
            table.append(",".join((f"{stem}.npz", *numbers)))
        archive.writestr("cases.csv", "\n".join(table) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
