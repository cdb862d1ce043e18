"""Trained operators: saved, loaded, evaluated in parts, exported, compared in range."""

import dataclasses
import functools
import itertools
import json
import pathlib
import shutil
import sys

import h5py
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn, normalize
from opjax.datasets import heat
from opjax.learn.cli import predict, train
from opjax.learn.predict import prediction
from opjax.learn.predict import trained as trained_operators
from opjax.learn.predict.description import Description, describe
from opjax.learn.predict.prediction import Limits
from opjax.learn.predict.trained import Trained
from opjax.learn.registry import operators
from opjax.nn import division
from opjax.samples import Sample
from opjax.samples.normalizers import fit_normalizers
from opjax.training import checkpoint
from tests.learn.tiny import QUICK, filled, report_of, run_predict
from tests.refused import value_error
from tests.selection import by_day

TINY = dataclasses.replace(
    train.PRESETS["quick"],
    width=8,
    num_layers=2,
    num_heads=2,
    num_basis=4,
    num_epochs=2,
    batch_size=2,
    equal_parameters=False,
)


def make(rng, n, *, weighted=False, name="made up"):
    points, features, weights = (
        rng.uniform(size=shape).astype(np.float32) for shape in ((n, 2), (n, 1), (n,))
    )
    target = (points[:, :1] + features).astype(np.float32)
    given = {"quadrature_weights": weights} if weighted else {}
    return Sample(points, target, features, name=name, **given)


def operator(rng, folder, name="functional", *, layout=None, **changes):
    """Returns an untrained operator, as if loaded."""
    weighted = changes.pop("weighted", False)
    when = {"time_embedding": changes.pop("time_embedding", False)}
    config = dataclasses.replace(TINY, models=(name,), **changes)
    samples = [make(rng, n, weighted=weighted) for n in (20, 30)]
    normalizers = fit_normalizers(samples, points=True, features=True, target=True)
    names = {"features": ("k",), "target": ("u",)}
    sizes = operators.sizes(samples, normalizers, **when)
    description = dataclasses.replace(
        describe(samples, sizes=sizes, names=names, layout=layout),
        config=json.loads(json.dumps(dataclasses.asdict(config))),
    )

    model = build(config, sizes, layout)
    return Trained(model, normalizers, description, folder)


@functools.cache
def build(config, sizes, layout):
    """A model that no training has left, so that attention matters."""
    return filled(functools.partial(operators.build, config, sizes, layout=layout))


def write(found, error):
    """Saves an operator as a finished run does."""
    config, folder = found.description.config, found.folder
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps({"validation": error}))
    trained_operators.save(folder, found.model, found.normalizers, found.description)


@jax.jit
def whole(found, sample, when=None):
    """Evaluates an operator as in training, without padding."""
    model, normalizers = found
    arrays = {k: v for k, v in sample.items() if v is not None}
    for name in ("mesh_points", "features"):
        arrays[name] = normalize.encode(normalizers[name], arrays[name])
    values = operators.call(model, arrays, **(when or {}))
    return normalize.decode(normalizers["target"], values)


def expected_of(found, sample, **when):
    names = ("mesh_points", "features", "quadrature_weights")
    arrays = {name: getattr(sample, name) for name in names}
    return np.asarray(whole((found.model, found.normalizers), arrays, when))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "weighted"),
    by_day(
        itertools.product(
            ["functional", "transolver", "fourier:galerkin", "galerkin", "flare"],
            [False, True],
        ),
        day=[("functional", True)],
    ),
)
def test_chunks_change_nothing(name, weighted, rng, tmp_path):
    found = operator(rng, tmp_path, name, weighted=weighted)
    sample = make(rng, 101, weighted=weighted)
    if sample.quadrature_weights is not None:
        sample.quadrature_weights[::7] = 0
    expected = expected_of(found, sample)
    assert division.obstacle(found.model, "stream") is None
    assert np.std(expected) > 1e-2
    for chunk_size in (40, 200):
        actual = found(sample, limits=Limits(chunk_size))
        assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.nightly
