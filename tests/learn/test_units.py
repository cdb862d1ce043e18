"""Units do not matter: `a f + b` in place of `f` trains the same model."""

import dataclasses

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks import units
from opjax import normalize
from opjax.learn.cli import train_samples
from opjax.learn.cli.train import PRESETS
from opjax.samples import Sample, normalizers
from tests.refused import value_error
from tests.selection import by_day

CHANGES = [(1e-12, 0.0), (1e12, 1e3), (1.0, -1e3), (1e-12, 1e3)]
# Absolute pressure: the spread is some units of the last place of float32.
CHANGES += [(0.05, 2e6)]


def batches(way, given, folder):
    """What training sees of the cases, buckets of encoded arrays."""
    config = dataclasses.replace(
        PRESETS["smoke"], time="one_step" if way == "series" else "none"
    )
    with jax.enable_x64(False):
        splits = train_samples._divided(units.read(way, given, folder), config)
        task = train_samples._task(config, splits, None)
        if way != "series":
            return task.train
        return [bucket.encode(bucket.read(range(len(bucket)))) for bucket in task.train]


def roles_of(way):
    return units.SERIES_ROLES if way == "series" else units.ROLES


CASES = [(way, role) for way in units.WAYS for role in roles_of(way)]
DAY = [case for case in CASES if case[0] in ("arrays", "series")]
DAY += [("npz", "scalars"), ("npz", "target"), ("vtu", "mesh_points")]


# These speak of float32, to which coordinates are not rounded before they are centred.
@pytest.mark.filterwarnings("ignore:Coordinates of", "ignore:.*in float32")
@pytest.mark.parametrize(("way", "role"), by_day(CASES, day=DAY))
def test_training_sees_the_same_numbers_in_any_unit(way, role, tmp_path):
    if way == "vtu":
        pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')
    given = units.data()
    (tmp_path / "before").mkdir()
    before = batches(way, given, tmp_path / "before")
    for number, (factor, spreads) in enumerate(CHANGES):
        if role == "times" and spreads > 1e4:
            continue  # intervals are what times are for
        folder = tmp_path / str(number)
        folder.mkdir()
        other, _ = units.changed(given, role, factor, spreads)
        for one, same in zip(batches(way, other, folder), before, strict=True):
            assert one.keys() == same.keys()
            for name, array in one.items():
                expected = same[name]
                if name == "lags" and role == "times":
                    expected = factor * expected
                size = np.abs(expected).max()
                assert_allclose(array, expected, atol=1e-5 * size, rtol=0, err_msg=name)
                assert array.dtype == np.float32


@pytest.mark.nightly
def test_a_training_in_other_units_predicts_the_same(rng):
    given = units.data()
    before = units.outcome("arrays", given, 1)
    other = given
    offsets = {}
    for role in ("target", "features", "mesh_points", "scalars"):
        other, offsets[role] = units.changed(other, role, 1e-12, 1e3)
    after = units.outcome("arrays", other, 1)
    change, distance = units.compare(before, after, "target", 1e-12, offsets["target"])
    assert change < 1e-3
    assert distance < 1e-4
    assert after.predicted["target"].dtype == np.float64


def absolute_pressure(rng, dtype):
    return [
        Sample(
            rng.random((50, 2)),
            target=(101325 + 0.05 * rng.normal(size=(50, 1))).astype(dtype),
            name=f"case {i}",
        )
        for i in range(12)
    ]


def fit(train, **given):
    wanted = {"points": False, "features": False, "target": True}
    return normalizers.fit_normalizers(train, **wanted | given)


def test_an_absolute_pressure_is_centred_before_it_is_rounded(rng):
    cases = absolute_pressure(rng, np.float64)
    values = np.stack([case.target for case in cases])
    normalizer = fit(cases)["target"]
    assert_allclose(normalizer.mean, values.mean((0, 1)), rtol=1e-15)
    assert_allclose(normalizer.std, values.std((0, 1), ddof=1), rtol=1e-10)
    with jax.enable_x64(False):
        encoded = normalizers.encode_stored(
            {"target": values}, {"target": normalizer}, target=True
        )["target"]
    assert encoded.dtype == np.float32
    expected = (values - values.mean()) / values.std(ddof=1)
    assert_allclose(encoded, expected, atol=1e-6)
    decoded = normalize.decode_host(normalizer, encoded)
    assert decoded.dtype == np.float64
    assert_allclose(decoded, values, rtol=0, atol=1e-7)


def test_a_variation_that_its_type_rounds_away_is_refused_by_name(rng):
    cases = absolute_pressure(rng, np.float32)
    names = {"target": ["p"]}
    with value_error(r"target \(p\) varies.*rounds.*float64"):
        fit(cases, names=names)
    far = [
        case._replace(mesh_points=np.float32(case.mesh_points + 1e7)) for case in cases
    ]
    with value_error("coordinates lie between.*rounds.*offset"):
        fit(far, points=True, target=False)
    near = [case._replace(mesh_points=case.mesh_points + 1e7) for case in cases]
    found = fit(near, points=True, target=False)["mesh_points"]
    encoded = normalize.encode_host(found, np.stack([c.mesh_points for c in near]))
    assert 0.99 < np.abs(encoded).max() <= 1 + 1e-6


@pytest.mark.parametrize("size", [1e-13, 1e-9, 1e-3, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_input_is_constant_only_if_it_varies_by_rounding(size, dtype, rng):
    def of(values):
        return [
            Sample(rng.random((6, 2)), features=np.asarray(v, dtype)) for v in values
        ]

    varying = size * rng.normal(size=(5, 6, 1))
    found = fit(of(varying), features=True, target=False)["features"]
    assert_allclose(found.std, varying.std(ddof=1), rtol=1e-5)
    eps = np.finfo(dtype).eps
    constant = size * (1 + eps * rng.integers(-2, 3, size=(5, 6, 1)))
    assert fit(of(constant), features=True, target=False)["features"].std == 1


def test_a_component_is_constant_at_the_size_of_its_field(rng):
    flow = rng.normal(size=(5, 6, 3)) * [1, 1, 1e-17]
    cases = [Sample(rng.random((6, 2)), target=one) for one in flow]
    varies = normalizers.varies(cases, "target", ["U", "U", "U"])
    assert varies.tolist() == [True, True, False]
    assert normalizers.varies(cases, "target").all()  # a field each
