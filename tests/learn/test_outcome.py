import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.learn.tasks import outcome, supervised
from opjax.samples import Sample, Splits


def flows(rng, shapes):
    """Samples on grids, with three steps as channels of the target."""
    found = []
    for shape in shapes:
        values = rng.normal(size=(np.prod(shape), 3)).astype(np.float32)
        points = rng.uniform(size=(len(values), 2)).astype(np.float32)
        found.append(Sample(points, target=values, grid_shape=shape))
    return found


def test_models_that_predict_step_by_step_leave_errors_of_every_step(rng, tmp_path):
    test = flows(rng, 5 * [(2, 3)])
    arrays = {"target": np.stack([flow.target for flow in test])}

    def look(scale, sample):
        found, target = scale * sample["target"], sample["target"]
        steps = jnp.abs(found - target).sum(axis=0)
        return steps.sum(), steps, found[:, -1:], target.max()

    last = [flow._replace(target=flow.target[:, -1:]) for flow in test]
    errors, series, most = outcome.evaluate_steps(
        look,
        jnp.float32(3),
        tmp_path,
        samples=last,
        arrays=arrays,
        batch_size=64,
        name="frame",
        extra={"series_baseline": np.ones(3)},
    )
    expected = 2 * np.abs(arrays["target"]).sum(axis=1, dtype=np.float64)
    assert_allclose(series, expected, rtol=1e-5)
    assert_allclose(errors, expected.sum(axis=1), rtol=1e-5)
    assert_array_equal(most, arrays["target"].max(axis=(1, 2)))
    assert errors.dtype == series.dtype == most.dtype == np.float64
    seen = outcome.read(tmp_path)
    assert_array_equal(seen.errors, errors)
    assert_array_equal(seen.arrays["series"], series)
    assert seen.arrays["series_name"] == "frame"
    assert_array_equal(seen.arrays["series_baseline"], np.ones(3))
    assert seen.rows == outcome.rows(errors)
    for row, sample, predicted in zip(
        seen.rows, seen.samples, seen.predicted, strict=True
    ):
        assert_array_equal(sample.target, last[row].target)
        assert_array_equal(predicted, np.float32(3) * last[row].target)


def test_samples_that_must_share_a_grid_are_refused_on_different_ones(rng):
    train, test = flows(rng, 2 * [(2, 3)]), flows(rng, [(2, 3)])
    found = supervised.grid_sizes(Splits(train, [], test, "here"), out_features=1)
    assert (found.grid_shape, found.out_features, found.point_dim) == ((2, 3), 1, 2)
    other = Splits(train, [], flows(rng, [(3, 2)]), "here")
    with pytest.raises(ValueError, match="are on different grids; they must share one"):
        supervised.grid_sizes(other)
