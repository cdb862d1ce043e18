"""Sensitivities of quantities in chunks: those of all points at once."""

import dataclasses

import h5py
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import files, learn
from opjax.learn.cli import predict
from opjax.learn.config.quantities import parse
from opjax.learn.predict.prediction import Limits, Predicted
from opjax.learn.predict.sensitivity import Sensitivity
from opjax.learn.predict.sliced_quantity import SlicedQuantity
from opjax.samples import Splits
from tests.learn.test_functions import doubled, ring
from tests.learn.test_predict import make, operator
from tests.learn.test_quantities import annulus
from tests.learn.test_scales import NAMES, SCALES, plate
from tests.learn.tiny import QUICK, TINY
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
    ("name", "text", "wide"),
    by_day(
        [
            *[("functional", LIFT, True), ("functional", LIFT, False)],
            *[("functional", "max:p", True), ("transolver", "max:p", True)],
            *[("galerkin", "mean:p", True), ("galerkin", LIFT, True)],
            *[("transolver", LIFT, True), ("transolver", LIFT, False)],
            *[("functional", "max:p", False), ("transolver", "max:p", False)],
            *[("galerkin", "mean:p", False), ("galerkin", LIFT, False)],
        ],
        day=[("functional", LIFT, True)],
    ),
)
def test_chunks_change_no_sensitivity(name, text, wide, rng, tmp_path):
    found, sample = ring(rng, tmp_path, name)
    rtol = 1e-6 if wide else 1e-4
    with jax.enable_x64(wide):
        if wide:
            parameters = doubled(found.parameters)
            found = found._replace(
                model=parameters.model, normalizers=parameters.normalizers
            )
            names = "mesh_points", "features", "quadrature_weights"
            wider = {k: np.asarray(getattr(sample, k), float) for k in names}
            sample = sample._replace(**wider)
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
    with jax.enable_x64(False):
        fields = [
            Sensitivity(found, "max:S", Limits(size)).of(plate(11)) for size in (100, 7)
        ]
    (dense, _, row), (chunks, _, other) = fields
    assert_allclose(chunks, dense, atol=1e-4 * np.abs(dense).max())
    expected, scalars = row["sensitivity"]["scalars"], other["sensitivity"]["scalars"]
    assert list(expected) == ["alpha", "t", "load", "modulus"]
    assert_allclose(list(scalars.values()), list(expected.values()), rtol=1e-3)


def test_masks_of_boundaries_have_no_sensitivity_and_ties_are_said(
    rng, tmp_path, monkeypatch, capsys
):
    found = operator(rng, tmp_path, QUICK)
    names = {"features": ["boundary_wall"], "target": ["p"]}
    found = found._replace(
        description=dataclasses.replace(found.description, names=names)
    )
    tied = Predicted(np.ones((120, 1), np.float32))
    monkeypatch.setattr(type(found), "both", lambda *_, **__: tied)
    _, names, _ = Sensitivity(found, "max:p").of(annulus())
    assert "120 points have the same value max:p" in capsys.readouterr().err
    assert names == ["sensitivity_points"] * 2 + ["sensitivity_normal"]


@pytest.mark.nightly
@pytest.mark.parametrize("text", by_day(["mean:u", "min:u", "sum:u"], ["mean:u"]))
def test_slices_of_a_file_have_the_sensitivity_of_the_whole(
    text, rng, tmp_path, monkeypatch
):
    found = operator(rng, tmp_path, weighted=True, num_layers=1)
    monkeypatch.setattr(predict.trained, "load", lambda _, **__: found)
    files.write(tmp_path / "a.h5", make(rng, 101, weighted=True))
    given = {"input": str(tmp_path / "a.h5"), "sensitivity": text, "chunk_size": 40}
    arrays, values = [], []
    for stream in (False, True):
        output = tmp_path / f"out{stream}"
        predict.run(
            predict.PredictOptions(found.folder, output=output, stream=stream, **given)
        )
        with h5py.File(output / "a.h5") as file:
            arrays.append({k: file[k][:] for k in file if "sensitivity" in k})
        values.append((output / "sensitivity.csv").read_text().splitlines()[1])
    whole, slices = arrays
    assert set(slices) == {"sensitivity_points", "sensitivity_k"}
    for name, array in slices.items():
        atol = 1e-5 * np.abs(array).max()
        assert_allclose(array, whole[name], atol=atol, err_msg=name)
    one, other = (float(value.split(",")[1]) for value in values)
    assert one == pytest.approx(other, rel=1e-5)


def test_what_slices_do_not_know_is_named(rng, tmp_path):
    found = operator(rng, tmp_path)
    weights = np.ones(9)
    for text, message in (
        ("force_x:u@wall", "needs the boundaries of a whole mesh; omit --stream"),
        ("max:v", "must be one predicted channel, one of u"),
        ("mean:u", "needs quadrature_weights"),
    ):
        given = None if text == "mean:u" else weights
        with pytest.raises(ValueError, match=message):
            SlicedQuantity(parse(text)[0], found, given)
    values = np.asarray([[1.0], [3.0], [3.0]])
    largest = SlicedQuantity(parse("max:u")[0], found, None)
    largest.add(0, values)
    largest.add(3, values)
    assert largest.value == 3
    assert_allclose(largest[0:6][:, 0], [0, 0.25, 0.25, 0, 0.25, 0.25])
