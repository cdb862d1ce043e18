"""The plasticity data set: generated here, or read from the published file.

A sample is the forming of a block by a die: `features` contains, for every node, the
profile of the die at the node of the upper side above it; `target` contains, for all
times and nodes, the coordinates `x`, `y` and the displacements, in mm, time by time,
`(n m, frames * 4)`. Mesh points are the initial nodes, scaled to the unit square, along
the block first.

Published code of the models assigns the nodes, 101 along the block and 31 across, to a
grid of 31 x 101 points, so points and values do not match. `coordinates="published"`
repeats this, to compare with published numbers; the default does not.

Generated samples are computed with our solver for the published problem as far as it is
known: the distribution of the dies, their travel and the time between frames are
unknown, and no published sample was available for comparison.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from opjax import _checks
from opjax._files import OnePath
from opjax.datasets import _arrays, _generated, _structured
from opjax.datasets.requests import Request
from opjax.files import variables
from opjax.problems import plasticity
from opjax.samples import Sample, Splits, check

_NAMES = ("plas_N987_T20", "buri_plas_N987_time")
NUM_CHANNELS = 4  # x, y and their displacements
COORDINATES = ("nodes", "published")


def splits(
    request: Request,
    *,
    num_points: tuple[int, int] = (101, 31),
    coordinates: str = "nodes",
) -> Splits:
    """Returns the samples of a benchmark (`requests.Request`), see `generate`."""
    if request.data_dir:
        return request.read(partial(load, coordinates=coordinates))
    along, across = num_points
    return request.generate(
        partial(generate, num_points=num_points, coordinates=coordinates),
        f"own solver, {along} x {across} nodes",
    )


def load(
    data_dir: OnePath,
    *,
    num_train: int = 900,
    num_test: int = 80,
    coordinates: str = "nodes",
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published plasticity file, or a file of the same layout.

    Searches `data_dir`, and its subfolder `plasticity`, for `plas_N987_T20` or
    `buri_plas_N987_time` with suffix `.mat` (any MATLAB version) or `.npz`. It contains
    `input`, `(samples, n)`, and `output`, `(samples, n, m, frames, 4)`: as published,
    987 samples, n = 101, m = 31 and 20 frames. The first samples are the training set,
    the last ones the test set.

    Args:
      data_dir: folder of the file.
      num_train: number of training samples.
      num_test: number of test samples.
      coordinates: "nodes", the true locations, or "published".

    Returns:
      Training and test samples: `mesh_points (n m, 2)`, `features (n m, 1)`, `target
      (n m, frames * 4)`, `grid_shape (n, m)`.

    Raises:
      FileNotFoundError: if the file is missing. The message lists the searched paths.
      ImportError: if scipy or h5py is needed but missing.
      ValueError: if `coordinates` is unknown, or the file is damaged, lacks an array,
        or has its axes in another order, too few samples or non-finite values.

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations for PDEs on General
      Geometries", JMLR 24, 2023 (arXiv:2207.05209), Sec. 4.
    """
    _checks.option("coordinates", coordinates, COORDINATES)
    names = [
        f"{folder}{name}{suffix}"
        for folder in ("", "plasticity/", "Plasticity/")
        for name in _NAMES
        for suffix in (".mat", ".npz")
    ]
    path = _arrays.find(data_dir, names, source=_arrays.GEO_FNO)
    dies = _arrays.read(path, "input", shape=(None, None), source=_arrays.GEO_FNO)
    shape = (*dies.shape, None, None, NUM_CHANNELS)
    motions = _arrays.read(path, "output", shape=shape, source=_arrays.GEO_FNO)
    _check_axes(path, motions)
    train, test = _arrays.split(
        len(dies), num_train, num_test, test="last", what=str(path)
    )
    convert = partial(to_samples, coordinates=coordinates)
    return convert(dies[train], motions[train]), convert(dies[test], motions[test])


