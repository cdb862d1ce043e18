import json
import pathlib
import shutil
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import export, learn, nn, normalize, onnx_files
from opjax.learn.cli import predict
from opjax.learn.predict.functions import scalars_of
from opjax.learn.registry import operators
from tests import onnx_header, refused
from tests.builders import small_operator
from tests.exported import results_of, session
from tests.learn.test_predict import make, operator
from tests.selection import by_day

onnx = pytest.importorskip("onnx", reason="an extra, opjax[onnx]")
runtime = pytest.importorskip("onnxruntime", reason="an extra, opjax[onnx]")

SIZES = (16, 33, 700)
POINTS = export.Inputs(point_dim=2)


@pytest.fixture(autouse=True)
def _single():
    with jax.enable_x64(False):
        yield


def sample(rng, n):
    points, features = rng.uniform(0.5, 1, (n, 2)), rng.uniform(0.5, 1, (n, 2))
    return points.astype(np.float32), features.astype(np.float32)


def distance(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def in_double(model, *arrays):
    with jax.enable_x64(True):
        graph, state = nnx.split(model)
        state = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state)
        wide = nnx.merge(graph, state)
        return np.asarray(wide(*(array.astype(np.float64) for array in arrays)))


def functional():
    return small_operator(
        feature_dim=2,
        features=16,
        attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=8),
    )


def test_onnx_runtime_repeats_the_model_in_physical_units(rng, tmp_path):
    model, path = functional(), tmp_path / "operator.onnx"
    normalizers = {
        "features": normalize.Normalizer(jnp.float32([1, 2]), jnp.float32([3, 4])),
        "target": normalize.Normalizer(jnp.float32([5]), jnp.float32([6])),
    }
    text = onnx_files.save(
        path, model, export.Inputs(2, 2), normalizers=normalizers, provenance={"a": 1}
    )
    run = session(path).run
    for n in SIZES:
        x, a = sample(rng, n)
        normalised = (a - np.float32([1, 2])) / np.float32([3, 4])
        expected = 6 * np.asarray(jax.jit(model)(x, normalised)) + 5
        (actual,) = run(["values"], {"mesh_points": x, "features": a})
        assert distance(actual, expected) < 1e-5
    stored = onnx_files.metadata_of(path)
    assert stored["signature"] == text
    assert json.loads(stored["provenance"]) == {"a": 1}
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert {"Softmax", "LayerNormalization"} <= kinds
    parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(model)))
    assert path.stat().st_size < 2 * parameters + 40_000  # graph of a tiny model


def test_files_take_batches_and_return_numbers_by_name(rng, tmp_path):
    def function(points):
        return {"max:u": points.max(), "values": jnp.sin(points)}

    path = tmp_path / "operator.onnx"
    onnx_files.save(path, function, POINTS._replace(batched=True))
    x = rng.normal(size=(3, 5, 2)).astype(np.float32)
    found = session(path)
    assert [each.name for each in found.get_outputs()] == ["values", "max:u"]
    values, largest = found.run(None, {"mesh_points": x})
    assert_allclose(values, np.sin(x), rtol=1e-5)
    assert_array_equal(largest, x.max(axis=(1, 2)))


def _scaled_rows(x):
    """Normalised rows of 2 x 2 with a scale for each row, which is no layer norm."""
    rows = x[:2]
    centred = rows - rows.mean(axis=1, keepdims=True)
    unit = centred * jax.lax.rsqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    scale = jnp.asarray([[1.0], [2.0]], x.dtype)
    return x + (unit * scale + scale)[:1]


