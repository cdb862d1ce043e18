"""`learn.train`: arrays in, an operator out, with the bits of the program."""

import dataclasses
import re
from functools import partial

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn
from opjax.datasets import heat
from opjax.learn.cli import train as program
from opjax.learn.cli import train_samples
from opjax.learn.registry import operators
from opjax.normalize import Normalizer
from opjax.samples import Sample, from_arrays, grid_points
from tests.learn.tiny import QUICK, TINY, filled
from tests.refused import value_error


@pytest.fixture(scope="module")
def grids():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(9, 6, 5))
    return features, np.sin(features)


@pytest.fixture(scope="module")
def trained(grids):
    """A trained operator, but its model is another, which no training has left."""
    features, target = grids
    config = dataclasses.replace(TINY, models=(QUICK,))
    found = learn.train({"features": features, "target": target}, config=config)
    description = found.description
    given = description.config | {"models": ["functional"]}
    return found._replace(
        model=filled(partial(operators.build, TINY, description.sizes)),
        description=dataclasses.replace(description, config=given),
    )


@pytest.mark.nightly
def test_it_ends_with_the_bits_of_the_program(tmp_path, capsys):
    data = heat.write(tmp_path / "data", 10, num_points=(20, 30))
    given = dataclasses.replace(TINY, train=str(data))
    program.run(given, workdir=tmp_path / "run")
    expected = learn.load(tmp_path / "run")
    samples = files.read(data)
    found = learn.train(samples, config=TINY)
    for tree in ("model", "normalizers"):
        jax.tree.map(assert_array_equal, getattr(found, tree), getattr(expected, tree))
    assert_array_equal(found(samples[0]), expected(samples[0]))
    said = capsys.readouterr().err
    assert "Test samples: relative_l2" in said
    assert "\nmean field " in said.split("Test samples")[1]


def test_grids_come_back_in_their_layout(trained, grids):
    features, _ = grids
    one = trained(features[0])
    assert one.shape == (6, 5)
    points = grid_points((6, 5)).astype(np.float32)
    flat = features[0].reshape(-1).astype(np.float32)
    assert_allclose(trained(points, flat), one.reshape(-1, 1), rtol=1e-5)
    assert_array_equal(trained(points, flat[:, None]), trained(points, flat))
    sample = Sample(points, features=flat[:, None], grid_shape=(6, 5))
    assert_allclose(trained(sample), one.reshape(-1, 1), rtol=1e-5)
    assert_array_equal(trained(features[:2])[0], one)
    assert_array_equal(trained(features[:2, ..., None])[0, ..., 0], one)
    assert_array_equal(trained(features[0][..., None])[..., 0], one)
    bare = sample._replace(features=flat)
    assert_array_equal(trained(bare), trained(sample))
    assert trained(features[0][::2, ::2]).shape == (3, 3)  # of any resolution


def test_a_saved_operator_predicts_the_same(trained, grids, tmp_path):
    trained.save(tmp_path / "kept")
    found = learn.load(tmp_path / "kept")
    assert_array_equal(found(grids[0][0]), trained(grids[0][0]))
    with pytest.raises(FileExistsError, match="not empty"):
        trained.save(tmp_path / "kept")


@pytest.mark.nightly
def test_a_folder_has_a_report_and_takes_the_same_samples_only(grids, tmp_path):
    features, target = grids
    given = {"features": features, "target": target}
    found = learn.train(given, config=TINY, workdir=tmp_path / "run")
    assert (tmp_path / "run" / "tables.md").is_file()
    again = learn.train(given, config=TINY, workdir=tmp_path / "run")
    assert_array_equal(again(features[0]), found(features[0]))
    other = {"features": features, "target": 2 * target}
    with value_error("another configuration"):
        learn.train(other, config=TINY, workdir=tmp_path / "run")


def test_what_does_not_fit_is_refused(trained, grids):
    features, target = grids
    given = {"features": features, "target": target}
    for change, message in (
        (
            {"preset": "fasst"},
            "preset='fasst' is unknown; choose from smoke, quick, fast",
        ),
        ({"model": "fuctional"}, "fuctional"),
        ({"seed": -1}, "seeds"),
        ({"batch_size": 8}, "7 training samples|6 training samples"),
    ):
        with value_error(message):
            learn.train(given, **change)
    with value_error("'targets'"):
        learn.train({"features": features, "targets": target})
    with value_error("no target"):
        learn.train({"features": features})
    with value_error(r"\(4, 2, 3, 7\), expected \(h, w, 1\)"):
        trained(np.zeros((4, 2, 3, 7)))
    with pytest.raises(TypeError, match="complex128"):
        trained(np.zeros((6, 5), complex))
    with value_error("one row per point"):
        trained(np.zeros((6, 2)), np.zeros((5, 1)))
    with value_error("features can only be passed with an array"):
        trained(features[..., None], features[0])


def test_grids_far_from_those_of_training_are_named(trained, grids):
    assert trained(np.zeros((3, 12, 10))).shape == (3, 12, 10)  # resolution, no shape
    for shape in (8, 8, 2), (4, 5, 6), (2, 6, 20):
        said = rf"{re.escape(str(shape))}, read as grids .*trained on grids of \(6, 5\)"
        with value_error(said):
            trained(np.zeros(shape))
    for shape in (5, 6), (30, 1), (2, 6, 20, 1):
        with pytest.warns(UserWarning, match=r"trained on grids of \(6, 5\).*order of"):
            assert trained(np.zeros(shape)).shape == shape


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_inputs_that_are_not_finite_are_named(bad, trained, grids):
    given = grids[0][:2].copy()
    given[1, 0, 3] = bad
    with value_error("grid 1: features has 1 .* at point 3"):
        trained(given)
    points = np.array(grid_points((6, 5)))
    points[2, 0] = bad
    with value_error("the mesh given: mesh_points has 1 .* point 2"):
        trained(points, given[0].reshape(-1))
    endless = Normalizer(np.full(1, bad), np.ones(1))
    wild = trained._replace(normalizers=trained.normalizers | {"target": endless})
    with value_error("The prediction for grid 0 is not finite"):
        wild(grids[0][0])


