"""The Darcy data set: generated here, or read from the published files.

Both give arrays `coeff` and `sol` of the same layout, `(samples, s, s)` in float32.
"""

import logging
import os
import time

import jax
import numpy as np

from opjax import _checks
from opjax.datasets import _files
from opjax.datasets.cache import cached
from opjax.problems import darcy

_LOGGER = logging.getLogger(__name__)
_VERSION = 1  # raise it whenever the same arguments give other numbers
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
        path = _files.find(data_dir, stem)
        return _files.read(
            path, num_samples=num_samples, num_points=num_points, stride=stride
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


def _build(
    *, num_samples: int, seed: int, num_points: int, stride: int, tolerance: float
) -> dict[str, np.ndarray]:
    size = (num_points - 1) // stride + 1
    coeff, sol = np.empty((2, num_samples, size, size), np.float32)
    residual, iterations = np.empty(num_samples), np.empty(num_samples, int)
    start = reported = time.perf_counter()
    # The flags below change the numbers, so they are part of the generator.
    with (
        jax.enable_x64(True),
        jax.threefry_partitionable(True),
        jax.default_device(_cpu()),
    ):
        key = jax.random.key(seed, impl="threefry2x32")
        for i in range(num_samples):
            sample = darcy.sample(
                jax.random.fold_in(key, i),
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


def _cpu():
    """The first CPU; None, the default device, where JAX was told to do without."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


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
