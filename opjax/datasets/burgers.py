"""The Burgers data set: generated here, or read from the published file.

Both give arrays `a` (initial states), `u` (solutions) and `u_x` (their derivatives), of
the same layout, `(samples, n)` in float32, in coordinates scaled to [0, 1].

The code of the Galerkin transformer takes its periodic grid for one that ends in the
point it began with. `endpoint=True` does so too, to repeat what was published.
"""

import logging
import os
import time

import numpy as np
from numpy.typing import ArrayLike

from opjax import _checks
from opjax.datasets import _files, _reproducible
from opjax.datasets.cache import cached
from opjax.problems import burgers

_LOGGER = logging.getLogger(__name__)
_VERSION = 1  # raise it whenever the same arguments give other numbers
_LAYOUT = _files.Layout("Burgers", ("a", "u"), 1)


def positions(num_points: int, *, endpoint: bool = False) -> np.ndarray:
    """Coordinates of a periodic grid, scaled to [0, 1].

    Args:
      num_points: points of the grid.
      endpoint: `i / (n - 1)` as published, instead of the true `i / n`; the same point
        then has different coordinates on grids of different resolution.

    Returns:
      The coordinates, float32 of shape `(num_points, 1)`.

    Raises:
      ValueError: if `num_points` is not positive.
    """
    _checks.positive(num_points=num_points)
    points = np.linspace(0, 1, num_points, endpoint=endpoint)
    return points.astype(np.float32)[:, None]


def derivative(values: ArrayLike, *, endpoint: bool = False) -> np.ndarray:
    """Central differences on a periodic grid, in coordinates scaled to [0, 1].

        (v_{i+1} - v_{i-1}) / (2 h),    h = 1 / n.

    Takes the difference in float64: in float32 it would lose the digits that `values`
    share with their neighbours, 2e-4 of their size at 8192 points.

    Args:
      values: shape `(..., n)`, `n >= 3`.
      endpoint: take the first and the last point for the same one, as published, so
        that the derivative there is a difference over one and a half steps.

    Returns:
      The derivative, float64 of the same shape.

    Raises:
      ValueError: if there are fewer than three points.
    """
    values = np.asarray(values, np.float64)
    if values.ndim < 1 or values.shape[-1] < 3:
        raise ValueError(
            f"values has shape {values.shape}, expected (..., n) with n >= 3 points."
        )
    before, after = (-2, 1) if endpoint else (-1, 0)
    extended = [values[..., [before]], values, values[..., [after]]]
    extended = np.concatenate(extended, axis=-1)
    return (extended[..., 2:] - extended[..., :-2]) * (values.shape[-1] / 2)


def generate(
    num_samples: int,
    *,
    seed: int,
    num_points: int = 8192,
    stride: int = 1,
    endpoint: bool = False,
    cache_dir: str | os.PathLike | None = None,
) -> dict[str, np.ndarray]:
    """Generates pairs of the Burgers problem, or reads them from the cache.

    Solves in float64 on the CPU whatever the caller's settings, one sample after
    another, about 5 ms each. Sample `i` depends on `seed` and `i` only, so a smaller
    data set is the start of a larger one.

    Args:
      num_samples: pairs to generate.
      seed: seed of the data set; take different ones for training and test data.
      num_points: points of the periodic grid; 8192 was published.
      stride: keep every `stride`-th point; must divide `num_points`.
      endpoint: as in `derivative`, which is taken before the stride.
      cache_dir: folder of the cache; `$OPJAX_CACHE` or else `~/.cache/opjax`.

    Returns:
      `a`, `u` and `u_x`, float32 of shape `(num_samples, num_points / stride)`.

    Raises:
      ValueError: if a number is not positive, there are fewer than four points, `seed`
        is negative, or `stride` does not divide `num_points`.
    """
    _checks.positive(num_samples=num_samples)
    _checks.non_negative(seed=seed)
    burgers.check_stride(num_points, stride)
    recipe = {
        "version": _VERSION,
        "num_samples": int(num_samples),
        "seed": int(seed),
        "num_points": int(num_points),
        "stride": int(stride),
        "endpoint": bool(endpoint),
    }
    arguments = {key: value for key, value in recipe.items() if key != "version"}
    return cached(
        lambda: _build(**arguments), name="burgers", recipe=recipe, cache_dir=cache_dir
    )


