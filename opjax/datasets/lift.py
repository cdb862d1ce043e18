r"""The lift data set: airfoils of random shape at random angles and Mach numbers.

It maps the shape of an airfoil, the angle of attack and the Mach number to the pressure
on the mesh around it and to its lift. Shapes and meshes are those of
`opjax.problems.airfoil`; flows are computed with its Euler solver. Angles are uniform
from 0 to 5 degrees, Mach numbers uniform from 0.3 to 0.65, and all are independent.
Most flows are subsonic; flows around strongly curved shapes at high Mach numbers have a
shock.

The pressure is its coefficient `c_p = 2 (p / p_far - 1) / (gamma M^2)`. The lift is
that of the polygon of the wall points, for a chord of one.
"""

import os
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax.datasets import _airfoils, _generated
from opjax.datasets._airfoils import Solver
from opjax.datasets.requests import Request
from opjax.geometry import nearest_facets
from opjax.problems import airfoil, euler
from opjax.problems.airfoil_forces import force_coefficients
from opjax.samples import Sample, Splits

ANGLES = (0.0, 5.0)  # degrees
MACH_NUMBERS = (0.3, 0.65)
WALL = "wall"  # the boundary
CHANNELS = {
    "features": ("shift_x", "shift_y", "near_x", "near_y"),
    "target": ("pressure",),
    "scalars": ("angle", "mach"),
    "target_scalars": ("lift",),
}
POINT_FEATURES = ("deviations", "geometry", "none")
GEOMETRY = ("near_x", "near_y", "wall", "wall_distance", "normal_x", "normal_y")
SOLVER = Solver(num_airfoil=60, num_wake=16, num_radial=20)  # by default
_ATTEMPTS = 20
_MAX_STEPS = 6000
_NEAR = 0.5  # chords within which the coordinates `near` are nearly linear
_MIDDLE = (0.5, 0.0)  # of the chord


class Flow(NamedTuple):
    """A flow around an airfoil.

    Attributes:
      pressure: pressure coefficient at the points, `(w, h)`.
      drag: drag coefficient; on a coarse mesh it is an error of the scheme.
      lift: lift coefficient.
      residual: final residual of the solver.
    """

    pressure: np.ndarray
    drag: float
    lift: float
    residual: float


def splits(
    request: Request,
    *,
    solver: Solver = SOLVER,
    point_features: str = "deviations",
) -> Splits:
    r"""Returns the samples of a benchmark (`requests.Request`), see `generate`.

    Features of the points resolve the neighbourhood of the airfoil on meshes of forty
    chords, with coordinates relative to the middle `c` of the chord,

        near(x) = (x - c) / (1/2 + |x - c|).

    With "deviations", they are the deviation `x - m` of every point from its mean `m`
    over the training meshes and `near(m)`: all meshes have the same number of points in
    the same order. With "geometry", they are those of `geometry_features`, which
    support any mesh. With "none", there are no features.

    Raises:
      ValueError: if `data_dir` is given, because there are no published files, or the
        kind of features is unknown.
    """
    if point_features not in POINT_FEATURES:
        raise ValueError(f"{point_features=} is unknown; choose from {POINT_FEATURES}.")
    if request.data_dir:
        raise ValueError(
            f"data_dir={request.data_dir!r}: there are no published files for lift, "
            "only generated data; omit data_dir."
        )
    divided = request.generate(partial(generate, solver=solver), "own solver")
    if point_features == "none":
        return divided._replace(channels={**CHANNELS, "features": ()})
    if point_features == "geometry":
        divided = _airfoils.with_features(divided, geometry_features)
        return divided._replace(channels={**CHANNELS, "features": GEOMETRY})
    mean = _airfoils.mean_mesh(divided.train)
    near = _near(mean)

    def shifts(sample: Sample) -> np.ndarray:
        return np.concatenate([sample.mesh_points - mean, near], axis=1)

    return _airfoils.with_features(divided, shifts)._replace(channels=CHANNELS)


def geometry_features(sample: Sample) -> np.ndarray:
    r"""Returns features of the points of any mesh around an airfoil.

        (near(x), 1 on the wall and 0 elsewhere, d / (1/2 + d), n),

    with the distance `d` to the wall and the normal `n` of the nearest facet.

    Args:
      sample: sample with the wall points, in order around the airfoil, as a boundary.

    Returns:
      Shape `(n, 6)`, in the order of `GEOMETRY`, in the dtype of the points.
    """
    assert sample.boundaries is not None
    points, wall = sample.mesh_points, sample.boundaries[WALL]
    facets = nearest_facets(points, points, np.stack([wall[:-1], wall[1:]], axis=1))
    on_wall = np.zeros(len(points))
    on_wall[wall] = 1
    distance = facets.distance / (_NEAR + facets.distance)
    columns = [_near(points), np.stack([on_wall, distance], axis=1), facets.normal]
    return np.concatenate(columns, axis=1).astype(points.dtype)


def _near(points: np.ndarray) -> np.ndarray:
    """Coordinates that resolve the neighbourhood of the airfoil, `(n, 2)`."""
    off = points - np.asarray(_MIDDLE, points.dtype)
    return off / (_NEAR + np.linalg.norm(off, axis=1, keepdims=True))


