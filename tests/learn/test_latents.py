"""Latents of layers against functions whose spans are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.learn import Task
from opjax.learn.tasks import latents
from tests.refused import value_error


@pytest.fixture
def unit(rng):
    """Ten orthonormal functions at twenty points."""
    return np.linalg.qr(rng.normal(size=(20, 10)))[0]


def test_spans_that_are_equal_orthogonal_or_between_have_these_angles(unit, rng):
    functions, others = unit[:, :3], unit[:, 3:6]
    between = np.cos(0.3) * functions + np.sin(0.3) * others
    sizes = np.array([3.0, 2.0, 1.0, 1e-3, 1e-3])
    mix = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    layers = [
        (np.concatenate([first, unit[:, 6:8]], axis=1) * sizes) @ mix.T
        for first in (functions, others, between)
    ]
    found = latents.compare(np.stack(layers), 7 * functions @ rng.normal(size=(3, 3)))
    expected = np.degrees(np.outer([0, np.pi / 2, 0.3], np.ones(3)))
    assert_allclose(found["angles"], expected, atol=1e-5)
    expected = np.outer([1, 0, np.cos(0.3) ** 2], np.ones(3))
    assert_allclose(found["shares"], expected, atol=1e-9)
    assert_allclose(found["chance"], 5 / 20)
    spans = found["modes"][0] @ found["modes"][0].T
    assert_allclose(spans, functions @ functions.T, atol=1e-6)


def test_dead_channels_are_no_part_of_a_span(unit):
    layer = unit[:, :4] * np.array([1, 1, 1e-12, 0])
    found = latents.compare(layer[None], unit[:, 1:3])
    assert_allclose(found["shares"], [[1, 0]], atol=1e-9)
    assert_allclose(found["angles"], [[0, 90]], atol=1e-5)
    assert found["chance"][0] == 2 / 20


def test_what_does_not_fit_is_refused(unit):
    with value_error("must have 20 rows"):
        latents.compare(unit[None], unit[1:, :2])
    with value_error("at most as many columns"):
        latents.compare(unit[None, :, :2], unit[:, :3])


class Model:
    def __init__(self, layers):
        self.layers = layers

    def latents(self, mesh_points, features):
        return jnp.stack([features * mesh_points, jnp.roll(features, 1, 1) * 2])


def test_members_with_latents_leave_a_file_and_two_numbers(tmp_path, unit, monkeypatch):
    points, features = np.ones((2, 20, 1)), np.stack([unit[:, :4], unit[:, 4:8]])
    task = Task(
        train=(),
        loss=lambda *_: 0.0,
        evaluate=lambda model, folder: {"error": 1.0},
        test=({"mesh_points": points, "features": features},),
    )

    def operator(model, sample):
        assert_array_equal(sample["features"], unit[:, :4])
        return None if model.coarse else ((4, 5), unit[:, :6])

    monkeypatch.setattr("jax.jit", lambda function: function)
    evaluate = latents.beside(task, operator).evaluate
    assert evaluate is not None
    assert evaluate(object(), tmp_path) == {"error": 1.0}
    model = Model(2)
    model.coarse = True
    assert evaluate(model, tmp_path) == {"error": 1.0}
    assert not list(tmp_path.iterdir())
    model.coarse = False
    result = evaluate(model, tmp_path)
    assert result["latent_angle"] == pytest.approx(0, abs=1e-5)
    assert result["latent_share"] == pytest.approx(1)
    with np.load(tmp_path / latents.FILE) as stored:
        assert stored["grid_shape"].tolist() == [4, 5]
        assert stored["modes"].shape == (2, 20, 4)  # no more than channels
        assert stored["eigenfunctions"].shape == (20, 4)
