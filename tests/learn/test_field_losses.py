"""Fields as the unit of account: losses and errors that no unit decides."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.test_util import check_grads
from numpy.testing import assert_allclose

from opjax import learn, metrics
from opjax.files.series import SeriesSplits
from opjax.learn.cli import train, train_samples
from opjax.learn.predict import field_errors
from opjax.learn.tasks import field_losses
from opjax.learn.tasks.field_losses import FORMS, Scales
from opjax.normalize import Normalizer
from opjax.samples import Series, fields
from opjax.samples.normalizers import encode_target
from tests.learn.tiny import QUICK, TINY, run_predict
from tests.refused import value_error

NAMES = ("p", "U", "U", "U")
VARYING = np.array([True, True, True, False])  # U_z of a flow in the plane


def case(rng, n=30, scale=(1e5, 1.0), offset=0.0):
    """A target and a prediction in physical units, and weights that mask a point."""
    target = rng.normal(size=(n, 4)) + [1.0, 0.5, -0.5, 0.0]
    target[:, 3] = 1e-17 * rng.normal(size=n)
    predicted = target + 0.1 * rng.normal(size=(n, 4))
    units = np.array([scale[0], *[scale[1]] * 3])
    weights = rng.uniform(0.5, 2, size=n) * (np.arange(n) > 0)
    shift = np.array([offset, 0, 0, 0])
    return target * units + shift, predicted * units + shift, weights


def scales_of(target):
    mean, std = target.mean(axis=0), target.std(axis=0)
    normalizer = Normalizer(mean, np.where(VARYING, std, 0))
    found = fields.fields_of(NAMES, np.asarray(normalizer.std), VARYING)
    return Scales(found, normalizer), found, normalizer


def encoded(rng):
    """Scales, and prediction, target and weights in float32."""
    target, predicted, weights = case(rng)
    scales, _, normalizer = scales_of(target)
    pair = (jnp.asarray(encode_target(x, normalizer)) for x in (predicted, target))
    return scales, *pair, jnp.asarray(weights, jnp.float32)


def measured(rng, **units):
    """What JAX measures, in float32, and what NumPy does, in physical units."""
    target, predicted, weights = case(rng, **units)
    scales, found, normalizer = scales_of(target)
    pair = [jnp.asarray(encode_target(x, normalizer)) for x in (predicted, target)]
    mass = jnp.asarray(weights, jnp.float32)
    sizes = jax.jit(scales.sizes)(*pair, quadrature_weights=mass)
    share = weights / weights.sum()
    expected = []
    for field in found.varying:
        t, p = (x[:, list(field.channels)] for x in (target, predicted))
        parts = p - t, t, t - share @ t
        expected.append(
            [np.sqrt(share @ np.sum(x**2, 1)) / field.spread for x in parts]
        )
    return sizes, np.array(expected).T


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_sizes_are_root_mean_squares_over_the_spread_of_each_field(rng, offset):
    sizes, expected = measured(rng, offset=offset)
    assert_allclose(np.stack(sizes), expected, rtol=1e-4)


@pytest.mark.parametrize("form", ["case", "spread", "relative"])
def test_units_of_a_field_change_no_error(form):
    few = [
        FORMS[form](measured(np.random.default_rng(0), scale=scale)[0])
        for scale in [(1, 1), (1e12, 1e-12), (1e-9, 1e5)]
    ]
    assert_allclose(few[1], few[0], rtol=1e-5)
    assert_allclose(few[2], few[0], rtol=1e-5)


def test_an_offset_changes_no_error_over_the_spread():
    few = [
        measured(np.random.default_rng(0), offset=offset)[0] for offset in (0.0, 1e8)
    ]
    for form in ("case", "spread"):
        assert_allclose(FORMS[form](few[1]), FORMS[form](few[0]), rtol=1e-5)


def test_masked_points_and_constant_channels_take_part_in_nothing(rng):
    scales, z, t, mass = encoded(rng)
    expected = scales.sizes(z, t, quadrature_weights=mass)
    spoilt = z.at[0].set(jnp.nan).at[1:, 3].set(1e6)

    def total(z):
        return jnp.sum(scales.sizes(z, t, quadrature_weights=mass).error)

    found = scales.sizes(spoilt, t.at[0].set(jnp.nan), quadrature_weights=mass)
    assert_allclose(np.stack(found), np.stack(expected), rtol=1e-6)
    slope = jax.jit(jax.grad(total))(spoilt)
    assert not np.asarray(slope)[0].any()
    assert not np.asarray(slope)[:, 3].any()
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_differences(rng, form):
    with jax.enable_x64(True):
        target, predicted, weights = case(rng, n=5)
        scales, _, normalizer = scales_of(target)
        z, t = (normalize_all(x, normalizer) for x in (predicted, target))
        mass = jnp.asarray(weights)

        def loss(z):
            sizes = scales.sizes(z, t, quadrature_weights=mass)
            return jnp.mean(FORMS[form](sizes))

        check_grads(jax.jit(loss), (z,), order=1, modes=["rev"], rtol=1e-5)
        assert not np.asarray(jax.jit(jax.grad(loss))(t)).any()  # at no error


def normalize_all(values, normalizer):
    mean, std = (np.asarray(x) for x in normalizer)
    return jnp.asarray((values - mean) * (std > 0) / np.where(std > 0, std, 1))


def test_a_prediction_that_is_no_number_has_no_error_that_is_one(rng):
    target, _, _ = case(rng)
    scales, _, normalizer = scales_of(target)
    t = jnp.asarray(encode_target(target, normalizer))
    for bad in (jnp.nan, jnp.inf):
        error = scales.sizes(t.at[3, 0].set(bad), t).error
        assert not np.isfinite(error[0])
        assert error[1] == 0


def test_a_case_that_is_zero_has_a_finite_loss_and_gradient(rng):
    target, predicted, _ = case(rng)
    scales, _, normalizer = scales_of(target)
    z = jnp.asarray(encode_target(predicted, normalizer))
    zero = jnp.asarray(encode_target(np.zeros_like(target), normalizer))
    for form in ("case", "spread"):
        value, slope = jax.jit(
            jax.value_and_grad(
                lambda z, form=form: jnp.sum(FORMS[form](scales.sizes(z, zero)))
            )
        )(z)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()


def test_all_channels_together_have_the_relative_error_of_papers(rng):
    target, predicted, weights = case(rng, scale=(3.0, 1.0))
    _, found, normalizer = scales_of(target)
    whole = Scales(field_losses.together(found, normalizer), normalizer)
    z, t = (jnp.asarray(encode_target(x, normalizer)) for x in (predicted, target))
    mass = jnp.asarray(weights, jnp.float32)
    sizes = whole.sizes(z, t, quadrature_weights=mass)
    physical = (jnp.asarray(x[:, :3], jnp.float32) for x in (predicted, target))
    expected = metrics.relative_l2(*physical, quadrature_weights=mass)
    assert_allclose(field_losses.relative(sizes), [expected], rtol=1e-5)


def test_sums_of_parts_are_those_of_the_whole(rng):
    scales, z, t, mass = encoded(rng)

    @jax.jit
    def both(*whole):
        parts = [[a[s] for a in whole] for s in (slice(0, 7), slice(7, None))]
        sums = [scales.sums(*part) for part in parts]
        expected = scales.sizes(*whole[:2], quadrature_weights=whole[2])
        return scales.of_sums(jax.tree.map(jnp.add, *sums)), expected

    found, expected = both(z, t, mass)
    assert_allclose(np.stack(found), np.stack(expected), rtol=1e-4)


def test_the_host_has_the_same_errors_in_physical_units(rng):
    target, predicted, weights = case(rng)
    _, found, _ = scales_of(target)
    sums = field_errors.Sums(found)
    for rows in (slice(0, 11), slice(11, None)):
        sums.add(predicted[rows], target[rows], weights[rows])
    row = sums.errors().row()
    share = weights / weights.sum()
    for name, channels in (("p", [0]), ("U", [1, 2])):
        error, size = (
            np.sqrt(share @ np.sum(x[:, channels] ** 2, 1))
            for x in (predicted - target, target)
        )
        assert row["fields"][name]["relative_l2"] == pytest.approx(error / size)
        spread = next(f.spread for f in found.varying if f.name == name)
        over = row["fields"][name]["error_over_spread"]
        assert over == pytest.approx(error / spread)
    each = [one["relative_l2"] for one in row["fields"].values()]
    assert row["relative_l2"] == pytest.approx(np.mean(each))


def test_a_field_that_is_zero_in_all_cases_has_no_relative_error():
    found = field_errors.FieldErrors.of(("a", "b"), [[0.1, 0.2]], [[0.0, 0.4]])
    numbers = found.numbers()
    assert "relative_l2_a" not in numbers
    assert numbers["relative_l2"] == numbers["relative_l2_b"] == pytest.approx(0.5)
    assert numbers["error_over_spread_a"] == pytest.approx(0.1)


def test_a_prediction_that_is_no_number_is_in_every_mean():
    found = field_errors.FieldErrors.of(("a",), [[0.1], [np.nan]], [[1.0], [1.0]])
    numbers = found.numbers()
    assert numbers["relative_l2"] == numbers["error_over_spread"] == np.inf
    assert numbers["relative_l2_worst"] == np.inf


@pytest.mark.parametrize("scale", [1e-36, 1e36])
def test_the_scale_of_weights_changes_nothing(rng, scale):
    scales, z, t, mass = encoded(rng)
    one, other = (
        scales.sizes(z, t, quadrature_weights=w) for w in (mass, scale * mass)
    )
    assert_allclose(np.stack(other), np.stack(one), rtol=1e-5)


def test_no_field_takes_the_key_of_another_number():
    keys = field_errors.keys(("worst", "functional", "worst_p", "p"))
    assert keys == ["field_worst", "field_functional", "field_worst_p", "p"]
    assert field_errors.keys(("p",)) == []


@pytest.mark.parametrize(
    ("names", "count", "expected"),
    [
        (None, 1, [("target", [0])]),
        (("target", "target"), 2, [("target_0", [0]), ("target_1", [1])]),
        (NAMES, 4, [("p", [0]), ("U", [1, 2, 3])]),
    ],
)
def test_neighbouring_channels_of_one_name_are_a_field(names, count, expected):
    assert fields.groups(names, count) == expected


def test_channels_of_one_name_that_are_apart_are_refused():
    with value_error("U, p, U.* adjacent"):
        fields.groups(("U", "p", "U"), 3)


def test_components_have_names():
    assert fields.component_names(NAMES, 4) == ["p", "U_x", "U_y", "U_z"]
    assert fields.component_names(("S",) * 6, 6)[5] == "S_5"


@pytest.fixture(scope="module")
def plates(tmp_path_factory):
    """Files of plates: displacement in m, stress in Pa, and a constant channel."""
    folder = tmp_path_factory.mktemp("plates")
    rng = np.random.default_rng(0)
    for number in range(14):
        points, load = rng.random((20, 2)), rng.uniform(1, 2)
        u = 1e-3 * load * np.sin(3 * points)
        flat = np.concatenate([u, 1e-19 * rng.random((20, 1))], axis=1)
        np.savez(
            folder / f"plate_{number:02}.npz",
            mesh_points=points,
            load=load,
            U=flat,
            S=1e8 + 1e6 * load * np.cos(points[:, 1]),
        )
    return folder


@pytest.fixture(scope="module")
def trained(plates, tmp_path_factory):
    """Folder and last line of a run on these files."""
    workdir = tmp_path_factory.mktemp("runs") / "plates"
    options = {"train": str(plates), "target_names": "U,S", "scalar_names": "load"}
    config = dataclasses.replace(TINY, models=(QUICK,), **options)
    return workdir, train.run(config, workdir=workdir)


def test_every_field_has_its_error_in_the_last_line_and_the_table(trained):
    workdir, result = trained
    for name in ("relative_l2", "error_over_spread"):
        each = [result[f"{name}_{field}"] for field in ("U", "S")]
        assert result[name] == pytest.approx(np.mean(each))
    text = (workdir / "tables.md").read_text()
    assert f"| {QUICK} | U |" in text
    assert f"| {QUICK} | S |" in text
    assert text.count("U_z is constant in the training samples") == 1


def test_printed_errors_are_those_of_the_written_predictions(trained, plates, tmp_path):
    workdir, _ = trained
    output = tmp_path / "out"
    summary = run_predict(workdir, plates, output)
    rows = json.loads((output / "report.json").read_text())
    by_hand = {"U": [], "S": []}
    for number, row in enumerate(rows):
        with np.load(output / f"plate_{number:02}.npz") as file:
            for name, channels in (("U", [0, 1]), ("S", [0])):
                columns = [
                    np.asarray(file[key], np.float64).reshape(20, -1)[:, channels]
                    for key in (f"prediction_{name}", name)
                ]
                error = np.linalg.norm(columns[0] - columns[1])
                by_hand[name].append(error / np.linalg.norm(columns[1]))
                known = row["fields"][name]["relative_l2"]
                assert known == pytest.approx(by_hand[name][-1], rel=1e-3)
    for name, values in by_hand.items():
        assert summary[f"relative_l2_{name}"] == pytest.approx(
            np.mean(values), rel=1e-3
        )


def test_a_constant_channel_is_predicted_as_it_is(trained, plates):
    operator = learn.load(trained[0], own_model=QUICK)
    sample = operator.one(str(plates / "plate_00.npz"))
    assert np.abs(operator(sample)[:, 2]).max() < 1e-17
    assert operator.fields.constant == ("U_z",)
    assert operator.fields.names == ("U", "S")


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["one_step", "one_shot"])
def test_series_that_start_from_rest_are_learned(rng, mode):
    times = 0.1 * np.arange(8)
    series = []
    for number in range(6):
        points = rng.random((20, 2), np.float32)
        wave = np.sin(3 * points[:, :1] + number)
        rising = np.float32(np.maximum(times - 0.25, 0))
        values = rising[:, None, None] * wave
        series.append(Series(points, times, values, name=f"case {number}"))
    config = dataclasses.replace(learn.TRAIN_PRESETS["smoke"], num_epochs=1, time=mode)
    splits = SeriesSplits(series[:4], series[4:5], series[5:], "made up", channels={})
    task = train_samples._task(config, splits, None)
    model = task.build(config, nnx.Rngs(0))
    (bucket, *_) = task.train
    batch = bucket.encode(bucket.read(range(2)))  # frames at rest among them
    value, gradient = jax.jit(jax.value_and_grad(task.loss))(model, batch)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_a_loss_of_fields_means_nothing_without_one(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(8):
        arrays = {"mesh_points": rng.random((9, 2)), "drag": rng.random()}
        np.savez(tmp_path / f"{number}.npz", **arrays)
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["smoke"],
        train=str(tmp_path),
        target_scalars="drag",
        loss="spread",
    )
    with value_error("loss=spread has no effect .* only scalars"):
        train.make_task(config)


def test_a_target_that_is_constant_everywhere_is_refused(rng):
    data = {"features": rng.normal(size=(8, 5, 5)), "target": np.ones((8, 5, 5))}
    with (
        pytest.warns(UserWarning, match="targets of all 8 samples are equal"),
        value_error("target are constant in all .* nothing to"),
    ):
        learn.train(data, preset="smoke", num_epochs=1)


def test_fields_by_their_names_are_arrays_side_by_side(rng):
    u, p = rng.normal(size=(12, 5, 2)), rng.normal(size=(12, 5))
    data = {"mesh_points": rng.random((12, 5, 2)), "target": {"U": u, "p": p}}
    splits = train_samples._divided(data, learn.TRAIN_PRESETS["smoke"])
    assert splits.channels == {"target": ("U", "U", "p")}
    first = splits.train[0]
    number = int(first.name.split()[-1])
    assert_allclose(first.target[:, 2], p[number], rtol=1e-6)
    data["target"]["p"] = p[:, :4]
    with value_error("'U': .12, 5., 'p': .12, 4."):
        train_samples._divided(data, learn.TRAIN_PRESETS["smoke"])


def test_the_error_of_a_case_is_over_what_it_varies_and_a_floor():
    sizes = field_losses.Sizes(np.array([0.2]), np.array([1.0]), np.array([0.3]))
    expected = 0.2 / np.sqrt(0.3**2 + field_losses.FLOOR**2)
    assert_allclose(field_losses.over_case(sizes), [expected])


def test_sizes_of_points_on_several_devices_are_those_of_all(rng):
    scales, z, t, w = encoded(rng)
    whole = scales.sizes(z, t, quadrature_weights=w)
    parts = jax.jit(
        jax.vmap(
            lambda z, t, w: scales.sizes(
                z, t, quadrature_weights=w, axis_name="points"
            ),
            axis_name="points",
        )
    )(*(a.reshape(2, 15, *a.shape[1:]) for a in (z, t, w)))
    assert_allclose(np.stack(parts)[:, 1], np.stack(whole), rtol=1e-5)
