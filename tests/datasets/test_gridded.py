"""Fields on grids, and stacked archives, as other libraries' users have them."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import files, learn
from opjax.learn.cli import predict, train
from opjax.samples import from_arrays, grid_points
from tests.datasets.reading import read, read_one, refused, save
from tests.refused import value_error


@pytest.fixture
def arrays(rng):
    return {"x": rng.normal(size=(5, 4, 3)), "y": rng.normal(size=(5, 4, 3, 2))}


NAMES = {"features": "x", "target": "y"}


@pytest.mark.parametrize("name", ["all.npz", "all.h5", "all"])
def test_stacked_grids_are_the_samples_of_their_arrays(arrays, tmp_path, name):
    path = save(tmp_path / name, arrays)
    found = read(path, stacked=True, grid_axes=2, **NAMES)
    expected = from_arrays(target=arrays["y"], features=arrays["x"])
    assert len(found) == len(expected) == 5
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one.mesh_points, other.mesh_points, rtol=1e-6)
        assert_allclose(one.features, other.features, rtol=1e-6)
        assert_allclose(one.target, other.target, rtol=1e-6)
        assert one.grid_shape == other.grid_shape == (4, 3)


def test_a_stacked_archive_of_meshes_is_read_as_well(rng, tmp_path):
    points = rng.uniform(size=(7, 2))  # that all samples share
    target = rng.normal(size=(3, 7))
    np.savez(tmp_path / "all.npz", mesh_points=points, target=target)
    found = read(tmp_path / "all.npz", stacked=True)
    assert [one.name[-2:] for one in found] == ["/0", "/1", "/2"]
    assert_allclose(found[2].target[:, 0], target[2], rtol=1e-6)
    assert_allclose(found[1].mesh_points, points, rtol=1e-6)
    with value_error("cannot be read row by row"):
        files.stored(tmp_path / "all.npz", files.ReadOptions(stacked=True))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_file_of_one_sample_has_a_grid_of_any_axes(rng, tmp_path, axes):
    shape = (4, 3, 5)[:axes]
    target = rng.normal(size=shape)
    np.savez(tmp_path / "one.npz", target=target)
    found = read_one(tmp_path / "one.npz", grid_axes=axes)
    assert found.grid_shape == shape
    assert_allclose(found.target[:, 0], target.reshape(-1), rtol=1e-6)
    assert_allclose(found.mesh_points, grid_points(shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {"y": (5, 3, 4)},
            {"grid_axes": 2},
            r"the same 2 grid axes.* x \(4, 3\), y \(3, 4\)",
        ),
        ({"y": (5, 4)}, {"grid_axes": 2}, r"use another grid_axes"),
        ({"mesh_points": (5, 12, 2)}, {"grid_axes": 2}, "mesh_points; omit grid_axes"),
        ({}, {}, r"no array 'mesh_points', .* give grid_axes=2"),
        (
            {"mesh_points": (5, 12, 2), "x": (5, 12)},
            {},
            "without mesh_points, pass the number of axes",
        ),
        ({"y": (4, 4, 3)}, {"grid_axes": 2}, "the same number of samples along axis 0"),
    ],
)
def test_what_is_on_no_common_grid_is_refused(
    arrays, rng, tmp_path, changes, options, message
):
    own = arrays | {name: rng.normal(size=shape) for name, shape in changes.items()}
    path = save(tmp_path / "all.npz", own)
    refused(path, message, stacked=True, **NAMES, **options)


@pytest.mark.nightly
def test_from_a_stacked_archive_to_predictions_on_the_grid(arrays, tmp_path):
    path = save(
        tmp_path / "all.npz", {k: np.concatenate([a, 2 * a]) for k, a in arrays.items()}
    )
    smoke = {"num_epochs": 1, "width": 8, "num_layers": 1, "num_basis": 4}
    config = train.Config(
        models=("functional",),
        train=str(path),
        feature_names="x",
        target_names="y",
        grid_axes=2,
        stacked=True,
        num_heads=2,
        convolution=False,
        **smoke,
    )
    train.run(config, workdir=tmp_path / "run")
    trained = learn.load(tmp_path / "run")
    np.savez(tmp_path / "new.npz", x=arrays["x"][0])
    predict.run(
        predict.PredictOptions(
            tmp_path / "run", input=tmp_path / "new.npz", output=tmp_path / "out"
        )
    )
    with np.load(tmp_path / "out" / "new.npz") as found:
        assert found["prediction_y"].shape == (4, 3, 2)
        expected = trained(arrays["x"][0].astype(np.float32)[..., None])
        assert_allclose(found["prediction_y"], expected, rtol=1e-5, atol=1e-6)
    assert json.loads((tmp_path / "out" / "report.json").read_text())


@pytest.mark.parametrize("name", ["target", "features", "mesh_points"])
def test_meshes_of_different_sizes_are_named_with_the_way_out(name):
    arrays = {"target": np.ones((2, 3)), "mesh_points": np.ones((2, 3, 2))}
    arrays[name] = [np.ones((3, 2)), np.ones((4, 2))]
    with value_error(f"{name} contains arrays .* samples.Sample"):
        from_arrays(**arrays)
