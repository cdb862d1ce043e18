"""Integrals over boundaries of files: cell data, mixed cells, conditions, sets."""

import pathlib

import numpy as np
import pytest

from opjax.files.vtk import vtu_write
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from opjax.learn.config.quantities import parse
from opjax.learn.predict.quantities import measure
from tests.datasets.reading import read_one
from tests.refused import value_error

_QUAD, _TRIANGLE, _LINE = 9, 5, 3


def write(path, points, cells, kinds, *, at_points=None, at_cells=None, **field_data):
    """A file of cells of several kinds."""
    points = np.pad(np.asarray(points, float), [(0, 0), (0, 3 - len(points[0]))])
    sizes = [len(cell) for cell in cells]
    mesh = VtkMesh(
        points,
        np.cumsum([0, *sizes]),
        np.concatenate(cells).astype(np.int64),
        np.array(kinds),
        NamedArrays(dict(at_points or {})),
        NamedArrays(dict(at_cells or {})),
        NamedArrays(field_data),
    )
    vtu_write.write(path, mesh, {})
    return path


def plate(n=4, hole=True):
    """Points and quadrilaterals of a square of side `n`; without four in the middle."""
    x, y = np.meshgrid(*[np.arange(n + 1.0)] * 2, indexing="ij")
    points = np.stack([x.ravel(), y.ravel()], -1)
    cells = [
        [i * (n + 1) + j, (i + 1) * (n + 1) + j, (i + 1) * (n + 1) + j + 1]
        + [i * (n + 1) + j + 1]
        for i in range(n)
        for j in range(n)
        if not (hole and {i, j} <= {1, 2})
    ]
    return points, cells


def centers(points, cells):
    return np.array([points[cell].mean(axis=0) for cell in cells])


HOLE = "hole: 1 - 1e-6 < x < 3 + 1e-6 and 1 - 1e-6 < y < 3 + 1e-6"


def one(path, text, names, **options):
    """A quantity of the target of a file."""
    how = {"target": ",".join(dict.fromkeys(names)), "facets": True, **options}
    sample = read_one(path, **how)
    (found,) = measure(parse(text), sample, [sample.target], {"target": names})
    return found[text]


@pytest.fixture
def square(tmp_path):
    """Fields at cells: a pressure that is linear in space, and a uniform velocity."""
    points, cells = plate()
    middle = centers(points, cells)
    data = {"p": 7 + 2 * middle[:, 0], "U": np.tile([3.0, 0, 0], (len(cells), 1))}
    return write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells), at_cells=data)


def test_facets_take_the_values_of_their_cells(square):
    """Beside the hole p is 8 at its left and 14 at its right, on two sides each."""
    of_hole = {"location": "cells", "boundary": HOLE}
    assert one(square, "force_x:p@hole", ["p"], **of_hole) == pytest.approx(-2 * 6)
    assert one(square, "force_y:p@hole", ["p"], **of_hole) == pytest.approx(0)
    expected = (2 * 8 + 2 * 14 + 2 * (10 + 12)) / 8
    assert one(square, "mean:p@hole", ["p"], **of_hole) == pytest.approx(expected)
    found = one(square, "integral:p@hole", ["p"], **of_hole)
    assert found == pytest.approx(8 * expected)


def test_a_flux_is_one_out_of_the_mesh(square):
    sides = {"location": "cells", "boundary": f"in: x < 0.1; out: x > 3.9; {HOLE}"}
    names = ["U"] * 3
    assert one(square, "flux:U@in", names, **sides) == pytest.approx(-12)
    assert one(square, "flux:U@out", names, **sides) == pytest.approx(12)
    assert one(square, "flux:U@hole", names, **sides) == pytest.approx(0)
    assert one(square, "mean:U_x@out", names, **sides) == pytest.approx(3)
    parts = {**sides, "target": "U_x,U_y"}
    assert one(square, "flux:U@in", ["U_x", "U_y"], **parts) == pytest.approx(-12)
    assert one(square, "sum:U@in", names, **sides) == pytest.approx(12)


