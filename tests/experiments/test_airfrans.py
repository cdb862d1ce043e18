import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import airfrans
from opjax.datasets import airfrans as dataset
from tests.refused import value_error

TINY = dataclasses.replace(
    airfrans.PRESETS["smoke"],
    num_train=3,
    num_validation=2,
    num_test=3,
    num_points=100,
    width=8,
    num_layers=1,
    num_basis=4,
    num_epochs=1,
)


class Zero(nnx.Module):
    def __call__(self, mesh_points, features=None, *, quadrature_weights=None):
        return jnp.zeros((len(mesh_points), 4), mesh_points.dtype)


def test_the_loss_adds_the_errors_in_the_fluid_and_at_the_airfoil(cache_dir):
    with jax.enable_x64(False):
        task = airfrans.make_task(TINY, cache_dir)
        (bucket,) = task.test
        surface, target = bucket["surface"][0] > 0, bucket["target"][0]
        assert surface.sum() == 64
        sample = jax.tree.map(lambda x: x[0], bucket)
        volume, wall = airfrans.parts(Zero(), sample)
        assert float(volume) == pytest.approx(np.mean(target[~surface] ** 2), rel=1e-5)
        assert float(wall) == pytest.approx(np.mean(target[surface] ** 2), rel=1e-5)
        config = dataclasses.replace(TINY, surface_weight=3.0)
        found = airfrans.error(config, Zero(), sample)
        assert float(found) == pytest.approx(float(volume + 3 * wall), rel=1e-5)


def test_features_and_targets_are_normalised_over_training_cases(cache_dir):
    with jax.enable_x64(False):
        task = airfrans.make_task(TINY, cache_dir)
    (train,) = task.train
    for name, channels in (("features", 7), ("target", 4)):
        values = train[name].reshape(-1, channels).astype(np.float64)
        np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-4)
        deviations = values.std(axis=0)
        # The viscosity of turbulence is zero here.
        varied = deviations > 0
        assert varied.sum() == (7 if name == "features" else 3)
        np.testing.assert_allclose(deviations[varied], 1, rtol=1e-3)


@pytest.mark.nightly
def test_perfect_predictions_have_no_error_of_lift(cache_dir, tmp_path):
    class Oracle(nnx.Module):
        """Knows the case by the velocity far away."""

        def __init__(self, features, targets):
            self.features, self.targets = nnx.Param(features), nnx.Param(targets)

        def __call__(self, mesh_points, features=None, *, quadrature_weights=None):
            offsets = self.features[...][:, 0, 2:4] - features[:1, 2:4]
            case = jnp.argmin(jnp.sum(offsets**2, axis=1))
            return self.targets[...][case]

    with jax.enable_x64(False):
        task = airfrans.make_task(TINY, cache_dir)
        (bucket,) = task.test
        oracle = Oracle(jnp.asarray(bucket["features"]), jnp.asarray(bucket["target"]))
        found = task.evaluate(oracle, tmp_path)
    assert list(found)[0] == "lift_error"
    assert found["lift_error"] < 1e-4
    assert found["lift_spearman"] == pytest.approx(1)
    assert found["volume"] == found["surface"] == 0
    with np.load(tmp_path / "predictions.npz") as stored:
        assert stored["prediction_0"].shape == (bucket["target"].shape[1], 1)


@pytest.mark.nightly
def test_reference_points_stand_in_for_coordinates_only():
    with jax.enable_x64(False):
        config = dataclasses.replace(TINY, reference_points=3)
        model = airfrans.build(config, nnx.Rngs(0))
        assert model.encoder.hidden[0].kernel.shape[0] == 9 + 7
        found = model(jnp.zeros((5, 2)), jnp.ones((5, 7)))
    assert found.shape == (5, 4)


def test_cases_are_read_in_the_order_of_the_split(tmp_path, cache_dir):
    pytest.importorskip("pyvista")
    cases = dataset.generate(6, seed=0, num_radii=4, num_angles=12, cache_dir=cache_dir)
    names = [case.name for case in cases]
    dataset.save(tmp_path, cases, {"aoa_train": names[:4], "aoa_test": names[4:]})
    config = dataclasses.replace(
        TINY,
        data_dir=str(tmp_path),
        split="aoa",
        num_train=3,
        num_validation=1,
        num_test=2,
    )
    found = airfrans.load(config)
    listed = [[c.name for c in part] for part in found[:3]]
    assert listed == [names[:3], names[3:4], names[4:]]


def test_bad_configurations_are_refused():
    with value_error("needs --data_dir"):
        airfrans.load(airfrans.PRESETS["paper"])
    with value_error("split='half'"):
        dataclasses.replace(TINY, split="half")
    with value_error("reference_points=1"):
        dataclasses.replace(TINY, reference_points=1)
