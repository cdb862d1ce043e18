"""The Navier-Stokes data set: generated here, or read from the published file.

A sample is a flow on the periodic square: `features` contains its vorticity at ten
times, `target` at the next ten times, at intervals of one, starting at time 1. The
points are a grid, row by row.

Published values are located at `(i, j) / n`, with `x` along the first axis. The
published code of the models assigns them to the points of `linspace(0, 1, n)` with `x`
along the last axis; `coordinates="published"` does the same.

Generated flows are computed with our solver: equation, viscosity, forcing, prior and
times are those of the published program; its time steps and random numbers are
different.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import _checks
from opjax._files import OnePath
from opjax.datasets import _arrays, _generated, _structured
from opjax.datasets.requests import Request
from opjax.files import variables
from opjax.problems import grids, navier_stokes
from opjax.samples import Sample, Splits, check

_NAME = "NavierStokes_V1e-5_N1200_T20"
COORDINATES = ("nodes", "published")


def splits(
    request: Request,
    *,
    num_points: int = 256,
    stride: int = 4,
    file_stride: int = 1,
    coordinates: str = "nodes",
) -> Splits:
    """Returns the flows of a benchmark (`requests.Request`), options as for `generate`.

    The stride refers to our solver's grid, `file_stride` to the grid of the file.
    """
    if request.data_dir:
        return request.read(partial(load, stride=file_stride, coordinates=coordinates))
    return request.generate(
        partial(
            generate, num_points=num_points, stride=stride, coordinates=coordinates
        ),
        f"own solver on {num_points} x {num_points} points",
    )


def load(
    data_dir: OnePath,
    *,
    num_train: int = 1000,
    num_test: int = 200,
    stride: int = 1,
    input_frames: int = 10,
    output_frames: int = 10,
    coordinates: str = "nodes",
    name: str = _NAME,
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published Navier-Stokes file, or a file of the same layout.

    Searches `data_dir`, and its subfolder with the name of the file, for `name` with
    suffix `.mat` (any MATLAB version) or `.npz`. Its array `u` is `(samples, n, n,
    frames)`, in the published file 1200 x 64 x 64 x 20. The first samples are the
    training set, the last ones the test set.

    Args:
      data_dir: folder of the file.
      num_train: number of training samples.
      num_test: number of test samples.
      stride: keep every `stride`-th point per side; must divide `n`.
      input_frames: number of frames of the features, from the first one on.
      output_frames: number of frames of the target, which follow.
      coordinates: "nodes", the true locations, or "published".
      name: name of the file without suffix, such as "ns_V1e-3_N5000_T50".

    Returns:
      Training and test samples: `mesh_points (n n, 2)`, `features (n n,
      input_frames)`, `target (n n, output_frames)`, `grid_shape (n, n)`.

    Raises:
      FileNotFoundError: if the file is missing. The message lists the searched paths.
      ImportError: if scipy or h5py is needed but missing.
      ValueError: if an option is unknown or does not fit the file, or the file is
        damaged, lacks the array, or has its axes in another order, too few samples or
        frames, or non-finite values.

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), Sec. 5.3.
    """
    _checks.option("coordinates", coordinates, COORDINATES)
    _checks.positive(input_frames=input_frames, output_frames=output_frames)
    path = _arrays.find_stem(data_dir, name, source=_arrays.FNO)
    fields = _arrays.read(path, "u", shape=(None,) * 4, source=_arrays.FNO)
    _check_axes(path, fields, input_frames + output_frames)
    grids.check_stride(fields.shape[1], stride, periodic=True)
    train, test = _arrays.split(
        len(fields), num_train, num_test, test="last", what=str(path)
    )
    convert = partial(
        to_samples,
        input_frames=input_frames,
        output_frames=output_frames,
        coordinates=coordinates,
    )
    fields = fields[:, ::stride, ::stride]
    return convert(fields[train]), convert(fields[test])


