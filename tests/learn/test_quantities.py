"""Quantities of interest: the flag, samples that lack something, programs."""

import dataclasses
import json

import numpy as np
import pytest

from opjax.learn.cli import train
from opjax.learn.config.quantities import Quantity, parse
from opjax.learn.predict.quantities import measure
from opjax.learn.report.figures import Member, parity
from opjax.learn.tasks import quantities as tasks
from opjax.samples import Sample
from tests import refused
from tests.learn.tiny import report_of, run_predict
from tests.refused import value_error

_N = 24
_NAMES = {"features": ("alpha",), "target": ("p",)}


def annulus(radius=1.0, *, rows=5, alpha=0.0):
    """Quadrilaterals around a circle of 24 sides, the wall."""
    angles = 2 * np.pi * np.arange(_N) / _N
    radii = radius * np.linspace(1, 2, rows)
    around = np.stack([np.cos(angles), np.sin(angles)], -1)
    points = (radii[:, None, None] * around).reshape(-1, 2).astype(np.float32)
    i, j = np.arange(rows - 1)[:, None] * _N, np.arange(_N)[None]
    k = (j + 1) % _N
    cells = np.stack([i + j, i + j + _N, i + k + _N, i + k], -1).reshape(-1, 4)
    pressure = 3 - 2 * points[:, 1:] + points[:, :1]
    return Sample(
        points,
        pressure,
        np.full((len(points), 1), alpha, np.float32),
        cells=cells,
        name="ring.npz",
        boundaries={"wall": np.arange(_N), "far": np.arange(_N) + (rows - 1) * _N},
    )


def one(text, sample, **names):
    given = [np.asarray(sample.target, np.float64)]
    (found,) = measure(parse(text), sample, given, names or _NAMES)
    return found[text]


def area(radius):
    return _N / 2 * np.sin(2 * np.pi / _N) * radius**2


def test_a_quantity_is_read_as_an_object():
    (found,) = parse("lift:p@wall:angle_deg=alpha:speed=2")
    assert found == Quantity(
        "lift:p@wall:angle_deg=alpha:speed=2",
        "lift",
        "p",
        "wall",
        (("speed", 2.0),),
        "alpha",
        True,
    )
    assert [q.kind for q in parse("max:u, min:u,")] == ["max", "min"]
    several = parse("moment_z:p@a:about=0.25,-1:area=2,max:S:mises@b,sum:a:b_xx")
    assert [(q.field, q.boundary) for q in several] == [
        ("p", "a"),
        ("S:mises", "b"),
        ("a:b_xx", ""),
    ]
    assert several[0].about == (0.25, -1)
    assert dict(several[0].references) == {"area": 2}


test_what_is_no_quantity_is_refused = refused.values(
    parse,
    [
        ("largest:p", "choose from max, min"),
        ("max", "has no field"),
        ("max:p@", "has no field"),
        ("max:p,max:p", "twice"),
        ("lift:p@wall", "angle_deg=VALUE in degrees"),
        ("lift:p@wall:angle_deg=1:angle_rad=2", "once"),
        ("lift:p@wall:angle_deg=1:angle_deg=2", "twice"),
        ("force_x:p@wall:angle_deg=1", "fixed axis"),
        ("max:p:area=1", "not a force"),
        ("force_x:p@wall:chord=1", "choose from density=VALUE"),
        ("force_x:p@wall:area=-1", "positive"),
        ("force_x:p@wall:area=nan", "finite"),
        ("force_x:p@wall:kinematic=0", "positive"),
        ("flux:U", "has no boundary"),
        ("max:S@wall:mises", "write max:S:mises@wall"),
        ("moment_z:p@wall:about=1", "not a point"),
        ("moment_z:p@wall:about=1,x", "not a point|unknown"),
        ("moment_z:p@wall:angle_deg=1", "fixed axis"),
        ("force_z:p@wall:about=0,0", "not a moment"),
        ("moment_z:p@wall:about=0,0:about=1,1", "twice"),
        ("sum:RF@clamp:area=1", "not a force"),
        ("shear_x:U@wall", "need viscosity=VALUE"),
        ("shear_x:U@wall:viscosity=1:reference=0", "do not support reference"),
        ("force_x:p@wall:viscosity=1", "quantities do not support viscosity"),
    ],
)


