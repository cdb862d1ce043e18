from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opjax.problems import taylor_hood
from tests.refused import value_error

VISCOSITY = 0.1


def wavy_square(n, m):
    """Nodes of a square with curved walls and a straight outlet at x = 1."""
    x, y = np.meshgrid(*(np.linspace(0, 1, 2 * k + 1) for k in (n, m)), indexing="ij")
    moved = x + 0.1 * x * (1 - x) * np.sin(4 * y)
    return np.stack([moved, y + 0.15 * np.sin(3 * moved)], axis=-1)


def exact(point):
    """Velocity without divergence, with no stress at x = 1, and pressure."""

    def stream(point):
        x, y = point
        return (1 + (1 - x) ** 3) * jnp.sin(2 * y)

    slope = jax.grad(stream)(point)
    pressure = (1 - point[0]) * jnp.cos(point[1])
    return jnp.stack([slope[1], -slope[0]]), pressure


def force(point):
    def velocity(point):
        return exact(point)[0]

    convection = jax.jacfwd(velocity)(point) @ velocity(point)
    hessian = jax.hessian(velocity)(point)
    laplacian = jnp.trace(hessian, axis1=1, axis2=2)
    return convection + jax.grad(lambda x: exact(x)[1])(point) - VISCOSITY * laplacian


def everywhere(function, points):
    values = jax.jit(jax.vmap(jax.vmap(function)))(jnp.asarray(points))
    return jax.tree.map(np.array, values)


def manufactured(n, m):
    points = wavy_square(n, m)
    velocity, pressure = everywhere(exact, points)
    start = velocity.copy()
    start[1:, 1:-1] = 0
    flow = taylor_hood.newton(
        points, start, viscosity=VISCOSITY, force=everywhere(force, points)
    )
    corners = np.abs(flow.pressure - pressure)[::2, ::2].max()
    return np.abs(flow.velocity - velocity).max(), corners, flow


@pytest.mark.nightly
def test_a_manufactured_solution_is_approximated_with_orders_three_and_two():
    errors = np.array([manufactured(n, n + 1)[:2] for n in (6, 12)])
    order = np.log2(errors[0] / errors[1])
    assert errors[1, 0] < 2e-4
    assert errors[1, 1] < 5e-3
    assert order[0] > 2.7
    assert order[1] > 1.8


def test_newton_converges_quadratically():
    points = wavy_square(4, 4)
    start = everywhere(exact, points)[0]
    start[1:, 1:-1] = 0
    given = {"viscosity": VISCOSITY, "force": everywhere(force, points)}
    found = [
        taylor_hood.newton(points, start, tolerance=t, **given)
        for t in (1e-2, 1e-4, 1e-8)
    ]
    assert [flow.num_iterations for flow in found] == sorted(
        flow.num_iterations for flow in found
    )
    assert found[-1].num_iterations <= 6
    assert found[-1].residual < 1e-8


def test_the_discrete_equations_are_those_that_scikit_fem_assembles():
    skfem = pytest.importorskip("skfem")
    from skfem.helpers import ddot, div, dot, grad, mul

    n, m = 3, 4
    points = wavy_square(n, m)
    _, _, flow = manufactured(n, m)
    reference = skfem.MeshQuad2.from_mesh(
        skfem.MeshQuad.init_tensor(np.arange(0.0, 2 * n + 1, 2), np.arange(0.0, 10, 2))
    )
    at = tuple(np.rint(reference.doflocs).astype(int))
    mesh = skfem.MeshQuad2(points[at].T.copy(), reference.t)
    vectors = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementQuad2()), intorder=6)
    scalars = vectors.with_element(skfem.ElementQuad1())
    # Unknowns by the place of their node on the grid of indices.
    plain = skfem.Basis(reference, skfem.ElementVector(skfem.ElementQuad2()))
    i, j = np.rint(plain.doflocs).astype(int)
    component = np.zeros(vectors.N, int)
    for dofs in (vectors.nodal_dofs, vectors.facet_dofs, vectors.interior_dofs):
        component[dofs[1::2]] = 1
    u = flow.velocity[i, j, component]
    f = everywhere(force, points)[i, j, component]
    corners = np.rint(skfem.Basis(reference, skfem.ElementQuad1()).doflocs).astype(int)
    p = flow.pressure[tuple(corners)]

    @skfem.LinearForm
    def momentum(v, w):
        slopes: Any = grad(w["u"])
        test_slopes: Any = grad(v)
        viscous = VISCOSITY * ddot(slopes, test_slopes) - w["p"] * div(v)
        return viscous + dot(mul(slopes, w["u"]) - w["f"], v)

    @skfem.LinearForm
    def mass(q, w):
        return div(w["u"]) * q

    given = {"u": vectors.interpolate(u), "p": scalars.interpolate(p)}
    residual = momentum.assemble(vectors, f=vectors.interpolate(f), **given)
    free = (i > 0) & (j > 0) & (j < 2 * m)
    assert np.abs(residual[~free]).max() > 1e-2
    assert np.abs(residual[free]).max() < 1e-9
    assert np.abs(mass.assemble(scalars, **given)).max() < 1e-9


def test_wrong_arguments_are_named_in_the_error():
    points = wavy_square(2, 2)
    with value_error(r"\(4, 5, 2\), expected \(2 n \+ 1"):
        taylor_hood.newton(points[1:], points[1:], viscosity=1.0)
    with value_error(r"velocity has shape \(3, 5, 2\)"):
        taylor_hood.newton(points, points[2:], viscosity=1.0)
    with value_error("4 of 4 elements are inverted"):
        taylor_hood.newton(points.swapaxes(0, 1), 0 * points, viscosity=1.0)
    with pytest.raises(RuntimeError, match="after 1 steps"):
        taylor_hood.newton(points, points, viscosity=0.1, max_iterations=1)
