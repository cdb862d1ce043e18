"""Finite elements against scikit-fem and solutions by hand."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import poisson, poisson_mesh
from tests.refused import value_error


@pytest.fixture(scope="module")
def mesh():
    return poisson_mesh.l_shaped_mesh(num_columns=12, seed=1)


@pytest.fixture(scope="module")
def elements(mesh):
    return poisson_mesh.discretize(*mesh)


def areas(nodes, cells):
    a, b = (nodes[cells[:, i]] - nodes[cells[:, 0]] for i in (1, 2))
    return np.linalg.det(np.stack([a, b], axis=1)) / 2


def square(n):
    """A structured mesh of the unit square."""
    x, y = np.meshgrid(*[np.linspace(0, 1, n + 1)] * 2, indexing="ij")
    number = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
    cells = [np.stack([x.ravel() for x in t], 1) for t in ((a, b, c), (a, c, d))]
    return np.stack([x.ravel(), y.ravel()], 1), np.concatenate(cells)


# mesh


@pytest.mark.parametrize(("num_columns", "seed"), [(4, 0), (12, 1), (30, 2)])
def test_triangles_tile_the_domain(num_columns, seed):
    nodes, cells = poisson_mesh.l_shaped_mesh(num_columns=num_columns, seed=seed)
    sizes = areas(nodes, cells)
    assert sizes.min() > 0.05 / num_columns**2
    assert sizes.sum() == pytest.approx(0.75, rel=1e-12)
    # No triangle reaches into the missing quarter.
    assert np.all(nodes[cells].mean(axis=1).min(axis=1) < 0.5)
    assert np.array_equal(np.unique(cells), np.arange(len(nodes)))
    # Euler: one component without holes.
    edges = np.sort(
        np.concatenate([cells[:, [0, 1]], cells[:, [1, 2]], cells[:, [2, 0]]]), axis=1
    )
    unique, counts = np.unique(edges, axis=0, return_counts=True)
    assert len(nodes) - len(unique) + len(cells) == 1
    assert counts.max() == 2
    assert np.sum(counts == 1) == 4 * num_columns


def test_meshes_depend_on_the_seed_only(mesh):
    again = poisson_mesh.l_shaped_mesh(num_columns=12, seed=1)
    other = poisson_mesh.l_shaped_mesh(num_columns=12, seed=2)
    assert_array_equal(again[0], mesh[0])
    assert_array_equal(again[1], mesh[1])
    assert other[0].shape != mesh[0].shape or np.any(other[0] != mesh[0])


# elements


def test_matrices_are_those_of_scikit_fem(mesh, elements):
    skfem = pytest.importorskip("skfem")
    from skfem.models.poisson import laplace, mass

    nodes, cells = mesh
    basis = skfem.Basis(
        skfem.MeshTri(nodes.T.copy(), cells.T.copy()), skfem.ElementTriP1()
    )
    inside = basis.complement_dofs(basis.get_dofs())
    assert_array_equal(elements.mesh_points, nodes[inside])
    for form, found in ((laplace, elements.stiffness), (mass, elements.mass)):
        expected = form.assemble(basis)[inside][:, inside].toarray()
        assert_allclose(found.toarray(), expected, atol=1e-13)
    whole = np.asarray(mass.assemble(basis).sum(axis=1)).ravel()
    assert_allclose(elements.lumped, whole[inside], rtol=1e-12)


def test_edges_are_the_pairs_that_the_stiffness_couples(elements):
    rows, columns = np.nonzero(elements.mass.toarray())
    expected = {(i, j) for i, j in zip(rows, columns, strict=True) if i < j}
    assert {tuple(sorted(pair)) for pair in elements.edges.tolist()} == expected


def test_neighbours_on_a_delaunay_mesh_have_no_positive_entry(elements):
    beside = elements.stiffness.toarray()
    np.fill_diagonal(beside, 0)
    assert beside.max() < 1e-12


def test_inverse_is_exact_and_symmetric(elements, rng):
    inverse = poisson_mesh.inverse(elements)
    assert_allclose(inverse, inverse.T, rtol=1e-9, atol=1e-15)
    f = rng.normal(size=len(inverse))
    u = inverse @ (np.sqrt(elements.lumped) * f) / np.sqrt(elements.lumped)
    residual = elements.stiffness @ u - elements.lumped * f
    assert np.abs(residual).max() < 1e-12


def test_on_a_structured_mesh_it_is_the_scheme_of_the_grid(rng):
    """With right angles, linear elements and lumped masses are differences."""
    elements = poisson_mesh.discretize(*square(8))
    f = rng.normal(size=(7, 7))
    expected = np.asarray(jax.jit(poisson.solve)(f)).ravel()
    found = poisson_mesh.inverse(elements) @ f.ravel()
    assert_allclose(found, expected, rtol=1e-10)


def test_solutions_converge_on_unstructured_meshes():
    """`u = sin(2 pi x) sin(2 pi y)` vanishes on the whole boundary of the L."""

    def error(num_columns):
        mesh = poisson_mesh.l_shaped_mesh(num_columns=num_columns)
        elements = poisson_mesh.discretize(*mesh)
        exact = np.sin(2 * np.pi * elements.mesh_points).prod(axis=1)
        root = np.sqrt(elements.lumped)
        found = poisson_mesh.inverse(elements) @ (root * 8 * np.pi**2 * exact)
        return np.linalg.norm(found - root * exact)

    assert np.log2(error(12) / error(24)) > 1.6


def test_modes_are_products_times_roots_of_masses(elements):
    problem = poisson_mesh.fourier_problem(elements, num_modes=2, decay=1.0)
    x, y = np.pi * elements.mesh_points.T
    axes = [[np.sin(z), np.cos(z), np.sin(2 * z), np.cos(2 * z)] for z in (x, y)]
    roots = np.sqrt(elements.lumped / elements.lumped.mean())
    expected = [roots * a * b for a in axes[0] for b in axes[1]]
    assert_allclose(problem.modes.T, expected, atol=1e-12)
    assert_allclose(problem.damping[:4], [1, 1, 0.5, 0.5])
    solutions = poisson_mesh.inverse(elements) @ problem.modes
    assert_allclose(problem.solutions, solutions, rtol=1e-9, atol=1e-14)


# errors

NODES = np.array([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (2.0, 2.0)])
CELLS = np.array([(0, 1, 2), (1, 3, 2)])
BAD_MESHES = {
    "nodes": (NODES[:, :1], CELLS, r"nodes has shape \(5, 1\), expected \(N, 2\)"),
    "cells": (NODES, CELLS[:, :2], r"cells has shape \(2, 2\), expected \(t, 3\)"),
    "empty": (NODES, CELLS[:0], r"cells has shape \(0, 3\)"),
    "missing": (NODES, CELLS + 3, "indices from 3 to 6, but there are nodes 0 to 4"),
    "flat": (NODES, np.array([(0, 3, 4)]), "Triangle 0 has zero area"),
    "nothing inside": (NODES, CELLS, "All nodes are on the boundary"),
    "nodes dtype": (NODES.astype(int), CELLS, "nodes has dtype int64"),
    "cells dtype": (NODES, CELLS.astype(float), "cells has dtype float64"),
}


@pytest.mark.parametrize("case", BAD_MESHES)
def test_bad_meshes_are_named(case):
    nodes, cells, message = BAD_MESHES[case]
    with pytest.raises(TypeError if "dtype" in case else ValueError, match=message):
        poisson_mesh.discretize(nodes, cells)


@pytest.mark.parametrize("num_columns", [2, 5])
def test_bad_numbers_of_columns_are_refused(num_columns):
    with value_error("must be even and at least 4"):
        poisson_mesh.l_shaped_mesh(num_columns=num_columns)


SQUARE = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
BAD_DOMAINS = {
    "zero": ({"num_columns": 0}, "num_columns=0 must be a positive integer"),
    "negative": ({"num_columns": -2}, "num_columns=-2 must be a positive integer"),
    "half": ({"num_columns": 4.5}, "num_columns=4.5 must be a positive integer"),
    "nan": ({"num_columns": np.nan}, "num_columns=nan must be a positive integer"),
    "axes": ({"boundary": SQUARE[0]}, r"shape \(2,\), expected \(b, 2\), b >= 3"),
    "space": ({"boundary": np.ones((4, 3))}, r"boundary has shape \(4, 3\)"),
    "two": ({"boundary": SQUARE[:2]}, r"boundary has shape \(2, 2\)"),
    "outside": ({"boundary": 1.5 * SQUARE}, "Boundary node 1, .* not in the unit"),
    "twice": ({"boundary": np.tile(SQUARE, (2, 1))}, "node 4, .* is there twice"),
    "missing": ({"boundary": SQUARE * np.nan}, "Boundary node 0, .* not in the unit"),
    "empty": ({"depth": lambda points: -np.ones(len(points))}, "no point inside"),
}


@pytest.mark.parametrize("case", BAD_DOMAINS)
def test_bad_domains_are_named(case):
    changes, message = BAD_DOMAINS[case]

    def depth(points):
        return 0.5 - np.abs(points - 0.5).max(axis=1)

    given = {"boundary": SQUARE, "depth": depth, "num_columns": 4, "seed": 0}
    poisson_mesh.triangulate(**given)
    with value_error(message):
        poisson_mesh.triangulate(**(given | changes))


def test_a_mesh_that_cuts_across_its_boundary_is_refused():
    corners = np.array([(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)]) / 2

    def mesh(parts):
        fractions = np.arange(parts)[:, None, None] / parts
        sides = (1 - fractions) * corners + fractions * np.roll(corners, -1, axis=0)
        boundary = sides.swapaxes(0, 1).reshape(-1, 2)
        depth = poisson_mesh._depth  # of the L-shaped domain
        return poisson_mesh.triangulate(boundary, depth, num_columns=16, seed=0)

    with value_error("follow the boundary .* spacing 0.0625"):
        mesh(1)
    assert poisson_mesh.signed_areas(*mesh(16)).sum() == pytest.approx(0.75)


def test_bad_modes_are_refused(elements):
    with value_error("num_modes=0 must be positive"):
        poisson_mesh.fourier_problem(elements, num_modes=0)
    with value_error("decay=-1.0 must be non-negative"):
        poisson_mesh.fourier_problem(elements, decay=-1.0)