FUNCTIONS = {
    "attention": lambda x: jax.vmap(opjax.softmax_attention)(*(3 * [x[None]]))[0],
    "complex numbers": lambda x: (
        x * jnp.fft.ifft((2.0 * x.astype(complex).T * (1 + 0j)).T).real
    ),
    "no gelu": lambda x: x * jax.scipy.special.erfc(x * np.float32(np.sqrt(0.5))),
    "clamped update": lambda x: jax.lax.dynamic_update_slice(
        x, x[:2] + 1, (100 + jnp.argmax(x[:, 0]), 0)
    ),
    "gather": lambda x: x[jnp.argsort(x[:, 0])],
    "take along axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1),
    "padding and slices": lambda x: jnp.pad(x, ((1, 2), (0, 0)))[1:-2] + x[::-1],
    "sums over segments": lambda x: (
        jax.ops.segment_sum(x, jnp.arange(x.shape[0]) % 3, 3)[:2].sum() * x
    ),
    "choices": lambda x: jnp.where(x > 0, jnp.log1p(jnp.exp(x)), x**-2),
    "loop": lambda x: jax.lax.fori_loop(0, 9, lambda i, z: jnp.sin(z) + i, x),
    "search": lambda x: jax.lax.while_loop(
        lambda z: jnp.max(z) < 50, lambda z: 1.5 * z, jnp.abs(x) + 1
    ),
    "branches": lambda x: jax.lax.cond(x.sum() > 0, jnp.cos, jnp.tanh, x),
    "sizes": lambda x: x / x.shape[0] + jnp.arange(x.shape[0], dtype=x.dtype)[:, None],
    "cumulative sums": lambda x: (
        jnp.cumsum(x, axis=0) + jnp.argmax(x, axis=0)[None].astype(x.dtype)
    ),
    "stack": lambda x: jnp.stack([x[:, 0], 2 * x[:, 1]], axis=1),
    "clamped slice": lambda x: x * jax.lax.dynamic_slice(x, (100, 1), (2, 1))[1:],
    "power zero": lambda x: x**0 + x,
    "small arguments": lambda x: (
        1e6 * (jnp.log1p(1e-6 * x) + 2 * jnp.expm1(1e-6 * x)) + jax.nn.softplus(x - 20)
    ),
    "scaled rows": _scaled_rows,
    "gelu": lambda x: jax.nn.gelu(x) + jax.nn.gelu(x, approximate=False),
    "fourier": lambda x: (
        (
            x[:2] + jnp.fft.irfft2((2 + 1j) * jnp.fft.rfft2(x[:3].T), s=(2, 3))[:, :2]
        ).sum()
        * jnp.fft.ifft(jnp.fft.fft(x.astype(complex))).real
    ),
    "solve": lambda x: (
        x @ opjax.linalg.solve(x.T @ x + jnp.eye(2, dtype=x.dtype), jnp.eye(2))
    ),
}


