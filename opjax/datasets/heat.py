"""Heat that spreads from random spots: a small data set in the format of user files.

    f(x) = sum_i a_i exp(-|x - c_i|^2 / (2 s_i^2)),    u = exp(t Laplacian) f,

in the whole plane, where `u` has a closed form: spots of variance `s_i^2 + 2 t`. Points
are scattered over random shapes, which differ between samples.
"""

import pathlib
from collections.abc import Callable

import numpy as np

from opjax import _checks, files
from opjax._files import OnePath
from opjax.files import series_writing
from opjax.samples import Sample, Series

_TIME = 0.02


def write(
    folder: OnePath,
    num_samples: int,
    *,
    seed: int = 0,
    num_points: tuple[int, int] = (120, 200),
) -> pathlib.Path:
    """Writes samples to a folder, one `.npz` file per sample.

    Args:
      folder: folder; created if missing.
      num_samples: number of files.
      seed: seed; sample `i` depends only on it and on `i`.
      num_points: minimum and maximum number of points of a sample.

    Returns:
      The folder.
    """
    folder = pathlib.Path(folder)
    for i in range(num_samples):
        rng = np.random.default_rng((seed, i))
        files.write(folder / f"heat_{i:04d}.npz", _sample(rng, num_points))
    return folder


def write_series(
    folder: OnePath,
    num_series: int,
    *,
    seed: int = 0,
    num_points: tuple[int, int] = (120, 200),
    num_frames: tuple[int, int] = (12, 16),
    interval: float = 0.002,
    suffix: str = ".npz",
) -> pathlib.Path:
    """Writes series to a folder, with the frames as `target`.

    Args:
      folder: folder; created if missing.
      num_series: number of files.
      seed: seed; series `i` depends only on it and on `i`.
      num_points: minimum and maximum number of points of a series.
      num_frames: minimum and maximum number of frames.
      interval: time between frames.
      suffix: `".npz"`, one file per series; or `".pvd"`, one folder per series with a
        `.vtu` file per frame and a `.pvd` file that lists them, as ParaView writes it.

    Returns:
      The folder.

    Raises:
      ValueError: if the suffix is not supported.
    """
    _checks.option("suffix", suffix, (".npz", ".pvd"))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(num_series):
        rng = np.random.default_rng((seed, i))
        points, field = _spots(rng, num_points)
        times = interval * np.arange(rng.integers(*num_frames, endpoint=True))
        values = np.stack([field(time) for time in times])
        series, place = (
            Series(points.astype(np.float32), times, values),
            f"heat_{i:04d}",
        )
        if suffix == ".npz":
            np.savez(
                folder / place,
                mesh_points=series.mesh_points,
                times=times,
                target=values,
            )
            continue
        with series_writing.pvd(folder / place, place, series, ["target"]) as write:
            for time, frame in zip(times, values, strict=True):
                write(time, frame)
    return folder


def _sample(rng: np.random.Generator, num_points: tuple[int, int]) -> Sample:
    points, field = _spots(rng, num_points)
    return Sample(points.astype(np.float32), field(_TIME), field(0.0))


def _spots(
    rng: np.random.Generator, num_points: tuple[int, int]
) -> tuple[np.ndarray, Callable[[float], np.ndarray]]:
    """Points, and the field at a time, `(n, 1)` in single precision."""
    points = _shape(rng, int(rng.integers(*num_points, endpoint=True)))
    centres = _shape(rng, 3)
    amplitudes, variances = rng.uniform(0.5, 1.5, 3), rng.uniform(0.05, 0.2, 3) ** 2
    squares = np.sum((points[:, None] - centres[None]) ** 2, axis=2)

    def field(time: float) -> np.ndarray:
        spread = variances + 2 * time
        spots = amplitudes * variances / spread * np.exp(-squares / (2 * spread))
        return spots.sum(axis=1, keepdims=True).astype(np.float32)

    return points, field


def _shape(rng: np.random.Generator, count: int) -> np.ndarray:
    """Points of a shape around the origin whose radius is a wave of the angle."""
    angle = rng.uniform(0, 2 * np.pi, count)
    waves, depth, phase = rng.integers(2, 5), rng.uniform(0, 0.3), rng.uniform(0, 6)
    radius = 1 + depth * np.cos(waves * angle + phase)
    radius = radius * np.sqrt(rng.uniform(0, 1, count))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
