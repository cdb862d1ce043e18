import json
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.datasets import airfrans
from opjax.problems import joukowski
from opjax.problems.airfoil_forces import force_coefficients
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista")

SIZE = {"num_radii": 5, "num_angles": 16}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return airfrans.generate(5, seed=3, cache_dir=tmp_path_factory.mktemp("c"), **SIZE)


@pytest.fixture(scope="module")
def published(tmp_path_factory, cases):
    """Returns a folder in the published layout; do not change it."""
    folder = tmp_path_factory.mktemp("published") / "Dataset"
    airfrans.save(folder, cases, manifest(cases))
    return folder


@pytest.fixture
def folder(tmp_path, published):
    """Returns a converted copy."""
    airfrans.convert(published, tmp_path / "npz")
    return tmp_path / "npz"


def manifest(cases):
    names = [case.name for case in cases]
    lists = {"full_train": names[:3], "full_test": names[3:]}
    lists |= {"scarce_train": names[:1], "aoa_train": names[1:], "aoa_test": names[:1]}
    return lists


def assert_same(found, expected):
    for key in ("features", "target", "cells", "mesh_points"):
        one, other = (getattr(case, key) for case in (found, expected))
        assert_array_equal(one, other)
        assert one.dtype.kind == other.dtype.kind
    assert_array_equal(found.details.points, expected.details.points)
    assert found.details.points.dtype == np.float64
    assert_array_equal(found.details.surface, expected.details.surface)
    assert (found.details.speed, found.details.angle) == (
        expected.details.speed,
        expected.details.angle,
    )


def test_what_is_saved_is_loaded(published, cases):
    for place in (published, published.parent):
        train, test = airfrans.load(place)
        for found, expected in zip([*train, *test], cases, strict=True):
            assert_same(found, expected)


def test_converted_cases_are_the_same_and_need_no_pyvista(folder, cases, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyvista", None)
    train, test = airfrans.load(folder)
    for found, expected in zip([*train, *test], cases, strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize(
    ("split", "train", "test"),
    [("full", [0, 1, 2], [3, 4]), ("scarce", [0], [3, 4]), ("aoa", [1, 2, 3, 4], [0])],
)
def test_splits_are_those_of_the_manifest(split, train, test, folder, cases):
    found = airfrans.load(folder, split=split)
    expected = [[cases[row].name for row in rows] for rows in (train, test)]
    assert [[case.name for case in part] for part in found] == expected
    (first,), _ = airfrans.load(folder, split=split, num_train=1)
    assert first.name == expected[0][0]


def test_features_and_targets_are_as_published(published, cases):
    case = cases[0]
    name = case.name
    mesh = pyvista.read(published / name / f"{name}_internal.vtu")
    features, target = case.features, case.target
    assert features.shape[1] == len(airfrans.FEATURES) == 7
    speed, angle = (float(word) for word in name.split("_")[2:4])
    radians = np.deg2rad(angle)
    assert_array_equal(features[:, :2], case.mesh_points)
    assert_allclose(features[:, 2], speed * np.cos(radians), rtol=1e-6)
    assert_allclose(features[:, 3], speed * np.sin(radians), rtol=1e-6)
    assert_array_equal(features[:, 4], -mesh["implicit_distance"])
    assert np.all(features[:, 4] > -1e-6)
    assert_array_equal(target[:, 2], mesh["p"])
    surface = target[:, 0] == 0
    assert_array_equal(np.flatnonzero(surface), np.sort(case.details.surface))
    lengths = np.linalg.norm(features[:, 5:], axis=1)
    assert_allclose(lengths, surface, atol=1e-6)
    # Normals point into the fluid: a step along them is away from the airfoil.
    centre = case.details.points[case.details.surface].mean(axis=0)
    top = case.details.surface[np.argmax(case.details.points[case.details.surface, 1])]
    assert features[top, 6] > 0.5
    assert case.details.points[top, 1] > centre[1]


def test_generated_cases_are_potential_flows(cases):
    case = cases[1]
    points = case.details.points[case.details.surface]
    drag, lift = force_coefficients(
        points,
        case.target[case.details.surface, 2].astype(float),
        speed=case.details.speed,
        angle=case.details.angle,
    )
    rng = np.random.default_rng([3, 1])
    rng.uniform([30, -5], [90, 15])
    thickness, camber = rng.uniform([0.1, 0.0], [0.2, 0.06])
    flow = joukowski.flow(
        case.details.speed,
        case.details.angle,
        np.array([-0.77 * thickness, 2 * camber]),
        **SIZE,
    )
    assert float(lift) == pytest.approx(float(flow.lift), abs=0.15)
    assert abs(float(drag)) < 0.1
    extent = np.ptp(points, axis=0)
    assert extent[1] / extent[0] == pytest.approx(thickness, abs=0.03)


def test_missing_files_are_named(folder, published, tmp_path, cases):
    with pytest.raises(FileNotFoundError, match="manifest.json"):
        airfrans.load(tmp_path / "nothing")
    name = cases[3].name
    (folder / f"{name}.npz").unlink()
    with pytest.raises(FileNotFoundError, match=f"{name}_internal.vtu"):
        airfrans.load(folder)


def test_published_files_are_read_without_pyvista(published, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyvista", None)
    monkeypatch.setitem(sys.modules, "vtkmodules", None)
    train, _ = airfrans.load(published)
    assert train


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": np.zeros((3, 2))}, "shape"),
        ({"fields": np.zeros((80, 3))}, "shape"),
        ({"fields": np.full((80, 4), np.nan)}, "non-finite"),
        ({"normals": np.zeros((15, 2))}, "surface has 16"),
        ({"surface": np.full(16, 80)}, "point indices below 80"),
        ({"surface": np.zeros(16, int)}, "distinct nodes"),
        ({"cells": np.array([[0, 1, 2, -1]])}, "point indices"),
        ({"distance": np.zeros(80, int)}, "expected numbers"),
    ],
)
def test_damaged_files_are_refused(change, message, folder, cases):
    path = folder / f"{cases[0].name}.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **(arrays | change))
    with value_error(message):
        airfrans.load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "damaged"), ("[]", "lists by name"), ("{}", "full_train")],
)
def test_damaged_manifests_are_refused(text, message, folder):
    (folder / "manifest.json").write_text(text)
    with value_error(message):
        airfrans.load(folder)


