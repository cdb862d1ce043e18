import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax.samples import Sample, normalizers


def make(rng, n):
    points = rng.uniform(size=(n, 2)).astype(np.float32)
    features = rng.normal(size=(n, 1)).astype(np.float32)
    target = np.sin(3 * points[:, :1]) + features
    return Sample(points, target, features)


def fit(train, **wanted):
    nothing = {"points": False, "features": False, "target": False}
    return normalizers.fit_normalizers(train, **(nothing | wanted))


def test_all_points_of_all_samples_count_alike(rng):
    train = [make(rng, n) for n in (5, 6, 12)]
    found = fit(train, target=True, points=True)
    assert found.keys() == {"target", "mesh_points"}
    values = np.concatenate([s.target for s in train]).astype(np.float64)
    assert_allclose(found["target"].mean, values.mean(0), rtol=1e-5)
    assert_allclose(found["target"].std, values.std(0, ddof=1), rtol=1e-5)
    points = np.concatenate([s.mesh_points for s in train])
    encoded = normalizers.encode({"mesh_points": points, "target": values}, found)
    assert np.abs(encoded["mesh_points"]).max() == pytest.approx(1, rel=1e-5)
    assert encoded["target"] is values  # in physical units


def test_points_of_a_grid_may_have_their_own(rng):
    train = [make(rng, 6) for _ in range(4)]
    found = fit(train, features=True, pointwise=True)
    values = np.stack([s.features for s in train])
    assert_allclose(found["features"].mean, values.mean(0), rtol=1e-5)
    assert_allclose(found["features"].std, values.std(0), rtol=1e-3)


def test_a_constant_channel_keeps_its_scale(rng):
    constant = np.full((6, 1), 7.0, np.float32)
    train = [make(rng, 6)._replace(features=constant) for _ in range(3)]
    assert float(fit(train, features=True)["features"].std[0]) == 1


def test_targets_on_a_grid_of_their_own_count_by_their_own_points(rng):
    data = [
        Sample(
            mesh_points=rng.uniform(size=(6, 2)),
            features=rng.normal(size=(6, 1)),
            target=rng.normal(size=(n, 1)),
            target_grid=(n,),
        )
        for n in (40, 3)
    ]
    found = fit(data, features=True, target=True)
    values = np.concatenate([sample.target for sample in data])
    assert_allclose(found["target"].mean, values.mean(0), rtol=1e-12)
    assert_allclose(found["target"].std, values.std(0, ddof=1), rtol=1e-6)