def generate(
    num_samples: int,
    *,
    seed: int,
    num_points: tuple[int, int] = (101, 31),
    amplitude: float = 3.0,
    travel: float = 4.5,
    coordinates: str = "nodes",
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates samples with our solver, or reads them from the cache.

    It solves in float64 on the CPU regardless of the caller's settings, one sample
    after another: about 1 s each for 41 x 13 nodes and 8 s for the published 101 x 31.
    Sample `i` depends only on `seed` and `i`, so a smaller data set is the start of a
    larger one.

    Args:
      num_samples: number of samples.
      seed: seed of the data set; use different seeds for training and test data.
      num_points: numbers of nodes along the block and across; 101 x 31 were published.
        Coarser meshes give a different operator, see `opjax.problems.plasticity.solve`.
      amplitude: maximum height of a die, mm.
      travel: travel of the die, mm.
      coordinates: "nodes", the true locations, or "published".
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      The samples, as from `load`, with 20 frames.

    Raises:
      FloatingPointError: if an element collapses under a die.
      ValueError: if `coordinates` is unknown, a number is not positive, or `seed` is
        negative.
    """
    _checks.positive(amplitude=amplitude, travel=travel)
    _checks.option("coordinates", coordinates, COORDINATES)
    plasticity.reference_mesh(num_points)  # refuses too few nodes
    arrays = _build(
        num_samples,
        seed,
        cache_dir,
        num_points=num_points,
        amplitude=float(amplitude),
        travel=float(travel),
    )
    return to_samples(arrays["input"], arrays["output"], coordinates=coordinates)


def to_samples(
    dies: np.ndarray, motions: np.ndarray, *, coordinates: str = "nodes"
) -> list[Sample]:
    """Converts arrays of the published layout to samples, as from `load`."""
    shape = motions.shape[1:3]
    points = positions(shape, coordinates=coordinates)
    features = np.repeat(np.asarray(dies, np.float32), shape[1], axis=1)
    target = np.asarray(motions, np.float32)
    samples = _structured.on_grid(points, shape, features, target, name="plasticity")
    check(samples)
    return samples


def positions(shape: tuple[int, ...], *, coordinates: str = "nodes") -> np.ndarray:
    """Returns the initial nodes, scaled to the unit square, float32 `(n m, 2)`.

    Args:
      shape: numbers of nodes, `n` along the block and `m` across.
      coordinates: "nodes" for `(i / (n - 1), j / (m - 1))` at node `(i, j)`, row by
        row; "published" for the same points in transposed order.

    Raises:
      ValueError: if `coordinates` is unknown.
    """
    _checks.option("coordinates", coordinates, COORDINATES)
    indexing = "xy" if coordinates == "published" else "ij"
    return _structured.unit_grid(shape, indexing=indexing)


def save(
    data_dir: OnePath,
    samples: Sequence[Sample],
    *,
    name: str = f"{_NAMES[0]}.mat",
) -> None:
    """Writes samples in the published layout, so that `load` reads them.

    Args:
      data_dir: existing folder.
      samples: samples with the same grid and a target.
      name: name of the file, with suffix `.mat` (MATLAB 5, needs scipy) or `.npz`.

    Raises:
      ValueError: if the samples have no common grid or the suffix is unknown.
      ImportError: if scipy is needed but missing.
      OSError: if the file cannot be written; an existing file is then unchanged.
    """
    check(samples)
    features, target = _structured.fields(samples)
    motions = target.reshape(*target.shape[:3], -1, NUM_CHANNELS)
    arrays = {"input": features[:, :, 0, 0], "output": motions}
    variables.write(Path(data_dir).expanduser() / name, arrays)


def _check_axes(path: Path, motions: np.ndarray) -> None:
    """The block is thicker than any node moves, which tells nodes from frames."""
    coordinates = motions[0, ..., :2]
    across, moved = (np.ptp(coordinates, axis=a).mean() for a in (1, 2))
    if across <= moved:
        raise ValueError(
            f"output in {path} has shape {motions.shape}, expected (samples, n, m, "
            "frames, 4) with channels x, y and their displacements; but x and y change "
            f"by {across:.3g} along axis 2 and by {moved:.3g} along axis 3, in time. "
            "The axes or channels may be in another order."
        )


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("plasticity", version=1)
def _build(
    *,
    num_samples: int,
    seed: int,
    num_points: Sequence[int],
    amplitude: float,
    travel: float,
) -> dict[str, np.ndarray]:
    along, across = num_points
    solve = partial(
        plasticity.sample,
        num_points=(along, across),
        amplitude=amplitude,
        travel=travel,
    )

    def draw(key: jax.Array, index: int) -> dict[str, Any]:
        die, motion = jax.device_get(solve(key))
        if not np.isfinite(motion).all():
            raise FloatingPointError(
                f"An element collapses under die {index} of seed {seed}; use a "
                f"smaller {amplitude=}, less {travel=}, or another seed."
            )
        return {"input": die, "output": motion}

    return _generated.draw(draw, num_samples=num_samples, seed=seed, name="Plasticity")
