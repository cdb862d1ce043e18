"""The Airfoil data set of Geo-FNO: generated here, or read from the published files.

From the shape of an airfoil to the Mach number around it, on a C-mesh: 221 x 51 points
as published, around the airfoil first (from above the wake over the upper side to below
it), then outwards. At the wake both ends of the first axis are the same points.

Generated samples have the published distribution and mesh, but another scheme: see
`opjax.problems.airfoil`.
"""

import logging
import os
import time
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from opjax import _checks
from opjax.datasets import _arrays, _reproducible, _structured
from opjax.datasets.cache import cached
from opjax.datasets.samples import Sample
from opjax.problems import airfoil

CHANNELS = ("density", "u", "v", "pressure", "mach")

_LOGGER = logging.getLogger(__name__)
_VERSION = 1  # raise it whenever the same arguments give other numbers
_FILES = _structured.Files(
    "NACA_Cylinder", ("naca", "airfoil/naca", "airfoil"), CHANNELS
)


def load(
    data_dir: str | os.PathLike,
    *,
    num_train: int = 1000,
    num_test: int = 200,
    channels: Sequence[str] = ("mach",),
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published files, or files of the same layout made by `save`.

    Looks in `data_dir`, and in folders `naca`, `airfoil/naca` and `airfoil` there, for
    `NACA_Cylinder_X.npy`, `NACA_Cylinder_Y.npy`, `(samples, h, w)`, and
    `NACA_Cylinder_Q.npy`, `(samples, 5, h, w)`; as published 2490 samples of 221 x 51
    points. The samples after those for training are for tests.

    Args:
      data_dir: folder of the files.
      num_train: training samples, the first ones.
      num_test: test samples, the next ones.
      channels: some of `CHANNELS`, for the targets.

    Returns:
      Training and test samples.

    Raises:
      FileNotFoundError: if a file is missing; lists where it was looked for.
      ValueError: if a channel is unknown, there are too few samples, or a file is
        damaged or its axes are in another order.

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.3.
      Wu et al., "Transolver", ICML 2024 (arXiv:2402.02366).
    """
    rows = _FILES.rows(channels)
    points, fields, path = _structured.read(data_dir, _FILES)
    train, test = _arrays.split(
        len(points),
        num_train=num_train,
        num_test=num_test,
        test="next",
        what=str(path),
    )
    gap = np.abs(points[0, 0, 0] - points[0, -1, 0]).max()
    if gap > 1e-3 * np.ptp(points[0]):
        raise ValueError(
            f"The ends of the first line of points in {path} are {gap} apart, expected "
            "the same point of the wake: the first axis must run around the airfoil, "
            "the second one outwards."
        )
    found = _structured.samples(points, fields, rows, name="airfoil")
    return found[train], found[test]


def generate(
    num_samples: int,
    *,
    seed: int,
    num_airfoil: int = 120,
    num_wake: int = 50,
    num_radial: int = 50,
    tolerance: float = 1e-4,
    channels: Sequence[str] = ("mach",),
    cache_dir: str | os.PathLike | None = None,
) -> list[Sample]:
    """Solves for samples with our own solver, or reads them from the cache.

    One sample after another in float32 on the CPU, about 6 s each on the published mesh
    and 1 s on one of 111 x 26 points. Sample `i` depends on `seed` and `i` only, so a
    smaller data set is the start of a larger one.

    Args:
      num_samples: samples to generate.
      seed: seed of the data set; take different ones for training and test data.
      num_airfoil: cells around the airfoil, even; 120 as published.
      num_wake: cells along either side of the wake; 50 as published.
      num_radial: cells outwards; 50 as published.
      tolerance: residual to stop at, at least 1e-5 in float32. 1e-4 leaves an error of
        0.1 % of the Mach number (relative L2), 1e-5 less than 0.01 %.
      channels: some of `CHANNELS`, for the targets.
      cache_dir: folder of the cache; `$OPJAX_CACHE` or else `~/.cache/opjax`.

    Returns:
      Samples on meshes of `num_airfoil + 2 num_wake + 1` times `num_radial + 1` points.

    Raises:
      RuntimeError: if a flow does not become steady.
      ValueError: if a number is not positive, `seed` is negative, the tolerance is
        below 1e-5, or a channel is unknown.
    """
    _checks.positive(num_samples=num_samples)
    _checks.non_negative(seed=seed)
    rows = _FILES.rows(channels)
    if not 1e-5 <= tolerance < 1:
        raise ValueError(f"{tolerance=} must lie between 1e-5 and 1 in float32.")
    recipe = {
        "version": _VERSION,
        "num_samples": int(num_samples),
        "seed": int(seed),
        "num_airfoil": int(num_airfoil),
        "num_wake": int(num_wake),
        "num_radial": int(num_radial),
        "tolerance": float(tolerance),
    }
    arguments = {key: value for key, value in recipe.items() if key != "version"}
    arrays = cached(
        lambda: _build(**arguments), name="airfoil", recipe=recipe, cache_dir=cache_dir
    )
    return _structured.samples(arrays["points"], arrays["fields"], rows, name="airfoil")


def save(data_dir: str | os.PathLike, samples: Sequence[Sample]) -> None:
    """Writes samples in the published layout, so that `load` reads them.

    Args:
      data_dir: folder of the files, made if missing.
      samples: of `generate` with `channels=CHANNELS`.

    Raises:
      ValueError: if a sample lacks a channel or has another grid than the first.
      OSError: if a file cannot be written.
    """
    _structured.write(data_dir, _FILES, samples)


def _build(
    *,
    num_samples: int,
    seed: int,
    num_airfoil: int,
    num_wake: int,
    num_radial: int,
    tolerance: float,
) -> dict[str, np.ndarray]:
    shape = num_airfoil + 2 * num_wake + 1, num_radial + 1
    points = np.empty((num_samples, *shape, 2), np.float32)
    fields = np.empty((num_samples, len(CHANNELS), *shape), np.float32)
    start = time.perf_counter()
    with _reproducible.keys(seed) as key_of:
        for i in range(num_samples):
            mesh = airfoil.mesh(
                airfoil.random_displacements(key_of(i)),
                num_airfoil=num_airfoil,
                num_wake=num_wake,
                num_radial=num_radial,
            ).astype(jnp.float32)
            flow = airfoil.solve(mesh, num_wake=num_wake, tolerance=tolerance)
            if not float(flow.residual) <= tolerance:
                raise RuntimeError(
                    f"The flow of sample {i} of seed {seed} has a residual of "
                    f"{float(flow.residual):.1e} after {int(flow.num_steps)} steps, "
                    f"above {tolerance=}; take a larger one, or another seed."
                )
            points[i] = mesh
            fields[i, [0, 3, 4]] = [flow.density, flow.pressure, flow.mach]
            fields[i, 1:3] = np.moveaxis(np.asarray(flow.velocity), -1, 0)
    _LOGGER.info(
        "Airfoil: %d samples of %d x %d points, %.2f s each",
        num_samples,
        *shape,
        (time.perf_counter() - start) / num_samples,
    )
    return {"points": points, "fields": fields}
