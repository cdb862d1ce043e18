"""Quadrature weights `w` with `sum_i w_i f(x_i) ~ int f`, for grids, clouds and meshes.

A weight of zero removes a point from every sum: this is how padded points are masked,
everywhere in opjax.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from opjax import _checks

RULES = ("midpoint", "trapezoid", "periodic")


def grid_weights(
    grid_shape: Sequence[int],
    *,
    lengths: Sequence[float] | None = None,
    rule: str = "trapezoid",
    dtype: jax.typing.DTypeLike = float,
) -> jax.Array:
    r"""Returns tensor-product weights of a uniform grid, in row-major order.

    Per axis with `n` points over a length `L`:

        midpoint, periodic   w_i = L / n,
        trapezoid            w_i = L / (n - 1), halved at both ends.

    Args:
      grid_shape: points per axis.
      lengths: domain lengths per axis; one by default.
      rule: `"trapezoid"` if the end points are mesh points, `"midpoint"` for cell
        centres, `"periodic"` if the last point is left out.
      dtype: floating-point dtype of the result.

    Returns:
      Quadrature weights, shape `(prod(grid_shape),)`, summing to the domain's volume.

    Raises:
      TypeError: if `dtype` is not floating point.
      ValueError: if an axis is empty (or has one point, trapezoid), the lengths do not
        match the axes or are not positive and finite, or the rule is unknown.
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype={jnp.dtype(dtype)} must be a floating-point dtype.")
    _checks.option("rule", rule, RULES)
    lengths = (1.0,) * len(grid_shape) if lengths is None else tuple(lengths)
    if len(lengths) != len(grid_shape):
        raise ValueError(
            f"{lengths=} must have one entry per axis of {tuple(grid_shape)}."
        )
    _checks.positive(lengths=lengths)
    fewest = 2 if rule == "trapezoid" else 1
    if any(n < fewest for n in grid_shape):
        raise ValueError(f"grid_shape={tuple(grid_shape)}: {rule} needs >= {fewest}.")
    weights = jnp.ones((1,), dtype)
    for n, length in zip(grid_shape, lengths, strict=True):
        if rule == "trapezoid":
            axis = jnp.full(n, length / (n - 1), dtype)
            axis = axis.at[jnp.array([0, n - 1])].mul(0.5)
        else:
            axis = jnp.full(n, length / n, dtype)
        weights = (weights[:, None] * axis[None, :]).reshape(-1)
    return weights


def scattered_weights(
    mesh_points: ArrayLike, *, num_neighbors: int = 8, volume: float = 1.0
) -> jax.Array:
    r"""Returns weights of scattered points from their nearest-neighbour distances.

    A point whose `m`-th nearest other point is at distance `r_i` stands for a cell of
    volume proportional to `r_i^p`, so

        w_i = volume * r_i^p / sum_j r_j^p,    p the dimension of space.

    Every point gets the same weight if the points are equally dense. Needs `O(n)`
    memory per point and `O(n^2)` work: compute once per mesh. For points on a surface
    use `triangle_weights`, since `p` must be the dimension of the integral.

    Args:
      mesh_points: distinct points, shape `(n, p)`, in domain lengths.
      num_neighbors: `m` above; larger is smoother.
      volume: the integral of one.

    Returns:
      Quadrature weights, shape `(n,)`, summing to `volume`.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if there are no more than `num_neighbors` points, or a number is not
        positive and finite.
    """
    mesh_points = jnp.asarray(mesh_points)
    _checks.floating(mesh_points=mesh_points)
    _checks.rank(2, mesh_points=mesh_points)
    n, p = mesh_points.shape
    _checks.positive(volume=volume, num_neighbors=num_neighbors)
    if n <= num_neighbors:
        raise ValueError(
            f"mesh_points {mesh_points.shape}: {n} points have fewer than "
            f"{num_neighbors=} neighbours each; lower num_neighbors."
        )

    def cell(point: jax.Array) -> jax.Array:
        squares = jnp.sum((mesh_points - point[None, :]) ** 2, axis=1)
        nearest, _ = lax.top_k(-squares, num_neighbors + 1)  # the point itself is first
        return (-nearest[-1]) ** (p / 2)

    cells = lax.map(cell, mesh_points, batch_size=min(n, 256))
    return volume * cells / jnp.sum(cells)


def triangle_weights(mesh_points: ArrayLike, triangles: ArrayLike) -> jax.Array:
    r"""Returns the lumped masses of the vertices of a triangle mesh.

    Every vertex takes a third of the area of each of its triangles, which integrates
    piecewise-linear functions exactly:

        w_i = sum_{T containing i} |T| / 3.

    Args:
      mesh_points: vertices in the plane or in space, shape `(n, 2)` or `(n, 3)`.
      triangles: vertex indices, integers of shape `(t, 3)`; a triangle with an index
        below zero or at or beyond `n` is ignored, so padded triangles may point there.

    Returns:
      Quadrature weights, shape `(n,)`, summing to the area; zero for unused vertices.

    Raises:
      TypeError: if vertices are not floating point or indices not integers.
      ValueError: if shapes are not as above.
    """
    mesh_points, triangles = jnp.asarray(mesh_points), jnp.asarray(triangles)
    _checks.floating(mesh_points=mesh_points)
    _checks.rank(2, mesh_points=mesh_points, triangles=triangles)
    if not jnp.issubdtype(triangles.dtype, jnp.integer):
        raise TypeError(f"triangles have dtype {triangles.dtype}, expected integers.")
    n, p = mesh_points.shape
    if p not in (2, 3) or triangles.shape[1] != 3:
        raise ValueError(
            f"mesh_points {mesh_points.shape} and triangles {triangles.shape} must "
            "have shapes (n, 2) or (n, 3), and (t, 3)."
        )
    triangles = jnp.where(triangles < 0, n, triangles)  # or they count from the end
    origin, first, second = (
        mesh_points.at[triangles[:, corner]].get(mode="fill", fill_value=0)
        for corner in range(3)
    )
    in_space = ((0, 0), (0, 3 - p))
    normal = jnp.cross(
        jnp.pad(first - origin, in_space), jnp.pad(second - origin, in_space)
    )
    squared = jnp.sum(normal**2, axis=1)
    padded = jnp.any(triangles >= n, axis=1)
    flat = padded | (squared == 0)  # the square root has no gradient at zero
    area = jnp.where(flat, 0, jnp.sqrt(jnp.where(flat, 1, squared)) / 2)
    third = jnp.repeat(area / 3, 3)
    return jnp.zeros(n, mesh_points.dtype).at[triangles.reshape(-1)].add(third)
