"""Writes samples by PLAID's own library: `pip install pyplaid`, then run this file.

python tests/datasets/plaid/write.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np

N = 4
WALL = np.arange(N)  # the first row of points


def mesh() -> tuple[np.ndarray, np.ndarray]:
    """Points of a square in the plane, row by row, and triangles."""
    x, y = np.meshgrid(np.linspace(0, 1, N), np.linspace(0, 1, N))
    first = (np.arange(N - 1)[:, None] * N + np.arange(N - 1)).ravel()
    corners = np.array([(0, 1, N + 1), (0, N + 1, N)])
    triangles = (first[:, None, None] + corners[None]).reshape(-1, 3)
    return np.stack([x.ravel(), y.ravel()], axis=1), triangles


def fields(number: int) -> dict[str, np.ndarray]:
    """Fields of a sample: two at points and one at cells."""
    points, triangles = mesh()
    u = np.sin(points[:, 0] + number)
    return {"u": u, "v": u * points[:, 1], "p": u[triangles].mean(axis=1)}


def write(folder: Path, count: int = 4) -> None:
    """Writes samples with scalars, several fields and a tag of points."""
    from CGNS.PAT import cgnslib
    from plaid import Sample

    points, triangles = mesh()
    for number in range(count):
        sample = Sample()
        sample.init_base(2, 2, "Base_2_2", time=0.0)
        place = {"zone": "Zone", "base": "Base_2_2", "time": 0.0}
        sizes = np.array([[len(points), len(triangles), 0]])
        sample.init_zone(sizes, **place)
        sample.set_nodes(points, **place)
        zone = sample.get_zone(**place)
        ends = np.array([1, len(triangles)])
        corners = (triangles + 1).ravel()
        cgnslib.newElements(zone, "Elements_TRI_3", "TRI_3", ends, corners)
        tag = cgnslib.newBoundary(
            zone, "wall", (WALL + 1)[None, :], pttype="PointList", family="wall"
        )
        cgnslib.newGridLocation(tag, "Vertex")
        for name, values in fields(number).items():
            location = "CellCenter" if name == "p" else "Vertex"
            sample.add_field(name, values, location=location, **place)
        sample.add_global("angle", 1.5 * number)
        sample.add_global("note", "a text")
        sample.save_to_dir(folder / f"sample_{number:09d}")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    write(where)
