"""The Darcy data set: generated here, or read from the published files.

Both give arrays `coeff` and `sol` of the same layout, `(samples, s, s)` in float32.
"""

import logging
import os
import time

import numpy as np
from numpy.typing import ArrayLike

from opjax import _checks
from opjax.datasets import _files, _reproducible
from opjax.datasets.cache import cached
from opjax.problems import darcy

_LOGGER = logging.getLogger(__name__)
_VERSION = 1  # raise it whenever the same arguments give other numbers
_LAYOUT = _files.Layout("Darcy", ("coeff", "sol"), 2)
_SECONDS_BETWEEN_REPORTS = 10.0


def generate(
    num_samples: int,
    *,
    seed: int,
    num_points: int = 421,
    stride: int = 5,
    tolerance: float = 1e-9,
    cache_dir: str | os.PathLike | None = None,
) -> dict[str, np.ndarray]:
    """Generates pairs of the Darcy problem, or reads them from the cache.

    Solves in float64 on the CPU whatever the caller's settings, one sample after
    another: batches are no faster there and would change the last bits. Sample `i`
    depends on `seed` and `i` only, so a smaller data set is the start of a larger one.

    Args:
      num_samples: pairs to generate.
      seed: seed of the data set; take different ones for training and test data.
      num_points: cell centres per side of the grid of the solve. 421 was published;
        169 with stride 2 gives the same 85 x 85 points several times faster.
      stride: keep every `stride`-th cell centre; must divide `num_points - 1`.
      tolerance: relative residual of the solver, see `problems.darcy.Solution`.
      cache_dir: folder of the cache; `$OPJAX_CACHE` or else `~/.cache/opjax`.

    Returns:
      `coeff` and `sol`, float32 of shape `(num_samples, s, s)` with `s = (num_points -
      1) / stride + 1`, and `residual`, float64 of shape `(num_samples,)`.

    Raises:
      ValueError: if a number is not positive, `seed` is negative, or `stride` does not
        divide `num_points - 1`.
    """
    _checks.positive(num_samples=num_samples, tolerance=tolerance)
    _checks.non_negative(seed=seed)
    darcy.check_stride(num_points, stride)
    recipe = {
        "version": _VERSION,
        "num_samples": int(num_samples),
        "seed": int(seed),
        "num_points": int(num_points),
        "stride": int(stride),
        "tolerance": float(tolerance),
    }
    arguments = {key: value for key, value in recipe.items() if key != "version"}
    return cached(
        lambda: _build(**arguments), name="darcy", recipe=recipe, cache_dir=cache_dir
    )