def test_vectors_and_forces_have_the_axes_of_their_plane(tmp_path):
    points, cells = plate(hole=False)
    points = np.insert(points, 1, 0.5, axis=1)  # in the plane of x and z
    velocity = np.tile([1.0, 0, 3], (len(cells), 1))
    data = {"U": velocity, "p": centers(points, cells)[:, 2]}
    path = write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells), at_cells=data)
    top = {"location": "cells", "boundary": "top: z > 3.9 and y < 1"}
    assert one(path, "flux:U@top", ["U"] * 3, **top) == pytest.approx(12)
    found = one(path, "force_z:p@top:reference=0", ["p"], **top)
    assert found == pytest.approx(3.5 * 4)
    data["U"][:, 1] = 2
    write(path, points, cells, [_QUAD] * len(cells), at_cells=data)
    with value_error("normal to the plane of the mesh.* axes x, z"):
        one(path, "flux:U@top", ["U"] * 3, **top)


def test_a_moment_is_one_about_a_point(square):
    """A force of 1 on a side of length 4 at x = 4, whose middle is at y = 2."""
    side = {"location": "cells", "boundary": "out: x > 3.9"}
    for about, arm in (("", 2), (":about=0,2", 0), (":about=1,-1,5", 3)):
        text = f"moment_z:p@out:reference=13{about}"
        found = one(square, text, ["p"], **side)
        assert found == pytest.approx(-4 * arm, abs=1e-5)  # p is 14 there
    with value_error("two-dimensional; use moment_z"):
        one(square, "moment_x:p@out:reference=0", ["p"], **side)


def test_a_velocity_that_rises_linearly_has_its_shear_stress(tmp_path):
    points, cells = plate(hole=False)
    speed = 3 * centers(points, cells)[:, 1]
    data = {"U": np.stack([speed, 0.1 * speed, 0 * speed], -1)}
    path = write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells), at_cells=data)
    wall, names = {"location": "cells", "boundary": "wall: y < 0.1"}, ["U"] * 3
    text = "shear_x:U@wall:viscosity=0.5"
    assert one(path, text, names, **wall) == pytest.approx(0.5 * 3 * 4)
    coefficient = one(path, f"{text}:kinematic=2:speed=3", names, **wall)
    assert coefficient == pytest.approx(2 * 6 / (9 / 2))
    across = one(path, "shear_y:U@wall:viscosity=1", names, **wall)
    assert across == pytest.approx(0, abs=1e-6)
    with value_error("2 dimensions"):
        one(path, "shear_z:U@wall:viscosity=1", names, **wall)
    np.savez(
        tmp_path / "a.npz", mesh_points=points, cells=cells, U=np.ones((len(points), 2))
    )
    with value_error(r"a\.npz: .*--location=cells"):
        one(tmp_path / "a.npz", text, ["U"] * 2, boundary="wall: y < 0.1")


def test_an_open_wall_needs_the_pressure_of_its_other_side(square):
    side = {"location": "cells", "boundary": "out: x > 3.9"}
    with value_error(r"open at 2 edges.*force_x:p@out:reference=0"):
        one(square, "force_x:p@out", ["p"], **side)
    found = one(square, "force_x:p@out:reference=10", ["p"], **side)
    assert found == pytest.approx(4 * (14 - 10))
    found = one(square, "force_x:p@out:reference=10:kinematic=5", ["p"], **side)
    assert found == pytest.approx(5 * 4 * (14 - 10))
    found = one(square, "force_x:p@out:reference=10:area=4:speed=2", ["p"], **side)
    assert found == pytest.approx(2 * 16 / 4 / 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mean:p@one", "(no facet has all its points in|boundary 'one' has no points)"),
        ("force_x:p", "name the wall, as in force_x:p@wall"),
        ("mean:p@other", "'other' is unknown; available: one"),
    ],
)
@pytest.mark.parametrize("location", ["points", "cells"])
def test_a_boundary_without_facets_is_named(tmp_path, location, text, words):
    points, cells = plate()
    data = {"at_points": {"p": points[:, 0]}, "at_cells": {"p": np.ones(len(cells))}}
    path = write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells), **data)
    corner = {"boundary": "one: x + y < 0.5", "location": location}
    with value_error(rf"a\.vtu: {text}: .*{words}"):
        one(path, text, ["p"], **corner)


