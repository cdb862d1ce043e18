r"""A rubber unit cell with a random void, pulled upwards: the Geo-FNO data.

The square `[0, 1]^2` has a void around its centre, of radius `r(theta)` between 0.2 and
0.4. Its lower side is clamped, the traction `(0, 100)` acts on its upper side, and all
other sides are free. The output is the von Mises stress. Strains stay near 1e-3, so
kinematics are linear, `e = (grad u + grad u^T) / 2`; the constitutive law is that of
the published code.

The published points are the 972 Gauss points of 108 quadratic elements. Here they are
too, but on a different mesh: rings of elements around the void. Both discretisations
have an error of 2 to 5 % in the stress. So the two data sets agree up to this error,
but not point by point.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from opjax import _checks
from opjax.problems import _finite_elements

_CENTRE, _HALF = 0.5, 0.5  # of the cell
_VOID = 0.3  # radius in the reference mesh
_NUM_MODES = 5
_C1, _C2 = 1.863e5, 9.79e3
_TOLERANCE, _MAX_STEPS = 1e-10, 20


class DeformedCell(NamedTuple):
    """A deformed cell at its `n` Gauss points.

    Attributes:
      points: initial coordinates, shape `(n, 2)`.
      stress: second Piola-Kirchhoff stress in the plane, `(n, 2, 2)`.
      displacement: displacement, shape `(n, 2)`.
      weights: quadrature weights over the cell without its void, `(n,)`.

    Examples:
      >>> from opjax.problems import elasticity
      >>> cell = elasticity.solve(elasticity.reference_mesh(num_around=8, num_across=2))
      >>> cell.points.shape, cell.stress.shape, cell.displacement.shape
      ((144, 2), (144, 2, 2), (144, 2))
    """

    points: np.ndarray
    stress: np.ndarray
    displacement: np.ndarray
    weights: np.ndarray


def void_modes(key: jax.Array) -> jax.Array:
    """Draws the standard normal numbers that define a void, shape `(2, 5)`.

    Examples:
      >>> import jax
      >>> from opjax.problems import elasticity
      >>> elasticity.void_modes(jax.random.key(0)).shape
      (2, 5)
    """
    return jax.random.normal(key, (2, _NUM_MODES))


def void_radius(modes: ArrayLike, angles: ArrayLike) -> Any:
    r"""Radius of a void, a random periodic function between 0.2 and 0.4.

        r(t) = 0.2 + 0.2 / (1 + exp(s(t))),
        s(t) = sum_{k=1}^5 16 / (sqrt(pi) (k^2 + 9)) (a_k cos(k t) + b_k sin(k t)).

    In the paper, `s` has the covariance `16 (-d^2/dt^2 + 9)^-1`. In the published data,
    and here, that operator is the standard deviation instead.

    Args:
      modes: coefficients `a` and `b`, shape `(2, 5)`.
      angles: angles in radians, any shape.

    Returns:
      The radii, with the shape of `angles`, in double precision; of `jnp` arrays, a
      `jnp` array that can be differentiated.

    Raises:
      ValueError: if `modes` has another shape.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.elasticity import void_radius
      >>> print(void_radius(np.zeros((2, 5)), np.array([0.0, 1.0])))
      [0.3 0.3]

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.1.
    """
    xp = jnp if isinstance(modes, jax.Array) or isinstance(angles, jax.Array) else np
    modes, angles = xp.asarray(modes, float), xp.asarray(angles, float)
    if modes.shape != (2, _NUM_MODES):
        raise ValueError(f"modes has shape {modes.shape}, expected (2, {_NUM_MODES}).")
    k = np.arange(1, _NUM_MODES + 1)
    cosine, sine = modes * 16 / (np.sqrt(np.pi) * (k**2 + 9))[None]
    phase = xp.stack([angles * frequency for frequency in k.tolist()], axis=-1)
    return 0.2 + 0.2 / (1 + xp.exp(xp.cos(phase) @ cosine + xp.sin(phase) @ sine))


def reference_mesh(*, num_around: int = 36, num_across: int = 3) -> Any:
    """Makes a mesh of the cell with a round void of radius 0.3.

    Args:
      num_around: number of elements around the void, a multiple of four, so that
        corners are nodes.
      num_across: number of elements between the void and the sides.

    Returns:
      A `skfem.MeshQuad2` of `num_around * num_across` nine-node elements.

    Raises:
      ImportError: if scikit-fem is missing.
      ValueError: if a number is not positive, or `num_around` is not a multiple of
        four.

    Examples:
      >>> from opjax.problems import elasticity
      >>> mesh = elasticity.reference_mesh(num_around=8, num_across=2)
      >>> mesh.t.shape, mesh.doflocs.shape  # corners of 16 elements, 80 nodes
      ((4, 16), (2, 80))
    """
    _checks.positive(num_around=num_around, num_across=num_across)
    if num_around % 4:
        raise ValueError(
            f"{num_around=} must be a multiple of 4, because the cell has four corners."
        )
    skfem = _finite_elements.skfem()
    around, across = (
        index.ravel() for index in np.indices((num_around, num_across), np.int32)
    )

    def vertex(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return (i % num_around) * (num_across + 1) + j

    corners = ((0, 0), (1, 0), (1, 1), (0, 1))
    cells = np.stack([vertex(around + i, across + j) for i, j in corners])
    element = skfem.ElementQuad2()
    topology = skfem.MeshQuad1(np.zeros((2, cells.max() + 1)), cells)
    nodes = skfem.assembly.Dofs(topology, element)
    turn = (around + element.doflocs[:, :1]) / num_around - 1 / 8
    depth = (across + element.doflocs[:, 1:]) / num_across
    direction = np.stack([np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)])
    side = _HALF * direction / np.abs(direction).max(axis=0)
    positions = np.empty((2, nodes.N))
    # Neighbours give their common nodes the same position, so the order is free.
    positions[:, nodes.element_dofs] = _CENTRE + (
        (1 - depth) * _VOID * direction + depth * side
    )
    return skfem.MeshQuad2(positions, cells)


def morphed_mesh(mesh: Any, modes: ArrayLike) -> Any:
    """Moves the nodes of a mesh so that its round void gets a different radius.

    At distance `rho` below 0.5 from the centre, nodes move along the ray to

        rho + (r(t) - 0.3) (0.5 - rho) / 0.2,

    which is the map of the published meshes; nodes farther away are unchanged.

    Args:
      mesh: mesh from `reference_mesh`.
      modes: coefficients of the void, see `void_radius`.

    Returns:
      The moved mesh.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import elasticity
      >>> mesh = elasticity.reference_mesh(num_around=8, num_across=2)
      >>> modes = np.zeros((2, 5))
      >>> modes[0, 0] = 2.0  # smaller on the right, larger on the left
      >>> moved = elasticity.morphed_mesh(mesh, modes)
      >>> [round(float(np.hypot(*(m.doflocs - 0.5)).min()), 3) for m in (mesh, moved)]
      [0.3, 0.228]
    """
    ray = mesh.doflocs - _CENTRE
    rho = np.hypot(*ray)
    growth = void_radius(modes, np.arctan2(ray[1], ray[0])) - _VOID
    moved = rho + growth * np.maximum(_HALF - rho, 0) / (_HALF - _VOID)
    return type(mesh)(_CENTRE + ray * (moved / rho), mesh.t)


def stress(strain: ArrayLike) -> np.ndarray:
    r"""Stress of an incompressible rubber in a thin sheet.

    With `C = I + 2 e`, `C_33 = 1 / det C`, `I_1 = tr C + C_33`, and the pressure `p`
    for which the stress across the sheet is zero,

        S = 2 c_1 I + 2 c_2 (C + I_1 I) - p C^-1,   c_1 = 1.863e5,   c_2 = 9.79e3.

    At small strains this is `2 mu (e + tr(e) I)`, `mu = 2 c_1 + 10 c_2`, with an error
    of 4e-4 at the strains of the data set. The Rivlin-Saunders law in the paper has
    `I_1 I - C` instead; the published data were computed with the plus sign.

    Args:
      strain: symmetric strain in the plane, shape `(..., 2, 2)`.

    Returns:
      The second Piola-Kirchhoff stress, with the same shape.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.elasticity import stress
      >>> pulled = stress(1e-4 * np.diag([0.0, 1.0]))
      >>> print(pulled.round(1))
      [[ 94.1   0. ]
       [  0.  188.1]]
    """
    identity = np.eye(2)
    stretch = identity + 2 * np.asarray(strain, np.float64)
    across = 1 / np.linalg.det(stretch)[..., None, None]
    trace = np.trace(stretch, axis1=-2, axis2=-1)[..., None, None] + across
    pressure = across * (2 * _C1 + 2 * _C2 * (across + trace))
    in_plane = 2 * _C1 * identity + 2 * _C2 * (stretch + trace * identity)
    return in_plane - pressure * np.linalg.inv(stretch)


def von_mises(stress: ArrayLike) -> np.ndarray:
    """Von Mises stress, `(s_11^2 - s_11 s_22 + s_22^2 + 3 s_12^2)^(1/2)`.

    Args:
      stress: symmetric stress of a thin sheet, shape `(..., 2, 2)`.

    Returns:
      The scalar stress, shape `(...)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.elasticity import von_mises
      >>> float(von_mises(np.diag([0.0, 2.0])))  # pulled along one axis
      2.0
    """
    s = np.asarray(stress)
    first, second, shear = s[..., 0, 0], s[..., 1, 1], s[..., 0, 1]
    return np.sqrt(first**2 - first * second + second**2 + 3 * shear**2)


def solve(mesh: Any, *, traction: float = 100.0) -> DeformedCell:
    """Pulls a cell by its upper side while the lower side is clamped.

    It uses quadratic displacements with three by three Gauss points per element, and
    takes about 50 ms for 108 elements.

    Args:
      mesh: mesh from `reference_mesh` or `morphed_mesh`.
      traction: vertical force per length of the upper side.

    Returns:
      Points, stress, displacement and weights, at nine points per element.

    Raises:
      ImportError: if scikit-fem is missing.
      RuntimeError: if Newton's method does not converge because the traction is too
        large.

    Examples:
      >>> from opjax.problems import elasticity
      >>> mesh = elasticity.reference_mesh(num_around=8, num_across=2)
      >>> cell = elasticity.solve(mesh, traction=100.0)
      >>> pulled = elasticity.von_mises(cell.stress)
      >>> pulled.shape, round(float(pulled.max() / 100), 1)  # largest at the void
      ((144,), 5.5)
    """
    skfem = _finite_elements.skfem()
    basis = vector_basis(mesh)
    top = mesh.facets_satisfying(lambda x: np.isclose(x[1], 1))
    side = skfem.FacetBasis(mesh, basis.elem, facets=top)
    load = skfem.LinearForm(lambda v, _: traction * v[1]).assemble(side)
    field = basis.interpolate(equilibrium(basis, load))
    return DeformedCell(
        points=_rows(np.asarray(basis.global_coordinates())),
        stress=stress(_rows(_symmetric(field.grad))),
        displacement=_rows(np.asarray(field)),
        weights=basis.dx.ravel(),
    )


def vector_basis(mesh: Any) -> Any:
    """Quadratic displacements on a mesh, with three by three points per element.

    The second coordinate of an element varies fastest over its points.

    Examples:
      >>> from opjax.problems import elasticity
      >>> mesh = elasticity.reference_mesh(num_around=8, num_across=2)
      >>> basis = elasticity.vector_basis(mesh)
      >>> int(basis.N), basis.dx.shape  # two unknowns for each of 80 nodes
      (160, (16, 9))
    """
    skfem = _finite_elements.skfem()
    nodes, weights = np.polynomial.legendre.leggauss(3)
    first, second = np.meshgrid((1 + nodes) / 2, (1 + nodes) / 2, indexing="ij")
    rule = (
        np.stack([first.ravel(), second.ravel()]),
        np.outer(weights, weights).ravel() / 4,
    )
    return skfem.Basis(mesh, skfem.ElementVector(skfem.ElementQuad2()), quadrature=rule)


def equilibrium(basis: Any, load: np.ndarray) -> np.ndarray:
    """Finds the displacement that is zero on the lower side and balances a load.

    It uses Newton's method with the tangent at rest: at small strains it converges as
    well as with the true tangent, and is factorised only once.

    Args:
      basis: basis from `vector_basis`.
      load: virtual work of the forces for every basis function, shape `(N,)`.

    Returns:
      The coefficients of the displacement, shape `(N,)`.

    Raises:
      RuntimeError: if it does not converge.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import elasticity
      >>> mesh = elasticity.reference_mesh(num_around=8, num_across=2)
      >>> basis = elasticity.vector_basis(mesh)
      >>> moved = elasticity.equilibrium(basis, np.zeros(basis.N))
      >>> float(abs(moved).max())  # no load, no displacement
      0.0
    """
    skfem = _finite_elements.skfem()
    from scipy.sparse.linalg import splu

    helpers = skfem.helpers
    twice_shear = 4 * _C1 + 20 * _C2

    @skfem.BilinearForm
    def tangent(u: Any, v: Any, _: Any) -> np.ndarray:
        e = helpers.sym_grad(u)
        isotropic = helpers.trace(e) * helpers.div(v)
        return twice_shear * (helpers.ddot(e, helpers.sym_grad(v)) + isotropic)

    @skfem.LinearForm
    def inner_work(v: Any, w: Any) -> np.ndarray:
        return helpers.ddot(w["stress"], helpers.sym_grad(v))

    free = basis.complement_dofs(basis.get_dofs(lambda x: np.isclose(x[1], 0)).all())
    factors = splu(tangent.assemble(basis)[free][:, free].tocsc())
    displacement = np.zeros(basis.N)
    for _ in range(_MAX_STEPS):
        strain = _symmetric(basis.interpolate(displacement).grad)
        fields = np.moveaxis(
            stress(np.moveaxis(strain, (0, 1), (-2, -1))), (2, 3), (0, 1)
        )
        residual = (load - inner_work.assemble(basis, stress=fields))[free]
        size = np.linalg.norm(residual)
        if size <= _TOLERANCE * np.linalg.norm(load[free]):
            return displacement
        if not np.isfinite(size):
            break
        displacement[free] += factors.solve(residual)
    raise RuntimeError(
        f"No equilibrium after {_MAX_STEPS} steps: the load is too large for small "
        "strains; lower the traction."
    )


def _symmetric(gradient: Any) -> np.ndarray:
    gradient = np.asarray(gradient)
    return (gradient + np.swapaxes(gradient, 0, 1)) / 2


def _rows(field: np.ndarray) -> np.ndarray:
    """Moves elements and their points, the last two axes, to one axis in front."""
    rows = np.moveaxis(field, (-2, -1), (0, 1))
    return rows.reshape(-1, *rows.shape[2:])
