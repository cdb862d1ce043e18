import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import rna
from opjax import learn, nn
from opjax.datasets import rna as dataset
from tests.experiments.results import read_result
from tests.refused import value_error

TINY = dataclasses.replace(
    rna.PRESETS["smoke"],
    models=("functional",),
    num_train=4,
    num_validation=2,
    num_test=3,
    num_points=20,
    test_points=30,
    width=8,
    num_layers=1,
    num_heads=2,
    num_basis=4,
    batch_size=2,
    num_epochs=1,
)


class Table(nnx.Module):
    """A model whose scores are its parameters, the same for every surface."""

    def __init__(self, scores):
        self.scores = nnx.Param(jnp.asarray(scores, jnp.float32))

    def __call__(self, mesh_points, features=None, *, quadrature_weights=None):
        return self.scores[...] + 0 * jnp.sum(mesh_points)


@pytest.fixture
def batch(rng):
    """Returns two surfaces of five points; the last two of the second are padding."""
    weights = np.array([[0.2] * 5, [1 / 3] * 3 + [0] * 2])
    return {
        "mesh_points": rng.normal(size=(2, 5, 3)).astype(np.float32),
        "target": rng.integers(7, size=(2, 5), dtype=np.int32),
        "quadrature_weights": weights.astype(np.float32),
    }


def cross_entropy(scores, targets, smooth):
    """Point by point; `smooth` of the target is spread over all classes."""
    total = 0.0
    for row, true in zip(scores, targets, strict=True):
        log_probabilities = row - np.log(np.sum(np.exp(row)))
        wanted = np.full(len(row), smooth / len(row))
        wanted[true] += 1 - smooth
        total -= np.dot(wanted, log_probabilities)
    return total / len(targets)


@pytest.mark.parametrize("smooth", [0.0, 0.2])
def test_the_loss_is_the_cross_entropy_of_points_that_are_there(smooth, batch, rng):
    config = dataclasses.replace(TINY, label_smoothing=smooth)
    scores = rng.normal(size=(5, 7))
    found = rna.loss(config, Table(scores), batch, key=jax.random.key(0))
    first = cross_entropy(scores, batch["target"][0], smooth)
    second = cross_entropy(scores[:3], batch["target"][1, :3], smooth)
    assert float(found) == pytest.approx((first + second) / 2, rel=1e-5)


def test_the_metric_is_the_share_of_wrong_points(batch, rng):
    scores = rng.normal(size=(5, 7))
    best = np.argmax(scores, axis=1)
    for row, count in ((0, 5), (1, 3)):
        sample = {name: array[row] for name, array in batch.items()}
        expected = np.mean(best[:count] != batch["target"][row, :count])
        assert float(rna.wrong(Table(scores), sample)) == pytest.approx(expected)


class Moments(nnx.Module):
    """A model whose scores are coordinates, or the same for all rotations of them."""

    def __init__(self, *, invariant):
        self.invariant = invariant

    def __call__(self, mesh_points, features=None, *, quadrature_weights=None):
        if self.invariant:
            return mesh_points @ mesh_points.T
        return jnp.concatenate([mesh_points, 2 * mesh_points], axis=1)


@pytest.mark.parametrize("invariant", [True, False])
def test_random_orientation_rotates_what_the_model_sees(invariant, batch):
    batch["target"] %= 5

    def losses(orientation):
        config = dataclasses.replace(TINY, orientation=orientation)
        model = Moments(invariant=invariant)
        keys = [jax.random.key(seed) for seed in (1, 2)]
        return [float(rna.loss(config, model, batch, key=key)) for key in keys]

    first, second = losses("published")
    assert first == second
    turned = losses("random")
    assert np.allclose(turned, first, rtol=1e-5) == invariant
    assert np.isclose(*turned, rtol=1e-5) == invariant


