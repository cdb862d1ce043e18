"""Sensitivities of quantities in chunks: those of all points at once."""

import dataclasses

import jax
import numpy as np
import pytest

from opjax import learn
from opjax.learn.predict.prediction import Limits
from opjax.learn.predict.sensitivity import Sensitivity
from opjax.samples import Splits
from tests.learn.test_functions import doubled, ring
from tests.learn.test_predict import operator
from tests.learn.test_quantities import annulus
from tests.learn.test_scales import NAMES, SCALES, plate
from tests.learn.tiny import TINY
from tests.selection import by_day

LIFT = "lift:p@wall:angle_deg=alpha:speed=2"


def both(found, text, sample):
    """Derivatives at once and in chunks, and what the report says."""
    fields, names, row = Sensitivity(found, text).of(sample)
    chunks = Sensitivity(found, text, Limits(chunk_size=50))
    again, same, other = chunks.of(sample)
    assert names == same
    return (fields, row["sensitivity"]), (again, other["sensitivity"])


@pytest.mark.parametrize(
    ("name", "text"),
    by_day(
        [
            *[("functional", LIFT), ("functional", "max:p"), ("transolver", "max:p")],
            *[("galerkin", "mean:p"), ("galerkin", LIFT), ("transolver", LIFT)],
        ],
        day=[("functional", LIFT)],
    ),
)
def test_chunks_change_no_sensitivity(name, text, rng, tmp_path):
    found, sample = ring(rng, tmp_path, name)
    for rtol, wide in ((1e-4, False), (1e-6, True)):
        with jax.enable_x64(wide):
            if wide:
                parameters = doubled(found.parameters)
                found = found._replace(
                    model=parameters.model, normalizers=parameters.normalizers
                )
                arrays = (sample.features, sample.quadrature_weights)
                features, weights = (np.asarray(a, float) for a in arrays)
                sample = sample._replace(features=features, quadrature_weights=weights)
            (dense, row), (chunks, other) = both(found, text, sample)
        assert np.abs(dense).max(axis=0).min() > 0
        atol = rtol * np.abs(dense).max(axis=0)
        assert (np.abs(chunks - dense) <= atol).all()
        assert other["value"] == pytest.approx(row["value"], rel=1e-4)


@pytest.mark.nightly
def test_chunks_change_no_sensitivity_to_scaled_fields_and_scalars():
    data = [plate(i)._replace(target_scalars=None) for i in range(8)]
    splits = Splits(data[:5], data[5:6], data[6:], "plates", channels=NAMES)
    scales = {key: SCALES[key] for key in ("U", "S")} | {"t": "load/modulus"}
    scales |= {"y": "max(2, sqrt(load))"}
    config = dataclasses.replace(TINY, num_epochs=1)
    found = learn.train(splits, config=config, scales=scales, angles=["alpha"])
    fields = []
    for chunk_size in (100, 7):
        chunks = Sensitivity(found, "max:S", Limits(chunk_size))
        fields.append(chunks.of(plate(11)))
    (dense, _, row), (chunks, _, other) = fields
    np.testing.assert_allclose(chunks, dense, atol=1e-4 * np.abs(dense).max())
    expected, scalars = row["sensitivity"]["scalars"], other["sensitivity"]["scalars"]
    assert list(expected) == ["alpha", "t", "load", "modulus"]
    np.testing.assert_allclose(
        list(scalars.values()), list(expected.values()), rtol=1e-3
    )


def test_masks_of_boundaries_have_no_sensitivity(rng, tmp_path):
    found = operator(rng, tmp_path, num_layers=1)
    names = {"features": ["boundary_wall"], "target": ["p"]}
    found = found._replace(
        description=dataclasses.replace(found.description, names=names)
    )
    _, names, _ = Sensitivity(found, "max:p").of(annulus())
    assert names == ["sensitivity_points"] * 2 + ["sensitivity_normal"]
