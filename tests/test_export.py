import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax
from opjax import export, nn, normalize
from tests import refused
from tests.builders import small_operator, transformer
from tests.nn.parameters import evaluate
from tests.selection import by_day

pytest.importorskip("flatbuffers", reason="needs opjax[export]")

SIZES = (16, 33, 3000)
NORMALIZERS = {
    "mesh_points": normalize.Normalizer(jnp.float32(0.5), jnp.float32(2)),
    "features": normalize.Normalizer(
        jnp.asarray([1, 2], jnp.float32), jnp.asarray([3, 4], jnp.float32)
    ),
    "target": normalize.Normalizer(
        jnp.asarray([5], jnp.float32), jnp.asarray([6], jnp.float32)
    ),
}


def model(attention="functional", **changes):
    sizes = {"point_dim": 2, "feature_dim": 2, "out_features": 1, "features": 16}
    sizes |= {"num_layers": 2, "decoder_norm": False, "rngs": nnx.Rngs(0)}
    if attention not in OTHERS:
        sizes |= {"num_heads": 2, "num_basis": 8, "attention": attention}
        return transformer(**(sizes | changes))
    position = nn.Coordinates(sizes.pop("point_dim"))
    return nn.OperatorTransformer(
        position=position, attention=OTHERS[attention], **(sizes | changes)
    )


FUNCTIONAL = partial(nn.FunctionalAttention, num_heads=2, num_basis=8)
FOURIER = partial(
    nn.bases.FixedBasis,
    functions=partial(opjax.fourier_basis, num_frequencies=1),
    num_basis=9,
)
OTHERS = {
    "orthogonal": partial(nn.OrthogonalAttention, num_heads=2, num_basis=8),
    "fourier basis": partial(nn.BasisAttention, num_heads=2, basis=FOURIER),
    "performer": partial(nn.attention.PerformerAttention, num_heads=2, num_features=8),
    "flare": partial(nn.FlareAttention, num_heads=2, num_latents=8),
    "eidetic": partial(nn.attention.EideticAttention, num_heads=2, num_basis=8),
    "subdomains": partial(nn.SubdomainAttention, attention=FUNCTIONAL, coarse=None),
}


def sample(rng, n):
    shapes = (n, 2), (n, 2), (n,)
    return [rng.uniform(0.5, 1, size=shape).astype(np.float32) for shape in shapes]


def operator(path):
    return jax.export.deserialize(bytearray(path.read_bytes()))


ATTENTIONS = [
    "functional",
    "transolver",
    "orthogonal",
    "fourier basis",
    "performer",
    "flare",
    "eidetic",
    "galerkin",
    "linear",
    "fourier",
    "softmax",
]


@pytest.mark.parametrize("attention", by_day(ATTENTIONS, ["functional"]))
def test_every_attention_is_exported_for_any_number_of_points(attention, rng, tmp_path):
    trained = model(attention)
    min_points = 8 if attention == "orthogonal" else 1
    export.save(
        tmp_path / "operator",
        trained,
        export.Inputs(2, 2, weighted=True, min_points=min_points),
    )
    exported = operator(tmp_path / "operator")
    assert exported.platforms == ("cpu", "cuda", "tpu")
    x, a, w = sample(rng, 33)
    expected = evaluate(trained, x, a, quadrature_weights=w)
    assert_allclose(exported.call(x, a, w), expected, atol=2e-6)


PROGRAM = """
import sys
sys.modules["opjax"] = None  # cannot be imported
import jax
import numpy as np
operator = jax.export.deserialize(bytearray(open("operator", "rb").read()))
for n in {sizes}:
    with np.load(f"{{n}}.npz") as arrays:
        values = operator.call(arrays["mesh_points"], arrays["features"])
    np.save(f"{{n}}.npy", values)
"""


def test_the_file_alone_repeats_the_model_in_physical_units(rng, tmp_path):
    trained = model()
    export.save(
        tmp_path / "operator",
        trained,
        export.Inputs(point_dim=2, feature_dim=2),
        normalizers=NORMALIZERS,
    )
    expected = {}
    for n in SIZES:
        x, a, _ = sample(rng, n)
        encoded = (x - 0.5) / 2, (a - np.float32([1, 2])) / np.float32([3, 4])
        expected[n] = 6 * evaluate(trained, *encoded) + 5
        np.savez(tmp_path / f"{n}.npz", mesh_points=x, features=a)
    subprocess.run(
        [sys.executable, "-c", PROGRAM.format(sizes=SIZES)], cwd=tmp_path, check=True
    )
    for n in SIZES:
        actual = np.load(tmp_path / f"{n}.npy")
        assert_allclose(actual, expected[n], rtol=1e-5, atol=1e-5)


