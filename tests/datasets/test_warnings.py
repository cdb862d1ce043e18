"""What files are warned of: copies, lost digits, crowded points; and clear refusals."""

import warnings

import numpy as np
import pytest

from opjax import files
from opjax.learn.cli import train as program
from opjax.samples import Sample, ranges
from tests.datasets.reading import refused


def write(folder, count, points=40, offset=0.0, seed=0, **changes):
    """Writes meshes of random points in the unit square."""
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for i in range(count):
        x = rng.uniform(size=(points, 2))
        arrays = {"mesh_points": x + offset, "k": x[:, 0], "target": x.sum(axis=1)}
        np.savez(folder / f"{i}.npz", **{**arrays, **changes})
    return folder


def test_a_copy_is_named_with_its_original_also_across_sets(tmp_path):
    train = write(tmp_path / "train", 5)
    test = write(tmp_path / "test", 2, seed=1)
    config = program.Config(train=str(train), test=str(test), models=("functional",))
    program.load(config)  # a warning would be an error
    (test / "same.npz").write_bytes((train / "3.npz").read_bytes())
    names = f"{test / 'same.npz'} equals {train / '3.npz'}"
    with pytest.warns(UserWarning, match="1 samples are duplicates") as said:
        program.load(config)
    assert names in str(said[0].message)


@pytest.mark.parametrize(
    ("offset", "warned"), [(0.0, 0), (1.0, 0), (30.0, 1), (1e4, 1)]
)
def test_lost_digits_of_coordinates_are_said_from_the_first_on(
    tmp_path, offset, warned
):
    folder = write(tmp_path / "a", 2, offset=offset)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        files.read(folder)
        files.stored(folder)
    lost = [one for one in said if "lose digits in float32" in str(one.message)]
    assert len(lost) == 2 * warned
    if warned:
        assert "Subtract the same offset" in str(lost[0].message)


def test_points_of_single_precision_lose_nothing(tmp_path):
    points = np.random.default_rng(0).uniform(size=(9, 2)).astype(np.float32) + 100
    np.savez(tmp_path / "a.npz", mesh_points=points, target=points[:, 0])
    files.read(tmp_path / "a.npz")  # a warning would be an error


def test_a_value_that_is_not_finite_is_called_by_its_field(tmp_path):
    k = np.ones(40)
    k[[7, 9]] = np.nan, np.inf
    folder = write(tmp_path / "a", 1, k=k)
    said = r"0.npz: k has 2 non-finite values, the first one at point 7"
    refused(folder, said, features="k")
    files.read(folder)  # it is not asked for


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("a.msh", "meshio convert a.msh a.vtu"),
        ("wing.obj", r"pyvista.read\('wing.obj'\)"),
        ("a.csv", "write the names of the columns"),
        ("a.xyz", "in ParaView and save it as .vtu"),
    ],
)
def test_other_formats_are_refused_with_what_converts_them(tmp_path, name, way):
    (tmp_path / name).write_text("")
    refused(tmp_path / name, f"unknown suffix.*{way}")


def uniform(n, seed=0, corner=1.0):
    points = np.random.default_rng(seed).uniform(size=(n, 2)) * corner
    return Sample(points.astype(np.float32))


def test_refining_a_mesh_is_no_crowding_and_a_corner_is():
    measured = ranges.measure([uniform(120, seed) for seed in range(20)])
    for n in (60, 120, 1000, 20_000):
        assert ranges.crowding(measured, uniform(n, seed=99)) == 0
    crowded = uniform(120, seed=99, corner=0.2)  # inside the box of training
    assert ranges.compare(measured, crowded)["points_outside"] == 0
    found = ranges.crowding(measured, crowded)
    assert found > 0.5
    row = {**ranges.compare(measured, crowded), "points_crowding": found}
    assert "crowd where those of training did not" in ranges.sentence(row)
    del measured["quantiles"]  # as of operators of 0.2, and of meshes read in slices
    assert ranges.crowding(measured, crowded) == 0


def test_crowding_is_the_same_in_any_unit():
    train = [uniform(50, seed) for seed in range(4)]
    crowded = uniform(50, seed=9, corner=0.3)
    scaled = [s._replace(mesh_points=1e3 * s.mesh_points) for s in (*train, crowded)]
    np.testing.assert_allclose(
        ranges.crowding(ranges.measure(scaled[:-1]), scaled[-1]),
        ranges.crowding(ranges.measure(train), crowded),
        rtol=1e-4,
    )


def test_answers_that_are_all_equal_are_told(tmp_path):
    train = write(tmp_path / "train", 5, target=np.arange(40.0))
    with pytest.warns(UserWarning, match="targets of all 5 samples are equal"):
        program.load(program.Config(train=str(train), models=("functional",)))
