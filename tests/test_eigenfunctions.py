"""Eigenfunctions of meshes and clouds against those of the square."""

import numpy as np
import pytest

import opjax


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
        np.testing.assert_allclose(found[0], 0, atol=1e-6)
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
    np.testing.assert_allclose(gram, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(functions[:, 0], masses.sum() ** -0.5, rtol=1e-6)
    assert np.all(np.diff(eigenvalues) > -1e-9)
    np.testing.assert_allclose(masses.sum(), 1, rtol=1e-12)


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
    with pytest.raises(ValueError, match="num_functions=16 must be less than the 16"):
        opjax.laplacian_eigenfunctions(points, num_functions=16)
    with pytest.raises(ValueError, match="name points 0 to 99"):
        opjax.laplacian_eigenfunctions(
            points, triangles=np.array([[0, 1, 99]]), num_functions=2
        )
    with pytest.raises(ValueError, match="points belong to none"):
        opjax.laplacian_eigenfunctions(points, triangles=triangles[:3], num_functions=2)
    with pytest.raises(ValueError, match="lower num_neighbors"):
        opjax.laplacian_eigenfunctions(points[:5], num_functions=2)
    with pytest.raises(TypeError, match="mesh_points has dtype int"):
        opjax.laplacian_eigenfunctions(np.ones((4, 2), int), num_functions=2)