def test_triangles_and_quads_have_the_facets_of_both(tmp_path):
    points, cells = plate()
    mixed = [part for c in cells[:6] for part in ([*c[:3]], [c[0], *c[2:]])] + cells[6:]
    kinds = [_TRIANGLE] * 12 + [_QUAD] * (len(cells) - 6)
    data = {"p": 5 + points[:, 0] - 3 * points[:, 1]}
    path = write(tmp_path / "a.vtu", points, mixed, kinds, at_points=data)
    found = [one(path, f"force_{a}:p@hole", ["p"], boundary=HOLE) for a in "xy"]
    np.testing.assert_allclose(found, [-4, 12], rtol=1e-6)  # minus gradient times area
    found = one(path, "integral:p@in", ["p"], boundary="in: x < 0.1")
    assert found == pytest.approx(4 * (5 - 6))


def test_a_surface_of_cell_data_has_the_force_on_its_body(tmp_path):
    sides = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6]]
    sides = [*sides, [0, 2, 6, 4], [1, 5, 7, 3]]
    points = np.array([[x, y, z] for x in (0, 2) for y in (0, 1) for z in (0, 1)])
    middle = centers(points, sides)
    data = {"p": 4 - middle[:, 2]}
    path = write(tmp_path / "a.vtu", points, sides, [_QUAD] * 6, at_cells=data)
    assert one(path, "force_z:p", ["p"], location="cells") == pytest.approx(2)
    top = {"location": "cells", "boundary": "top: z > 0.9"}
    assert one(path, "mean:p@top", ["p"], **top) == pytest.approx(3)
    with value_error(r"quads of a surface and is open at 4 edges"):
        one(path, "force_z:p@top:reference=0", ["p"], **top)


def test_a_curve_of_sides_has_the_force_on_its_body(tmp_path):
    turns = 2 * np.pi * np.arange(24) / 24
    points = np.stack([np.cos(turns), np.sin(turns)], -1)
    ends = np.arange(24)
    sides = np.stack([ends, np.roll(ends, -1)], -1)
    np.savez(
        tmp_path / "a.npz",
        mesh_points=points,
        cells=sides,
        p=-points[:, 1],
        middle=-points[sides].mean(axis=1)[:, 1],
        wall=np.ones(24),
    )
    area = 12 * np.sin(2 * np.pi / 24)
    found = one(tmp_path / "a.npz", "force_y:p@wall", ["p"], boundary_names="wall")
    assert found == pytest.approx(area, rel=1e-6)
    found = one(tmp_path / "a.npz", "force_y:middle", ["middle"], location="cells")
    assert found == pytest.approx(area, rel=1e-6)


def test_sums_are_those_of_all_points_without_weights(tmp_path):
    points, cells = plate()
    forces = np.random.default_rng(0).normal(size=(len(points), 3))
    path = write(
        tmp_path / "a.vtu",
        points,
        cells,
        [_QUAD] * len(cells),
        at_points={"RF": forces},
    )
    how, names = {"boundary": "clamp: x < 1e-6"}, ["RF"] * 3
    on = points[:, 0] < 1e-6
    assert one(path, "sum:RF_y@clamp", names, **how) == pytest.approx(
        forces[on, 1].sum(), rel=1e-5
    )
    resultant = np.linalg.norm(forces[on].sum(axis=0))
    assert one(path, "sum:RF@clamp", names, **how) == pytest.approx(resultant, rel=1e-5)
    found = one(path, "sum:RF_z", names, **how)
    assert found == pytest.approx(forces[:, 2].sum(), rel=1e-5)
    with value_error("name one of RF_x, RF_y, RF_z, RF:mag"):
        one(path, "max:RF@clamp", names, **how)


def members(path, **options):
    sample = read_one(path, need_target=False, **options)
    return {name: found.tolist() for name, found in sample.boundaries.items()}


def test_a_condition_marks_points_of_the_boundary_alone(tmp_path):
    points, cells = plate(hole=False)
    path = write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells))
    left = "left: x < 1.5; corner: x + y < 1.5 and not y > 0.5"
    found = members(path, boundary=left)
    assert found == {"left": [0, 1, 2, 3, 4, 5, 9], "corner": [0, 5]}
    np.savez(tmp_path / "cloud.npz", mesh_points=points)
    assert members(tmp_path / "cloud.npz", boundary=left)["left"] == list(range(10))


