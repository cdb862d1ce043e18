r"""Potential flow around smooth bodies of any shape in 3D, by fundamental solutions.

A body is the image of the unit sphere under `x = s * (r(w) w)`, with a radius that is a
sum of smooth bumps on the sphere, and a stretch of each axis,

    r(w) = 1 + sum_j a_j exp(b_j (w . w_j - 1)).

The incoming flow is along x with unit speed, and the fluid slips along the body. Its
velocity is the sum of the freestream and of sources `q_j` inside the body, whose
strengths minimise the mean square of the flow through the surface,

    u(x) = e_x + sum_j q_j (x - y_j) / (4 pi |x - y_j|^3),    u . n = 0,

with `sum_j q_j = 0`, and the pressure coefficient is `c_p = 1 - |u|^2`. There is no
drag: the pressure forces on the body sum to zero.

References:
  Fairweather and Karageorghis, "The method of fundamental solutions for elliptic
    boundary value problems", Advances in Computational Mathematics 9, 1998, 69-95.
"""

from typing import NamedTuple

import numpy as np


class Body(NamedTuple):
    """A smooth body, star-shaped around the origin.

    Attributes:
      stretch: stretch `s` of the axes, shape `(3,)`.
      heights: heights `a_j`, shape `(m,)`; the radius must stay positive.
      sharpness: sharpness `b_j`, shape `(m,)`.
      centres: centres `w_j`, unit vectors, shape `(m, 3)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> sphere = bodies.Body(np.ones(3), np.zeros(1), np.ones(1), np.eye(3)[:1])
      >>> bodies.surface(sphere, np.eye(3)).density.tolist()
      [1.0, 1.0, 1.0]
    """

    stretch: np.ndarray
    heights: np.ndarray
    sharpness: np.ndarray
    centres: np.ndarray


class Surface(NamedTuple):
    """Points on the surface of a body.

    Attributes:
      points: coordinates, shape `(n, 3)`.
      normals: unit normals into the fluid, shape `(n, 3)`.
      density: area of the body per solid angle, shape `(n,)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> body = bodies.random_body(np.random.default_rng(0))
      >>> points, normals, density = bodies.surface(body, bodies.spread(50))
      >>> points.shape, normals.shape, density.shape
      ((50, 3), (50, 3), (50,))
    """

    points: np.ndarray
    normals: np.ndarray
    density: np.ndarray


class Sources(NamedTuple):
    """The sources of the flow around a body.

    Attributes:
      points: points `y_j` inside the body, shape `(m, 3)`.
      strengths: strengths `q_j`, shape `(m,)`.
      leak: root mean square of `u . n` over further points of the body.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> sphere = bodies.Body(np.ones(3), np.zeros(1), np.ones(1), np.eye(3)[:1])
      >>> flow = bodies.solve(sphere, num_sources=100)
      >>> flow.points.shape, flow.leak < 0.1
      ((100, 3), True)
    """

    points: np.ndarray
    strengths: np.ndarray
    leak: float


def random_body(rng: np.random.Generator, *, num_bumps: int = 4) -> Body:
    """Draws a body: stretched by 0.7 to 1.6, with bumps and dents of up to a third.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> body = bodies.random_body(np.random.default_rng(0), num_bumps=3)
      >>> body.heights.shape, body.centres.shape
      ((3,), (3, 3))
    """
    centres = rng.normal(size=(num_bumps, 3))
    return Body(
        stretch=rng.uniform([1.0, 0.7, 0.7], [1.6, 1.1, 1.1]),
        heights=rng.uniform(-0.25, 0.35, num_bumps),
        sharpness=rng.uniform(2.0, 5.0, num_bumps),
        centres=centres / np.linalg.norm(centres, axis=1, keepdims=True),
    )