def test_samples_of_arrays_are_their_rows(rng):
    points, target = rng.normal(size=(7, 2)), rng.normal(size=(3, 7))
    found = from_arrays(mesh_points=points, target=target, features=target[..., None])
    assert len(found) == 3
    for sample, values in zip(found, target, strict=True):
        assert_array_equal(sample.mesh_points, points)
        assert_array_equal(sample.target[:, 0], values)
        assert_array_equal(sample.features[:, 0], values)
    line = from_arrays(target=target, grid_axes=1)
    assert_allclose(line[0].mesh_points[:, 0], np.linspace(0, 1, 7))
    assert line[0].grid_shape == (7,)
    for given, message in (
        ({"target": target}, r"target has shape \(3, 7\).*2 axes"),
        ({"target": target[:, :6], "mesh_points": points}, r"\(3, 6\).*7 points"),
        ({"target": target, "quadrature_weights": points}, "need mesh_points"),
        ({"target": target, "mesh_points": points[0]}, r"expected \(b, n, p\)"),
    ):
        with value_error(message):
            from_arrays(**given)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("fno", {"num_modes": 3}),
        ("functional", {"convolution": True}),
    ],
)
def test_models_of_grids_learn_from_arrays(model, options):
    x = np.random.default_rng(0).normal(size=(9, 8, 8))
    options |= {"num_basis": learn.TRAIN_PRESETS["smoke"].num_basis}
    config = dataclasses.replace(TINY, **options)
    found = learn.train(
        {"features": x, "target": np.sin(x)}, config=config, model=model
    )
    values = found(x[:2])
    assert values.shape == (2, 8, 8)
    assert np.all(np.isfinite(values))
    with value_error("grid|points"):
        found(x[0][::2])  # tied to its grid


@pytest.mark.parametrize("dtype", ["f2", ">f8", "i4", "?", "longdouble"])
def test_operators_are_called_with_real_numbers_of_any_type(dtype, trained, grids):
    given = (4 * grids[0][0]).astype(dtype)
    expected = trained(np.asarray(given, np.float64))
    assert_allclose(trained(given), expected, rtol=1e-6)
    if dtype in ("i4", "?"):
        with jax.enable_x64(False):
            traced = jax.jit(lambda x: trained(x))(given)
        assert_allclose(traced, expected, rtol=1e-4)
    points = grid_points((6, 5))
    sample = Sample(points, features=given.reshape(-1, 1), grid_shape=(6, 5))
    assert_allclose(trained(sample), expected.reshape(-1, 1), rtol=1e-4)
    with pytest.raises(
        TypeError, match=r"values on a grid has dtype complex\d+, expected real"
    ):
        trained(given * 1j)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["f2", "?"])
def test_arrays_of_any_type_train_an_operator_that_can_be_called(dtype, grids):
    features, target = (
        (array > 0 if dtype == "?" else 4 * array).astype(dtype) for array in grids
    )
    config = dataclasses.replace(TINY, num_epochs=1)
    found = learn.train({"features": features, "target": target}, config=config)
    values = found(features[0])
    assert np.isfinite(values).all()
    assert (values.dtype, values.shape) == (np.float32, (6, 5))
    samples = from_arrays(features=features, target=target)
    halves = [s._replace(features=s.features.astype(dtype)) for s in samples]  # pyright: ignore
    divided = train_samples._divided(halves, config)  # a list is treated alike
    for one, other in zip(divided.train, samples, strict=False):
        assert one.features.dtype == other.features.dtype  # pyright: ignore


@pytest.mark.nightly
def test_a_model_of_one_grid_refuses_another_with_as_many_points(grids, capsys):
    features, target = grids
    smoke = learn.TRAIN_PRESETS["smoke"]
    config = dataclasses.replace(smoke, train="", models=("fno",), num_epochs=1)
    found = learn.train({"features": features, "target": target}, config=config)
    assert (
        "9 samples on a grid of 6 x 5 points, features of 1" in capsys.readouterr().err
    )
    assert found(features[0]).shape == (6, 5)
    with value_error(r"on a grid of \(5, 6\), .*supports only grids of \(6, 5\)"):
        found(features[0].T)
    other, own = (grid_points(shape) for shape in ((5, 6), (6, 5)))
    sample = Sample(other, features=features[0].reshape(-1, 1), grid_shape=(5, 6))
    with value_error(r"on a grid of \(5, 6\)"):
        found(sample)
    with value_error("does not match the order of mesh_points"):
        found(other, features[0].reshape(-1))
    assert_array_equal(
        found(own, features[0].reshape(-1))[:, 0], found(features[0]).reshape(-1)
    )


def test_arrays_that_a_model_cannot_tell_apart_are_named(grids):
    features, target = grids
    features = features.copy()
    features[3] = features[1]
    with pytest.warns(
        UserWarning, match="2 of 9 samples have the same input as others"
    ):
        train_samples._divided({"features": features, "target": target}, TINY)