def test_what_was_trained_with_dropout_is_predicted_in_chunks(rng, tmp_path):
    found, sample = operator(rng, tmp_path, dropout=0.5), make(rng, 101)
    assert division.obstacle(found.model, "stream")  # while it is trained
    actual = found(sample, limits=Limits(40))
    assert_allclose(actual, expected_of(found, sample), rtol=2e-5, atol=2e-5)
    field = found.field(sample, chunk_size=40)
    assert_allclose(field.at(sample), actual, rtol=2e-5, atol=2e-5)


@pytest.mark.nightly
def test_chunks_are_encoded_as_the_whole(rng, tmp_path):
    found = operator(
        rng,
        tmp_path,
        reference_points=3,
        shared_basis=False,
        projection="pseudo_inverse",
        time_embedding=True,
        layout=operators.Layout(residual_encoder=True),
    )
    sample = make(rng, 101)
    values = [found(sample, time=0.3, limits=Limits(size)) for size in (40, 200)]
    assert_allclose(*values, rtol=1e-4, atol=1e-4)
    assert np.std(values[0] - found(sample, time=0.9)) > 1e-3


def test_a_mesh_that_is_on_disk_is_predicted_in_chunks(rng, tmp_path):
    found, sample = (
        operator(rng, tmp_path, weighted=True),
        make(rng, 101, weighted=True),
    )
    mapped = {}
    for name in ("mesh_points", "features", "quadrature_weights"):
        np.save(tmp_path / f"{name}.npy", getattr(sample, name))
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    parts = list(found.stream(mapped, limits=Limits(40)))
    assert [part.shape for part in parts] == [(40, 1), (40, 1), (21, 1)]
    expected = expected_of(found, sample)
    assert_allclose(np.concatenate(parts), expected, rtol=2e-5, atol=2e-5)
    # No memory for features of all points: they go to a file.
    parts = found.stream(mapped, limits=Limits(40, 2e-5 * 3, tmp_path))
    assert_allclose(np.concatenate(list(parts)), expected, rtol=2e-5, atol=2e-5)
    with value_error("too small: 101 .* chunk_size=.* fits"):
        found.stream(mapped, limits=Limits(100, 4e-5))
    with value_error("passed without quadrature"):
        found.stream({**mapped, "quadrature_weights": None})


def test_a_field_has_values_anywhere(rng, tmp_path):
    found, sample = operator(rng, tmp_path, time_embedding=True), make(rng, 101)
    expected = expected_of(found, sample, time=np.float32(0.3))
    field = found.field(sample, time=0.3, chunk_size=40)
    rows = rng.permutation(101)[:30]
    points, features = sample.mesh_points[rows], sample.features[rows]
    values = field.at(points, features, chunk_size=20)
    assert_allclose(values, expected[rows], rtol=2e-5, atol=2e-5)
    weighted = sample._replace(quadrature_weights=np.ones(101, np.float32))
    assert_allclose(field.at(weighted), expected, rtol=2e-5, atol=2e-5)
    with value_error("points has 0 channels of features"):
        field.at(points)
    with value_error("only with an array of points"):
        field.at(sample, features)
    fourier = operator(rng, tmp_path, "fourier")
    arrays = {"mesh_points": sample.mesh_points, "features": sample.features}
    for refused, mesh in ((fourier.field, sample), (fourier.stream, arrays)):
        with value_error("fourier .* FourierAttention knows more"):
            refused(mesh)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["fourier", "softmax"])
def test_other_operators_are_evaluated_as_a_whole(name, rng, tmp_path):
    found, sample = operator(rng, tmp_path, name), make(rng, 101)
    expected = expected_of(found, sample)
    assert division.obstacle(found.model, "stream")
    for chunk_size in (16, 200):
        actual = found(sample, limits=Limits(chunk_size))
        assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)
    with value_error(f"{name} needs about .* 101 points, above"):
        found(sample, limits=Limits(16, 1e-6))


