"""Exported operators that return quantities of interest beside the field."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opjax import export
from opjax.learn.cli import predict
from opjax.learn.config.quantities import parse
from opjax.learn.predict.exportable import Exportable
from opjax.learn.predict.quantities import measure
from tests.exported import FILES, results_of
from tests.learn.test_predict import operator, write
from tests.learn.test_quantities import annulus
from tests.learn.tiny import QUICK
from tests.refused import value_error
from tests.selection import by_day

pytest.importorskip("flatbuffers", reason="needs opjax[export]")

TEXT = (
    "max:u,mean:u,sum:u,max:u@wall,min:u@wall,sum:u@wall,integral:u@wall,mean:u@far,"
    "force_x:u@wall,moment_z:u@wall:about=0.5,0,lift:u@wall:angle_deg=k:speed=2"
)


def on_ring(found, **changes):
    """A case of the operator on a ring with a wall."""
    ring = annulus(alpha=3.0)
    weights = np.linspace(0.5, 2, ring.num_points).astype(np.float32)
    given = weights if found.description.weighted else None
    return ring._replace(quadrature_weights=given, **changes)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("weighted", "text"), [(False, TEXT), (True, TEXT), (True, "max:u")]
)
def test_quantities_are_those_of_a_report(file, weighted, text, rng, tmp_path):
    found, path = operator(rng, tmp_path, weighted=weighted), tmp_path / file
    case = on_ring(found)
    outside = Exportable(found, parse(text))
    arrays = outside.arrays(case)
    assert list(arrays) == outside.inputs.names()[2:]
    predict._export(found, predict.PredictOptions(tmp_path, export=path), parse(text))
    inputs = {"mesh_points": case.mesh_points, "features": case.features} | arrays
    result = results_of(path, inputs)
    values = found(case)
    np.testing.assert_allclose(result["values"], values, rtol=2e-5, atol=1e-5)
    (expected,) = measure(parse(text), case, [values], found.description.names)
    assert set(result) == {"values", *expected}
    for text, number in expected.items():
        assert float(result[text]) == pytest.approx(number, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", by_day([QUICK, "functional"], [QUICK]))
def test_the_file_alone_has_the_derivatives_of_a_quantity(name, rng, tmp_path, capsys):
    found, path = operator(rng, tmp_path / "run", name), tmp_path / "operator.jax"
    write(found, 0.1)
    text = "force_x:u@wall,max:u"
    line = predict.run(
        predict.PredictOptions(
            found.folder,
            own_model=QUICK,
            export=path,
            quantities=text,
            derivatives=1,
            batched=True,
        )
    )
    assert line["export_bytes"] == path.stat().st_size
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    assert (
        "inputs, float32:\n"
        "  mesh_points        (b, n, 2)    coordinates\n"
        "  features           (b, n, 1)    k\n"
        "  area_vectors@wall  (b, n, 2)    outward normal times area"
    ) in exported.fun_name
    assert "force_x:u@wall     (b,)         unit of u times area" in exported.fun_name
    said = capsys.readouterr().err
    assert exported.fun_name in said
    assert "Compiling it here for 30 points took" in said
    assert len(export.load(path, trusted=True).out_avals) == 3
    case = on_ring(found)
    (vectors,) = found.quantity_inputs(text, case).values()
    points, vectors = jnp.asarray(case.mesh_points), jnp.asarray(vectors)

    def of_file(points, vectors):
        arrays = (array[None] for array in (points, case.features, vectors))
        return exported.call(*arrays)["force_x:u@wall"].sum()

    def of_operator(points, vectors):
        outside = Exportable(found, parse(text))
        named = {"area_vectors@wall": vectors}
        return outside(points, case.features, **named)["force_x:u@wall"]

    actual, expected = (
        jax.tree.leaves(jax.jit(jax.value_and_grad(one, (0, 1)))(points, vectors))
        for one in (of_file, of_operator)
    )
    for one, other in zip(actual, expected, strict=True):
        scale = float(jnp.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shear_x:u@wall:viscosity=1", "shear stress needs the distances"),
        ("flux:u@wall", "flux:u@wall: the field has 1 channels"),
        ("force_z:u@wall", "force_z:u@wall: the mesh has only 2 dimensions"),
        ("max:p", "max:p: the field 'p' has 0 predicted channels"),
        ("lift:u@wall:angle_deg=beta", "no unique scalar or input 'beta'"),
    ],
)
def test_a_quantity_without_a_value_is_refused(text, message, rng, tmp_path):
    with value_error(message):
        Exportable(operator(rng, tmp_path), parse(text))


@pytest.mark.parametrize("name", ["values", "mesh_points", "features"])
def test_scalars_named_like_the_field_or_an_input_are_refused(name, rng, tmp_path):
    found = operator(rng, tmp_path)
    described = dataclasses.replace(
        found.description,
        sizes=found.sizes._replace(target_scalars=1),
        names={**found.description.names, "target_scalars": [name]},
    )
    with value_error(f"'{name}' cannot be exported.*Rename"):
        Exportable(found._replace(description=described))


def test_moments_and_fluxes_need_point_data_in_the_plane(rng, tmp_path):
    text = "moment_z:u@wall"
    found = operator(rng, tmp_path)
    config = found.description.config | {"location": "cells"}
    of_cells = dataclasses.replace(found.description, config=config)
    with value_error("cannot be exported for cell data"):
        Exportable(found._replace(description=of_cells), parse(text))
    with value_error("ring.npz: max:u@hole: the boundary 'hole'"):
        found.quantity_inputs("max:u@hole", on_ring(found))


def test_exported_quantities_have_the_axes_of_the_training_meshes(rng, tmp_path):
    found = operator(rng, tmp_path)
    description = dataclasses.replace(found.description, axes=(0, 2))
    found = found._replace(description=description)
    outside = Exportable(found, parse("force_z:u@wall,moment_y:u@wall"))
    case = on_ring(found, axes=(0, 2))
    assert list(outside.arrays(case)) == outside.inputs.names()[2:]
    with value_error("force_y:u@wall: .* along x and z; use force_x or force_z"):
        Exportable(found, parse("force_y:u@wall"))