def generate(
    num_samples: int,
    *,
    seed: int,
    solver: Solver = SOLVER,
    cache_dir: str | os.PathLike[str] | None = None,
) -> list[Sample]:
    """Generates flows with our solver, or reads them from the cache.

    Flows are solved one by one in float32 on the CPU, 2 s each. Sample `i` depends only
    on `seed` and `i`, so a smaller data set is the start of a larger one. If a flow
    does not converge to a steady state, another one is drawn.

    Args:
      num_samples: number of flows.
      seed: seed of the data set; use different seeds for training and test data.
      solver: cells of the meshes, and the residual to stop at.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples on meshes of `num_airfoil + 2 num_wake + 1` times `num_radial + 1` points,
      with the pressure coefficient as `target`, angle (degrees) and Mach number as
      `scalars`, the lift coefficient as `target_scalars`, quadrilaterals as `cells`,
      and the wall points as the boundary "wall".

    Raises:
      RuntimeError: if 20 flows in a row do not converge to a steady state.
      ValueError: if a number is not positive or `seed` is negative.
    """
    arrays = _build(num_samples, seed, cache_dir, solver=solver)
    around, outwards = arrays["pressure"].shape[1:]
    cells = _cells(around, outwards)
    wall = np.arange(solver.num_wake, around - solver.num_wake) * outwards
    return [
        Sample(
            mesh_points=points.reshape(-1, 2),
            target=pressure.reshape(-1, 1),
            scalars=scalars,
            target_scalars=forces[1:],
            cells=cells,
            grid_shape=(int(around), int(outwards)),
            boundaries={WALL: wall},
            name=f"lift {index}",
        )
        for index, (points, pressure, scalars, forces) in enumerate(
            zip(*(arrays[name] for name in _ARRAYS), strict=True)
        )
    ]


def solve(
    mesh_points: ArrayLike,
    *,
    num_wake: int,
    angle: float,
    mach: float,
    tolerance: float = 1e-4,
) -> Flow:
    """Solves for the flow around one airfoil, in float32.

    Args:
      mesh_points: mesh from `airfoil.mesh`, `(w, h, 2)`, in chords.
      num_wake: the number passed to `airfoil.mesh`.
      angle: angle of attack, in degrees.
      mach: freestream Mach number.
      tolerance: residual at which the solver stops.

    Returns:
      The flow. It is not steady if its residual is above the tolerance or NaN.

    Raises:
      TypeError: as from `airfoil.solve`.
      ValueError: as from `airfoil.solve`.
    """
    mesh = jnp.asarray(mesh_points, jnp.float32)
    flow = airfoil.solve(
        mesh,
        num_wake=num_wake,
        mach=mach,
        angle_of_attack=angle,
        tolerance=tolerance,
        max_steps=_MAX_STEPS,
    )
    pressure = 2 * (flow.pressure - 1) / (euler.GAMMA * mach**2)
    wall = slice(num_wake, -num_wake - 1)  # the trailing edge once
    drag, lift = force_coefficients(
        mesh[wall, 0], pressure[wall, 0] / 2, speed=1.0, angle=np.deg2rad(angle)
    )
    return Flow(np.asarray(pressure), float(drag), float(lift), float(flow.residual))


_ARRAYS = ("points", "pressure", "scalars", "forces")


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("lift", version=1)
def _build(*, num_samples: int, seed: int, solver: Solver) -> dict[str, np.ndarray]:
    tolerance = solver.tolerance

    def attempt(key: jax.Array) -> dict[str, Any] | None:
        shape, first, second = jax.random.split(key, 3)
        angle = float(jax.random.uniform(first, minval=ANGLES[0], maxval=ANGLES[1]))
        low, high = MACH_NUMBERS
        mach = float(jax.random.uniform(second, minval=low, maxval=high))
        mesh = solver.mesh(airfoil.random_displacements(shape))
        flow = solve(
            mesh, num_wake=solver.num_wake, angle=angle, mach=mach, tolerance=tolerance
        )
        if not flow.residual <= tolerance:
            return None
        return {
            "points": np.asarray(mesh),
            "pressure": flow.pressure,
            "scalars": np.array([angle, mach]),
            "forces": np.array([flow.drag, flow.lift]),
        }

    def draw(key: jax.Array, index: int) -> dict[str, Any]:
        for number in range(_ATTEMPTS):
            if sample := attempt(jax.random.fold_in(key, number)):
                return sample
        raise RuntimeError(
            f"Sample {index} of seed {seed}: none of {_ATTEMPTS} random flows "
            f"became steady within {_MAX_STEPS} steps; use a larger {tolerance=}."
        )

    return _generated.draw(draw, num_samples=num_samples, seed=seed, name="Lift")


def _cells(around: int, outwards: int) -> np.ndarray:
    """Quadrilaterals of a structured mesh, `((around - 1) (outwards - 1), 4)`."""
    index = np.arange(around * outwards).reshape(around, outwards)
    corners = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
    return np.stack([corner.reshape(-1) for corner in corners], axis=1)