def surface(body: Body, directions: np.ndarray) -> Surface:
    """Returns the surface points of a body for directions before the stretch.

    With `y = r(w) w` and the gradient `g` of the radius on the sphere, the normal of
    the unstretched body is along `r w - g`, and areas scale by `det(s) |s^-1 n|`.

    Args:
      body: the body.
      directions: unit vectors `w`, shape `(n, 3)`.

    Raises:
      ValueError: if the radius is not positive everywhere.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> stretch = np.array([2.0, 1.0, 1.0])
      >>> long = bodies.Body(stretch, np.zeros(1), np.ones(1), np.eye(3)[:1])
      >>> bodies.surface(long, np.eye(3)).points.tolist()
      [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    bumps = body.heights * np.exp(
        body.sharpness * (directions @ body.centres.T - 1)
    )  # (n, m)
    radius = 1 + bumps.sum(axis=1, keepdims=True)
    if not radius.min() > 0:
        raise ValueError(
            f"The radius of the body is {radius.min()} at one point, but must be "
            "positive."
        )
    slope = (bumps * body.sharpness) @ body.centres
    slope -= np.sum(slope * directions, axis=1, keepdims=True) * directions
    normals = (radius * directions - slope) / body.stretch
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    density = np.prod(body.stretch) * radius[:, 0] * length[:, 0]
    return Surface(body.stretch * radius * directions, normals / length, density)


def solve(body: Body, *, num_sources: int = 1000, depth: float = 0.2) -> Sources:
    """Finds the sources of the flow around a body, by least squares.

    Args:
      body: the body.
      num_sources: number of sources inside the body; the flow through the surface is
        fitted at three times as many points.
      depth: depth of the sources below the surface, as a fraction of the distance from
        the origin.

    Returns:
      The sources, including the flow that leaks through the surface between the points.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> sphere = bodies.Body(np.ones(3), np.zeros(1), np.ones(1), np.eye(3)[:1])
      >>> flow = bodies.solve(sphere, num_sources=100)
      >>> side = bodies.velocity(flow, np.array([[0.0, 1.0, 0.0]]))
      >>> round(float(side[0, 0]), 2)  # 3/2 of the stream, as in theory
      1.5
    """
    places = (1 - depth) * surface(body, spread(num_sources)).points
    looked = surface(body, spread(3 * num_sources))
    weights = np.sqrt(looked.density)
    matrix = weights[:, None] * _through(looked, places)
    # As important as all points together: the sources of a closed body cancel.
    closed = np.full((1, num_sources), np.sqrt(len(matrix)))
    outflow = np.append(-weights * looked.normals[:, 0], 0.0)
    orthogonal, triangle = np.linalg.qr(np.concatenate([matrix, closed]))
    strengths = np.linalg.solve(triangle, orthogonal.T @ outflow)
    between = surface(body, spread(4 * num_sources + 1))
    sources = Sources(places, strengths, 0.0)
    leak = np.sum(velocity(sources, between.points) * between.normals, axis=1)
    return sources._replace(leak=float(np.sqrt(np.mean(leak**2))))


def velocity(
    sources: Sources, points: np.ndarray, *, chunk_size: int = 4096
) -> np.ndarray:
    """Returns the velocity at points `(n, 3)`, computed in chunks, `(n, 3)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> still = bodies.Sources(np.zeros((1, 3)), np.zeros(1), 0.0)  # no body
      >>> bodies.velocity(still, np.ones((1, 3))).tolist()
      [[1.0, 0.0, 0.0]]
    """
    speeds = np.empty_like(points)
    for start in range(0, len(points), chunk_size):
        part = points[start : start + chunk_size]
        weights = sources.strengths / (4 * np.pi * _cubes(part, sources.points))
        pulled = weights.sum(axis=1, keepdims=True) * part - weights @ sources.points
        speeds[start : start + chunk_size] = pulled
    speeds[:, 0] += 1
    return speeds


def pressure(velocity: np.ndarray) -> np.ndarray:
    """Returns the pressure coefficient `1 - |u|^2` for velocities `(n, 3)`, `(n,)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> bodies.pressure(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])).tolist()
      [1.0, 0.0]
    """
    return 1 - np.sum(velocity**2, axis=1)


def spread(count: int) -> np.ndarray:
    """Returns unit vectors `(count, 3)`, evenly spaced on a golden-angle spiral.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> directions = bodies.spread(100)
      >>> directions.shape, bool(abs(directions.mean(axis=0)).max() < 0.01)
      ((100, 3), True)
    """
    height = 1 - (2 * np.arange(count) + 1) / count
    angle = np.pi * (1 + 5**0.5) * np.arange(count)
    radius = np.sqrt(1 - height**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)


def _through(body: Surface, places: np.ndarray) -> np.ndarray:
    """The flow of sources of unit strength through the points of a body."""
    along = np.sum(body.points * body.normals, axis=1, keepdims=True)
    along = along - body.normals @ places.T
    return along / (4 * np.pi * _cubes(body.points, places))


def _cubes(points: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Cubes of the distances, `(n, m)`."""
    squares = np.sum(points**2, axis=1, keepdims=True) + np.sum(places**2, axis=1)
    squares = squares - 2 * points @ places.T
    return squares * np.sqrt(squares)


