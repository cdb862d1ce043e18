"""Bands and unlikeness of calibrated operators as functions that JAX transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opjax.learn.config.quantities import parse
from opjax.learn.predict import calibration, likeness, widths
from opjax.learn.predict.quantities import measure
from tests.learn.test_functions import check_gradient, doubled, ring
from tests.learn.test_predict import make, operator
from tests.learn.tiny import QUICK
from tests.refused import value_error
from tests.selection import by_day


def calibrated(rng, folder, width="constant", *, weighted=False):
    """A calibration of an operator, and a case."""
    found = operator(rng, folder, QUICK, weighted=weighted)
    samples = [make(rng, 25, weighted=weighted) for _ in range(3)]
    if weighted:
        samples[0].quadrature_weights[3] = 0
    moved = jax.tree.map(lambda leaf: 1.02 * leaf, found.model)
    members = [found._replace(model=moved)] if width in widths.OF_SEEDS else []
    if width in widths.FITTED:
        values = [found(sample) for sample in samples]
        model = widths.fit_residual(found, samples, values, members=members)
    else:
        model = widths.restore(width, found, members=members)
    factors = {"whole_field": 0.3, "pointwise": 0.1}
    arrays = model, 0.9, factors, np.zeros(1)
    return calibration.Calibration(found, width, *arrays), samples[0]


def doubles(arguments):
    return [None if a is None else jnp.asarray(a, float) for a in arguments]


@pytest.mark.parametrize("width", by_day(widths.WIDTHS, ["combined"]))
def test_the_band_is_that_of_a_call_and_its_gradient_a_difference(width, rng, tmp_path):
    found, sample = calibrated(rng, tmp_path, width, weighted=True)
    expected, trained = found.band(sample), found.trained
    band = found.band_function(sample)
    with jax.enable_x64(True):
        x, *others = doubles(trained.arguments(sample))
        parameters = doubled(trained.parameters)

        @jax.jit
        def ends(points):
            return jnp.stack(band(parameters, points, *others))

        np.testing.assert_allclose(ends(x), np.stack(expected), rtol=1e-3, atol=1e-4)
        if width != "constant":
            check_gradient(lambda points: jnp.ptp(ends(points), axis=0).sum(), x, rng)


@pytest.mark.parametrize(
    "text", by_day(["max:p", "mean:p@wall", "lift:p@wall:angle_deg=3"], ["max:p"])
)
def test_an_interval_holds_the_quantity_of_every_field_inside(text, rng, tmp_path):
    trained, sample = ring(rng, tmp_path, QUICK)
    width = widths.restore("constant", trained, members=[])
    arrays = width, 0.9, {"whole_field": 0.3, "pointwise": 0.1}, np.zeros(1)
    found = calibration.Calibration(trained, "constant", *arrays)
    interval = jax.jit(found.quantity(text, sample))
    low, high = map(float, interval(trained.parameters, *trained.arguments(sample)))
    ends = found.band(sample)
    fields = [*ends, *(rng.uniform(*ends) for _ in range(20))]
    rows = measure(parse(text), sample, fields, trained.description.names)
    least, most, *values = (row[text] for row in rows)
    assert low < min(values) < max(values) < high
    if not text.startswith("lift"):  # attained at the ends of the band
        np.testing.assert_allclose([low, high], [least, most], rtol=1e-4)


def test_unlikeness_is_positive_where_a_case_is_unlike(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(likeness.Reference, "detectable", lambda *_: None)
    found, sample = calibrated(rng, tmp_path)
    trained, samples = found.trained, [make(rng, 25) for _ in range(19)]
    predicted = [trained(one) for one in samples]
    reference = likeness.refer(trained, samples, predicted, false_alarms=None)
    found = found._replace(reference=reference)
    with jax.enable_x64(True):
        parameters = doubled(trained.parameters)
        x, *others = doubles(trained.arguments(sample))
        margin = jax.jit(lambda points: found.unlikeness(parameters, points, *others))
        check_gradient(margin, x, rng, 1e-5)
        margins = [float(margin(stretch * x)) for stretch in STRETCHES]
    cases = [sample._replace(mesh_points=s * sample.mesh_points) for s in STRETCHES]
    unlike = [found.likeness(case)["unlike"] for case in cases]
    assert [margin > 0 for margin in margins] == unlike
    assert set(unlike) == {False, True}


STRETCHES = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 4.0)


def test_what_has_no_band_is_named(rng, tmp_path):
    found, sample = calibrated(rng, tmp_path)
    with value_error("kind='all' is unknown"):
        found.band_function(kind="all")
    with value_error("no out-of-distribution test"):
        _ = found.unlikeness
    with value_error("predicts only scalars"):
        found._replace(factors={}).band_function()
    fitted = widths.Residual(np.ones(1), found.trained, np.zeros((1, 1)))
    with value_error("neighbouring points; pass the mesh"):
        found._replace(width=fitted).band_function()
    band = found._replace(width=fitted).band_function(sample)
    arguments = found.trained.arguments(make(rng, 24))
    with value_error("the call has 24 points"):
        jax.eval_shape(band, found.trained.parameters, *arguments)
    earlier = likeness.Reference(0.05, np.zeros((20, 5)))
    unlikeness = found._replace(reference=earlier).unlikeness
    with value_error("from an earlier opjax"):
        jax.eval_shape(unlikeness, found.trained.parameters, *arguments)