def load(
    data_dir: str | os.PathLike,
    *,
    num_points: int = 8192,
    stride: int = 1,
    endpoint: bool = False,
    num_train: int = 1024,
    num_test: int = 100,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Reads the published Burgers file, or a file of the same layout made by `save`.

    Looks in `data_dir`, and in a folder there called like the file, for
    `burgers_data_R10` with suffix `.mat` (any MATLAB version) or `.npz`. It holds `a`
    and `u`, `(samples, num_points)`, in the published file 2048 x 8192. The first
    samples are for training, the last ones for tests.

    Args:
      data_dir: folder of the file.
      num_points: points of the grid in the file.
      stride: keep every `stride`-th point; must divide `num_points`.
      endpoint: as in `derivative`, which is taken before the stride.
      num_train: training samples to read.
      num_test: test samples to read.

    Returns:
      Training and test data, each with `a`, `u` and `u_x` in float32, of shape
      `(num_train, num_points / stride)` and `(num_test, num_points / stride)`.

    Raises:
      FileNotFoundError: if the file is missing; lists where it was looked for.
      ImportError: if scipy or h5py is needed and missing.
      ValueError: if `stride` does not divide `num_points`, or the file is damaged,
        lacks an array, or holds arrays of the wrong shape, too few samples or values
        that are not finite.

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895).
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), App. C.2.
    """
    burgers.check_stride(num_points, stride)
    _checks.positive(num_train=num_train, num_test=num_test)
    path = _files.find(data_dir, "burgers_data_R10", _LAYOUT)
    arrays = _files.read(
        path,
        _LAYOUT,
        num_points=num_points,
        stride=1,
        num_first=num_train,
        num_last=num_test,
        dtype=np.float64,
    )
    arrays["u_x"] = derivative(arrays["u"], endpoint=endpoint)
    data = {key: _strided(array, stride) for key, array in arrays.items()}
    train = {key: array[:num_train] for key, array in data.items()}
    return train, {key: array[num_train:] for key, array in data.items()}


def save(path: str | os.PathLike, a: np.ndarray, u: np.ndarray) -> None:
    """Writes pairs in the published layout, so that `load` reads them.

    Args:
      path: file to write, ending in `.mat` (MATLAB 5, needs scipy) or `.npz`. For
        `load`, call it `burgers_data_R10`.
      a: initial states, shape `(samples, n)`.
      u: solutions, the same shape.

    Raises:
      ValueError: if the shapes are wrong or the suffix is another one.
      ImportError: if scipy is needed and missing.
      OSError: if the file cannot be written; an old file then stays as it was.
    """
    a, u = np.asarray(a), np.asarray(u)
    if a.ndim != 2 or a.shape != u.shape:
        raise ValueError(
            f"a has shape {a.shape} and u {u.shape}, expected (samples, n) for both."
        )
    _files.write(path, {"a": a, "u": u})


def _strided(array: np.ndarray, stride: int) -> np.ndarray:
    return np.array(array[..., ::stride], np.float32, order="C")


def _build(
    *, num_samples: int, seed: int, num_points: int, stride: int, endpoint: bool
) -> dict[str, np.ndarray]:
    a, u, u_x = np.empty((3, num_samples, num_points // stride), np.float32)
    start = time.perf_counter()
    with _reproducible.keys(seed) as key_of:
        for i in range(num_samples):
            initial, solution = map(
                np.asarray, burgers.sample(key_of(i), num_points=num_points)
            )
            a[i], u[i] = initial[::stride], solution[::stride]
            u_x[i] = derivative(solution, endpoint=endpoint)[::stride]
    _LOGGER.info(
        "Burgers: %d samples at %d points, %.1f ms each",
        num_samples,
        num_points,
        1e3 * (time.perf_counter() - start) / num_samples,
    )
    return {"a": a, "u": u, "u_x": u_x}