def test_derivatives_of_the_file_are_those_of_the_model(rng, tmp_path):
    trained, path = model(), tmp_path / "operator"
    inputs = export.Inputs(2, 2, batched=True)
    export.save(path, trained, inputs, derivatives=1, platforms=["cpu"])
    call = export.load(path, trusted=True).call
    x, a = (
        np.stack(rows)
        for rows in zip(*(sample(rng, 9)[:2] for _ in range(3)), strict=True)
    )
    batched = jax.jit(jax.vmap(trained))
    assert_allclose(call(x, a), batched(x, a), atol=2e-6)

    def slope(function):
        return jax.jit(jax.grad(lambda x: (function(x, a) ** 2).sum()))(x)

    expected = slope(batched)
    assert_allclose(slope(call), expected, atol=1e-4 * np.max(np.abs(expected)))
    export.save(path, trained, inputs._replace(batched=False), platforms=["cpu"])
    with pytest.raises(Exception, match="No VJP is available"):
        jax.grad(lambda x: operator(path).call(x, a[0]).sum())(jnp.asarray(x[0]))


@pytest.mark.nightly
def test_operators_of_the_mesh_alone_take_no_features(rng, tmp_path):
    trained = model(feature_dim=0)
    export.save(tmp_path / "operator", trained, export.Inputs(2))
    x, *_ = sample(rng, 50)
    actual = operator(tmp_path / "operator").call(x)
    assert_allclose(actual, trained(x), atol=2e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("chunk_size", [None, 80])
def test_grid_models_convolve_as_is_best_on_every_platform(chunk_size):
    """Winograd's filters on a CPU only, wherever the program was exported."""
    grid_shape = 32, 32
    operator = small_operator(
        feature_dim=0,
        features=64,
        num_layers=1,
        attention=partial(
            nn.BasisAttention,
            num_heads=2,
            basis=partial(nn.bases.SoftmaxBasis, num_basis=8, grid_shape=grid_shape),
        ),
        chunk_size=chunk_size,
    )
    points = jax.ShapeDtypeStruct((1024, 2), jnp.float32)

    def convolutions(*platforms):
        exported = jax.export.export(jax.jit(operator), platforms=platforms)(points)
        return exported.mlir_module().count("stablehlo.convolution")

    assert convolutions("cpu") == 0
    assert convolutions("cuda") > 0
    assert convolutions("cpu", "cuda") > 0


def test_grid_models_have_the_number_of_points_of_their_grid(rng, tmp_path):
    trained = model(grid_shape=(4, 5))
    inputs = export.Inputs(point_dim=2, feature_dim=2)
    with pytest.raises(ValueError, match="cannot be exported for any .* num_points"):
        export.save(tmp_path / "operator", trained, inputs)
    assert not list(tmp_path.iterdir())
    export.save(tmp_path / "operator", trained, inputs._replace(num_points=20))
    x, a, _ = sample(rng, 20)
    actual = operator(tmp_path / "operator").call(x, a)
    assert_allclose(actual, evaluate(trained, x, a), atol=2e-6)
    with pytest.raises(ValueError, match="Shape mismatch"):
        operator(tmp_path / "operator").call(x[:19], a[:19])


def test_what_cannot_be_exported_is_named(tmp_path):
    path, inputs = tmp_path / "operator", export.Inputs(2, 2)
    refused.each(
        (lambda: export.save(path, model("orthogonal"), inputs), "pass min_points"),
        (
            lambda: export.save(path, model("subdomains"), inputs),
            "any number of points.*subdomains",
        ),
        (lambda: export.save(path, model(), export.Inputs(2)), "must have 2 channels"),
        (
            lambda: export.save(path, lambda x, a: a.T, inputs),
            r"shapes \[\(2, n\)\], expected .*\(n,",
        ),
        (
            lambda: export.save(
                path, model(), inputs, normalizers={"feature": NORMALIZERS["target"]}
            ),
            "normalizers='feature' is unknown",
        ),
        (
            lambda: export.save(path, model(), inputs._replace(min_points=0)),
            "min_points",
        ),
        (lambda: export.save(path, model(), export.Inputs(2, -1)), "feature_dim"),
    )
    assert not list(tmp_path.iterdir())


def test_without_flatbuffers_the_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"opjax\[export\]"):
        export.save(tmp_path / "operator", model(), export.Inputs(2, 2))


