"""Trained operators as functions that JAX transforms."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.files import patches
from opjax.learn.cli import predict
from opjax.learn.config.quantities import parse
from opjax.learn.predict.quantities import measure
from opjax.learn.registry import operators
from opjax.normalize import Normalizer
from tests.learn.test_predict import make, operator
from tests.learn.test_quantities import annulus
from tests.learn.tiny import QUICK, run_predict
from tests.refused import value_error
from tests.selection import by_day

# Models of meshes of any number of points.
MODELS = [
    name
    for name, found in operators.REGISTRY.items()
    if not (found.grid_axes or found.fixed_points)
]


def doubled(parameters):
    """Parameters in double precision."""

    def cast(leaf):
        real = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, jnp.float64 if real else leaf.dtype)

    return jax.tree.map(cast, parameters)


def difference(function, x, direction, step=1e-5):
    """Central difference of fourth order."""
    ends = [function(x + i * step * direction) for i in (-2, -1, 1, 2)]
    return np.dot([1 / 12, -2 / 3, 2 / 3, -1 / 12], ends) / step


def check_gradient(function, x, rng, rtol=1e-6):
    direction = rng.normal(size=x.shape)
    slope = jnp.vdot(jax.grad(function)(x), direction)
    assert_allclose(slope, difference(function, x, direction), rtol=rtol)


def test_the_function_has_the_values_of_a_call(rng, tmp_path):
    found = operator(rng, tmp_path, weighted=True)
    sample = make(rng, 20, weighted=True)
    expected = found(sample)
    arguments = found.arguments(sample)
    for call in (found.function, jax.jit(found.function)):
        values = call(found.parameters, *arguments)
        assert isinstance(values, jax.Array)
        assert_allclose(values, expected, rtol=2e-5, atol=1e-5)


def test_a_call_in_a_transformation_is_the_function(rng, tmp_path):
    found = operator(rng, tmp_path, QUICK)
    samples = [make(rng, 20) for _ in range(3)]
    points, features = (
        jnp.stack([jnp.asarray(getattr(s, name)) for s in samples])
        for name in ("mesh_points", "features")
    )

    @jax.jit
    def transformed(points, features):
        calls = (
            lambda x: found(x, features[0]),
            lambda x: found.function(found.parameters, x, features[0]),
            lambda x: found(samples[0]._replace(mesh_points=x)),
        )
        slopes = [jax.grad(lambda x, f=f: f(x).sum())(points[0]) for f in calls]
        return jax.vmap(found)(points, features), slopes

    batched, (slope, own, of_sample) = transformed(points, features)
    expected = np.stack([found(s) for s in samples])
    assert_allclose(batched, expected, rtol=2e-5, atol=1e-5)
    assert_array_equal(slope, own)
    assert_allclose(of_sample, slope, rtol=1e-5, atol=1e-6)
    with value_error("features can only be passed with an array"):
        jax.grad(lambda x: found(samples[0], x).sum())(features[0])


def test_gradients_and_hessians_are_central_differences(rng, tmp_path):
    found = operator(rng, tmp_path, num_layers=1)
    sample = make(rng, 9)
    with jax.enable_x64(True):
        parameters = doubled(found.parameters)
        x, f = (jnp.asarray(a, float) for a in (sample.mesh_points, sample.features))

        def mean(points):
            return found.function(parameters, points, f).mean()

        check_gradient(jax.jit(mean), x, rng)
        direction = rng.normal(size=x.shape)
        curvature = jnp.vdot(jnp.tensordot(jax.hessian(mean)(x), direction), direction)
        slope = jax.jit(lambda y: jnp.vdot(jax.grad(mean)(y), direction))
        assert_allclose(curvature, difference(slope, x, direction, 1e-4), rtol=1e-5)


def test_chunks_have_hessians_in_reverse_mode_and_say_so(rng, tmp_path):
    found, sample = operator(rng, tmp_path, num_layers=1, chunk_size=4), make(rng, 9)

    def mean(points):
        return found.function(found.parameters, points, sample.features).mean()

    x = jnp.asarray(sample.mesh_points)
    with pytest.raises(TypeError, match="chunks of points.*Use jax.grad"):
        jax.jvp(mean, (x,), (x,))
    shapes = jax.eval_shape(jax.jacrev(jax.grad(mean)), x)
    assert shapes.shape == (9, 2, 9, 2)


# The gradient of Performer's shift is stopped, which the offset of its kernel sees;
# Nyström's inverse has a shift of rounding size, whose gradient is stopped, too.
TOLERANCES = {"performer": 0.1, "nystrom": 1e-5}


@pytest.mark.slow
@pytest.mark.parametrize("name", by_day(MODELS, []))
def test_gradients_of_every_model_are_central_differences(name, rng, tmp_path):
    found = operator(rng, tmp_path, name, num_landmarks=4)
    sample = make(rng, 12)
    with jax.enable_x64(True):
        x, f = (jnp.asarray(a, float) for a in (sample.mesh_points, sample.features))
        parameters = doubled(found.parameters)

        @jax.jit
        def mean(points):
            return found.function(parameters, points, f).mean()

        check_gradient(mean, x, rng, TOLERANCES.get(name, 1e-6))
        exact = jax.grad(mean)(x)
    if name == "performer":  # draws other random features in double precision
        return
    with jax.enable_x64(False):
        x, f = (jnp.asarray(a) for a in (sample.mesh_points, sample.features))
        single = jax.grad(lambda points: found(points, f).mean())(x)
    largest = np.abs(exact).max()
    assert_allclose(np.asarray(single), exact, atol=1e-3 * largest)


def ring(rng, tmp_path, name="functional"):
    """An operator of a pressure and a velocity, and the mesh of a ring."""
    found = operator(rng, tmp_path, name, num_layers=1)
    sample = annulus()
    weights = rng.uniform(size=sample.num_points).astype(np.float32)
    sample = sample._replace(quadrature_weights=weights)
    names = {"features": ["alpha"], "target": ["p"]}
    description = dataclasses.replace(found.description, names=names, weighted=True)
    return found._replace(description=description), sample


QUANTITIES = [
    "max:p",
    "mean:p",
    "integral:p",
    "mean:p@wall",
    "sum:p@far",
    "force_y:p@wall",
    "moment_z:p@wall:about=0.25,0",
    "lift:p@wall:angle_deg=alpha:speed=2",
]


@pytest.mark.parametrize("text", by_day(QUANTITIES, ["max:p", QUANTITIES[-1]]))
def test_a_quantity_is_that_of_tables_and_its_gradient_a_difference(
    text, rng, tmp_path
):
    found, sample = ring(rng, tmp_path)
    (row,) = measure(parse(text), sample, [found(sample)], found.description.names)
    quantity = found.quantity(text, sample)
    value = jax.jit(quantity)(found.parameters, *found.arguments(sample))
    assert_allclose(value, row[text], rtol=1e-4, atol=1e-4)
    with jax.enable_x64(True):
        points, *others = (
            None if a is None else jnp.asarray(a, float)
            for a in found.arguments(sample)
        )
        parameters = doubled(found.parameters)
        check_gradient(jax.jit(lambda x: quantity(parameters, x, *others)), points, rng)


def check_moved(rule, points, distance, rng):
    """The areas of points that have moved are those of a rule at the new places."""
    places = points + distance * rng.normal(size=points.shape)
    with jax.enable_x64(True):
        moved = patches.moved(rule(points), points, jnp.asarray(places))
    expected = rule(places)
    for name in ("areas", "area_vectors", "centers"):
        assert_allclose(getattr(moved, name), getattr(expected, name), atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_areas_follow_the_points(dim, rng):
    points = rng.normal(size=(6, dim))
    facets = np.array([[0, 1], [1, 2], [2, 0]])
    if dim == 3:
        facets = np.array([[0, 1, 2, 3], [3, 2, 4, 5]])
    check_moved(lambda x: patches.at_points(x, facets), points, 0.01, rng)


@pytest.mark.parametrize("kind", ["line", "triangle"])
def test_areas_of_bodies_follow_the_points(kind, rng):
    corners = {"line": [[0, 1], [2, 1], [2, 3], [3, 0]]}  # listed in any direction
    corners["triangle"] = [[0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]]
    points = {
        "line": np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]]),
        "triangle": np.vstack([np.zeros(3), np.eye(3)]),
    }[kind]
    facets = np.array(corners[kind])
    check_moved(lambda x: patches.of_body(x, facets, kind), points, 0.05, rng)


def test_sensitivities_are_written_beside_predictions(rng, tmp_path, monkeypatch):
    found, sample = ring(rng, tmp_path, QUICK)
    monkeypatch.setattr(predict.trained, "load", lambda _, **__: found)
    sample = sample._replace(target=None, boundaries=None)
    for name in ("ring.npz", "twin.npz"):
        files.write(tmp_path / name, sample)
    output = tmp_path / "out"
    line = run_predict(
        found.folder,
        [str(tmp_path / name) for name in ("ring.npz", "twin.npz")],
        output,
        sensitivity="mean:p",
    )
    with np.load(output / "ring.npz") as arrays:
        slopes = {key: arrays[key] for key in arrays if key.startswith("sensitivity")}
    quantity = found.quantity("mean:p", sample)
    of_both = jax.jit(jax.value_and_grad(quantity, (1, 2)))
    value, (x, f) = of_both(found.parameters, *found.arguments(sample))
    assert_allclose(slopes["sensitivity_points"], x, atol=1e-6)
    assert_allclose(slopes["sensitivity_alpha"].reshape(-1, 1), f, atol=1e-6)
    # The wall of 24 sides is the inner circle, whose outward normals look inwards.
    wall = sample.mesh_points[:24]
    normal = -np.sum(np.asarray(x)[:24] * wall, axis=1)
    assert_allclose(slopes["sensitivity_normal"].reshape(-1)[:24], normal, atol=1e-6)
    assert not any("sensitivity" in key for key in line)
    report, _ = json.loads((output / "report.json").read_text())
    assert report["sensitivity"]["value"] == pytest.approx(float(value), rel=1e-4)
    assert (output / "sensitivity.csv").read_text().splitlines()[0] == "file,mean:p"


def test_what_does_not_fit_is_named(rng, tmp_path):
    found = operator(rng, tmp_path)
    sample = make(rng, 9)
    call, parameters = found.function, found.parameters
    with value_error("0 channels of features.*trained with 1"):
        call(parameters, sample.mesh_points)
    with value_error("with quadrature_weights"):
        call(parameters, *found.arguments(sample)[:2], None, np.ones(9, np.float32))
    with value_error(r"scalars have shape \(1,\).* takes 0"):
        call(parameters, *found.arguments(sample)[:2], np.ones(1, np.float32))
    with value_error(r"features have shape \(8, 1\), but .* 9 p"):
        call(parameters, sample.mesh_points, sample.features[:8])
    with value_error("scalars have 'load', which .* not take"):
        call(parameters, *found.arguments(sample)[:2], {"load": 1.0})
    with value_error("contains 2 quantities"):
        found.quantity("max:u,min:u", sample)
    with value_error("boundary 'wall' is unknown"):
        found.quantity("max:u@wall", sample)
    other = found.arguments(make(rng, 8))
    with value_error("has 8 points, but the mesh of made up"):
        found.quantity("max:u", sample)(parameters, *other)
    with value_error("adds to a baseline"):
        _ = found._replace(start=object()).function


def test_an_offset_that_single_precision_would_lose_is_refused(rng, tmp_path):
    found = operator(rng, tmp_path, QUICK)
    far = Normalizer(np.array([5e6, 0.5]), np.array([0.5, 0.5]))
    found = found._replace(normalizers={**found.normalizers, "mesh_points": far})
    sample = make(rng, 9)
    points = sample.mesh_points.astype(float) + np.array([5e6, 0])
    with value_error("mesh_points have an offset that is too large"):
        found.function(
            found.parameters, jnp.asarray(points, jnp.float32), sample.features
        )
    with jax.enable_x64(True):
        arrays = jnp.asarray(points), jnp.asarray(sample.features, float)
        values = found.function(doubled(found.parameters), *arrays)
    assert_allclose(values, found(points, sample.features), rtol=1e-4)
