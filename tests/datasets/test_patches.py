"""Integrals over boundaries of files: cell data, mixed cells, conditions, sets."""

import pathlib

import numpy as np
import pytest

from opjax.files import ReadOptions, reading
from opjax.files.vtk import vtu_write
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from opjax.learn.config.quantities import parse
from opjax.learn.predict.quantities import measure
from tests.datasets.reading import read_one
from tests.refused import value_error

_QUAD, _TRIANGLE, _LINE = 9, 5, 3


def write(
    path, points, cells, kinds=None, *, at_points=None, at_cells=None, **field_data
):
    """A file of cells of several kinds."""
    points = np.pad(np.asarray(points, float), [(0, 0), (0, 3 - len(points[0]))])
    sizes = [len(cell) for cell in cells]
    mesh = VtkMesh(
        points,
        np.cumsum([0, *sizes]),
        np.concatenate(cells).astype(np.int64),
        np.array(kinds or [_QUAD] * len(cells)),
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


def integrals(path, names, texts, **options):
    """Quantities of the target of a file."""
    how = {"target": ",".join(dict.fromkeys(names)), "facets": True, **options}
    sample = read_one(path, **how)
    found = {}
    for text in texts:
        found |= measure(parse(text), sample, [sample.target], {"target": names})[0]
    return found


def check(path, names, expected, *, rel=1e-6, **options):
    found = integrals(path, names, expected, **options)
    assert found == pytest.approx(expected, rel=rel)


def refuse(path, names, text, words, **options):
    with value_error(words):
        integrals(path, names, [text], **options)


@pytest.fixture
def square(tmp_path):
    """Fields at cells: a pressure that is linear in space, and a uniform velocity."""
    points, cells = plate()
    middle = centers(points, cells)
    data = {"p": 7 + 2 * middle[:, 0], "U": np.tile([3.0, 0, 0], (len(cells), 1))}
    return write(tmp_path / "a.vtu", points, cells, at_cells=data)


def test_facets_take_the_values_of_their_cells(square):
    """Beside the hole p is 8 at its left and 14 at its right, on two sides each."""
    total = 2 * 8 + 2 * 14 + 2 * (10 + 12)
    expected = {
        "force_x:p@hole": -2 * 6,
        "force_y:p@hole": 0,
        "mean:p@hole": total / 8,
        "integral:p@hole": total,
    }
    check(square, ["p"], expected, location="cells", boundary=HOLE)


def test_a_flux_is_one_out_of_the_mesh(square):
    sides = {"location": "cells", "boundary": f"in: x < 0.1; out: x > 3.9; {HOLE}"}
    expected = {
        "flux:U@in": -12,
        "flux:U@out": 12,
        "flux:U@hole": 0,
        "mean:U_x@out": 3,
        "sum:U@in": 12,
    }
    check(square, ["U"] * 3, expected, **sides)
    check(square, ["U_x", "U_y"], {"flux:U@in": -12}, **sides)


def test_vectors_and_forces_have_the_axes_of_their_plane(tmp_path):
    points, cells = plate(hole=False)
    points = np.insert(points, 1, 0.5, axis=1)  # in the plane of x and z
    velocity = np.tile([1.0, 0, 3], (len(cells), 1))
    data = {"U": velocity, "p": centers(points, cells)[:, 2]}
    path = write(tmp_path / "a.vtu", points, cells, at_cells=data)
    top = {"location": "cells", "boundary": "top: z > 3.9 and y < 1"}
    check(path, ["U"] * 3, {"flux:U@top": 12}, **top)
    check(path, ["p"], {"force_z:p@top:reference=0": 3.5 * 4}, **top)
    data["U"][:, 1] = 2
    write(path, points, cells, at_cells=data)
    said = "normal to the plane of the mesh.* axes x, z"
    refuse(path, ["U"] * 3, "flux:U@top", said, **top)


def test_a_moment_is_one_about_a_point(square):
    """A force of 1 on a side of length 4 at x = 4, whose middle is at y = 2."""
    side = {"location": "cells", "boundary": "out: x > 3.9"}
    for about, arm in (("", 2), (":about=0,2", 0), (":about=1,-1,5", 3)):
        text = f"moment_z:p@out:reference=13{about}"
        (found,) = integrals(square, ["p"], [text], **side).values()
        assert found == pytest.approx(-4 * arm, abs=1e-5)  # p is 14 there
    text = "moment_x:p@out:reference=0"
    refuse(square, ["p"], text, "two-dimensional; use moment_z", **side)


def test_a_velocity_that_rises_linearly_has_its_shear_stress(tmp_path):
    points, cells = plate(hole=False)
    speed = 3 * centers(points, cells)[:, 1]
    data = {"U": np.stack([speed, 0.1 * speed, 0 * speed], -1)}
    path = write(tmp_path / "a.vtu", points, cells, at_cells=data)
    wall, names = {"location": "cells", "boundary": "wall: y < 0.1"}, ["U"] * 3
    text = "shear_x:U@wall:viscosity=0.5"
    expected = {text: 0.5 * 3 * 4, f"{text}:kinematic=2:speed=3": 2 * 6 / (9 / 2)}
    check(path, names, expected, **wall)
    (across,) = integrals(path, names, ["shear_y:U@wall:viscosity=1"], **wall).values()
    assert across == pytest.approx(0, abs=1e-6)
    refuse(path, names, "shear_z:U@wall:viscosity=1", "2 dimensions", **wall)
    path = tmp_path / "a.npz"
    np.savez(path, mesh_points=points, cells=cells, U=np.ones((len(points), 2)))
    said = r"a\.npz: .*--location=cells"
    refuse(path, ["U"] * 2, text, said, boundary="wall: y < 0.1")


def test_an_open_wall_needs_the_pressure_of_its_other_side(square):
    side = {"location": "cells", "boundary": "out: x > 3.9"}
    said = r"open at 2 edges.*force_x:p@out:reference=0"
    refuse(square, ["p"], "force_x:p@out", said, **side)
    text = "force_x:p@out:reference=10"
    expected = {
        text: 4 * (14 - 10),
        f"{text}:kinematic=5": 5 * 4 * (14 - 10),
        f"{text}:area=4:speed=2": 2 * 16 / 4 / 4,
    }
    check(square, ["p"], expected, **side)


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
    path = write(tmp_path / "a.vtu", points, cells, **data)
    corner = {"boundary": "one: x + y < 0.5", "location": location}
    refuse(path, ["p"], text, rf"a\.vtu: {text}: .*{words}", **corner)


def test_triangles_and_quads_have_the_facets_of_both(tmp_path):
    points, cells = plate()
    mixed = [part for c in cells[:6] for part in ([*c[:3]], [c[0], *c[2:]])] + cells[6:]
    kinds = [_TRIANGLE] * 12 + [_QUAD] * (len(cells) - 6)
    data = {"p": 5 + points[:, 0] - 3 * points[:, 1]}
    path = write(tmp_path / "a.vtu", points, mixed, kinds, at_points=data)
    forces = {"force_x:p@hole": -4, "force_y:p@hole": 12}  # minus gradient times area
    check(path, ["p"], forces, boundary=HOLE)
    check(path, ["p"], {"integral:p@in": 4 * (5 - 6)}, boundary="in: x < 0.1")


def test_a_surface_of_cell_data_has_the_force_on_its_body(tmp_path):
    sides = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6]]
    sides = [*sides, [0, 2, 6, 4], [1, 5, 7, 3]]
    points = np.array([[x, y, z] for x in (0, 2) for y in (0, 1) for z in (0, 1)])
    middle = centers(points, sides)
    data = {"p": 4 - middle[:, 2]}
    path = write(tmp_path / "a.vtu", points, sides, at_cells=data)
    check(path, ["p"], {"force_z:p": 2}, location="cells")
    top = {"location": "cells", "boundary": "top: z > 0.9"}
    check(path, ["p"], {"mean:p@top": 3}, **top)
    said = r"quads of a surface and is open at 4 edges"
    refuse(path, ["p"], "force_z:p@top:reference=0", said, **top)


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
    path = tmp_path / "a.npz"
    check(path, ["p"], {"force_y:p@wall": area}, boundary_names="wall")
    check(path, ["middle"], {"force_y:middle": area}, location="cells")


