"""Advection and diffusion against a spot that turns and spreads, and scikit-fem."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import advection, poisson_mesh
from tests.refused import value_error

DISC = advection.Shape()
WAVY = advection.Shape(3, 0.15, 0.4)
SETTINGS = {"diffusivity": 4e-3, "interval": 0.5, "num_frames": 2}


@pytest.fixture(scope="module")
def disc():
    return advection.mesh(DISC, spacing=0.15, seed=1)


@pytest.fixture(scope="module")
def wavy():
    return advection.mesh(WAVY, spacing=0.15, seed=2)


def turning(nodes, cells):
    """The stream function of one turn in `2 pi`, anticlockwise, on the disc."""
    stream = (1 - np.square(nodes).sum(axis=1)) / 2
    stream[advection.boundary_nodes(cells)] = 0
    return stream


def mixing(nodes, cells):
    """A stream function on any shape."""
    stream = (1 - WAVY.relative(nodes) ** 2) * (0.4 + 0.3 * nodes[:, 0])
    stream[advection.boundary_nodes(cells)] = 0
    return stream


def spot(nodes, time, *, diffusivity, variance=0.015):
    """A spot in the plane that turns about the origin and spreads."""
    centre = 0.35 * np.array([np.cos(time), np.sin(time)])
    spread = variance + 2 * diffusivity * time
    squares = np.square(nodes - centre).sum(axis=1)
    return variance / spread * np.exp(-squares / (2 * spread))


# solutions


def test_a_turning_spot_converges_with_the_square_of_the_spacing(disc):
    (nodes, cells), errors = disc, []
    for substeps in (8, 16, 32):
        nodes, cells = advection.refine(DISC, nodes, cells)
        first = spot(nodes, 0, diffusivity=4e-3)
        frames = advection.solve(
            nodes, cells, first, turning(nodes, cells), substeps=substeps, **SETTINGS
        )
        _, mass = poisson_mesh.assemble(nodes, cells)
        squares = 0.0
        for frame, time in zip(frames, (0.5, 1.0), strict=True):
            off = frame - spot(nodes, time, diffusivity=4e-3)
            squares += off @ (mass @ off) / (frame @ (mass @ frame))
        errors.append(np.sqrt(squares / 2))
    assert errors[-1] < 2e-3
    rates = np.log2(np.divide(errors[:-1], errors[1:]))
    assert rates.min() > 1.7


@pytest.mark.parametrize("shape", ["disc", "wavy"])
def test_the_integral_is_conserved_and_the_energy_decays(shape, request):
    nodes, cells = request.getfixturevalue(shape)
    stream = mixing(nodes, cells) if shape == "wavy" else turning(nodes, cells)
    first = np.random.default_rng(0).normal(size=len(nodes))
    frames = advection.solve(nodes, cells, first, stream, **SETTINGS)
    _, mass = poisson_mesh.assemble(nodes, cells)
    every = np.concatenate([first[None], frames])
    assert_allclose(every @ mass.sum(axis=0), first @ mass.sum(axis=0))
    energies = np.einsum("tn,tn->t", every, (mass @ every.T).T)
    assert (np.diff(energies) < 0).all()


def test_a_constant_stays_and_reversing_the_flow_mirrors_the_spot(disc):
    nodes, cells = disc
    stream = turning(nodes, cells)
    still = advection.solve(nodes, cells, np.ones(len(nodes)), stream, **SETTINGS)
    assert_allclose(still, 1, rtol=1e-12)
    first = spot(nodes, 0, diffusivity=4e-3)
    forth = advection.solve(nodes, cells, first, stream, **SETTINGS)
    mirrored = nodes * [1, -1]
    back = advection.solve(mirrored, cells, first, -stream, **SETTINGS)
    assert_allclose(back, forth, atol=1e-12)


def test_one_step_is_that_of_scikit_fem(wavy):
    skfem = pytest.importorskip("skfem")
    from skfem.helpers import dot, grad

    nodes, cells = wavy
    stream = mixing(nodes, cells)
    basis = skfem.Basis(
        skfem.MeshTri(nodes.T.copy(), cells.T.copy()), skfem.ElementTriP1()
    )

    @skfem.BilinearForm
    def change(u, v, w):
        slope = w["stream"].grad
        along = slope[1] * grad(u)[0] - slope[0] * grad(u)[1]
        return 4e-3 * dot(grad(u), grad(v)) + along * v

    @skfem.BilinearForm
    def mass(u, v, w):
        return u * v

    moved = change.assemble(basis, stream=basis.interpolate(stream)).toarray()
    weights = mass.assemble(basis).toarray()
    first = np.random.default_rng(1).normal(size=len(nodes))
    expected = np.linalg.solve(weights + 0.05 * moved, (weights - 0.05 * moved) @ first)
    (actual,) = advection.solve(
        nodes, cells, first, stream, diffusivity=4e-3, interval=0.1, num_frames=1,
        substeps=1,
    )  # fmt: skip
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


def test_single_precision_is_solved_in_double(disc):
    nodes, cells = (np.asarray(part) for part in disc)
    single = nodes.astype(np.float32)
    first = spot(single, 0, diffusivity=4e-3).astype(np.float32)
    stream = turning(single, cells).astype(np.float32)
    frames = advection.solve(single, cells, first, stream, **SETTINGS)
    wide = (single.astype(float), cells, first.astype(float), stream.astype(float))
    assert frames.dtype == np.float64
    assert_array_equal(frames, advection.solve(*wide, **SETTINGS))


# velocities and meshes


@pytest.mark.parametrize("orientation", [1, -1])
def test_the_velocity_of_a_turn_is_that_of_a_rigid_body(disc, orientation):
    nodes, cells = disc
    for _ in range(2):
        nodes, cells = advection.refine(DISC, nodes, cells)
    cells = cells[:, ::orientation]  # also of clockwise triangles
    found = advection.velocity(nodes, cells, turning(nodes, cells))
    assert_allclose(found, nodes[:, ::-1] * [-1, 1], atol=0.04)


@pytest.mark.parametrize("shape", [DISC, WAVY, advection.Shape(4, 0.15, 1.0)])
def test_triangles_tile_the_shape(shape):
    nodes, cells = advection.mesh(shape, spacing=0.11, seed=3)
    sizes = poisson_mesh.signed_areas(nodes, cells)
    assert sizes.min() > 0
    exact = np.pi * (1 + shape.depth**2 / 2)
    assert sizes.sum() == pytest.approx(exact, rel=0.01)
    assert_array_equal(np.unique(cells), np.arange(len(nodes)))
    edge = advection.boundary_nodes(cells)
    assert_allclose(shape.relative(nodes[edge]), 1, rtol=1e-12)
    inside = np.setdiff1d(np.arange(len(nodes)), edge)
    assert shape.relative(nodes[inside]).max() < 1
    assert_array_equal(advection.mesh(shape, spacing=0.11, seed=3)[0], nodes)


def test_refined_meshes_keep_their_nodes_and_follow_the_shape(wavy):
    nodes, cells = wavy
    finer, small = advection.refine(WAVY, nodes, cells)
    assert_array_equal(finer[: len(nodes)], nodes)
    assert len(small) == 4 * len(cells)
    sizes = poisson_mesh.signed_areas(finer, small)
    assert sizes.min() > 0
    exact = np.pi * (1 + WAVY.depth**2 / 2)
    before = poisson_mesh.signed_areas(nodes, cells).sum()
    assert abs(sizes.sum() - exact) < 0.3 * abs(before - exact)
    edge = advection.boundary_nodes(small)
    assert_allclose(WAVY.relative(finer[edge]), 1, rtol=1e-12)


# refusals


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"spacing": 0.0}, "spacing=0.0 must be positive and at most 0.5"),
        ({"spacing": 0.6}, "spacing=0.6 must be positive and at most 0.5"),
        ({"shape": advection.Shape(2, 1.0)}, "depth=1.0 must be at least 0"),
    ],
)
def test_impossible_meshes_are_refused(given, match):
    with value_error(match):
        advection.mesh(**{"shape": DISC, "spacing": 0.2} | given)


def test_a_shape_that_no_mesh_follows_is_an_error():
    with pytest.raises(RuntimeError, match=r"None of 20 meshes .* smaller spacing"):
        advection.mesh(advection.Shape(9, 0.9), spacing=0.5)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"diffusivity": 0.0}, "diffusivity"),
        ({"interval": -1.0}, "interval"),
        ({"num_frames": 0}, "num_frames"),
        ({"substeps": 0}, "substeps"),
    ],
)
def test_bad_numbers_are_named(disc, given, match):
    nodes, cells = disc
    fields = np.ones(len(nodes)), turning(nodes, cells)
    with value_error(match):
        advection.solve(nodes, cells, *fields, **SETTINGS | given)


def test_bad_fields_are_named(disc):
    nodes, cells = disc
    stream, first = turning(nodes, cells), np.ones(len(nodes))
    with value_error("initial has shape"):
        advection.solve(nodes, cells, first[1:], stream, **SETTINGS)
    with value_error("stream has shape"):
        advection.solve(nodes, cells, first, np.nan * stream, **SETTINGS)
    with value_error("on the boundary, expected 0"):
        advection.solve(nodes, cells, first, stream + 1, **SETTINGS)
