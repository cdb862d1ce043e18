import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import _generated, navier_stokes
from tests.refused import value_error

SMALL = {"num_points": 8, "stride": 2}
NAME = "NavierStokes_V1e-5_N1200_T20"


@pytest.fixture
def fields(rng):
    """Returns seven random flows of 23 frames on a grid of 6 x 6 points."""
    return rng.normal(size=(7, 6, 6, 23))


def write(folder, u, *, key="u"):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{NAME}.npz", **{key: u})


def read(folder, **changes):
    arguments = {"num_train": 3, "num_test": 2}
    return navier_stokes.load(folder, **(arguments | changes))


@pytest.mark.parametrize("place", ["", NAME, f"{NAME}.mat"])
def test_frames_are_split_first_and_last_samples_apart(place, fields, tmp_path):
    write(tmp_path / place, fields)
    train, test = read(tmp_path)
    for found, expected in ((train, fields[:3]), (test, fields[-2:])):
        assert len(found) == len(expected)
        for sample, flow in zip(found, expected, strict=True):
            assert sample.grid_shape == (6, 6)
            flat = flow.reshape(36, 23).astype(np.float32)
            assert_array_equal(sample.features, flat[:, :10])
            assert_array_equal(sample.target, flat[:, 10:20])


def test_points_are_where_the_values_are(fields, tmp_path):
    write(tmp_path, fields)
    points = read(tmp_path)[0][0].mesh_points.reshape(6, 6, 2)
    assert points.dtype == np.float32
    assert_allclose(points[4, 1], [4 / 6, 1 / 6], rtol=1e-6)
    published = read(tmp_path, coordinates="published")[0][0].mesh_points
    assert_allclose(published.reshape(6, 6, 2)[4, 1], [1 / 5, 4 / 5])


def test_stride_and_numbers_of_frames_can_be_chosen(fields, tmp_path):
    write(tmp_path, fields)
    train, _ = read(tmp_path, stride=3, input_frames=1, output_frames=22)
    expected = fields[0, ::3, ::3, :1].reshape(4, 1).astype(np.float32)
    assert_array_equal(train[0].features, expected)
    assert train[0].grid_shape == (2, 2)
    expected = fields[0, ::3, ::3, 1:].reshape(4, 22).astype(np.float32)
    assert_array_equal(train[0].target, expected)
    with value_error("need 24"):
        read(tmp_path, output_frames=14)
    with value_error("must divide"):
        read(tmp_path, stride=4)


def test_generated_samples_are_flows_of_the_problem(tmp_path):
    from opjax.problems import navier_stokes as problem

    (sample,) = navier_stokes.generate(1, seed=3, cache_dir=tmp_path, **SMALL)
    arrays = navier_stokes.trajectories(1, seed=3, cache_dir=tmp_path, **SMALL)
    with _generated.keys(3):  # as the generator: one compilation for both
        key = jax.random.fold_in(jax.random.key(3), 0)
        options = SMALL | {"num_frames": 20, "courant": 2.0}
        flow = problem.sample(key, dtype=np.float32, **options)
    frames = np.moveaxis(np.asarray(flow.vorticity), 0, -1)
    assert_allclose(arrays["u"][0], frames, atol=1e-6)
    assert_allclose(arrays["a"][0], flow.initial, atol=1e-6)
    assert_array_equal(arrays["t"], np.arange(1, 21)[None])
    assert_array_equal(sample.features, arrays["u"][0, ..., :10].reshape(16, 10))
    assert_array_equal(sample.target, arrays["u"][0, ..., 10:].reshape(16, 10))


@pytest.mark.parametrize("suffix", [".mat", ".npz"])
def test_saved_samples_are_loaded_again(suffix, tmp_path):
    flows = navier_stokes.generate(3, seed=0, cache_dir=tmp_path, **SMALL)
    initial = np.zeros((3, 4, 4))
    navier_stokes.save(tmp_path, flows, initial=initial, name=f"{NAME}{suffix}")
    train, test = read(tmp_path, num_train=2, num_test=1)
    for before, after in zip(flows, train + test, strict=True):
        for name in ("mesh_points", "features", "target"):
            assert_array_equal(getattr(before, name), getattr(after, name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda u: np.moveaxis(u, 3, 1), "the frames must be last"),
        (lambda u: u[..., 0], "expected \\(any, any, any, any\\)"),
        (lambda u: u[..., :19], "19 frames"),
        (lambda u: u[:4], "4 samples"),
        (lambda u: u.T, "23 samples|7 frames"),
        (lambda u: np.where(u == u[1, 2, 3, 4], np.nan, u), "non-finite"),
    ],
)
def test_damaged_files_are_refused(change, message, fields, tmp_path):
    write(tmp_path, change(fields))
    with value_error(message):
        read(tmp_path)


def test_missing_files_and_arrays_are_named(fields, tmp_path):
    with pytest.raises(FileNotFoundError, match="Google Drive"):
        read(tmp_path)
    write(tmp_path, fields, key="w")
    with value_error("'w'"):
        read(tmp_path)


def test_bad_arguments_are_refused(fields, tmp_path):
    with value_error("coordinates='other'"):
        navier_stokes.positions(4, coordinates="other")
    with value_error("must divide"):
        navier_stokes.generate(1, seed=0, num_points=8, stride=3, cache_dir=tmp_path)
    flow = navier_stokes.to_samples(fields)[0]
    with value_error("square grids"):
        navier_stokes.save(tmp_path, [flow._replace(grid_shape=(4, 9))])
    with value_error(r"expected \(1, 6, 6\)"):
        navier_stokes.save(tmp_path, [flow], initial=np.zeros((6, 6)))
    with value_error("features and a target"):
        navier_stokes.save(tmp_path, [flow._replace(target=None)])


def test_flows_that_blow_up_are_reported(tmp_path):
    with pytest.raises(FloatingPointError, match="smaller Courant number"):
        navier_stokes.trajectories(
            1, seed=0, num_points=48, stride=1, courant=1e4, cache_dir=tmp_path
        )


def test_samples_stack_without_padding(fields):
    (batch,) = samples.stack(navier_stokes.to_samples(fields))
    assert batch["features"].shape == (7, 36, 10)
    assert "quadrature_weights" not in batch