def test_linear_pressure_lifts_a_body_by_the_divergence_theorem():
    sample = annulus()
    assert one("force_x:p@wall", sample) == pytest.approx(-area(1), rel=1e-6)
    assert one("force_y:p@wall", sample) == pytest.approx(2 * area(1), rel=1e-6)


def test_lift_turns_with_the_flow_and_is_divided_by_the_dynamic_pressure():
    drag, lift = -area(1), 2 * area(1)
    sample, turn = annulus(alpha=30.0), np.deg2rad(30)
    expected = (lift * np.cos(turn) - drag * np.sin(turn)) / (0.5 * 2 * 3**2 * 4)
    reference = "density=2:speed=3:area=4"
    for angle in ("angle_deg=30", "angle_deg=alpha", f"angle_rad={turn}"):
        found = one(f"lift:p@wall:{angle}:{reference}", sample)
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_surface_alone_has_the_force_of_its_mesh():
    sample = annulus()
    ends = np.arange(_N)
    surface = sample._replace(
        mesh_points=sample.mesh_points[:_N],
        target=sample.target[:_N],
        features=sample.features[:_N],
        cells=np.stack([np.roll(ends, -1), ends], -1),  # clockwise
    )
    expected = one("force_y:p@wall", sample)
    assert one("force_y:p", surface) == pytest.approx(expected, rel=1e-6)


def test_integrals_and_extremes_of_the_mesh_and_of_a_boundary():
    sample = annulus()
    length = 2 * _N * np.sin(np.pi / _N)
    assert one("integral:p", sample) == pytest.approx(3 * area(2) - 3 * area(1))
    assert one("mean:p", sample) == pytest.approx(3)
    assert one("integral:p@wall", sample) == pytest.approx(3 * length)
    assert one("mean:p@wall", sample) == pytest.approx(3)
    assert one("max:p", sample) == sample.target.max()
    assert one("min:p@wall", sample) == sample.target[:_N].min()


def test_areas_of_a_face_of_a_solid():
    sides = [0.0, 1, 2]
    points = np.stack(np.meshgrid(sides, sides, [0.0, 3], indexing="ij"), -1)
    points = points.reshape(-1, 3).astype(np.float32)
    index = np.arange(18).reshape(3, 3, 2)
    corners = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]
    corners += [(i, j, 1) for i, j, _ in corners]
    cells = [
        [index[i + a, j + b, c] for a, b, c in corners]
        for i in range(2)
        for j in range(2)
    ]
    sample = Sample(
        points,
        points[:, :1] + 1,
        cells=np.array(cells),
        name="box.npz",
        boundaries={"top": index[:, :, 1].ravel()},
    )
    assert one("integral:p@top", sample, target=("p",)) == pytest.approx(8)
    with value_error(r"box\.npz: force_z:p@top: the wall is open"):
        one("force_z:p@top", sample, target=("p",))


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        ("max:q", {}, "'q' has 0 predicted channels.*predicted fields: p"),
        ("max:p@inlet", {}, "'inlet' is unknown; available: wall, far"),
        ("force_x:p@wall", {"cells": None}, "cells of one type"),
        ("integral:p", {"cells": None}, "neither quadrature_weights nor cells"),
        ("force_x:p", {}, "name the wall, as in force_x:p@wall"),
        ("force_x:p@wall", {"boundaries": {"wall": np.arange(9)}}, "open at 2"),
        ("force_x:p@wall", {"boundaries": {"wall": np.array([3])}}, "no facet"),
        ("max:p@wall", {"boundaries": {"wall": np.array([], int)}}, "no points"),
        ("force_z:p@wall", {}, "2 dimensions"),
        ("lift:p@wall:angle_deg=beta", {}, "available: alpha"),
    ],
)
def test_what_a_sample_lacks_is_named_with_it(text, changes, words):
    with value_error(rf"ring\.npz: {text}: .*{words}"):
        one(text, annulus()._replace(**changes))