def test_validation_surfaces_are_training_surfaces_and_no_others(tmp_path):
    surfaces = dataset.generate(9, seed=1, num_points=40)
    dataset.save(tmp_path, surfaces[:6], surfaces[6:])
    config = dataclasses.replace(TINY, data_dir=str(tmp_path))
    data = rna.load(config, cache_dir=str(tmp_path / "cache"))
    names = {k: [s.name for s in getattr(data, k)] for k in data._fields[:3]}
    assert names == {
        "train": [s.name for s in surfaces[:4]],
        "validation": [s.name for s in surfaces[4:6]],
        "test": [s.name for s in surfaces[6:]],
    }
    assert {s.num_points for s in data.train} == {40}
    assert {s.num_points for s in [*data.validation, *data.test]} == {30}
    classes, nearest = data.test[0].details
    assert_array_equal(classes, surfaces[6].target)
    placed = rna.place(surfaces[6], config).mesh_points
    offsets = data.test[0].mesh_points[nearest] - placed
    assert np.sum(np.abs(offsets).max(axis=1) < 1e-5) >= 30


@pytest.mark.parametrize("orientation", rna.ORIENTATIONS)
def test_surfaces_are_centred_scaled_and_turned(orientation):
    (surface,) = dataset.generate(1, seed=0)
    config = dataclasses.replace(TINY, orientation=orientation, length=10.0)
    placed = rna.place(surface, config).mesh_points
    assert_allclose(placed.mean(axis=0), 0, atol=1e-5)
    centred = surface.mesh_points - surface.mesh_points.mean(axis=0)
    sizes = [np.linalg.norm(p, axis=1) for p in (centred / 10, placed)]
    assert_allclose(*sizes, rtol=1e-4)
    covariance = placed.T @ placed
    off = np.abs(covariance[np.triu_indices(3, 1)]).max() / covariance[0, 0]
    assert (off < 1e-4) == (orientation == "principal")


def test_only_the_smoke_preset_runs_without_data(tmp_path):
    with value_error("preset='quick' needs --data_dir"):
        rna.make_task(rna.PRESETS["quick"])
    with pytest.raises(FileNotFoundError, match="train.txt"):
        rna.make_task(dataclasses.replace(TINY, data_dir=str(tmp_path)))
    with value_error("orientation='up'"):
        dataclasses.replace(TINY, orientation="up")


def test_signatures_take_the_place_of_coordinates(tmp_path):
    config = dataclasses.replace(TINY, inputs="hks")
    data = rna.load(config, cache_dir=str(tmp_path))
    features = np.concatenate([surface.features for surface in data.train])
    assert_allclose(features.mean(axis=0), 0, atol=1e-4)
    assert_allclose(features.std(axis=0)[:12], 1, rtol=1e-2)
    (first, *_) = data.test
    assert first.mesh_points.shape == (30, 3)
    assert first.features.shape == (30, 16)
    (sight, *_) = rna.seen(config, data.test)
    assert_array_equal(sight.mesh_points, first.features)
    model = rna.OnFeatures(lambda x, quadrature_weights=None: 2 * x)
    sample = {"mesh_points": first.mesh_points, "features": first.features}
    found = rna.operators.call(model, sample)
    assert_allclose(found, 2 * first.features)
    with value_error("orientation='random' has no meaning"):
        dataclasses.replace(config, orientation="random")
    with value_error("length=0 gives every surface"):
        dataclasses.replace(config, length=0.0)
    with value_error("inputs='normals'"):
        dataclasses.replace(config, inputs="normals")


def test_turned_surfaces_are_rotated_the_same_way_every_time():
    surfaces = dataset.generate(3, seed=0, num_points=30)
    turned, again = rna.turned(surfaces), rna.turned(surfaces)
    for before, after, same in zip(surfaces, turned, again, strict=True):
        assert_array_equal(after.mesh_points, same.mesh_points)
        products = [p @ p.T for p in (before.mesh_points, after.mesh_points)]
        assert_allclose(*products, rtol=1e-3, atol=1)
        assert np.abs(after.mesh_points - before.mesh_points).max() > 1
    first, second = (
        np.linalg.lstsq(a.mesh_points, b.mesh_points)[0]
        for a, b in zip(surfaces[:2], turned[:2], strict=True)
    )
    assert np.abs(first - second).max() > 0.1
    assert np.linalg.det(first) == pytest.approx(1, abs=1e-3)


