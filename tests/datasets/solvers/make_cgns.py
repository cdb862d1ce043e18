"""Writes h27.cgns and w15.cgns, boxes of one and two cells of second order, with gmsh.

`pip install gmsh` (4.15.2), then gzip. Usage: python make_cgns.py
"""

import gmsh


def box(name: str, *, wedges: bool, incomplete: int) -> None:
    """Meshes a box of one layer."""
    gmsh.initialize()
    gmsh.option.setNumber("General.Terminal", 0)
    base = gmsh.model.occ.addRectangle(0, 0, 0, 2, 1)
    gmsh.model.occ.extrude([(2, base)], 0, 0, 3, [1], recombine=True)
    gmsh.model.occ.synchronize()
    for _, curve in gmsh.model.getEntities(1):
        gmsh.model.mesh.setTransfiniteCurve(curve, 2)
    for _, surface in gmsh.model.getEntities(2):
        gmsh.model.mesh.setTransfiniteSurface(surface)
        if not wedges:
            gmsh.model.mesh.setRecombine(2, surface)
    gmsh.option.setNumber("Mesh.SecondOrderIncomplete", incomplete)
    gmsh.option.setNumber("Mesh.ElementOrder", 2)
    gmsh.model.mesh.generate(3)
    gmsh.write(f"{name}.cgns")
    gmsh.finalize()


box("h27", wedges=False, incomplete=0)
box("w15", wedges=True, incomplete=1)
