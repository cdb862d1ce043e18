"""Scalars of meshes that are read in slices; whole meshes are the oracle."""

import csv
import dataclasses
import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn, streaming
from opjax.files.sliced import read_sliced
from opjax.learn.cli import train as program
from opjax.learn.predict.prediction import Limits, call_both, in_units
from opjax.learn.registry import operators
from opjax.learn.tasks import field_losses, streamed
from opjax.learn.tasks.errors import SampleError
from opjax.normalize import Normalizer
from opjax.samples import fields, summaries
from opjax.samples.normalizers import encode_stored
from tests.learn.tiny import filled, run_predict
from tests.refused import value_error

DRAWN = True  # tests/figures.py

h5py = pytest.importorskip("h5py", reason='needs `pip install "opjax[learn]"`')
NAMES = {"scalar_names": "angle,mach", "target_scalars": "lift"}


def _write(place, count, *, table=True):
    rng, rows = np.random.default_rng(0), ["file,mach"]
    for i in range(count):
        points, (a, m) = rng.random((40 + 11 * i, 2)), rng.normal(size=2)
        with h5py.File(place / f"{i}.h5", "w") as file:
            file["mesh_points"], file["angle"], file["lift"] = points, a, a + m
            file["target"] = 5 + a * points[:, 0] + m * points[:, 1]
            file["quadrature_weights"] = rng.uniform(0.5, 1, size=len(points))
        rows.append(f"{i}.h5,{m}")
    if table:
        (place / "cases.csv").write_text("\n".join(rows))
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return _write(tmp_path_factory.mktemp("data"), 5)


def _config(folder, **changes):
    return dataclasses.replace(
        program.PRESETS["smoke"],
        train=str(folder),
        num_epochs=1,
        batch_size=2,
        test_fraction=0.4,
        num_buckets=0,
        width=8,
        num_layers=1,
        num_basis=4,
        **(NAMES | changes),
    )


@cache
def _model(field):
    sizes = operators.Sizes(2, 3, int(field), scalar_dim=2, target_scalars=2)
    config = dataclasses.replace(
        program.PRESETS["smoke"], width=8, num_layers=2, num_basis=4
    )
    return filled(partial(operators.build, config, sizes))


def _normalizers(field):
    known = {"target_scalars": Normalizer(jnp.array([1.0, -2.0]), jnp.array([2.0, 3]))}
    known["scalars"] = Normalizer(jnp.zeros(2), jnp.ones(2))
    if field:
        known["target"] = Normalizer(jnp.array([5.0]), jnp.array([0.7]))
    return jax.tree.map(lambda x: x.astype(jnp.float32), known)


def _arrays(field, n=37):
    rng = np.random.default_rng(1)
    found = {
        "mesh_points": rng.random((n, 2)),
        "features": rng.normal(size=(n, 1)),
        "quadrature_weights": rng.uniform(0.5, 1, size=n) * (np.arange(n) > 2),
        "scalars": rng.normal(size=2),
        "target_scalars": rng.normal(size=2),
    }
    if field:
        found["target"] = 5 + rng.normal(size=(n, 1))
    return {name: array.astype(np.float32) for name, array in found.items()}


def _fields(normalizers):
    """The loss of the field of these arrays, and the field."""
    if "target" not in normalizers:
        return None, None
    normalizer = normalizers["target"]
    found = fields.fields_of(None, np.asarray(normalizer.std), np.array([True]))
    scales = field_losses.Scales(found, normalizer)
    return streamed._Fields(scales, field_losses.over_case), found


def _whole(normalizers, model, sample):
    """The error of `regression`, of all points at once."""
    of_field, _ = _fields(normalizers)
    if of_field is None:
        of_field = streamed._Fields(None, field_losses.over_case)
    error = SampleError(
        normalizers=normalizers,
        form=of_field.form,
        scales=of_field.scales,
        field=of_field.scales is not None,
        scalars=True,
    )
    return error(model, sample)


def _data(normalizers, chunk_size=8):
    limits = Limits(chunk_size, 1.0)
    return streamed.StreamedData(normalizers, limits, *_fields(normalizers), names={})


