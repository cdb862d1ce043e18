"""Eigenfunctions of the Laplacian of a mesh, a grid or a point cloud.

They serve as a basis on the mesh, or as features of its points. They are computed once
per mesh on the host, in double precision, by SciPy's sparse solver.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks, _stiffness

BOUNDARIES = ("dirichlet", "natural", "periodic")


def laplacian_eigenfunctions(
    mesh_points: Float[ArrayLike, "n p"],
    *,
    num_functions: int,
    triangles: Int[ArrayLike, "t 3"] | None = None,
    num_neighbors: int = 12,
    dimension: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Returns the lowest eigenfunctions of the Laplacian with natural boundaries.

        L phi_j = lambda_j M phi_j,    Phi^T M Phi = I,    0 = lambda_1 <= lambda_2 ...,

    with linear finite elements on triangles (cotangent weights, lumped masses `M`). On
    a cloud of points it uses the graph Laplacian with Gaussian weights between
    neighbours and equal masses `1 / n`, which is accurate if the points are evenly
    distributed on a manifold.

    Args:
      mesh_points: points, shape `(n, p)`; `p` is 2 or 3 for a mesh of triangles.
      num_functions: number `k` of eigenfunctions, less than `n`.
      triangles: vertex indices, shape `(m, 3)`; `None` for a cloud.
      num_neighbors: number of neighbours of a point of a cloud.
      dimension: dimension of the manifold of a cloud, such as 2 for a surface in 3D; by
        default `p`. It only scales the eigenvalues.

    Returns:
      Functions `(n, k)`, eigenvalues `(k,)` in ascending order, and masses `(n,)`, the
      quadrature weights for which the functions are orthonormal; float64. Every
      function is positive where its absolute value is largest, which makes signs
      reproducible.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if there are too few points, `dimension` is passed for a mesh, or
        triangles refer to points that do not exist, omit points or have zero area.

    Examples:
      >>> import numpy as np
      >>> from opjax.eigenfunctions import laplacian_eigenfunctions
      >>> mesh_points = np.random.default_rng(0).uniform(size=(40, 2))
      >>> found = laplacian_eigenfunctions(mesh_points, num_functions=4)
      >>> [array.shape for array in found]  # functions, eigenvalues, masses
      [(40, 4), (4,), (40,)]

    References:
      Ovsjanikov et al., "Functional Maps", ACM TOG 31(4), 2012; Belkin and Niyogi,
      "Laplacian eigenmaps", Neural Computation 15(6), 2003.
    """
    points = np.asarray(mesh_points)
    _checks.floating(mesh_points=points)
    _checks.rank(2, mesh_points=points)
    _checks.positive(num_functions=num_functions, num_neighbors=num_neighbors)
    points = points.astype(np.float64)
    _check_count(num_functions, len(points), f"points of mesh_points {points.shape}")
    if triangles is None:
        axes: int = points.shape[1] if dimension is None else dimension
        _checks.positive(dimension=axes)
        stiffness, masses = _stiffness.of_cloud(points, num_neighbors, axes)
    elif dimension is not None:
        raise ValueError(
            f"{dimension=} is only for point clouds; triangles have dimension 2."
        )
    else:
        stiffness, masses = _stiffness.of_triangles(points, np.asarray(triangles))
    return *_lowest(stiffness, masses, num_functions), masses


