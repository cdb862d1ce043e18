"""The Airfoil data set of Geo-FNO: generated here, or read from published files.

It maps the shape of an airfoil to the Mach number around it, on a C-mesh: 221 x 51
points as published. The first axis goes around the airfoil (from above the wake over
the upper side to below it), the second outwards. At the wake, the two ends of the first
axis are the same points.

Generated samples have the published distribution and mesh, but a different scheme: see
`opjax.problems.airfoil`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax._files import OnePath
from opjax.datasets import _airfoils, _arrays, _generated, _structured
from opjax.datasets._airfoils import PUBLISHED, Solver
from opjax.datasets.requests import Request
from opjax.problems import airfoil
from opjax.samples import Sample, Splits

CHANNELS = ("density", "u", "v", "pressure", "mach")

_FILES = _structured.Files(
    "NACA_Cylinder", ("naca", "airfoil/naca", "airfoil"), CHANNELS
)


def splits(
    request: Request,
    *,
    solver: Solver = PUBLISHED,
    deviations: bool = False,
) -> Splits:
    """Returns the samples of a benchmark (`requests.Request`): Mach numbers.

    With `deviations`, features are the deviations of the mesh points from their mean
    over the training samples. The other options are as for `generate`.
    """
    if request.data_dir:
        divided = request.read(load, f"published files in {request.data_dir}")
    else:
        divided = request.generate_together(
            partial(generate, solver=solver), "own solver"
        )
    if not deviations:
        return divided
    mean = _airfoils.mean_mesh(divided.train)
    return _airfoils.with_features(divided, lambda sample: sample.mesh_points - mean)


def load(
    data_dir: OnePath,
    *,
    num_train: int = 1000,
    num_test: int = 200,
    channels: Sequence[str] = ("mach",),
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published files, or files of the same layout made by `save`.

    Searches `data_dir`, and its subfolders `naca`, `airfoil/naca` and `airfoil`, for
    `NACA_Cylinder_X.npy`, `NACA_Cylinder_Y.npy`, `(samples, h, w)`, and
    `NACA_Cylinder_Q.npy`, `(samples, 5, h, w)`; as published, 2490 samples of 221 x 51
    points. The test samples follow the training samples.

    Args:
      data_dir: folder of the files.
      num_train: number of training samples, the first ones.
      num_test: number of test samples, the next ones.
      channels: target channels, some of `CHANNELS`.

    Returns:
      Training and test samples.

    Raises:
      FileNotFoundError: if a file is missing. The message lists the searched paths.
      ValueError: if a channel is unknown, there are too few samples, or a file is
        damaged or has its axes in another order.

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.3.
      Wu et al., "Transolver", ICML 2024 (arXiv:2402.02366).
    """
    rows = _FILES.rows(channels)
    points, fields, path = _structured.read(data_dir, _FILES)
    train, test = _arrays.split(
        len(points), num_train, num_test, test="next", what=str(path)
    )
    gap = np.abs(points[0, 0, 0] - points[0, -1, 0]).max()
    if gap > 1e-3 * np.ptp(points[0]):
        raise ValueError(
            f"The ends of the first line of points in {path} are {gap} apart, but "
            "they must be the same point of the wake: the first axis must run "
            "around the airfoil, the second one outwards."
        )
    samples = _structured.samples(points, fields, rows, name="airfoil")
    return samples[train], samples[test]


def generate(
    num_samples: int,
    *,
    seed: int,
    solver: Solver = PUBLISHED,
    channels: Sequence[str] = ("mach",),
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates samples with our solver, or reads them from the cache.

    Samples are solved one by one in float32 on the CPU, about 6 s each on the published
    mesh and 1 s on one of 111 x 26 points. Sample `i` depends only on `seed` and `i`,
    so a smaller data set is the start of a larger one.

    Args:
      num_samples: number of samples.
      seed: seed of the data set; use different seeds for training and test data.
      solver: cells of the meshes, and the residual to stop at.
      channels: target channels, some of `CHANNELS`.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples on meshes of `num_airfoil + 2 num_wake + 1` times `num_radial + 1` points.

    Raises:
      RuntimeError: if a flow does not converge to a steady state.
      ValueError: if a number is not positive, `seed` is negative, or a channel is
        unknown.
    """
    rows = _FILES.rows(channels)
    arrays = _build(num_samples, seed, cache_dir, solver=solver)
    return _structured.samples(arrays["points"], arrays["fields"], rows, name="airfoil")


def save(data_dir: OnePath, samples: Sequence[Sample]) -> None:
    """Writes samples with all `CHANNELS` in the published layout, which `load` reads.

    Raises:
      ValueError: if a sample lacks a channel or has a different grid than the first.
      OSError: if a file cannot be written.
    """
    _structured.write(data_dir, _FILES, samples)


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("airfoil", version=1)
def _build(*, num_samples: int, seed: int, solver: Solver) -> dict[str, np.ndarray]:
    tolerance = solver.tolerance

    def draw(key: jax.Array, index: int) -> dict[str, Any]:
        mesh = solver.mesh(airfoil.random_displacements(key)).astype(jnp.float32)
        flow = airfoil.solve(mesh, num_wake=solver.num_wake, tolerance=tolerance)
        if not float(flow.residual) <= tolerance:
            raise RuntimeError(
                f"The flow of sample {index} of seed {seed} has a residual of "
                f"{float(flow.residual):.1e} after {int(flow.num_steps)} steps, above "
                f"{tolerance=}; use a larger tolerance or another seed."
            )
        velocity = np.moveaxis(np.asarray(flow.velocity), -1, 0)
        fields = [flow.density, *velocity, flow.pressure, flow.mach]
        return {"points": mesh, "fields": np.stack(list(map(np.asarray, fields)))}

    return _generated.draw(draw, num_samples=num_samples, seed=seed, name="Airfoil")
