import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import samples
from opjax.datasets import bodies, cars
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason="needs the extra opjax[vtk]")


def spheres(*paths):
    """Writes spheres with a pressure by their folders."""
    for path in paths:
        path.parent.mkdir(parents=True)
        sphere = pyvista.Sphere(theta_resolution=8, phi_resolution=8)
        sphere.point_data.clear()
        mesh = sphere if path.suffix == ".vtp" else sphere.cast_to_unstructured_grid()
        mesh.point_data["p"] = mesh.points[:, 0] + ord(path.parent.name[-1])
        mesh.save(path)
    return paths[0].parents[1]


@pytest.fixture
def drivaerml(tmp_path):
    """A folder of two files in the layout of DrivAerML."""
    names = [f"run_{i}/boundary_{i}.vtp" for i in (1, 2)]
    folder = spheres(*(tmp_path / "drivaerml" / name for name in names))
    (folder / "run_7").mkdir()  # published folders may lack files
    return folder


@pytest.fixture
def shapenet(tmp_path):
    """A folder of three spheres in the layout of ShapeNet-Car."""
    names = ["param0/b", "param1/c", "param8/a"]
    folder = tmp_path / "training_data"
    spheres(*(folder / name / "quadpress_smpl.vtk" for name in names))
    return tmp_path


@pytest.mark.nightly
def test_drivaerml_is_read_at_the_middles_of_the_cells(tmp_path):
    surfaces = tmp_path / "drivaerml"
    bodies.write(surfaces, 2, seed=0, resolution=2)
    fields = ("CpMeanTrim", "wallVelocity")
    train, test = cars.drivaerml(surfaces, num_train=1, num_test=1, fields=fields)
    samples.check([*train, *test])
    made = bodies.generate(2, seed=0, resolution=2, cache_dir=tmp_path)
    for found, expected in zip([*train, *test], made, strict=True):
        assert_allclose(found.target, expected.target, atol=1e-6)
        # Middles and areas of flat cells, on a coarse mesh.
        assert np.abs(found.mesh_points - expected.mesh_points).max() < 0.3
        cosines = np.sum(found.features * expected.features, axis=1)
        assert cosines.min() > 0.8
        total = found.quadrature_weights.sum() / expected.quadrature_weights.sum()
        assert 0.8 < total < 1
    assert [sample.name for sample in train] == ["boundary_1"]


def test_shapenet_cars_are_read_in_the_published_split(shapenet):
    train, test = cars.shapenet_car(shapenet, num_train=2, num_test=1)
    assert [sample.name for sample in (*train, *test)] == ["c", "a", "b"]
    for sample in (*train, *test):
        expected = sample.mesh_points[:, :1] + ord(sample.name)
        assert_allclose(sample.target, expected, rtol=1e-6)
        radial = sample.mesh_points / np.linalg.norm(
            sample.mesh_points, axis=1, keepdims=True
        )
        assert np.abs(np.sum(sample.features * radial, axis=1)).min() > 0.97
        # The areas of a sphere of radius 1/2.
        assert abs(sample.quadrature_weights.sum() / np.pi - 1) < 0.15


def test_missing_files_are_named(drivaerml, shapenet, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"2 files run_<i>.*3 were requested"):
        cars.drivaerml(drivaerml, num_train=2, num_test=1)
    with pytest.raises(FileNotFoundError, match="huggingface"):
        cars.drivaerml(tmp_path / "nowhere", num_train=1, num_test=1)
    with pytest.raises(FileNotFoundError, match=r"param0/\*/quadpress_smpl"):
        cars.shapenet_car(shapenet, num_train=1, num_test=2)


def test_damaged_files_and_missing_fields_are_named(drivaerml, shapenet):
    with value_error(r"boundary_1.vtp has the fields.*pMeanTrim"):
        cars.drivaerml(drivaerml, num_train=1, num_test=1)
    path = next(shapenet.glob("training_data/param0/*/*.vtk"))
    path.write_bytes(path.read_bytes()[:60])
    with value_error("quadpress_smpl"):
        cars.shapenet_car(shapenet, num_train=1, num_test=1)