def test_sums_are_those_of_all_points_without_weights(tmp_path):
    points, cells = plate()
    forces = np.random.default_rng(0).normal(size=(len(points), 3))
    path = write(
        tmp_path / "a.vtu",
        points,
        cells,
        at_points={"RF": forces},
    )
    how, names = {"boundary": "clamp: x < 1e-6"}, ["RF"] * 3
    on = points[:, 0] < 1e-6
    expected = {
        "sum:RF_y@clamp": forces[on, 1].sum(),
        "sum:RF@clamp": np.linalg.norm(forces[on].sum(axis=0)),
        "sum:RF_z": forces[:, 2].sum(),
    }
    check(path, names, expected, rel=1e-5, **how)
    refuse(path, names, "max:RF@clamp", "name one of RF_x, RF_y, RF_z, RF:mag", **how)


def members(path, **options):
    sample = read_one(path, need_target=False, **options)
    return {name: found.tolist() for name, found in sample.boundaries.items()}


def test_a_condition_marks_points_of_the_boundary_alone(tmp_path):
    points, cells = plate(hole=False)
    path = write(tmp_path / "a.vtu", points, cells)
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
    path = write(tmp_path / "a.vtu", points, cells)
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
    check(_SOLVERS / "layer.vtm", names, expected, **of_patches)


