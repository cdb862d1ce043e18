"""Signatures of surfaces: of meshes, of points, and what they do not depend on."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import point_clouds
from opjax.datasets import _off, rna
from opjax.samples import Sample
from tests.refused import value_error

TIMES = (400.0, 1000.0)


def ellipsoid(n=400):
    """Points spread evenly, of many more."""
    steps = np.arange(4000) + 0.5
    height, angle = 1 - 2 * steps / 4000, np.pi * (1 + 5**0.5) * steps
    radius = np.sqrt(1 - height**2)
    sphere = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], 1)
    points = (sphere * [40, 30, 25]).astype(np.float32)
    distances = np.full(4000, np.inf)
    chosen = [0]
    for _ in range(n - 1):
        latest = points[chosen[-1]]
        distances = np.minimum(distances, np.sum((points - latest) ** 2, axis=1))
        chosen.append(int(np.argmax(distances)))
    return points[chosen]


def surface(points, name="one"):
    return Sample(points, np.zeros(len(points), np.int32), name=name)


def signatures(tmp_path, points, **options):
    given = {"times": TIMES, "num_functions": 40, "cache_dir": tmp_path} | options
    (found,) = rna.with_signatures([surface(points)], **given)
    return found.features


def write(root, points, faces):
    (root / "off").mkdir(parents=True, exist_ok=True)
    rows = [" ".join(map(str, p)) for p in points.tolist()]
    rows += ["3 " + " ".join(map(str, f)) for f in faces.tolist()]
    head = f"OFF\n{len(points)} {len(faces)} 0\n"
    (root / "off" / "one.off").write_text(head + "\n".join(rows) + "\n")


def test_turning_moving_and_reordering_change_nothing(tmp_path, rng):
    points = ellipsoid()
    expected = signatures(tmp_path, points)
    assert expected.dtype == np.float32
    assert expected.shape == (400, 2)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    order = rng.permutation(400)
    moved = (points @ rotation + 100).astype(np.float32)[order]
    assert_allclose(signatures(tmp_path, moved), expected[order], atol=2e-3, rtol=1e-3)
    assert expected[:, 0].std() > 0.05  # the ends of the ellipsoid keep their heat


def test_meshes_have_those_of_the_cotangent_laplacian_and_clouds_about_the_same(
    tmp_path,
):
    from scipy.spatial import ConvexHull

    points = ellipsoid()
    faces = ConvexHull(points).simplices
    # A repeated vertex, a triangle without area, and a vertex of no triangle.
    repeated = np.concatenate([points, points[:1], points[:1] + 1])
    faces = np.concatenate([np.where(faces == 0, 400, faces), [[0, 400, 5]]])
    write(tmp_path / "rna", repeated, faces)
    given = {"data_dir": tmp_path / "rna"}
    on_mesh = signatures(tmp_path, points[:50], **given)
    every = signatures(tmp_path, points)
    assert_allclose(on_mesh, every[:50], atol=0.15)
    assert np.corrcoef(on_mesh[:, 1], every[:50, 1])[0, 1] > 0.8
    write(tmp_path / "rna", repeated, faces[:0])  # no faces: the points themselves
    assert_array_equal(signatures(tmp_path, points, **given), every)


def test_what_was_computed_is_read(tmp_path, monkeypatch):
    points = ellipsoid(60)
    found = signatures(tmp_path, points)
    module = rna._rna_signatures
    monkeypatch.setattr(module, "laplacian_eigenfunctions", None)
    assert_array_equal(signatures(tmp_path, points), found)
    with pytest.raises(TypeError):
        signatures(tmp_path, points, times=(1.0,))


def test_synthetic_surfaces_have_the_same_signatures_in_all_poses(tmp_path):
    (one,) = rna.generate(1, seed=3)
    found = signatures(tmp_path, one.mesh_points)
    axes = np.asarray(point_clouds.principal_axes(one.mesh_points))
    again = signatures(tmp_path, (one.mesh_points @ axes).astype(np.float32))
    assert_allclose(again, found, atol=2e-3, rtol=1e-3)


def test_impossible_signatures_are_refused(tmp_path):
    with value_error("1 surfaces have fewer than 16 points.*one"):
        signatures(tmp_path, ellipsoid(9))
    with value_error("times"):
        signatures(tmp_path, ellipsoid(20), times=(0.0, 1.0))


@pytest.mark.parametrize(
    ("faces", "message"),
    [
        ("3 0 1 2 9", "5 numbers for its 1 faces"),
        ("4 0 1 2", "not triangles with valid vertices"),
        ("3 0 1 3", "not triangles with valid vertices"),
        ("3 0 1 x", "not a number"),
    ],
)
def test_faces_that_are_no_triangles_are_refused(faces, message, tmp_path):
    path = tmp_path / "one.off"
    path.write_text(f"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n{faces}\n")
    assert len(_off.read_vertices(path)) == 3
    with value_error(message):
        _off.read_triangles(path)
    path.write_text("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")
    assert _off.read_triangles(path).tolist() == [[0, 1, 2]]