def grid_eigenfunctions(
    coefficient: Float[ArrayLike, "*shape"],
    *,
    num_functions: int,
    boundary: str = "dirichlet",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Returns the lowest eigenfunctions of a diffusion operator on the unit box.

        -div(a grad phi_j) = lambda_j phi_j,    int phi_i phi_j = delta_ij,

    with multilinear finite elements, one coefficient per cell (the mean of its
    corners), and lumped masses.

    Args:
      coefficient: positive values `a` at the nodes of a uniform grid with any number of
        axes, in the shape of the grid; ones for the Laplacian.
      num_functions: number `k` of eigenfunctions, less than the number of free nodes.
      boundary: `"dirichlet"`, zero at the boundary; `"natural"`, no flux through it; or
        `"periodic"`, where the last nodes are one step before the first.

    Returns:
      Functions `(n, k)` at the nodes in row-major order, eigenvalues `(k,)` and masses
      `(n,)`, as from `laplacian_eigenfunctions`.

    Raises:
      TypeError: if `coefficient` is not floating point.
      ValueError: if there are too few nodes, the coefficient is not positive or the
        boundary is unknown.

    Examples:
      >>> import numpy as np
      >>> from opjax.eigenfunctions import grid_eigenfunctions
      >>> ones = np.ones((5, 5))  # the Laplacian
      >>> functions, eigenvalues, _ = grid_eigenfunctions(ones, num_functions=3)
      >>> functions.shape, bool(np.all(np.diff(eigenvalues) >= 0))
      ((25, 3), True)
    """
    values = np.asarray(coefficient)
    _checks.floating(coefficient=values)
    _checks.option("boundary", boundary, BOUNDARIES)
    _checks.positive(num_functions=num_functions)
    values = values.astype(np.float64)
    if values.ndim == 0 or min(values.shape) < 3:
        raise ValueError(
            f"coefficient {values.shape} must have at least 3 nodes per axis."
        )
    if not values.min() > 0:
        raise ValueError(
            f"The minimum of coefficient is {values.min()}, expected positive values."
        )
    stiffness, masses = _stiffness.of_grid(values, boundary == "periodic")
    free = np.ones(values.shape, bool)
    if boundary == "dirichlet":
        free = np.pad(free[tuple(slice(1, -1) for _ in values.shape)], 1)
    rows = np.flatnonzero(free)
    _check_count(num_functions, len(rows), f"free nodes of coefficient {values.shape}")
    inner, eigenvalues = _lowest(stiffness[rows][:, rows], masses[rows], num_functions)
    functions = np.zeros((values.size, num_functions))
    functions[rows] = inner
    return functions, eigenvalues, masses


@jax.jit
def heat_kernel_signature(
    functions: Float[ArrayLike, "n k"],
    eigenvalues: Float[ArrayLike, " k"],
    times: Float[ArrayLike, " t"],
) -> Float[Array, "n t"]:
    r"""Returns the fraction of heat that remains at its point, by point and time.

        h_t(x) = sum_j exp(-lambda_j t) phi_j(x)^2,

    which is the diagonal of the heat kernel, in the inverse unit of the masses for
    which the functions are orthonormal. It depends only on distances within the
    surface, so not on its pose, and not on the choice of functions with equal
    eigenvalues.

    Args:
      functions: eigenfunctions at the points, from `laplacian_eigenfunctions`; omitted
        functions matter at times below `4 / lambda_k`.
      eigenvalues: eigenvalues of the functions.
      times: non-negative times, in the inverse unit of the eigenvalues, squared
        lengths.

    Returns:
      One column per time, shape `(n, t)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.eigenfunctions import grid_eigenfunctions, heat_kernel_signature
      >>> ones = np.ones((5, 5))  # the Laplacian
      >>> functions, eigenvalues, _ = grid_eigenfunctions(ones, num_functions=3)
      >>> heat_kernel_signature(functions, eigenvalues, np.array([0.01, 0.1])).shape
      (25, 2)

    References:
      Sun, Ovsjanikov and Guibas, "A concise and provably informative multi-scale
      signature based on heat diffusion", Computer Graphics Forum 28(5), 2009.
    """
    (functions,) = _checks.arrays(2, functions=functions)
    eigenvalues, times = _checks.arrays(1, eigenvalues=eigenvalues, times=times)
    if functions.shape[1] != len(eigenvalues):
        raise ValueError(
            f"functions {functions.shape} and eigenvalues {eigenvalues.shape} must "
            "contain the same number of functions."
        )
    decay = jnp.exp(-eigenvalues[:, None] * times[None, :])
    # The default precision of accelerators keeps three digits.
    return jnp.matmul(functions**2, decay, precision=jax.lax.Precision.HIGHEST)


def _lowest(
    stiffness: Any, masses: np.ndarray, num_functions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Functions `(n, k)` and eigenvalues `(k,)` of `K phi = lambda M phi`."""
    from scipy.sparse import diags
    from scipy.sparse.linalg import eigsh

    root = 1 / np.sqrt(masses)
    symmetric = diags(root) @ stiffness @ diags(root)
    # Shifted a little below zero, where the matrix is regular; a start of our own makes
    # the result the same every time.
    shift = -1e-6 * symmetric.diagonal().mean()
    start = np.random.default_rng(0).normal(size=len(masses))
    eigenvalues, vectors = eigsh(
        symmetric.tocsc(), k=num_functions, sigma=shift, v0=start
    )
    order = np.argsort(eigenvalues)
    functions = root[:, None] * vectors[:, order]
    largest = np.argmax(np.abs(functions), axis=0)
    functions = functions * np.sign(functions[largest, np.arange(num_functions)])
    return functions, np.maximum(eigenvalues[order], 0)


def _check_count(num_functions: int, count: int, of_what: str) -> None:
    if num_functions >= count:
        raise ValueError(f"{num_functions=} must be less than the {count} {of_what}.")