def test_an_operator_is_checked_before_it_is_run(rng, tmp_path):
    path, inputs = tmp_path / "operator", export.Inputs(2, 2)
    matrix = rng.normal(size=(2, 3)).astype(np.float32)
    export.save(path, lambda x, a: jnp.tanh(x @ matrix) + a[:, :1], inputs)
    x, a, _ = sample(rng, 12)
    expected = np.tanh(x @ matrix) + a[:, :1]
    assert_allclose(export.load(path).call(x, a), expected, atol=1e-6)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="above the limit"):
        export.load(path, max_bytes=100)
    for broken in (content[:-1], content[:500], b"", content.replace(b"tanh", b"tanx")):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="valid checksum"):
            export.load(path)
    path.write_bytes(content[: content.rindex(b"opjax operator")])
    with pytest.raises(ValueError, match="valid checksum"):
        export.load(path)
    assert len(export.load(path, trusted=True).in_avals) == 2
    path.write_bytes(b"nothing" + export._end(b"nothing"))
    with pytest.raises(ValueError, match="holds no operator"):
        export.load(path)


@pytest.mark.skipif(os.name == "nt", reason="programs are scripts of a shell")
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("kill -SEGV $$", "ends the process that parses it, by SIGSEGV"),
        ("exit 3", "the process that parses it ends with status 3"),
        ("cat >/dev/null; exit 0", "the process that parses it ends with status 0"),
        ("cat >/dev/null; echo no good", "holds no operator .*: no good"),
        ("exec sleep 60", "it took more than 1 s to parse"),
    ],
)
def test_what_ends_or_hangs_the_parser_is_refused_and_ends_another_process(
    program, message, tmp_path, monkeypatch
):
    path = tmp_path / "operator"
    export.save(path, lambda x: x, export.Inputs(2))
    (tmp_path / "python").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "python").chmod(0o755)
    if "sleep" in program:
        monkeypatch.setattr(export, "_SECONDS", 1)
        monkeypatch.setattr(export, "_PATIENCE", 1)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(ValueError, match=message) as error:
        export.load(path)
    assert str(path) in str(error.value)
    assert len(export.load(path, trusted=True).in_avals) == 1


def test_the_process_that_parses_is_limited(tmp_path):
    """It gets the whole file, and has no more memory than it is told."""
    program = Path(export.__file__).with_name("_export_apart.py")
    command = [sys.executable, "-P", str(program), "60", str(2**20)]
    ended = subprocess.run(command, input=bytes(2**24), capture_output=True)
    assert export._reason(ended.returncode, ended.stdout)


def test_operators_that_call_foreign_functions_or_take_others_arrays_are_refused(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(export, "_parsed_apart", lambda content: "")

    def foreign(x):
        call = jax.ffi.ffi_call("foreign", jax.ShapeDtypeStruct(x.shape, x.dtype))
        return call(x)

    points = jax.ShapeDtypeStruct((5, 2), jnp.float32)
    anything = jax.export.DisabledSafetyCheck.custom_call("foreign")
    whole = jax.ShapeDtypeStruct((5, 2), jnp.int32)
    path = tmp_path / "operator"
    for function, argument, message in (
        (foreign, points, r"no operator needs: \['foreign'\]"),
        (lambda x: x, whole, "float32 points"),
        (lambda x: (x, x), points, "float32 points"),
    ):
        exported = jax.export.export(jax.jit(function), disabled_checks=[anything])
        content = bytes(exported(argument).serialize())
        path.write_bytes(content + export._end(content))
        with pytest.raises(ValueError, match=message):
            export.load(path)


@pytest.mark.nightly
def test_linear_algebra_is_none_of_the_foreign_functions(rng, tmp_path):
    def solved(x):
        q, _ = jnp.linalg.qr(x)
        values, _ = jnp.linalg.eigh(x.T @ x)
        return jnp.linalg.solve(x.T @ x, q.T).T * values[None]

    export.save(tmp_path / "operator", solved, export.Inputs(2, num_points=5))
    x = sample(rng, 5)[0]
    actual = export.load(tmp_path / "operator").call(x)
    assert_allclose(actual, solved(x), rtol=1e-3)