@pytest.mark.parametrize(
    "field", [pytest.param(True, marks=pytest.mark.nightly), False]
)
def test_loss_and_gradients_are_those_of_the_whole_mesh(field):
    model, normalizers, arrays = _model(field), _normalizers(field), _arrays(field)
    whole = encode_stored(arrays, normalizers, target=True)
    found = _data(normalizers).gradient(model, arrays)
    oracle = jax.jit(jax.value_and_grad(partial(_whole, normalizers)))
    value, gradients = oracle(model, whole)
    assert_allclose(found[0], value, rtol=1e-5)
    assert jax.tree.structure(found[1]) == jax.tree.structure(model)
    for one, other in zip(*map(jax.tree.leaves, (found[1], gradients)), strict=True):
        assert_allclose(one, other, atol=2e-5, rtol=1e-3)
    seen = _data(normalizers).look(model, arrays)
    assert seen.metric == pytest.approx(float(value), rel=1e-5)
    both = jax.jit(call_both)(model, whole)
    scalars = in_units(normalizers, "target_scalars", both.scalars)
    assert_allclose(seen.read[0], scalars, rtol=1e-4, atol=1e-5)
    assert seen.shown.shape == (37, int(field))


def test_a_training_asks_for_the_same_dense_or_in_slices():
    model, normalizers, arrays = _model(False), _normalizers(False), _arrays(False)
    other = arrays | {"target_scalars": np.array([3, 1], np.float32)}
    data = _data(normalizers)
    slices = streamed.StreamedTask(train=[], gradient=data.gradient)
    whole = [encode_stored(a, normalizers, target=True) for a in (arrays, other)]

    def loss(model, batch):
        return jnp.sum(jax.vmap(partial(_whole, normalizers, model))(batch))

    dense = learn.Task(train=(), loss=loss)
    batch = {name: np.stack([one[name] for one in whole]) for name in whole[0]}
    expected = jax.jit(dense.value_and_grad)(model, batch)
    found = slices.value_and_grad(model, iter([arrays, other]))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, two in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        assert_allclose(one, two, atol=4e-5, rtol=1e-3)


@pytest.mark.nightly
def test_sums_over_chunks_do_not_depend_on_their_size():
    model, normalizers, arrays = _model(True), _normalizers(True), _arrays(True)
    found = [_data(normalizers, size).look(model, arrays) for size in (5, 37)]
    assert_allclose(found[0].read[0], found[1].read[0], rtol=1e-4)
    assert found[0].metric == pytest.approx(found[1].metric, rel=1e-5)


def test_parameters_of_a_loss_get_their_gradient():
    model, arrays = _model(True).operator, _arrays(True)
    given = {k: arrays[k] for k in ("mesh_points", "target")}
    given["features"] = np.concatenate([arrays["features"]] * 3, axis=1)

    def sums(values, target, weights):
        del target
        return weights @ values[:, 0], jnp.sum(weights)

    loss = streaming.SumLoss(sums, lambda s, p: p["scale"] * s[0] / s[1])
    value, (_, found) = streaming.value_and_grads(
        model, {"scale": jnp.float32(3)}, given, streaming.Chunks(8), loss=loss
    )
    assert_allclose(found["scale"], value / 3, rtol=1e-6)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """Folder and result of a run in slices."""
    workdir = tmp_path_factory.mktemp("runs") / "slices"
    return workdir, program.run(_config(folder, stream_points=32), workdir=workdir)


@pytest.mark.nightly
def test_it_ends_where_training_on_whole_meshes_does(run, folder, tmp_path):
    whole = program.run(_config(folder), workdir=tmp_path / "whole")
    workdir, found = run
    for name in ("relative_l2", "validation", "lift_error", "lift_r2", "lift_rank"):
        assert_allclose(found[name], whole[name], rtol=2e-3)
    trained = learn.load(workdir)
    assert trained.description.names["scalars"] == ["angle", "mach"]
    before = learn.load(tmp_path / "whole").description
    for role in ("scalars", "target_scalars"):
        assert_allclose(trained.description.ranges[role], before.ranges[role])
    with np.load(trained.folder / "predictions.npz") as file:
        assert file["target_scalars_names"].tolist() == ["lift"]
    assert (trained.folder / "figures/quantities.png").is_file()


