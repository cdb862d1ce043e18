"""The Darcy data set: generated here, or read from the published files.

It maps the coefficient to the solution, both `(n, 1)`, at the points of a grid. All
samples are views of one array, and share their mesh points.
"""

import logging
from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from opjax import _checks
from opjax._files import OnePath
from opjax.datasets import _arrays, _generated, _structured
from opjax.datasets.requests import Request
from opjax.files import variables
from opjax.problems import darcy, grids
from opjax.samples import Sample, Splits

_LOGGER = logging.getLogger(__name__)
_SOURCE = (
    f"{_arrays.FNO} (the number in the names is --num_points; the published files have "
    "421 or 241)"
)


def splits(
    request: Request,
    *,
    num_points: int = 421,
    stride: int = 5,
    tolerance: float = 1e-9,
) -> Splits:
    """Returns the samples of a benchmark (`requests.Request`), see `generate`."""
    if request.data_dir:
        return request.read(partial(load, num_points=num_points, stride=stride))
    source = f"own solver, {num_points} points"
    return request.generate(
        partial(generate, num_points=num_points, stride=stride, tolerance=tolerance),
        source,
    )


def generate(
    num_samples: int,
    *,
    seed: int,
    num_points: int = 421,
    stride: int = 5,
    tolerance: float = 1e-9,
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates samples of the Darcy problem, or reads them from the cache.

    It solves in float64 on the CPU regardless of the caller's settings, one sample
    after another. Sample `i` depends only on `seed` and `i`, so a smaller data set is
    the start of a larger one. Samples that miss the tolerance are logged.

    Args:
      num_samples: number of samples.
      seed: seed of the data set; use different seeds for training and test data.
      num_points: number of cell centres per side of the solver's grid. 421 was
        published; 169 with stride 2 gives the same 85 x 85 points several times faster.
      stride: keep every `stride`-th cell centre; must divide `num_points - 1`.
      tolerance: relative residual of the solver, see `problems.darcy.DarcySolution`.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples in float32 on a grid of `s x s` points, `s = (num_points - 1) / stride +
      1`.

    Raises:
      ValueError: if a number is not positive, `seed` is negative, or `stride` does not
        divide `num_points - 1`.
    """
    _checks.positive(tolerance=tolerance)
    grids.check_stride(num_points, stride, periodic=False)
    arrays = _build(
        num_samples,
        seed,
        cache_dir,
        num_points=num_points,
        stride=stride,
        tolerance=float(tolerance),
    )
    return to_samples(arrays["coeff"], arrays["sol"])


def load(
    data_dir: OnePath,
    *,
    num_points: int = 421,
    stride: int = 5,
    num_train: int = 1000,
    num_test: int = 200,
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published Darcy files, or files of the same layout made by `save`.

    Searches `data_dir`, and its subfolder with the name of the file, for
    `piececonst_r421_N1024_smooth1` (training) and `..._smooth2` (test), with suffix
    `.mat` (any MATLAB version) or `.npz`. Each contains `coeff` and `sol`, `(samples,
    num_points, num_points)`. The first samples are used, at every `stride`-th point.

    Args:
      data_dir: folder of the files.
      num_points: points per side in the files, which is also the number after `r` in
        their names; 421 and 241 were published.
      stride: keep every `stride`-th point of each axis.
      num_train: number of training samples to read.
      num_test: number of test samples to read.

    Returns:
      Training and test samples in float32, on a grid of `s x s` points, `s =
      (num_points - 1) // stride + 1`.

    Raises:
      FileNotFoundError: if a file is missing. The message lists the searched paths.
      ImportError: if scipy or h5py is needed but missing.
      ValueError: if a file is damaged, lacks an array, or contains arrays of the wrong
        shape, too few samples or non-finite values.

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895).
    """
    _checks.positive(num_points=num_points, stride=stride)
    _checks.positive(num_train=num_train, num_test=num_test)

    def read(suffix: str, num_samples: int) -> list[Sample]:
        stem = f"piececonst_r{num_points}_N1024_{suffix}"
        path = _arrays.find_stem(data_dir, stem, source=_SOURCE)
        coeff, sol = (
            _arrays.read(
                path,
                key,
                shape=(None, num_points, num_points),
                source=_SOURCE,
                fewest=num_samples,
                keep=np.s_[:num_samples, ::stride, ::stride],
            )
            for key in ("coeff", "sol")
        )
        return to_samples(coeff, sol)

    return read("smooth1", num_train), read("smooth2", num_test)


def to_samples(coeff: np.ndarray, sol: np.ndarray) -> list[Sample]:
    """Converts arrays of the published layout to samples.

    Args:
      coeff: coefficients, shape `(samples, s, s)`.
      sol: solutions, the same shape.

    Returns:
      Samples, which are views of the arrays if these are float32.

    Raises:
      ValueError: if the shapes are wrong.
    """
    coeff, sol = np.asarray(coeff, np.float32), np.asarray(sol, np.float32)
    check_squares(coeff, sol)
    points = positions(coeff.shape[1])
    return _structured.on_grid(points, coeff.shape[1:], coeff, sol, name="darcy")


def check_squares(coeff: np.ndarray, sol: np.ndarray) -> None:
    """Raises ValueError unless both are values on square grids, `(samples, s, s)`."""
    if coeff.ndim != 3 or coeff.shape[1] != coeff.shape[2] or coeff.shape != sol.shape:
        raise ValueError(
            f"coeff has shape {coeff.shape} and sol has shape {sol.shape}, "
            "expected (samples, s, s) for both."
        )


def positions(num_points: int) -> np.ndarray:
    """Returns the points of the grid, row by row, float32 `(num_points^2, 2)`.

    The ends of every axis are 0 and 1, as in published code.
    """
    return _structured.unit_grid((num_points, num_points))


def save(path: OnePath, found: Sequence[Sample]) -> None:
    """Writes samples in the published layout, so that `load` reads them.

    Args:
      path: file to write, with suffix `.mat` (MATLAB 5, needs scipy) or `.npz`. `load`
        expects the name `piececonst_r<s>_N1024_smooth1` (training) or `..._smooth2`.
      found: samples on one square grid.

    Raises:
      ValueError: if the samples have no common grid or the suffix is unknown.
      ImportError: if scipy is needed but missing.
      OSError: if the file cannot be written; an existing file is then unchanged.
    """
    coeff, sol = _structured.fields(found)
    variables.write(path, {"coeff": coeff[..., 0], "sol": sol[..., 0]})


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("darcy", version=1)
def _build(
    *, num_samples: int, seed: int, num_points: int, stride: int, tolerance: float
) -> dict[str, np.ndarray]:
    reached, steps = np.empty(num_samples), np.empty(num_samples, int)

    def draw(key: jax.Array, index: int) -> dict[str, jax.Array]:
        sample = darcy.sample(
            key,
            num_points=num_points,
            stride=stride,
            dtype="float64",
            tolerance=tolerance,
        )
        reached[index], steps[index] = sample.residual, sample.iterations
        return {"coeff": sample.coefficient, "sol": sample.solution}

    arrays = _generated.draw(draw, num_samples=num_samples, seed=seed, name="Darcy")
    _LOGGER.info(
        "Darcy: at most %d iterations, largest residual %.1e",
        steps.max(),
        reached.max(),
    )
    # A factor of ten for the difference between true and recursive residual.
    unsolved = np.flatnonzero(~(reached <= 10 * tolerance))
    if unsolved.size:
        _LOGGER.warning(
            "Darcy: %d samples miss the tolerance %.1e, largest residual %.1e, first "
            "ones %s; remove them or solve with a larger tolerance.",
            unsolved.size,
            tolerance,
            reached[unsolved].max(),
            unsolved[:8].tolist(),
        )
    return arrays