def test_quads_of_a_curved_surface_are_not_taken_for_tetrahedra():
    x, y = np.meshgrid(*[np.linspace(0, 1, 4)] * 2, indexing="ij")
    points = np.stack([x, y, x * x * y + 0.2 * y * y], -1).reshape(-1, 3)
    i = (np.arange(3)[:, None] * 4 + np.arange(3)).reshape(-1)
    sample = Sample(
        points.astype(np.float32),
        np.ones((16, 1), np.float32),
        cells=np.stack([i, i + 4, i + 5, i + 1], -1),
        name="shell.npz",
        boundaries={"wall": np.arange(16)},
    )
    with value_error(r"shell\.npz: .*quads of a surface"):
        one("force_x:p@wall", sample, target=("p",))


def test_an_input_that_varies_is_no_reference_value():
    sample = annulus()
    sample = sample._replace(features=sample.mesh_points[:, :1])
    with value_error("expected a constant"):
        one("lift:p@wall:angle_deg=alpha", sample)


def test_an_angle_is_read_from_a_scalar_of_the_case():
    text, names = "lift:p@wall:angle_deg=turn:speed=mach", {"target": ("p",)}
    names |= {"scalars": ("mach", "turn")}
    sample = annulus()._replace(features=None, scalars=np.array([2.0, 30.0]))
    expected = one("lift:p@wall:angle_deg=30:speed=2", sample, target=("p",))
    assert one(text, sample, **names) == pytest.approx(expected)
    with value_error("available: none"):
        one(text, sample._replace(scalars=None), **names)
    both = sample._replace(features=np.ones((sample.num_points, 1), np.float32))
    with value_error("no unique scalar or input 'turn'"):
        one(text, both, **names, features=("turn",))