def _table(path):
    with open(path / "scalars.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.nightly
def test_predictions_in_slices_are_those_of_whole_meshes(run, folder, tmp_path):
    workdir, _ = run
    whole = run_predict(workdir, folder, tmp_path / "whole")
    found = run_predict(
        workdir, folder, tmp_path / "slices", stream=True, chunk_size=16
    )
    for name in ("relative_l2", "scalars_distance_worst", "lift_error", "lift_r2"):
        assert found[name] == pytest.approx(whole[name], rel=1e-3)
    pairs = zip(_table(tmp_path / "whole"), _table(tmp_path / "slices"), strict=True)
    for one, other in pairs:
        assert one.keys() == other.keys()
        assert float(one["lift"]) == pytest.approx(float(other["lift"]), rel=1e-4)
        assert (one["mach"], one["lift_true"]) == (other["mach"], other["lift_true"])
    assert (tmp_path / "slices/3.h5").is_file()


@pytest.mark.nightly
def test_scalars_alone_are_learned_and_predicted_in_slices(tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    for path in sorted(_write(place, 5).glob("*.h5")):
        with h5py.File(path, "r+") as file:
            del file["target"]
    given = _config(place, stream_points=32)
    whole = program.run(
        dataclasses.replace(given, stream_points=0), workdir=tmp_path / "whole"
    )
    result = program.run(given, workdir=tmp_path / "run")
    for name in ("error_over_std", "validation", "lift_error"):
        assert_allclose(result[name], whole[name], rtol=2e-3)
    found = run_predict(tmp_path / "run", place, tmp_path / "out", stream=True)
    assert math.isfinite(found["lift_r2"])
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "report.json",
        "scalars.csv",
    ]


def test_summaries_are_those_of_whole_samples(folder):
    names = {"scalars": ("angle", "mach"), "target_scalars": ("lift",)}
    found = read_sliced(folder, files.ReadOptions(**names))
    whole = summaries.of(files.read(folder, files.ReadOptions(**names)))
    for one, other in zip(found.summaries, whole, strict=True):
        for role in ("scalars", "target_scalars"):
            # In the type of the file; whole samples are narrowed.
            narrow = {"rtol": 1e-7}
            assert_allclose(one.ranges[role], other.ranges[role], **narrow)
            assert one.sums[role][0] == other.sums[role][0] == 1
            assert_allclose(one.sums[role][1], other.sums[role][1], **narrow)
    with found.open(0) as arrays:
        assert arrays["scalars"].channel_names == ("angle", "mach")


def test_field_data_of_a_vtu_file_are_scalars(tmp_path):
    pyvista = pytest.importorskip("pyvista")
    mesh = pyvista.Sphere(theta_resolution=5, phi_resolution=5)
    mesh = mesh.cast_to_unstructured_grid()
    mesh["target"], mesh["p"] = mesh.points[:, 0], mesh.points[:, 1]
    mesh.field_data["angle"] = [2.5]
    mesh.save(tmp_path / "one.vtu")
    found = read_sliced(tmp_path / "one.vtu", files.ReadOptions(scalars=("angle",)))
    with found.open(0) as arrays:
        assert_array_equal(arrays["scalars"][:], [2.5])
    with value_error(r"one.vtu: the scalar p has shape.*fields"):
        read_sliced(tmp_path / "one.vtu", files.ReadOptions(scalars=("p",)))


def test_bad_scalars_are_refused_by_file_and_name(folder, tmp_path):
    with value_error(r"0\.h5 has no scalar 'load'.*'angle'"):
        read_sliced(folder, files.ReadOptions(scalars=("load",)))
    with value_error(r"0\.h5 has no scalar 'drag'"):
        read_sliced(folder, files.ReadOptions(target_scalars=("drag",)))
    with value_error(r"the scalar target has shape \(40,\)"):
        read_sliced(folder, files.ReadOptions(scalars=("target",)))
    (place := tmp_path / "bad").mkdir()
    with h5py.File(_write(place, 2, table=False) / "1.h5", "r+") as file:
        file["angle"][...] = np.nan
    with value_error(r"1\.h5: the scalar angle is nan"):
        read_sliced(place, files.ReadOptions(scalars=("angle",)))


def test_the_column_split_divides_meshes_in_slices(tmp_path):
    parts = ["train", "test", "validation", "train", "test"]
    rows = [f"{i}.h5,{i},{part}" for i, part in enumerate(parts)]
    text = "\n".join(["file,mach,split", *rows])
    (_write(tmp_path, 5) / "cases.csv").write_text(text)
    found = files.sliced_splits(tmp_path, options=files.ReadOptions(scalars=("mach",)))
    assert [p.file[-4] for p in found.train.places] == ["0", "3"]
    assert [p.file[-4] for p in found.test.places] == ["1", "4"]
    assert [p.file[-4] for p in found.validation.places] == ["2"]