def load(
    data_dir: str | os.PathLike,
    *,
    num_points: int = 421,
    stride: int = 5,
    num_train: int = 1000,
    num_test: int = 200,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Reads the published Darcy files, or files of the same layout made by `save`.

    Looks in `data_dir`, and in a folder there called like the file, for
    `piececonst_r421_N1024_smooth1` (training) and `..._smooth2` (test), with suffix
    `.mat` (any MATLAB version) or `.npz`. Each holds `coeff` and `sol`, `(samples,
    num_points, num_points)`; the first samples are taken, and every `stride`-th point.

    Args:
      data_dir: folder of the files.
      num_points: points per side in the files, also the number after `r` in their
        names.
      stride: keep every `stride`-th point of each axis.
      num_train: training samples to read.
      num_test: test samples to read.

    Returns:
      Training and test data, each with `coeff` and `sol` in float32, of shape
      `(num_train, s, s)` and `(num_test, s, s)`, `s = (num_points - 1) // stride + 1`.

    Raises:
      FileNotFoundError: if a file is missing; lists where it was looked for.
      ImportError: if scipy or h5py is needed and missing.
      ValueError: if a file is damaged, lacks an array, or holds arrays of the wrong
        shape, too few samples or values that are not finite.

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895).
    """
    _checks.positive(num_points=num_points, stride=stride)
    _checks.positive(num_train=num_train, num_test=num_test)

    def read(suffix: str, num_samples: int) -> dict[str, np.ndarray]:
        stem = f"piececonst_r{num_points}_N1024_{suffix}"
        path = _files.find(data_dir, stem, _LAYOUT)
        return _files.read(
            path, _LAYOUT, num_points=num_points, stride=stride, num_first=num_samples
        )

    return read("smooth1", num_train), read("smooth2", num_test)


def save(path: str | os.PathLike, coeff: np.ndarray, sol: np.ndarray) -> None:
    """Writes pairs in the published layout, so that `load` reads them.

    Args:
      path: file to write, ending in `.mat` (MATLAB 5, needs scipy) or `.npz`. For
        `load`, call it `piececonst_r<s>_N1024_smooth1` (training) or `..._smooth2`.
      coeff: coefficients, shape `(samples, s, s)`.
      sol: solutions, the same shape.

    Raises:
      ValueError: if the shapes are wrong or the suffix is another one.
      ImportError: if scipy is needed and missing.
      OSError: if the file cannot be written; an old file then stays as it was.
    """
    coeff, sol = np.asarray(coeff, np.float32), np.asarray(sol, np.float32)
    if coeff.ndim != 3 or coeff.shape[1] != coeff.shape[2] or coeff.shape != sol.shape:
        raise ValueError(
            f"coeff has shape {coeff.shape} and sol {sol.shape}, expected "
            "(samples, s, s) for both."
        )
    _files.write(path, {"coeff": coeff, "sol": sol})


def gradient(sol: ArrayLike) -> np.ndarray:
    """Derivatives of solutions by central differences, zero outside the grid.

        (v_{i+1,j} - v_{i-1,j}) / (2 h),    (v_{i,j+1} - v_{i,j-1}) / (2 h),

    with `h = 1 / s` and a ring of zeros around the grid: half a cell beyond the outer
    cell centres the solution vanishes, so derivatives at the rim are only rough.

    Args:
      sol: solutions at cell centres, shape `(..., s, s)`. Take every `stride`-th point
        afterwards, not before.

    Returns:
      The derivatives along the last two axes, shape `(..., s, s, 2)`, in float64.

    Raises:
      ValueError: if `sol` is not square.

    References:
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), App. C.3.
    """
    sol = np.asarray(sol, np.float64)
    if sol.ndim < 2 or sol.shape[-1] != sol.shape[-2]:
        raise ValueError(f"sol has shape {sol.shape}, expected (..., s, s).")
    padded = np.pad(sol, [(0, 0)] * (sol.ndim - 2) + [(1, 1)] * 2)
    rows = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    columns = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    return np.stack([rows, columns], axis=-1) * (sol.shape[-1] / 2)


def _build(
    *, num_samples: int, seed: int, num_points: int, stride: int, tolerance: float
) -> dict[str, np.ndarray]:
    size = (num_points - 1) // stride + 1
    coeff, sol = np.empty((2, num_samples, size, size), np.float32)
    residual, iterations = np.empty(num_samples), np.empty(num_samples, int)
    start = reported = time.perf_counter()
    with _reproducible.keys(seed) as key_of:
        for i in range(num_samples):
            sample = darcy.sample(
                key_of(i),
                num_points=num_points,
                stride=stride,
                dtype="float64",
                tolerance=tolerance,
            )
            coeff[i], sol[i], residual[i], iterations[i] = sample
            if time.perf_counter() - reported > _SECONDS_BETWEEN_REPORTS:
                reported = time.perf_counter()
                _LOGGER.info("Darcy: %d of %d samples", i + 1, num_samples)
    _LOGGER.info(
        "Darcy: %d samples at %d points, %.1f ms each, at most %d iterations, "
        "largest residual %.1e",
        num_samples,
        num_points,
        1e3 * (time.perf_counter() - start) / num_samples,
        iterations.max(),
        residual.max(),
    )
    _warn_unsolved(residual, tolerance)
    return {"coeff": coeff, "sol": sol, "residual": residual}


def _warn_unsolved(residual: np.ndarray, tolerance: float) -> None:
    # A factor of ten for the difference between true and recursive residual.
    unsolved = np.flatnonzero(~(residual <= 10 * tolerance))
    if unsolved.size:
        _LOGGER.warning(
            "Darcy: %d samples miss the tolerance %.1e, largest residual %.1e, first "
            "ones %s; leave them out or solve with a larger tolerance.",
            unsolved.size,
            tolerance,
            residual[unsolved].max(),
            unsolved[:8].tolist(),
        )
