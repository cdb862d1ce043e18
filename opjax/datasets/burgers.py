"""The Burgers data set: generated here, or read from the published file.

It maps the initial state to the solution, both `(n, 1)`, at the points `i / n` of a
periodic grid, with coordinates scaled to [0, 1]. All samples share their mesh points.
"""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from opjax import _checks
from opjax._files import OnePath
from opjax.datasets import _arrays, _generated, _structured
from opjax.datasets.requests import Request
from opjax.files import variables
from opjax.problems import burgers, grids
from opjax.samples import Sample, Splits


def splits(
    request: Request,
    *,
    stride: int = 1,
) -> Splits:
    """Returns the samples of a benchmark (`requests.Request`), from 8192 points.

    Keeps every `stride`-th point; use `samples.coarsen` for further grids.
    """
    if request.data_dir:
        return request.read(partial(load, stride=stride))
    return request.generate(partial(generate, stride=stride), "own solver")


def generate(
    num_samples: int,
    *,
    seed: int,
    num_points: int = 8192,
    stride: int = 1,
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates samples of the Burgers problem, or reads them from the cache.

    It solves in float64 on the CPU regardless of the caller's settings, one sample
    after another, about 5 ms each. Sample `i` depends only on `seed` and `i`, so a
    smaller data set is the start of a larger one.

    Args:
      num_samples: number of samples.
      seed: seed of the data set; use different seeds for training and test data.
      num_points: number of points of the periodic grid; 8192 was published.
      stride: keep every `stride`-th point; must divide `num_points`.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples in float32 at `num_points / stride` points.

    Raises:
      ValueError: if a number is not positive, there are fewer than four points, `seed`
        is negative, or `stride` does not divide `num_points`.
    """
    grids.check_stride(num_points, stride, periodic=True)
    arrays = _build(num_samples, seed, cache_dir, num_points=num_points, stride=stride)
    return to_samples(arrays["a"], arrays["u"])


def load(
    data_dir: OnePath,
    *,
    num_points: int = 8192,
    stride: int = 1,
    num_train: int = 1024,
    num_test: int = 100,
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published Burgers file, or a file of the same layout made by `save`.

    Searches `data_dir`, and its subfolder with the name of the file, for
    `burgers_data_R10` with suffix `.mat` (any MATLAB version) or `.npz`. It contains
    `a` and `u`, `(samples, num_points)`, in the published file 2048 x 8192. The first
    samples are the training set, the last ones the test set.

    Args:
      data_dir: folder of the file.
      num_points: number of grid points in the file.
      stride: keep every `stride`-th point; must divide `num_points`.
      num_train: number of training samples to read.
      num_test: number of test samples to read.

    Returns:
      Training and test samples in float32.

    Raises:
      FileNotFoundError: if the file is missing. The message lists the searched paths.
      ImportError: if scipy or h5py is needed but missing.
      ValueError: if `stride` does not divide `num_points`, or the file is damaged,
        lacks an array, or contains arrays of the wrong shape, too few samples or
        non-finite values.

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895).
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), App. C.2.
    """
    grids.check_stride(num_points, stride, periodic=True)
    _checks.positive(num_train=num_train, num_test=num_test)
    path = _arrays.find_stem(data_dir, "burgers_data_R10", source=_arrays.FNO)
    a, u = (
        _arrays.read(
            path,
            key,
            shape=(None, num_points),
            source=_arrays.FNO,
            fewest=num_train + num_test,
            keep=np.s_[:, ::stride],
        )
        for key in ("a", "u")
    )
    return (
        to_samples(a[:num_train], u[:num_train]),
        to_samples(a[-num_test:], u[-num_test:]),
    )


def to_samples(a: np.ndarray, u: np.ndarray) -> list[Sample]:
    """Converts arrays of the published layout to samples.

    Args:
      a: initial states, shape `(samples, n)`.
      u: solutions, the same shape.

    Raises:
      ValueError: if the shapes are wrong.
    """
    a, u = np.asarray(a, np.float32), np.asarray(u, np.float32)
    if a.ndim != 2 or a.shape != u.shape:
        raise ValueError(
            f"a has shape {a.shape} and u has shape {u.shape}, expected (samples, "
            "n) for both."
        )
    points = positions(a.shape[1])
    return _structured.on_grid(points, a.shape[1:], a, u, name="burgers")


def positions(num_points: int) -> np.ndarray:
    """Returns the points `i / n` of a periodic grid, float32 `(num_points, 1)`.

    Raises:
      ValueError: if `num_points` is not positive.
    """
    _checks.positive(num_points=num_points)
    return _structured.unit_grid((num_points,), periodic=True)


def save(path: OnePath, found: Sequence[Sample]) -> None:
    """Writes samples in the published layout, so that `load` reads them.

    Args:
      path: file to write, with suffix `.mat` (MATLAB 5, needs scipy) or `.npz`. `load`
        expects the name `burgers_data_R10`.
      found: samples on one grid.

    Raises:
      ValueError: if the samples have no common grid or the suffix is unknown.
      ImportError: if scipy is needed but missing.
      OSError: if the file cannot be written; an existing file is then unchanged.
    """
    a, u = _structured.fields(found)
    variables.write(path, {"a": a[..., 0], "u": u[..., 0]})


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("burgers", version=2)
def _build(
    *, num_samples: int, seed: int, num_points: int, stride: int
) -> dict[str, np.ndarray]:
    def draw(key: jax.Array, _: int) -> dict[str, jax.Array]:
        initial, solution = burgers.sample(key, num_points=num_points)
        return {"a": initial[::stride], "u": solution[::stride]}

    return _generated.draw(draw, num_samples=num_samples, seed=seed, name="Burgers")