def test_pairs_of_a_million_points_are_warned_of(rng, tmp_path):
    found = operator(rng, tmp_path, "softmax")
    with pytest.warns(UserWarning, match=r"1000000 points, 1\.0e\+12 .* transolver"):
        prediction.warn_of_pairs(found, 10**6)
    prediction.warn_of_pairs(found, 10**4)
    prediction.warn_of_pairs(operator(rng, tmp_path, "galerkin"), 10**6)


@pytest.mark.parametrize("n", [1, 64, 65, 1000, 1025, 10**6])
def test_padding_wastes_little(n):
    size = prediction.padded_size(n)
    assert n <= size <= n + max(63, n / 8)
    sizes = {prediction.padded_size(m) for m in range(1, 4096)}
    assert len(sizes) < 50


def test_a_saved_operator_is_loaded_as_it_was(rng, tmp_path):
    errors = {"functional": 0.5, "galerkin": 0.3, "fourier:softmax": 0.4}
    found = {
        name: operator(rng, tmp_path / f"{operators.slug(name)}-0", name)
        for name in errors
    }
    for name, error in errors.items():
        write(found[name], error)
    sample = make(rng, 20)
    for path, name in (
        (tmp_path, "galerkin"),
        (tmp_path / "functional-0", "functional"),
        (tmp_path / "fourier_softmax-0", "fourier:softmax"),
    ):
        loaded = trained_operators.load(path)
        assert loaded.name == name
        assert loaded.folder == found[name].folder
        assert loaded.description.names == {"features": ["k"], "target": ["u"]}
        assert_array_equal(loaded(sample), found[name](sample))


@pytest.mark.nightly
def test_the_ends_of_a_model_are_saved_with_it(rng, tmp_path):
    layout = operators.Layout(residual_encoder=True, decoder_norm=False)
    found = operator(rng, tmp_path / "functional-0", layout=layout)
    write(found, 0.5)
    loaded = trained_operators.load(tmp_path)
    sample = make(rng, 20)
    assert_array_equal(loaded(sample), found(sample))
    assert loaded.model.decoder_norm is None
    stored = checkpoint.read_metadata(found.folder / "operator", 0)
    with value_error("layout has the unknown field decoder"):
        Description.from_json(stored | {"layout": {"decoder": True}})


def test_a_model_of_your_own_is_imported_if_it_is_named(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    module = f"own_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "from flax import nnx\n\n"
        "def build(features, *, rngs):\n    return Layer(features, rngs=rngs)\n\n"
        "class Layer(nnx.Linear):\n"
        "    def __init__(self, features, *, rngs):\n"
        "        super().__init__(features, features, rngs=rngs)\n\n"
        "    def __call__(self, x, **context):\n        return super().__call__(x)\n"
    )
    name = f"{module}:build"
    found = operator(rng, tmp_path / "own-0", name, num_layers=1)
    write(found, 0.5)
    sys.modules.pop(module)
    for other in (None, "functional", f"{module}:Layer"):
        with value_error(f"own_model='{name}'"):
            trained_operators.load(tmp_path, own_model=other)
        assert module not in sys.modules
    loaded = trained_operators.load(tmp_path, own_model=name)
    sample = make(rng, 20)
    assert_array_equal(loaded(sample), found(sample))


def test_files_are_meshes_too(rng, tmp_path):
    found = operator(rng, tmp_path)
    sample = make(rng, 9, name="")
    files.write(tmp_path / "a.npz", sample)
    assert_array_equal(found(tmp_path / "a.npz"), found(sample))
    (tmp_path / "more").mkdir()
    for name in "bc":
        files.write(tmp_path / "more" / f"{name}.npz", sample)
    with value_error("more contains 2 samples"):
        found(tmp_path / "more")


def test_meshes_without_targets_are_predicted(rng, tmp_path):
    folder = tmp_path / "functional-0"
    write(operator(rng, folder, feature_names="k", target_names="u"), 0.5)
    (tmp_path / "new").mkdir()
    for number in range(2):
        sample = make(rng, 9 + number)
        arrays = {"mesh_points": sample.mesh_points, "k": sample.features}
        np.savez(tmp_path / "new" / f"{number}.npz", **arrays)
    line = run_predict(folder, tmp_path / "new", tmp_path / "out")
    assert line["samples"] == 2
    assert "relative_l2" not in line
    with np.load(tmp_path / "out" / "1.npz") as written:
        assert written["prediction_u"].shape == (10,)