def test_too_few_cases_and_wrong_names_are_refused(folder, cases):
    with value_error("3 cases, but 4 were requested"):
        airfrans.load(folder, num_train=4)
    with value_error("split='half'"):
        airfrans.load(folder, split="half")
    name = cases[0].name
    (folder / f"{name}.npz").rename(folder / "wing.npz")
    (folder / "manifest.json").write_text(
        json.dumps({"full_train": ["wing"], "full_test": ["wing"]})
    )
    with value_error("'wing' is not the name of a case"):
        airfrans.load(folder)


def test_a_contour_with_other_points_than_the_mesh_is_refused(
    published, cases, tmp_path
):
    name = cases[0].name
    mesh = pyvista.read(published / name / f"{name}_internal.vtu")
    contour = pyvista.read(published / name / f"{name}_aerofoil.vtp")
    contour.points[2] += 0.01
    (tmp_path / name).mkdir()
    mesh.save(tmp_path / name / f"{name}_internal.vtu")
    contour.save(tmp_path / name / f"{name}_aerofoil.vtp")
    with value_error("but U is not zero at the point"):
        airfrans.read_case(tmp_path, name)
    del mesh.point_data["nut"]
    mesh.save(tmp_path / name / f"{name}_internal.vtu")
    with value_error("without 'nut'"):
        airfrans.read_case(tmp_path, name)


@pytest.mark.nightly
def test_true_fields_have_the_lift_of_theory_and_little_drag(tmp_path):
    for case in airfrans.generate(3, seed=1, cache_dir=tmp_path):
        drag, lift = airfrans.coefficients(case, case.target)
        assert abs(drag) < 0.02
        # Thin airfoils: 2 pi per radian, and the camber's share.
        assert -0.3 < lift - 2 * np.pi * np.sin(case.details.angle) < 1.2


@pytest.mark.nightly
def test_velocity_at_the_airfoil_does_not_count(cases):
    case = cases[0]
    fields = np.array(case.target)
    expected = airfrans.coefficients(case, fields)
    fields[case.details.surface, :2] = 1e3
    assert_array_equal(airfrans.coefficients(case, fields), expected)