def test_a_condition_knows_fields_and_numbers_of_the_case(tmp_path):
    points, cells = plate()
    data = {"d": np.hypot(*(points - 2).T)}
    write(
        tmp_path / "a.vtu",
        points,
        cells,
        [_QUAD] * len(cells),
        at_points=data,
        r=np.array([1.5]),
    )
    (tmp_path / "cases.csv").write_text("file,hx,hy\na.vtu,2,2\n")
    first = "hole: (x - hx)^2 + (y - hy)^2 < r^2"
    found = members(tmp_path / "a.vtu", boundary=first)
    assert found == members(tmp_path / "a.vtu", boundary="hole: d < 1.5")
    assert found["hole"] == [6, 7, 8, 11, 13, 16, 17, 18]
    with value_error(r"a\.vtu: .*'hz' is unknown; available: x, y"):
        members(tmp_path / "a.vtu", boundary="hole: (x - hz)^2 < 1")


def test_a_condition_of_cells_marks_the_points_of_lines(tmp_path):
    """As meshio writes gmsh's physical groups: lines beside the cells."""
    points, cells = plate(hole=False)
    lines = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 5]]
    tags = np.array([7] * 4 + [8] + [1] * len(cells))
    kinds = [_LINE] * 5 + [_QUAD] * len(cells)
    path = write(
        tmp_path / "a.vtu",
        points,
        lines + cells,
        kinds,
        at_cells={"gmsh:physical": tags, "foot": (tags == 8).astype(np.uint8)},
    )
    found = members(path, boundary="left: 'gmsh:physical' == 7", boundary_names="foot")
    assert found == {"foot": [0, 5], "left": [0, 1, 2, 3, 4]}
    with value_error(r"not a mask .*values are 1, 7, 8. Define"):
        members(path, boundary_names="gmsh:physical")
    with value_error("no boundary 'side'; it has foot"):
        members(path, boundary_names="side")


def test_masks_of_any_name_are_boundaries_of_arrays(tmp_path):
    points, _ = plate()
    clamp = points[:, 0] < 0.5
    np.savez(tmp_path / "a.npz", mesh_points=points, clamp=clamp, other=1.0 * clamp)
    found = members(tmp_path / "a.npz", boundary_names="clamp,other")
    assert found["clamp"] == found["other"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("boundary", "words"),
    [
        (
            "a: x > 9",
            r"no point .* 'x > 9', .* x from 0 to 4, y from 0 to 4.*tolerance",
        ),
        ("a: 1 < 2", "no coordinate and no field"),
        ("a: w < 2", "'w' is unknown; available: x, y"),
        ("a: 1/x < 2", "boundary a: .*divides by zero"),
    ],
)
def test_conditions_that_mean_nothing_are_refused_by_file(tmp_path, boundary, words):
    points, cells = plate()
    path = write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells))
    with value_error(rf"a\.vtu: .*{words}"):
        members(path, boundary=boundary)


_SOLVERS = pathlib.Path(__file__).parent / "solvers"


@pytest.mark.filterwarnings("ignore:.*one cell thick:UserWarning")
def test_cell_data_have_the_integrals_of_openfoams_function_objects():
    """Those of `surfaceFieldValue` on the flow of `make_cylinder.sh`, 0.2 thick."""
    names, depth = ["p", "U", "U", "U"], 0.2
    of_patches = {"location": "cells", "boundary_names": "inlet,outlet,cylinder"}
    expected = {
        "mean:p@inlet": 2.75978,  # areaAverage
        "integral:p@cylinder": 0.428665006 / depth,  # areaIntegrate
        "flux:U@outlet": 0.60000050 / depth,  # areaNormalIntegrate
    }
    for text, value in expected.items():
        found = one(_SOLVERS / "layer.vtm", text, names, **of_patches)
        assert found == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("name", ["c3d10.vtu", "c3d20.vtu"])
def test_tensors_and_reactions_are_those_of_calculix(name):
    """Of the plates of `make_plates.py`: -0.1 at each node of the free end."""
    path = _SOLVERS / name
    clamp = {"boundary": "clamp: x < 1e-6; tip: x > 4 - 1e-6"}
    num_loaded = len(members(path, boundary="tip: x > 4 - 1e-6")["tip"])
    reaction = one(path, "sum:RF_z@clamp", ["RF"] * 3, **clamp)
    assert reaction == pytest.approx(0.1 * num_loaded, rel=1e-4)
    largest = one(path, "max:S_Mises", ["S_Mises"], **clamp)
    found = one(path, "max:S:mises@clamp", ["S"] * 6, **clamp)
    assert found <= largest * (1 + 1e-6)
    found = one(path, "max:S:mises", ["S"] * 6, **clamp)
    assert found == pytest.approx(largest, rel=1e-6)