def test_agreement_over_the_test_samples(tmp_path):
    wanted = parse("mean:p")
    cases = [annulus(r)._replace(name=f"{r}") for r in (1.0, 2.0, 3.0)]
    cases = [c._replace(target=c.target + r) for r, c in enumerate(cases)]
    guesses = [np.full_like(cases[0].target, value) for value in (3.5, 4, 5)]
    found = tasks.evaluate(wanted, cases, guesses, _NAMES, tmp_path)
    assert found == pytest.approx({"r2_mean_p": 1 - 0.25 / 2, "rank_mean_p": 1})
    assert parity([Member("functional", 0, tmp_path)]) is not None
    assert parity([Member("functional", 0, tmp_path / "other")]) is None
    same = tasks.evaluate(wanted, cases[:1], [cases[0].target], _NAMES, tmp_path)
    assert same == {}  # of one case nothing can be said


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on files of rings with a wall, and one more ring without the target."""
    place = tmp_path_factory.mktemp("rings")
    (place / "data").mkdir()
    for i in range(8):
        sample = annulus(1 + i / 8, alpha=float(i))
        wall = np.zeros(sample.num_points, bool)
        wall[:_N] = True
        arrays = {"alpha": sample.features, "p": sample.target, "boundary_wall": wall}
        arrays |= {"mesh_points": sample.mesh_points, "cells": sample.cells}
        np.savez(place / "data" / f"{i}.npz", **arrays)
        arrays.pop("p")
    (place / "new").mkdir()
    np.savez(place / "new" / "ring.npz", **arrays)
    config = dataclasses.replace(
        train.PRESETS["smoke"],
        num_epochs=2,
        train=str(place / "data"),
        feature_names="alpha",
        target_names="p",
        boundary_names="wall",
        quantities="lift:p@wall:angle_deg=alpha,max:p",
    )
    result = train.run(config, workdir=place / "run")
    return place, result


@pytest.mark.nightly
def test_programs_report_quantities(trained):
    place, result = trained
    (member,) = (place / "run").glob("*/quantities.json")
    found = json.loads(member.read_text())
    lift = found["quantities"]["lift:p@wall:angle_deg=alpha"]
    assert len(lift["true"]) == len(found["samples"]) >= 1
    if len(lift["true"]) > 1:
        assert "r2_max_p" in result
        assert "r2 max p" in (place / "run" / "tables.md").read_text()
    run_predict(place / "run", place / "data", place / "out")
    rows = report_of(place / "out")
    assert rows[0]["true_quantities"]["lift:p@wall:angle_deg=alpha"] == pytest.approx(
        2 * area(1), rel=1e-5
    )
    run_predict(place / "run", place / "new", place / "b", quantities="min:p")
    (row,) = report_of(place / "b")
    assert row["quantities"].keys() == {"min:p"}
    assert "true_quantities" not in row


def test_quantities_are_refused_where_they_mean_nothing():
    given = {"train": "x", "quantities": "max:u"}
    for changes in ({"time": "one_step"}, {"stream_points": 2048}):
        with value_error("quantities=max:u has no effect"):
            dataclasses.replace(train.PRESETS["quick"], **given, **changes)


def _curves(*turned):
    """Two bodies in the plane and an open ground below, listed either way round."""
    turns = 2 * np.pi * np.arange(_N) / _N
    circle = np.stack([np.cos(turns), np.sin(turns)], -1)
    ends = np.arange(_N)
    sides = np.stack([ends, np.roll(ends, -1)], -1)
    ground = np.stack([np.linspace(-4, 4, 9), np.full(9, -2.0)], -1)
    line = np.stack([np.arange(8), np.arange(1, 9)], -1)
    parts = [(0.1 * circle, sides), (0.2 * circle + [1, 1], sides), (ground, line)]
    points = np.concatenate([p for p, _ in parts]).astype(np.float32)
    cells = [c[:, ::-1] if i in turned else c for i, (_, c) in enumerate(parts)]
    firsts = 0, _N, 2 * _N
    cells = np.concatenate([c + f for c, f in zip(cells, firsts, strict=True)])
    names = {"body": ends, "other": ends + _N, "both": np.arange(2 * _N)}
    return Sample(
        points, -points[:, 1:], cells=cells, name="ground.npz", boundaries=names
    )


@pytest.mark.parametrize("turned", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_the_sign_of_a_force_is_that_of_its_body_however_lines_are_listed(turned):
    sample, areas = _curves(*turned), (area(0.1), area(0.2))
    for name, expected in zip(("body", "other"), areas, strict=True):
        found = one(f"force_y:p@{name}", sample, target=("p",))
        assert found == pytest.approx(expected, rel=1e-5)
    found = one("force_y:p@both", sample, target=("p",))
    assert found == pytest.approx(sum(areas), rel=1e-5)


def _shells(quads, *turned):
    """Two boxes in space and an open ground below them, listed either way round."""
    sides = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6]]
    sides = np.array([*sides, [0, 2, 6, 4], [1, 5, 7, 3]])
    box = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    ground = np.array([[-4.0, -4, -1], [4, -4, -1], [4, 4, -1], [-4, 4, -1]])
    parts = [(box, sides), (2 * box + [2, 0, 1], sides), (ground, [[0, 1, 2, 3]])]
    points, cells, count = [], [], 0
    for number, (some, corners) in enumerate(parts):
        corners = np.asarray(corners) + count
        cells.append(corners[:, ::-1] if number in turned else corners)
        points.append(some)
        count += len(some)
    cells = np.concatenate(cells)
    if not quads:
        cells = np.concatenate([cells[:, [0, 1, 2]], cells[:, [0, 2, 3]]])
    points = np.concatenate(points).astype(np.float32)
    names = {"body": np.arange(8), "both": np.arange(16), "ground": np.arange(16, 20)}
    return Sample(
        points, -points[:, 2:], cells=cells, name="boxes.npz", boundaries=names
    )


@pytest.mark.parametrize("quads", [True, False])
@pytest.mark.parametrize("turned", [(), (0,), (1,), (2,), (0, 2)])
def test_forces_on_surfaces_in_space_do_not_depend_on_other_parts(quads, turned):
    sample, names = _shells(quads, *turned), {"target": ("p",)}
    assert one("force_z:p@body", sample, **names) == pytest.approx(1, rel=1e-5)
    assert one("force_z:p@both", sample, **names) == pytest.approx(9, rel=1e-5)
    assert one("integral:p@ground", sample, **names) == pytest.approx(64, rel=1e-5)
    with value_error(r"boxes.npz: .*s of a surface and is open at 4"):
        one("force_z:p@ground", sample, **names)


def test_the_wall_of_a_cavity_is_pushed_outwards():
    """Both shells of a body with a cavity: what is inside presses from inside."""
    inner = annulus(0.5, rows=2)
    ends = np.arange(_N)
    ring = np.stack([ends, np.roll(ends, -1)], -1)
    for cells in ([ring, ring + _N], [ring, ring[:, ::-1] + _N]):
        body = inner._replace(cells=np.concatenate(cells), boundaries=None)
        found = one("force_y:p", body)  # the pressure falls by 2 upwards
        assert found == pytest.approx(2 * (area(1) - area(0.5)), rel=1e-5)


def test_extremes_and_boundaries_skip_points_of_weight_zero():
    sample = annulus()
    weights = np.ones(sample.num_points, np.float32)
    values = sample.target.copy()
    for point, value in ((5, 99.0), (70, -99.0)):
        weights[point], values[point] = 0, value
    counted = sample._replace(target=values, quadrature_weights=weights)
    assert one("max:p", counted) == sample.target.max()
    assert one("min:p", counted) == sample.target.min()
    assert one("max:p@wall", counted) < 6
    assert one("mean:p@wall", counted) < 4
    with value_error("the wall has 1 points of weight zero"):
        one("force_x:p@wall", counted)
    weights[:_N] = 0
    for text in ("max:p@wall", "mean:p@wall"):
        with value_error("all of its points have weight zero"):
            one(text, counted)


def test_integrals_and_means_over_a_surface_of_quads_are_those_of_its_area():
    x, y = np.meshgrid(*[np.linspace(0, 1, 9)] * 2, indexing="ij")
    points = np.stack([x, y, 0.1 * x * y], -1).reshape(-1, 3).astype(np.float32)
    i = (np.arange(8)[:, None] * 9 + np.arange(8)).reshape(-1)
    sample = Sample(
        points,
        points[:, :1],
        cells=np.stack([i, i + 9, i + 10, i + 1], -1),
        name="shell.npz",
        boundaries={"half": np.flatnonzero(points[:, 1] <= 0.5)},
    )
    assert one("integral:p", sample, target=("p",)) == pytest.approx(0.5, abs=5e-3)
    assert one("mean:p", sample, target=("p",)) == pytest.approx(0.5, abs=5e-3)
    found = one("integral:p@half", sample, target=("p",))
    assert found == pytest.approx(0.25, abs=3e-3)


def test_a_boundary_or_field_that_is_not_there_is_refused_after_one_file(
    tmp_path, monkeypatch
):
    train_on = {"train": str(tmp_path), "target_names": ("target",)}
    for name in "ab":
        points = annulus().mesh_points
        np.savez(tmp_path / f"{name}.npz", mesh_points=points, target=points[:, 0])
    monkeypatch.setattr(train.files, "splits", lambda *_, **__: pytest.fail("all"))
    for text, words in (
        ("max:target@nowhere", "a.npz: .* 'nowhere' is unknown; available: none"),
        ("max:q", "a.npz: max:q: .*predicted fields: target"),
    ):
        config = dataclasses.replace(
            train.PRESETS["smoke"], quantities=text, **train_on
        )
        with value_error(words):
            train.load(config)