def test_folders_without_an_operator_are_named(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match="no trained operator"):
            trained_operators.load(path)


def test_samples_that_do_not_fit_are_named(rng, tmp_path):
    found, sample = operator(rng, tmp_path), make(rng, 5, name="a.npz")
    cases = [
        ({"features": np.zeros((5, 2), np.float32)}, "2 channels .* with 1 .k."),
        ({"features": None}, "a.npz has 0 channels of features"),
        ({"mesh_points": np.zeros((5, 3), np.float32)}, "3 coordinates, .*point_dim"),
        ({"quadrature_weights": np.ones(5, np.float32)}, "was passed with quadrature"),
    ]
    for change, words in cases:
        with value_error(words):
            found(sample._replace(**change))


@pytest.mark.slow
@pytest.mark.parametrize(
    "suffix", [".vtu", pytest.param(".npz", marks=pytest.mark.nightly)]
)
def test_from_files_to_predictions_in_the_same_format(suffix, tmp_path, monkeypatch):
    if suffix == ".vtu":
        pytest.importorskip("pyvista")
    monkeypatch.chdir(tmp_path)
    options = functools.partial(predict.PredictOptions, own_model=QUICK)
    heat.write("raw", 13)
    for number, sample in enumerate(files.read("raw")):
        folder = "train" if number < 10 else "new"
        fields = np.concatenate([sample.features, sample.target], axis=1)
        bare = Sample(sample.mesh_points)
        files.write(f"{folder}/{number}{suffix}", bare, fields, names=("heat", "later"))
    config = dataclasses.replace(
        TINY,
        models=(QUICK,),
        train="train",
        feature_names="heat",
        target_names="later",
        num_buckets=1,
    )
    result = train.run(config, workdir="run")
    assert 0 < result["relative_l2"] < 2
    assert result["data"] == f"own files ({tmp_path / 'train'})"
    line = predict.run(options("run", input="new", output="out"))
    assert line["samples"] == 3
    assert 0 < line["relative_l2"] < 2
    rows = report_of(tmp_path / "out")
    assert [row["name"] for row in rows] == [f"new/{n}{suffix}" for n in (10, 11, 12)]
    for sample, old in zip(
        files.read(
            "out", files.ReadOptions(features="heat,later", target="prediction_later")
        ),
        files.read("new", files.ReadOptions(features="heat,later")),
        strict=True,
    ):
        assert_array_equal(sample.features, old.features)
        assert sample.target is not None
        later = old.features[:, 1:]  # pyright: ignore
        error = np.linalg.norm(sample.target - later) / np.linalg.norm(later)
        row = rows[[row["name"] for row in rows].index(old.name)]
        assert error == pytest.approx(row["relative_l2"], rel=1e-4)
    with value_error("--output"):
        predict.run(options("run", input="new"))
    shutil.copytree("new", "copy/new")
    both = options("run", input=["new", "copy/new"], output="twice")
    assert predict.run(both)["samples"] == 6
    assert {p.parent.name for p in pathlib.Path("twice").glob("*/10*")} == {
        "new",
        "copy",
    }
    with value_error("the output of a prediction"):
        predict.run(options("run", input=["out"], output="twice"))
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        predict.run(options("run", input="nowhere", output="twice"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["functional", pytest.param("orthogonal", marks=pytest.mark.nightly)]
)
def test_the_exported_file_is_the_loaded_operator(name, rng, tmp_path):
    pytest.importorskip("flatbuffers")
    found = operator(rng, tmp_path, name, weighted=True)
    options = predict.PredictOptions(found.folder, export=tmp_path / "operator")
    predict._export(found, options, ())
    exported = jax.export.deserialize(bytearray((tmp_path / "operator").read_bytes()))
    for n in (4, 50):
        sample = make(rng, n, weighted=True)
        actual = exported.call(
            sample.mesh_points, sample.features, sample.quadrature_weights
        )
        expected = found(sample)
        assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("suffix", [".h5", ".vtu"])
def test_files_are_predicted_in_slices(suffix, rng, tmp_path, monkeypatch):
    if suffix == ".vtu":
        pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')
    found = operator(rng, tmp_path, weighted=True)
    monkeypatch.setattr(trained_operators, "load", lambda _, **__: found)
    files.write(tmp_path / f"a{suffix}", make(rng, 101, weighted=True))
    limits = {"input": str(tmp_path / f"a{suffix}"), "chunk_size": 40}
    lines, samples = [], []
    for stream in (False, True):
        output = tmp_path / f"out{stream}"
        line = predict.run(
            predict.PredictOptions(found.folder, output=output, stream=stream, **limits)
        )
        report = report_of(output)
        report[0] |= report[0].pop("fields")["u"]
        lines.append([report[0].pop("name"), *report, line["relative_l2"]])
        samples += files.read(output, files.ReadOptions(target="prediction_u"))
    assert lines[0][0] == lines[1][0]
    for one, other in zip(lines[0][1:], lines[1][1:], strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    assert {"points_outside", "relative_l2", "num_points"} <= lines[1][1].keys()
    assert_array_equal(samples[0].mesh_points, samples[1].mesh_points)
    # The same chunks, encoded on the host.
    assert_array_equal(*(sample.target for sample in samples))


def test_what_cannot_be_predicted_in_slices_is_named(rng, tmp_path, monkeypatch):
    found, sample = operator(rng, tmp_path), make(rng, 9)
    monkeypatch.setattr(trained_operators, "load", lambda _, **__: found)
    files.write(tmp_path / "a.npz", sample)
    given = {"stream": True, "output": tmp_path / "out"}
    with value_error("only .h5 and .vtu files can"):
        predict.run(
            predict.PredictOptions(found.folder, input=str(tmp_path / "a.npz"), **given)
        )
    files.write(tmp_path / "a.h5", sample, sample.target, names=["prediction_u"])
    with value_error("point_dim=2 has no effect on .*a.h5"):
        predict.run(
            predict.PredictOptions(
                found.folder, input=str(tmp_path / "a.h5"), point_dim=2, **given
            )
        )
    with value_error("already has the fields .'prediction_u'."):
        predict.run(
            predict.PredictOptions(found.folder, input=str(tmp_path / "a.h5"), **given)
        )
    bad = {"mesh_points": sample.mesh_points, "features": np.ones((8, 1))}
    cases = [
        ({"features": sample.features}, "has no array 'mesh_points'"),
        (bad, "Different numbers of points"),
        (bad | {"features": np.ones((9, 1), complex)}, "features has dtype complex"),
        (bad | {"features": np.ones((9, 1, 1))}, "features has shape .9, 1, 1."),
        (bad | {"features": np.full((9, 1), np.nan)}, "features is not finite"),
    ]
    for arrays, words in cases:
        with h5py.File(tmp_path / "b.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
        with value_error(words):
            predict.run(
                predict.PredictOptions(
                    found.folder, input=str(tmp_path / "b.h5"), **given
                )
            )
    found.description.config["quadrature"] = True
    pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')
    files.write(tmp_path / "a.vtu", sample)
    with value_error("weights, and they cannot be computed from cells in sli"):
        predict.run(
            predict.PredictOptions(found.folder, input=str(tmp_path / "a.vtu"), **given)
        )
    assert not list((tmp_path / "out").iterdir())  # no file is left half done


def test_files_of_one_name_keep_the_folders_of_their_cases(rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(operator(rng, tmp_path / "run"), 0.0)
    for case in ("run_0", "run_1"):
        sample = make(rng, 9)
        files.write(
            tmp_path / "nest" / case / "mesh.npz", sample, sample.features, names=["k"]
        )
    line = run_predict("run", "nest/*/mesh.npz", "out")
    assert line["samples"] == 2
    for case in ("run_0", "run_1"):
        (there,) = files.read(tmp_path / "nest" / case, files.ReadOptions(features="k"))
        (here,) = files.read(tmp_path / "out" / case, files.ReadOptions(features="k"))
        assert_array_equal(here.features, there.features)


def test_an_error_at_time_0_is_doubted(rng, tmp_path, monkeypatch):
    pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")
    monkeypatch.chdir(tmp_path)
    found = operator(rng, tmp_path / "run")
    found.description.config.update({"feature_names": "k", "target_names": "u"})
    write(found, 0.0)
    (tmp_path / "new").mkdir()
    for time in (0, 5):
        mesh = pyvista.PolyData(np.pad(rng.uniform(size=(9, 2)), [(0, 0), (0, 1)]))
        mesh = mesh.cast_to_unstructured_grid()
        mesh["k"], mesh["u"] = rng.normal(size=(2, 9))
        mesh.field_data["TimeValue"] = [time]
        mesh.save(tmp_path / "new" / f"{time}.vtu")
    with pytest.warns(
        UserWarning, match="1 of 2 samples are at time 0, for example new.0.vtu"
    ):
        run_predict("run", "new", "out")


@pytest.mark.slow
def test_meshes_of_another_plane_than_in_training_are_refused(
    rng, tmp_path, monkeypatch
):
    pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")
    monkeypatch.chdir(tmp_path)
    found = operator(rng, tmp_path / "run")
    found.description.config.update({"feature_names": "k", "target_names": "u"})
    read = functools.partial(
        files.read, options=files.ReadOptions(features="k", target="u")
    )
    for folder, axes in (("train", [0, 2]), ("new", [0, 1])):
        (tmp_path / folder).mkdir()
        for number in range(4):
            points = np.zeros((9, 3))
            points[:, axes] = rng.uniform(size=(9, 2))
            mesh = pyvista.PolyData(points).cast_to_unstructured_grid()
            mesh["k"], mesh["u"] = rng.normal(size=(2, 9))
            mesh.save(f"{folder}/{number}.vtu")
    description = describe(read("train"), sizes=found.sizes, names=found.channel_names)
    assert description.axes == (0, 2)
    config = dict(found.config)
    found = found._replace(description=dataclasses.replace(description, config=config))
    write(found, 0.0)
    assert run_predict("run", "train", "out")["samples"] == 4
    said = "new.0.vtu varies along x and y, but the training meshes .* along x and z"
    for stream in (False, True):
        with value_error(said):
            run_predict("run", "new", "out", stream=stream)
    found = trained_operators.load("run")
    new = found.read("new")
    quantity = functools.partial(found.quantity, "max:u")
    for call in (found, found.one, found.field, quantity):
        with value_error(said):
            call(new[0])
    with value_error("init_from: .* along x and z, but these"):
        learn.train(read("new"), config=TINY, init_from="run")
    with value_error("varies along x and z, but sample 4 .new.0"):
        learn.train(read("train") + read("new"), config=TINY)
    in_space = files.ReadOptions(features="k", target="u", point_dim=3)
    both = files.read(["train", "new"], in_space)
    assert {one.axes for one in both} == {(0, 1, 2)}
    # A run that has not stored its plane is used as before.
    earlier = dataclasses.replace(description, axes=(), config=config)
    assert found._replace(description=earlier)(new[0]).shape == (9, 1)


def test_a_sample_with_some_of_the_predicted_fields_tells_why_it_has_no_errors(
    rng, tmp_path, capsys
):
    found = operator(rng, tmp_path / "run", QUICK)
    found.description.config.update({"feature_names": "k", "target_names": "u,w"})
    write(found, 0.0)
    (tmp_path / "new").mkdir()
    for number in range(2):
        sample = make(rng, 9)
        arrays = {"mesh_points": sample.mesh_points, "k": sample.features}
        np.savez(tmp_path / f"new/{number}.npz", **arrays, u=sample.target)
    line = run_predict(tmp_path / "run", tmp_path / "new", tmp_path / "out")
    assert "relative_l2" not in line
    said = capsys.readouterr()
    words = "new/0.npz, have only u of the predicted fields, so there are no errors"
    assert words in said.out + said.err