@pytest.mark.parametrize("name", ["c3d10.vtu", "c3d20.vtu"])
def test_tensors_and_reactions_are_those_of_calculix(name):
    """Of the plates of `make_plates.py`: -0.1 at each node of the free end."""
    path = _SOLVERS / name
    clamp = {"boundary": "clamp: x < 1e-6; tip: x > 4 - 1e-6"}
    num_loaded = len(members(path, boundary="tip: x > 4 - 1e-6")["tip"])
    reaction = {"sum:RF_z@clamp": 0.1 * num_loaded}
    check(path, ["RF"] * 3, reaction, rel=1e-4, **clamp)
    (largest,) = integrals(path, ["S_Mises"], ["max:S_Mises"], **clamp).values()
    check(path, ["S"] * 6, {"max:S:mises": largest}, **clamp)
    (found,) = integrals(path, ["S"] * 6, ["max:S:mises@clamp"], **clamp).values()
    assert found <= largest * (1 + 1e-6)


@pytest.mark.parametrize(
    ("axes", "normal", "sign"), [((0, 1), "z", 1), ((0, 2), "y", -1), ((1, 2), "x", 1)]
)
def test_forces_and_moments_have_the_axes_of_space(tmp_path, axes, normal, sign):
    """Of p = 1 + u + 2 v on the four sides of a square."""
    flat, cells = plate(hole=False)
    points = np.full((len(flat), 3), 0.5)
    points[:, axes] = flat
    middle = centers(flat, cells)
    data = {"p": 1 + middle @ [1.0, 2.0]}
    path = write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells), at_cells=data)
    how = {"location": "cells", "boundary": "all: x > -1"}
    u, v = ("xyz"[axis] for axis in axes)
    about = np.full(3, 9.0)  # a point in space, whose place in the plane is (0, 0)
    about[list(axes)] = 0
    moment = f"moment_{normal}:p@all:about={','.join(map(str, about))}"
    expected = {f"force_{u}:p@all": 12, f"force_{v}:p@all": 24, moment: 24 * sign}
    check(path, ["p"], expected, **how)  # of cells: from the middle of the outer ones
    only = f"only 2 dimensions, along {u} and {v}; use force_{u} or force_{v}"
    refuse(path, ["p"], f"force_{normal}:p@all", only, **how)
    flat_only = f"two-dimensional; use moment_{normal}"
    refuse(path, ["p"], f"moment_{u}:p@all", flat_only, **how)


def test_normals_are_named_by_the_axes_of_space(tmp_path):
    points, cells = plate(hole=False)
    points = np.insert(points, 1, 0.5, axis=1)
    path = write(tmp_path / "a.vtu", points, cells, [_QUAD] * len(cells))
    built = reading.first(path, ReadOptions(geometry="normals"))
    assert built.channels["features"] == ("normal_x", "normal_z")
    assert built.sample.axes == (0, 2)


def test_a_mixed_mesh_without_weights_names_the_flag(tmp_path):
    points, cells = plate(hole=False)
    mixed = [*cells[1:], cells[0][:3], [cells[0][i] for i in (0, 2, 3)]]
    kinds = [_QUAD] * (len(cells) - 1) + [_TRIANGLE] * 2
    data = {"T": points[:, 0]}
    path = write(tmp_path / "a.vtu", points, mixed, kinds, at_points=data)
    words = "nor cells of one type; train with --quadrature"
    refuse(path, ["T"], "integral:T", words)
    check(path, ["T"], {"integral:T": 32}, quadrature=True)