# What these become in the file.
FUSED = {"attention": "MultiHeadAttention", "gelu": "Gelu"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_onnx_runtime_repeats_functions_of_jax(name, rng, tmp_path):
    function, path = FUNCTIONS[name], tmp_path / "function.onnx"
    onnx_files.save(path, function, POINTS._replace(min_points=4))
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert kinds & {*FUSED.values()} == {
        kind for key, kind in FUSED.items() if key == name
    }
    run = session(path).run
    for n in (5, 12):
        x = rng.normal(size=(n, 2)).astype(np.float32)
        (actual,) = run(None, {"mesh_points": x})
        assert_allclose(actual, function(jnp.asarray(x)), 2e-5, 1e-6)


def _of_a_table(x):
    """Rows of a table, at a place of each sample."""
    table = jnp.arange(24, dtype=x.dtype).reshape(3, 4, 2)
    place = jnp.argmax(jnp.abs(x[:4, 0]))
    return x * jax.lax.dynamic_slice(table, (0, place, 0), (3, 1, 2))[1]


@pytest.mark.parametrize("function", [FUNCTIONS["search"], _of_a_table])
def test_loops_and_places_in_a_batch_are_those_of_each_sample(function, rng, tmp_path):
    path = tmp_path / "operator.onnx"
    inputs = POINTS._replace(batched=True, min_points=4)
    onnx_files.save(path, function, inputs)
    x = rng.normal(size=(3, 5, 2)).astype(np.float32) * np.float32(
        [[[1]], [[9]], [[99]]]
    )
    (actual,) = session(path).run(None, {"mesh_points": x})
    assert_allclose(actual, jax.vmap(function)(x), rtol=1e-5)


@pytest.mark.parametrize("features", [0.0, 1.0])
def test_constant_features_leave_the_orthogonal_attention_finite(
    features, rng, tmp_path
):
    model = small_operator(
        feature_dim=2,
        features=16,
        num_layers=1,
        attention=partial(nn.OrthogonalAttention, num_heads=2, num_basis=8),
    )
    inputs = export.Inputs(2, 2, min_points=8)
    onnx_files.save(tmp_path / "operator.onnx", model, inputs)
    x = np.full((80, 2), 0.5, np.float32)
    a = np.full((80, 2), features, np.float32)
    run = session(tmp_path / "operator.onnx").run
    (actual,) = run(None, {"mesh_points": x, "features": a})
    assert distance(actual, jax.jit(model)(x, a)) < 1e-4


@pytest.mark.parametrize("name", learn.list_operators())
def test_onnx_runtime_repeats_operators_that_ship(name, tmp_path):
    found, path = learn.load(name), tmp_path / "operator.onnx"
    predict._export(found, predict.PredictOptions(name, export=path), ())
    case = found.example()
    columns = case._asdict()
    if case.scalars is not None:
        names = found.description.names["scalars"]
        given = dict(zip(names, case.scalars, strict=True)) | (case.numbers or {})
        columns["scalars"] = np.asarray([given[name] for name in scalars_of(found)])
    names = [each.name for each in session(path).get_inputs()]
    actual = results_of(path, {name: columns[name] for name in names})
    values, scalars = found.both(case)
    assert distance(actual.pop("values"), values) < 1e-5
    if scalars is not None:  # lift
        assert_allclose(list(actual.values()), scalars, rtol=1e-5)


@pytest.mark.parametrize("name", by_day(operators.REGISTRY, ["orthogonal", "ono"]))
def test_onnx_runtime_repeats_every_model(name, rng, tmp_path):
    entry, grid = operators.entry(name), (13, 13)
    fixed = bool(entry.fixed_points or entry.grid_axes)
    sizes = operators.Sizes(
        point_dim=2,
        feature_dim=2,
        out_features=1,
        grid_shape=grid if fixed else None,
        num_points=169 if fixed else None,
        box=((0.0, 0.0), (1.0, 1.0)),
        time_embedding=False,
        scalar_dim=0,
        target_scalars=0,
    )
    options = {"models": (name,), "width": 8, "num_layers": 2, "num_heads": 2}
    options |= {"num_basis": 4, "num_landmarks": 4, "num_modes": 3}
    model = operators.build(SimpleNamespace(**options), sizes, rngs=nnx.Rngs(0))
    inputs = export.Inputs(
        2, 2, num_points=169 if fixed else None, min_points=1 if fixed else 8
    )
    onnx_files.save(tmp_path / "model.onnx", model, inputs)
    run = session(tmp_path / "model.onnx").run
    for n in (169,) if fixed else SIZES:
        x, a = sample(rng, n)
        (actual,) = run(None, {"mesh_points": x, "features": a})
        expected = jax.jit(model)(x, a)
        bound = 1e-5
        if name == "ono_original":  # ill-conditioned here: JAX rounds off 2e-5, too
            bound = max(bound, 5 * distance(expected, in_double(model, x, a)))
        assert distance(actual, expected) < bound


def test_what_onnx_has_no_counterpart_of_is_refused(tmp_path):
    def bits(points):
        return jax.lax.bitcast_convert_type(points, jnp.int32).astype(jnp.float32)

    with pytest.raises(ValueError, match=r"bitcast_convert_type .* ends in \.jax"):
        onnx_files.save(tmp_path / "operator.onnx", bits, POINTS)

    def waves(points):
        start = jnp.fft.rfft(points)
        return jax.lax.fori_loop(0, 9, lambda _, z: z * 1j, start).real[:, :1]

    with pytest.raises(ValueError, match="a complex array in a loop"):
        onnx_files.save(tmp_path / "operator.onnx", waves, POINTS)


def test_outputs_named_like_inputs_are_refused(tmp_path):
    def named(points):
        return {"values": points, "mesh_points": points.max()}

    with pytest.raises(ValueError, match="'mesh_points', which is also the name of an"):
        onnx_files.save(tmp_path / "operator.onnx", named, POINTS)


def test_damaged_and_later_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "operator.onnx"
    onnx_files.save(path, lambda points: 2 * points, POINTS)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.onnx").write_bytes(content)
    with pytest.raises(ValueError, match="valid checksum"):
        onnx_files.metadata_of(tmp_path / "damaged.onnx")
    monkeypatch.setattr("opjax._formats.ONNX", 0)
    with pytest.raises(ValueError, match="Update opjax"):
        onnx_files.metadata_of(path)


def test_the_file_of_the_program_is_the_loaded_operator(rng, tmp_path, monkeypatch):
    found, path = operator(rng, tmp_path, weighted=True), tmp_path / "operator.onnx"
    options = predict.PredictOptions(found.folder, export=path)
    predict._export(found, options, ())
    run = session(path).run
    for n in (4, 50):
        case = make(rng, n, weighted=True)
        names = ("mesh_points", "features", "quadrature_weights")
        (actual,) = run(None, {name: getattr(case, name) for name in names})
        assert_allclose(actual, found(case), rtol=1e-4, atol=1e-4)
    monkeypatch.setattr("opjax._onnx.programs.RULES", {})
    refused.each(
        (
            lambda: predict._export(found, options, ()),
            r"Model 'functional': .* ends in \.jax",
        ),
        (
            lambda: predict.PredictOptions(found.folder, export=path, derivatives=1),
            "ONNX has no derivatives",
        ),
    )


ELSEWHERE = """
import sys
for name in ("jax", "jaxlib", "flax", "opjax", "onnx"):
    sys.modules[name] = None  # cannot be imported
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession("operator.onnx")
with np.load("inputs.npz") as inputs:
    (values,) = session.run(["values"], dict(inputs))
np.save("values.npy", values)
"""


def exported(rng, folder):
    """Writes an operator, and inputs; returns the inputs and what JAX computes."""
    model, (x, a) = functional(), sample(rng, 33)
    onnx_files.save(folder / "operator.onnx", model, export.Inputs(2, 2))
    return {"mesh_points": x, "features": a}, jax.jit(model)(x, a)


def test_the_file_runs_where_no_jax_is(rng, tmp_path):
    inputs, expected = exported(rng, tmp_path)
    np.savez(tmp_path / "inputs.npz", **inputs)
    subprocess.run([sys.executable, "-c", ELSEWHERE], cwd=tmp_path, check=True)
    assert distance(np.load(tmp_path / "values.npy"), expected) < 1e-5


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
def test_the_program_in_cpp_predicts_as_onnx_runtime_in_python(rng, tmp_path):
    inputs, _ = exported(rng, tmp_path)
    (expected,) = session(tmp_path / "operator.onnx").run(None, inputs)
    folder = pathlib.Path(runtime.__file__).parent / "capi"
    (library,) = folder.glob("libonnxruntime.so.1.*")
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    (tmp_path / "onnxruntime_c_api.h").write_text(onnx_header.text())
    source = pathlib.Path(__file__).parents[1] / "docs/how-to/operator.cpp"
    assert len(source.read_text().splitlines()) <= 60
    build = ["g++", "-std=c++17", "-Wall", "-Werror", "-I.", str(source), "-o", "run"]
    build += ["libonnxruntime.so.1", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(build, cwd=tmp_path, check=True)
    for name, array in inputs.items():
        array.tofile(tmp_path / name)
    command = ["./run", "operator.onnx", "33", *inputs]
    found = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    actual = np.frombuffer(found.stdout, np.float32).reshape(expected.shape)
    assert_allclose(actual, expected, rtol=1e-6)
    command[1] = "nowhere.onnx"
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 1
    assert "nowhere.onnx" in found.stderr
