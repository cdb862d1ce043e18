"""Quantities of interest: the flag, samples that lack something, programs."""

import dataclasses
import json

import numpy as np
import pytest

from opjax.learn.cli import predict, train
from opjax.learn.config.quantities import Quantity, parse
from opjax.learn.predict.quantities import measure
from opjax.learn.report.figures import Member, parity
from opjax.learn.tasks import quantities as tasks
from opjax.samples import Sample

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("largest:p", "choose from max, min"),
        ("max", "names no field"),
        ("max:p@", "names no field"),
        ("max:p,max:p", "twice"),
        ("lift:p@wall", "angle_deg=VALUE in degrees"),
        ("lift:p@wall:angle_deg=1:angle_rad=2", "once"),
        ("lift:p@wall:angle_deg=1:angle_deg=2", "twice"),
        ("force_x:p@wall:angle_deg=1", "fixed axis"),
        ("max:p:area=1", "no force"),
        ("force_x:p@wall:chord=1", "none of density=VALUE"),
        ("force_x:p@wall:area=-1", "positive"),
        ("force_x:p@wall:area=nan", "finite"),
    ],
)
def test_what_is_no_quantity_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


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
    with pytest.raises(ValueError, match=r"box\.npz: force_z:p@top: the wall is open"):
        one("force_z:p@top", sample, target=("p",))


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        ("max:q", {}, "'q' has 0 predicted channels.*predicted are p"),
        ("max:p@inlet", {}, "'inlet' is unknown, known are: wall, far"),
        ("force_x:p@wall", {"cells": None}, "cells of one kind"),
        ("integral:p", {"cells": None}, "neither quadrature_weights nor cells"),
        ("force_x:p", {}, "name the wall, as in force_x:p@wall"),
        ("force_x:p@wall", {"boundaries": {"wall": np.arange(9)}}, "open at 2"),
        ("force_x:p@wall", {"boundaries": {"wall": np.array([3])}}, "no facet"),
        ("max:p@wall", {"boundaries": {"wall": np.array([], int)}}, "no points"),
        ("force_z:p@wall", {}, "2 dimensions only"),
        ("lift:p@wall:angle_deg=beta", {}, "inputs are: alpha"),
    ],
)
def test_what_a_sample_lacks_is_named_with_it(text, changes, words):
    with pytest.raises(ValueError, match=rf"ring\.npz: {text}: .*{words}"):
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
    with pytest.raises(ValueError, match=r"shell\.npz: .*quads of a surface"):
        one("force_x:p@wall", sample, target=("p",))


def test_an_input_that_varies_is_no_reference_value():
    sample = annulus()
    sample = sample._replace(features=sample.mesh_points[:, :1])
    with pytest.raises(ValueError, match="expected a constant"):
        one("lift:p@wall:angle_deg=alpha", sample)


def test_an_angle_is_read_from_a_scalar_of_the_case():
    text, names = "lift:p@wall:angle_deg=turn:speed=mach", {"target": ("p",)}
    names |= {"scalars": ("mach", "turn")}
    sample = annulus()._replace(features=None, scalars=np.array([2.0, 30.0]))
    expected = one("lift:p@wall:angle_deg=30:speed=2", sample, target=("p",))
    assert one(text, sample, **names) == pytest.approx(expected)
    with pytest.raises(ValueError, match="inputs are: none"):
        one(text, sample._replace(scalars=None), **names)
    both = sample._replace(features=np.ones((sample.num_points, 1), np.float32))
    with pytest.raises(ValueError, match="no one scalar or input 'turn'"):
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


@pytest.mark.slow
def test_programs_report_quantities(trained):
    place, result = trained
    (member,) = (place / "run").glob("*/quantities.json")
    found = json.loads(member.read_text())
    lift = found["quantities"]["lift:p@wall:angle_deg=alpha"]
    assert len(lift["true"]) == len(found["samples"]) >= 1
    if len(lift["true"]) > 1:
        assert "r2_max_p" in result
        assert "r2 max p" in (place / "run" / "tables.md").read_text()
    predict.run(place / "run", inputs=str(place / "data"), output=place / "out")
    rows = json.loads((place / "out" / "report.json").read_text())
    assert rows[0]["true_quantities"]["lift:p@wall:angle_deg=alpha"] == pytest.approx(
        2 * area(1), rel=1e-5
    )
    predict.run(
        place / "run", inputs=str(place / "new"), output=place / "b", quantities="min:p"
    )
    (row,) = json.loads((place / "b" / "report.json").read_text())
    assert row["quantities"].keys() == {"min:p"}
    assert "true_quantities" not in row


def test_quantities_are_refused_where_they_mean_nothing():
    given = {"train": "x", "quantities": "max:u"}
    for changes in ({"time": "one_step"}, {"stream_points": 2048}):
        with pytest.raises(ValueError, match="quantities=max:u means nothing"):
            dataclasses.replace(train.PRESETS["quick"], **given, **changes)