class SphereMesh(NamedTuple):
    """Quadrilaterals on the unit sphere, mapped from the faces of a cube.

    Attributes:
      nodes: unit vectors, repeated on the edges of the cube, shape `(6 (m + 1)^2, 3)`.
      cells: their corners, counterclockwise when seen from outside, shape `(6 m^2, 4)`.
      centres: unit vectors, shape `(6 m^2, 3)`.
      solid_angles: solid angles of the cells, which sum to `4 pi`, shape `(6 m^2,)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import bodies
      >>> sphere = bodies.cubed_sphere(4)
      >>> round(float(sphere.solid_angles.sum() / np.pi), 6)
      4.0
    """

    nodes: np.ndarray
    cells: np.ndarray
    centres: np.ndarray
    solid_angles: np.ndarray


def cubed_sphere(resolution: int) -> SphereMesh:
    r"""Divides the sphere into `6 m^2` cells of nearly the same size.

    On each face of the cube [-1, 1]^3, points are `(1, tan a, tan b)` with evenly
    spaced angles. The solid angle between the centre of a face and a point is `atan(x y
    / (1 + x^2 + y^2)^{1/2})`, which gives the solid angles of the cells exactly.

    Args:
      resolution: number `m` of cells along an edge of the cube.

    Raises:
      ValueError: if it is not positive.

    Examples:
      >>> from opjax.problems import bodies
      >>> sphere = bodies.cubed_sphere(4)
      >>> sphere.nodes.shape, sphere.cells.shape
      ((150, 3), (96, 4))

    References:
      Ronchi et al., "The cubed sphere", Journal of Computational Physics 124, 1996.
    """
    if resolution < 1:
        raise ValueError(f"{resolution=} must be positive.")
    angles = np.linspace(-np.pi / 4, np.pi / 4, 2 * resolution + 1)
    x, y = np.tan(angles[::2, None]), np.tan(angles[::2])
    corner = np.arctan(x * y / np.sqrt(1 + x**2 + y**2))
    solid = np.diff(np.diff(corner, axis=0), axis=1).ravel()
    count = resolution + 1
    first = (np.arange(resolution)[:, None] * count + np.arange(resolution)).ravel()
    corners = np.stack([first, first + count, first + count + 1, first + 1], axis=1)
    nodes, centres = (_faces(np.tan(a)) for a in (angles[::2], angles[1::2]))
    cells = corners + count**2 * np.arange(6)[:, None, None]
    return SphereMesh(nodes, cells.reshape(-1, 4), centres, np.tile(solid, 6))


def _faces(steps: np.ndarray) -> np.ndarray:
    """Points of a grid on all faces of the cube, moved to the sphere."""
    a, b = (part.ravel() for part in np.meshgrid(steps, steps, indexing="ij"))
    one, points = np.ones_like(a), []
    for axis in range(3):
        for sign in (1, -1):
            # Turned so that the second and the third axis go around the first.
            face = np.stack([sign * one, a, sign * b], axis=1)
            points.append(np.roll(face, axis, axis=1))
    directions = np.concatenate(points)
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)
