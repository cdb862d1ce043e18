"""Folders of cases as OpenFOAM and foamToVTK leave them, small."""

import json

import pytest

pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")

TIMES = (0, 100, 200)


def blocks(path, value, time):
    """Writes a mesh and one of its patches as foamToVTK does."""
    mesh = pyvista.ImageData(dimensions=(4, 3, 2)).cast_to_unstructured_grid()
    mesh.cell_data["p"] = value + mesh.cell_centers().points[:, 0]
    mesh.point_data["p"] = value + mesh.points[:, 0]
    mesh.field_data["TimeValue"] = [float(time)]
    wall = mesh.extract_surface(algorithm="dataset_surface")
    pyvista.MultiBlock({"internal": mesh, "wall": wall}).save(path)


def solved(root, count=3, times=TIMES, listed=True, stems=True):
    """Writes folders as of OpenFOAM: case_0/VTK/case_0_200.vtm, case_0.vtm.series."""
    for i in range(count):
        case = root / f"case_{i}"
        for folder in ("VTK", "system", "constant/triSurface", "0", "200/uniform"):
            (case / folder).mkdir(parents=True)
        (case / "system" / "controlDict").write_text("")
        (case / "constant" / "triSurface" / "a.stl").write_text("no result")
        (case / "log.vtk").write_text("a log")
        stem = f"case_{i}" if stems else "flow"
        for time in times:
            blocks(case / "VTK" / f"{stem}_{time}.vtm", 10 * i + time, time / 100)
        rows = [{"name": f"{stem}_{t}.vtm", "time": t / 100} for t in times]
        if listed:
            text = json.dumps({"file-series-version": "1.0", "files": rows})
            (case / "VTK" / f"{stem}.vtm.series").write_text(text)
    return root


def table(root, rows=None, head="case,load", name="case_{}"):
    rows = [f"{name.format(i)},{i + 0.5}" for i in range(3)] if rows is None else rows
    (root / "cases.csv").write_text("\n".join([head, *rows, ""]))