def generate(
    num_samples: int,
    *,
    seed: int,
    num_points: int = 256,
    stride: int = 4,
    courant: float = 2.0,
    coordinates: str = "nodes",
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates flows like `trajectories`, with ten input frames and ten target frames.

    Args:
      num_samples: number of flows.
      seed: seed of the data set; use different seeds for training and test data.
      num_points: number of points per side of the solver's grid; 256 was published.
        With fewer points, the flow is different, see `opjax.problems.navier_stokes`.
      stride: keep every `stride`-th point per side; must divide `num_points`.
      courant: Courant number of the time steps, see
        `opjax.problems.navier_stokes.solve`.
      coordinates: "nodes", the true locations, or "published".
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      The samples, as from `load`.

    Raises:
      FloatingPointError: if a flow is not finite, because its time steps were too long.
      ValueError: if an option is unknown, a number is not positive, `seed` is negative,
        or `stride` does not divide `num_points`.
    """
    _checks.option("coordinates", coordinates, COORDINATES)
    arrays = trajectories(
        num_samples,
        seed=seed,
        num_points=num_points,
        stride=stride,
        courant=courant,
        cache_dir=cache_dir,
    )
    return to_samples(arrays["u"], coordinates=coordinates)


def trajectories(
    num_samples: int,
    *,
    seed: int,
    num_points: int = 256,
    stride: int = 4,
    courant: float = 2.0,
    cache_dir: OnePath | None = None,
) -> dict[str, np.ndarray]:
    """Generates flows in the published layout, or reads them from the cache.

    It solves in float32 on the CPU regardless of the caller's settings, one flow after
    another: about 0.5 s each for 128 points per side, and 4 s for 256. Flow `i` depends
    only on `seed` and `i`, so a smaller data set is the start of a larger one.

    Args:
      num_samples: see `generate`, also for the other arguments.
      seed: seed of the data set.
      num_points: number of points per side of the solver's grid.
      stride: keep every `stride`-th point per side.
      courant: Courant number of the time steps.
      cache_dir: folder of the cache.

    Returns:
      `a`, the initial vorticity, `(num_samples, n, n)`, `u`, its frames at the times
      `t`, `(num_samples, n, n, 20)`, and `t`, `(1, 20)`, in float32.

    Raises:
      FloatingPointError: as from `generate`.
      ValueError: as from `generate`.
    """
    _checks.positive(courant=courant)
    grids.check_stride(num_points, stride, periodic=True)
    return _build(
        num_samples,
        seed,
        cache_dir,
        num_points=num_points,
        stride=stride,
        courant=float(courant),
    )


def to_samples(
    fields: np.ndarray,
    *,
    input_frames: int = 10,
    output_frames: int = 10,
    coordinates: str = "nodes",
) -> list[Sample]:
    """Converts trajectories `(samples, n, n, frames)` to samples, as from `load`."""
    points = positions(fields.shape[1], coordinates=coordinates)
    parts = fields[..., :input_frames], fields[..., input_frames:][..., :output_frames]
    features, target = (np.ascontiguousarray(part, np.float32) for part in parts)
    shape = fields.shape[1:3]
    flows = _structured.on_grid(points, shape, features, target, name="navier_stokes")
    check(flows)
    return flows


def positions(num_points: int, *, coordinates: str = "nodes") -> np.ndarray:
    """Returns the grid coordinates, row by row, float32 `(num_points^2, 2)`.

    Args:
      num_points: number of points per side.
      coordinates: "nodes" for `(i, j) / n`; "published" for `(j, i) / (n - 1)`.

    Raises:
      ValueError: if `num_points` is not positive or `coordinates` is unknown.
    """
    _checks.positive(num_points=num_points)
    _checks.option("coordinates", coordinates, COORDINATES)
    shape = num_points, num_points
    if coordinates == "published":
        return _structured.unit_grid(shape, indexing="xy")
    return _structured.unit_grid(shape, periodic=True)


def save(
    data_dir: OnePath,
    samples: Sequence[Sample],
    *,
    initial: np.ndarray | None = None,
    name: str = f"{_NAME}.mat",
) -> None:
    """Writes samples in the published layout, so that `load` reads them.

    Args:
      data_dir: existing folder.
      samples: samples on square grids of the same size, with targets.
      initial: vorticity at time zero, `(samples, n, n)`, stored as the array `a`;
        `load` does not need it.
      name: name of the file, with suffix `.mat` (MATLAB 5, needs scipy) or `.npz`.

    Raises:
      ValueError: if the samples are not on such grids or the suffix is unknown.
      ImportError: if scipy is needed but missing.
      OSError: if the file cannot be written; an existing file is then unchanged.
    """
    check(samples)
    fields = np.concatenate(_structured.fields(samples), axis=-1)
    if fields.ndim != 4 or fields.shape[1] != fields.shape[2]:
        raise ValueError(
            f"grid_shape is {samples[0].grid_shape}, but this layout needs square "
            "grids."
        )
    arrays = {"u": fields, "t": np.arange(1.0, fields.shape[-1] + 1)[None, :]}
    if initial is not None:
        if np.shape(initial) != fields.shape[:3]:
            raise ValueError(
                f"initial has shape {np.shape(initial)}, expected {fields.shape[:3]}."
            )
        arrays["a"] = np.asarray(initial)
    variables.write(Path(data_dir).expanduser() / name, arrays)


def _check_axes(path: Path, fields: np.ndarray, num_frames: int) -> None:
    if fields.shape[1] != fields.shape[2]:
        raise ValueError(
            f"u in {path} has shape {fields.shape}, expected (samples, n, n, "
            "frames); the axes may be in another order: the frames must be last."
        )
    if fields.shape[3] < num_frames:
        raise ValueError(
            f"u in {path} has shape {fields.shape}, with {fields.shape[3]} frames "
            "in the last axis, but input_frames and output_frames need "
            f"{num_frames}."
        )


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("navier-stokes", version=1)
def _build(
    *, num_samples: int, seed: int, num_points: int, stride: int, courant: float
) -> dict[str, np.ndarray]:
    num_frames = 20
    solve = partial(
        navier_stokes.sample,
        num_points=num_points,
        stride=stride,
        num_frames=num_frames,
        courant=courant,
        dtype=jnp.float32,
    )

    def draw(key: jax.Array, index: int) -> dict[str, Any]:
        initial, frames = jax.device_get(solve(key))
        if not np.isfinite(frames).all():
            raise FloatingPointError(
                f"Flow {index} of seed {seed} is not finite because its time steps "
                f"are too long; use a smaller Courant number than {courant}."
            )
        return {"a": initial, "u": np.moveaxis(frames, 0, -1)}

    arrays = _generated.draw(
        draw, num_samples=num_samples, seed=seed, name="Navier-Stokes"
    )
    return arrays | {"t": np.arange(1, num_frames + 1, dtype=np.float32)[None]}