@pytest.mark.nightly
@pytest.mark.parametrize(("changes", "known"), [({"inputs": "hks"}, False), ({}, True)])
def test_accuracy_under_rotations_is_told_where_poses_matter(changes, known, tmp_path):
    config = dataclasses.replace(TINY, **changes)
    result = rna.run(config, workdir=tmp_path / "run", cache_dir=str(tmp_path))
    assert ("accuracy_turned" in result) == known
    assert 0 <= result["accuracy"] <= 1


@pytest.mark.nightly
def test_a_run_leaves_everything_in_its_folder(tmp_path):
    surfaces = dataset.generate(9, seed=1, num_points=40)
    surfaces[0] = surfaces[0]._replace(
        mesh_points=surfaces[0].mesh_points[:25], target=surfaces[0].target[:25]
    )
    dataset.save(tmp_path / "rna", surfaces[:6], surfaces[6:])
    config = dataclasses.replace(TINY, data_dir=str(tmp_path / "rna"))
    result = rna.run(config, workdir=tmp_path / "run", cache_dir=str(tmp_path))
    assert read_result(tmp_path / "run") == result
    assert result["accuracy"] == result["accuracy_functional"]
    with np.load(tmp_path / "run/functional-0/predictions.npz") as stored:
        assert stored["prediction_0"].shape == (30,)
        row, predicted = stored["rows"][0], stored["prediction_0"]
    # Its operator gives the scores of a surface that is placed as in training.
    operator = learn.load(tmp_path / "run")
    placed = rna.load(config, cache_dir=str(tmp_path)).test[row].mesh_points
    scores = operator(np.asarray(placed))
    assert scores.shape == (30, dataset.NUM_CLASSES)
    assert_array_equal(scores.argmax(axis=1), predicted)
    for key in ("most_frequent", "nearest_neighbour", "accuracy_vertices"):
        assert 0 <= result[key] <= result["limit_vertices"] <= 1
    assert (tmp_path / "run/functional-0/figures/fields.png").stat().st_size > 1000


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("preset", "model", "options", "expected"),
    [
        ("paper", "functional", "", True),
        ("paper", "transolver", "", True),
        ("quick", "functional", "", False),
        ("quick", "functional", "dropout=0.1", True),
    ],
)
def test_the_paper_drops_behind_the_attention(preset, model, options, expected):
    config = dataclasses.replace(
        rna.PRESETS[preset],
        models=(model,),
        model_options=options,
        width=8,
        num_layers=1,
        num_heads=2,
        num_basis=4,
    )
    (member,) = config.members().values()
    built = rna.build(member, nnx.Rngs(0))
    assert nn.bases.draws_noise(built) == expected


def turned_differ(surfaces):
    """Largest differences of coordinates in principal axes after random rotations."""
    config = dataclasses.replace(TINY, orientation="principal")
    found = []
    for before, after in zip(surfaces, rna.turned(surfaces), strict=True):
        first, second = (rna.place(s, config).mesh_points for s in (before, after))
        found.append(np.abs(second - first).max() / np.abs(first).max())
    return np.asarray(found)


def test_surfaces_in_principal_axes_do_not_depend_on_their_pose():
    assert turned_differ(dataset.generate(6, seed=0)).max() < 1e-3


@pytest.mark.slow
def test_real_surfaces_in_principal_axes_do_not_depend_on_their_pose(shared_dir):
    _, surfaces = dataset.load(shared_dir / "data/rna", num_train=1)
    assert len(surfaces) == 136
    assert turned_differ(surfaces).max() < 1e-4
