"""Potential flow over bodies in 3D: surfaces with any number of points.

It maps the shape of a body to pressure and velocity on it. Shapes differ in every
sample. A surface of resolution `m` has `6 m^2` points, the centres of its cells: 16,224
for 52, a million for 418. The fluid has no viscosity, so the tangential velocity takes
the place of the friction in measured data.

`write` writes surfaces in the layout of DrivAerML, see `cars`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from opjax import _checks
from opjax._files import OnePath, replacing
from opjax.datasets import _generated
from opjax.files import extras
from opjax.problems import bodies
from opjax.samples import Sample

TARGETS = ("pressure", "u", "v", "w")


def generate(
    num_samples: int,
    *,
    seed: int,
    resolution: int = 52,
    num_bumps: int = 4,
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates samples with our solver, or reads them from the cache.

    It computes in float64, two seconds per sample and 30 microseconds per point. Sample
    `i` depends only on `seed` and `i`; different resolutions are points of the same
    body.

    Args:
      num_samples: number of samples.
      seed: seed of the data set; use different seeds for training and test data.
      resolution: number of cells along an edge of the cube that is mapped to the
        sphere.
      num_bumps: number of bumps and dents of a body.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples: points `(n, 3)`, normals as features, `TARGETS` as targets, and the areas
      of the cells as weights.

    Raises:
      ValueError: if a number is not positive, or `seed` is negative.
    """
    _checks.positive(resolution=resolution, num_bumps=num_bumps)
    arrays = _build(
        num_samples, seed, cache_dir, resolution=resolution, num_bumps=num_bumps
    )
    return [
        Sample(
            mesh_points=arrays["points"][i],
            features=arrays["normals"][i],
            target=arrays["target"][i],
            quadrature_weights=arrays["areas"][i],
            name=f"body {i}",
        )
        for i in range(num_samples)
    ]


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("bodies", version=1)
def _build(
    *, num_samples: int, seed: int, resolution: int, num_bumps: int
) -> dict[str, np.ndarray]:
    mesh = bodies.cubed_sphere(resolution)

    def draw(_: Any, i: int) -> dict[str, Any]:
        body = body_of(seed, i, num_bumps=num_bumps)
        return flow(body, mesh)

    return _generated.draw(draw, num_samples=num_samples, seed=seed, name="Bodies")


def body_of(seed: int, i: int, *, num_bumps: int = 4) -> bodies.Body:
    """Returns the body of a sample of a data set."""
    return bodies.random_body(np.random.default_rng([seed, i]), num_bumps=num_bumps)


def flow(body: bodies.Body, mesh: bodies.SphereMesh) -> dict[str, np.ndarray]:
    """Returns `points`, `normals`, `target` and `areas` at the centres of the cells."""
    surface = bodies.surface(body, mesh.centres)
    velocity = bodies.velocity(bodies.solve(body), surface.points)
    pressure = bodies.pressure(velocity)
    return {
        "points": surface.points,
        "normals": surface.normals,
        "target": np.concatenate([pressure[:, None], velocity], axis=1),
        "areas": surface.density * mesh.solid_angles,
    }


def write(
    data_dir: OnePath,
    num_samples: int,
    *,
    seed: int,
    resolution: int = 52,
    num_bumps: int = 4,
) -> None:
    """Writes samples of `generate` to `run_<i>/boundary_<i>.vtp`, from 1 on.

    As in DrivAerML, fields are cell data: `CpMeanTrim` and, in place of the friction,
    `wallVelocity`.

    Raises:
      ImportError: if pyvista is missing.
      OSError: if a file cannot be written.
    """
    pyvista = extras.optional("pyvista", Path(data_dir), extra="vtk")
    mesh = bodies.cubed_sphere(resolution)
    for i in range(num_samples):
        body = body_of(seed, i, num_bumps=num_bumps)
        nodes = bodies.surface(body, mesh.nodes).points.astype(np.float32)
        target = flow(body, mesh)["target"].astype(np.float32)
        surface = pyvista.PolyData.from_regular_faces(nodes, mesh.cells)
        surface.cell_data["CpMeanTrim"] = target[:, 0]
        surface.cell_data["wallVelocity"] = target[:, 1:]
        path = Path(data_dir) / f"run_{i + 1}" / f"boundary_{i + 1}.vtp"
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            surface.save(temporary)
