"""Eigenfunctions of meshes, grids and clouds against those in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from numpy.testing import assert_allclose

import opjax
from tests import refused


def square(n):
    """Nodes and triangles of the unit square."""
    x = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, n)], indexing="ij"), -1)
    i = np.arange(n * n).reshape(n, n)
    a, b, c, d = i[:-1, :-1], i[1:, :-1], i[:-1, 1:], i[1:, 1:]
    return x.reshape(-1, 2), np.concatenate(
        [np.stack([a, b, c], -1).reshape(-1, 3), np.stack([d, c, b], -1).reshape(-1, 3)]
    )


def test_eigenvalues_of_the_square_converge_at_second_order():
    exact = np.pi**2 * np.array([0, 1, 1, 2, 4, 4])
    errors = []
    for n in (9, 17):
        points, triangles = square(n)
        _, found, _ = opjax.laplacian_eigenfunctions(
            points, triangles=triangles, num_functions=6
        )
        assert_allclose(found[0], 0, atol=1e-6)
        errors.append(np.max(np.abs(found[1:] - exact[1:]) / exact[1:]))
    assert errors[1] < 0.02
    assert np.log2(errors[0] / errors[1]) > 1.7


@pytest.mark.parametrize("cloud", [False, True])
def test_functions_are_orthonormal_in_their_masses_and_start_with_a_constant(cloud):
    points, triangles = square(9)
    functions, eigenvalues, masses = opjax.laplacian_eigenfunctions(
        points, triangles=None if cloud else triangles, num_functions=5
    )
    gram = functions.T @ (masses[:, None] * functions)
    assert_allclose(gram, np.eye(5), atol=1e-9)
    assert_allclose(functions[:, 0], masses.sum() ** -0.5, rtol=1e-6)
    assert np.all(np.diff(eigenvalues) > -1e-9)
    assert_allclose(masses.sum(), 1, rtol=1e-12)


def test_a_cloud_of_the_square_has_its_lowest_modes():
    points, triangles = square(13)
    options = {"num_functions": 4}
    mesh, *_, masses = opjax.laplacian_eigenfunctions(
        points, triangles=triangles, **options
    )
    cloud, *_ = opjax.laplacian_eigenfunctions(points, **options)
    overlaps = np.linalg.svd(mesh.T @ (masses[:, None] * cloud))[1]
    assert overlaps.min() > 0.9  # the same space, whatever the basis of equal modes


def test_bad_meshes_are_named():
    points, triangles = square(4)
    refused.each(
        (
            lambda: opjax.laplacian_eigenfunctions(points, num_functions=16),
            "num_functions=16 must be less than the 16",
        ),
        (
            lambda: opjax.laplacian_eigenfunctions(
                points, triangles=np.array([[0, 1, 99]]), num_functions=2
            ),
            "indices from 0 to 99",
        ),
        (
            lambda: opjax.laplacian_eigenfunctions(
                points, triangles=triangles[:3], num_functions=2
            ),
            "points belong to no triangle",
        ),
        (
            lambda: opjax.laplacian_eigenfunctions(points[:5], num_functions=2),
            "lower num_neighbors",
        ),
        (
            lambda: opjax.laplacian_eigenfunctions(
                np.ones((4, 2), int), num_functions=2
            ),
            "mesh_points has dtype int",
        ),
        (
            lambda: opjax.laplacian_eigenfunctions(
                points, triangles=triangles, num_functions=2, dimension=2
            ),
            "dimension=2 is only for point clouds",
        ),
    )


def sphere(n):
    """Points spread evenly on the unit sphere, along a spiral."""
    steps = np.arange(n) + 0.5
    height, angle = 1 - 2 * steps / n, np.pi * (1 + 5**0.5) * steps
    radius = np.sqrt(1 - height**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), height], 1)


def hull(points):
    from scipy.spatial import ConvexHull

    return ConvexHull(points).simplices


@pytest.mark.parametrize("cloud", [False, True])
def test_the_sphere_has_its_spectrum_and_the_same_heat_everywhere(cloud):
    points, times = 2 * sphere(800), np.array([2.0, 8.0])
    exact = np.repeat([0, 2, 6, 12], [1, 3, 5, 7]) / 4
    given = {"dimension": 2} if cloud else {"triangles": hull(points)}
    functions, found, masses = opjax.laplacian_eigenfunctions(
        points, num_functions=16, **given
    )
    assert_allclose(found[1:], exact[1:], rtol=0.1 if cloud else 0.02)
    signature = opjax.heat_kernel_signature(functions, found, times)
    # Of all harmonics of a degree together, the sum of squares is one number.
    trace = np.exp(-exact[:, None] * times).sum(axis=0) / masses.sum()
    assert_allclose(signature, np.tile(trace, (800, 1)), rtol=0.06)


def test_signatures_of_a_torus_are_a_product_of_theta_functions():
    grid, times = (48, 40), np.array([0.02, 0.1])
    functions, eigenvalues, masses = opjax.grid_eigenfunctions(
        np.ones(grid), num_functions=40, boundary="periodic"
    )
    gram = functions.T @ (masses[:, None] * functions)
    assert_allclose(gram, np.eye(40), atol=1e-12)
    waves = np.exp(-((2 * np.pi * np.arange(-9, 10)) ** 2) * times[:, None])
    found = opjax.heat_kernel_signature(functions, eigenvalues, times)
    assert_allclose(found, np.tile(waves.sum(1) ** 2, (1920, 1)), rtol=0.01)


def test_signatures_are_the_diagonal_of_the_heat_kernel(rng):
    functions, times = rng.normal(size=(6, 4)), np.array([0.0, 0.5, 2.0])
    eigenvalues = np.arange(4.0)
    found = opjax.heat_kernel_signature(functions, eigenvalues, times)
    for column, time in enumerate(times):
        kernel = functions @ np.diag(np.exp(-eigenvalues * time)) @ functions.T
        assert_allclose(found[:, column], np.diag(kernel), rtol=1e-12)
    given = jnp.asarray(functions), jnp.asarray(eigenvalues), jnp.asarray(times)
    check_grads(opjax.heat_kernel_signature, given, order=1, modes=["rev"])
    single = opjax.heat_kernel_signature(*(x.astype(np.float32) for x in given))
    assert single.dtype == np.float32
    many = jax.jit(jax.vmap(opjax.heat_kernel_signature, (0, None, None)))
    assert_allclose(many(given[0][None], *given[1:])[0], found)
    with pytest.raises(ValueError, match="must contain the same number"):
        opjax.heat_kernel_signature(functions, eigenvalues[1:], times)


def discrete(counts, spacings, numbers):
    """Eigenvalue of sines on a grid, of multilinear elements and lumped masses."""
    cosines = [np.cos(j * np.pi / n) for j, n in zip(numbers, counts, strict=True)]
    total = 0.0
    for axis, (c, h) in enumerate(zip(cosines, spacings, strict=True)):
        others = [(2 + d) / 3 for i, d in enumerate(cosines) if i != axis]
        total += 2 * (1 - c) / h**2 * np.prod(others)
    return total


@pytest.mark.parametrize("shape", [(13,), (9, 12), (5, 6, 4)])
def test_grids_have_sines_for_eigenfunctions(shape):
    cells = [n - 1 for n in shape]
    functions, found, masses = opjax.grid_eigenfunctions(
        np.ones(shape), num_functions=3
    )
    numbers = np.stack(np.meshgrid(*[np.arange(1, n) for n in cells]), -1)
    spacings = [1 / n for n in cells]
    every = [discrete(cells, spacings, j) for j in numbers.reshape(-1, len(shape))]
    assert_allclose(found, np.sort(every)[:3], rtol=1e-9)
    axes = [np.sqrt(2) * np.sin(np.pi * np.linspace(0, 1, n)) for n in shape]
    product = np.prod(np.stack(np.meshgrid(*axes, indexing="ij"), -1), -1).ravel()
    assert_allclose(functions[:, 0], product, atol=1e-9)
    assert_allclose(masses.sum(), 1)


def test_two_layers_have_the_frequencies_of_a_composite_string():
    x = np.linspace(0, 1, 401)
    _, found, _ = opjax.grid_eigenfunctions(
        np.where(x < 0.5, 1.0, 4.0), num_functions=2
    )
    # A sin(k x) on the left and B sin(k (1 - x) / 2) on the right, whose values and
    # fluxes, k A cos(k / 2) = -2 k B cos(k / 4), agree in the middle.
    k = np.linspace(3, 12, 200001)
    left, right = np.sin(k / 2), np.sin(k / 4)
    jump = np.cos(k / 2) * right + 2 * left * np.cos(k / 4)
    roots = k[:-1][np.diff(np.sign(jump)) != 0]
    assert_allclose(np.sqrt(found), roots[:2], rtol=5e-3)


def test_bad_grids_are_named():
    ones = np.ones((4, 5))
    refused.each(
        (
            lambda: opjax.grid_eigenfunctions(ones, num_functions=6),
            "must be less than the 6 free nodes",
        ),
        (
            lambda: opjax.grid_eigenfunctions(ones, num_functions=2, boundary="robin"),
            "boundary='robin'",
        ),
        (
            lambda: opjax.grid_eigenfunctions(-ones, num_functions=2),
            "expected positive",
        ),
        (
            lambda: opjax.grid_eigenfunctions(ones[:2], num_functions=1),
            "3 nodes per axis",
        ),
        (
            lambda: opjax.grid_eigenfunctions(np.ones((4, 4), int), num_functions=1),
            "coefficient has dtype int",
        ),
    )
