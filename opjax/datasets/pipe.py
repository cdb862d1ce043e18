"""The Pipe data set of Geo-FNO: generated here, or read from the published files.

From the shape of a channel to the velocity along it, on a structured mesh: 129 x 129
points as published, along the channel first, then from the lower to the upper wall.

Generated samples solve the same equations with the same elements as the published ones,
but with our own solver, from distributions of the shape that are estimates; see
`opjax.problems.pipe`.
"""

import logging
import os
import time
from collections.abc import Sequence

import numpy as np

from opjax import _checks
from opjax.datasets import _arrays, _reproducible, _structured
from opjax.datasets.cache import cached
from opjax.datasets.samples import Sample
from opjax.problems import pipe

CHANNELS = ("u", "v", "p")
SPLITS = ("transolver", "functional")

_LOGGER = logging.getLogger(__name__)
_VERSION = 1  # raise it whenever the same arguments give other numbers
_FILES = _structured.Files("Pipe", ("pipe",), CHANNELS)


def load(
    data_dir: str | os.PathLike,
    *,
    num_train: int = 1000,
    num_test: int = 200,
    split: str = "transolver",
    channels: Sequence[str] = ("u",),
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published files, or files of the same layout made by `save`.

    Looks in `data_dir`, and in a folder `pipe` there, for `Pipe_X.npy`, `Pipe_Y.npy`,
    `(samples, h, w)`, and `Pipe_Q.npy`, `(samples, 3, h, w)`; as published 2310 samples
    of 129 x 129 points.

    The literature disagrees, and errors of the two splits do not compare:

    * `transolver`, also of Geo-FNO: tests on the samples after those for training; mesh
      points are those of the channel.
    * `functional`, of the code of functional attention: tests on the last samples; mesh
      points are those of the unit square, and features are those of the channel.

    Args:
      data_dir: folder of the files.
      num_train: training samples, the first ones.
      num_test: test samples.
      split: one of `SPLITS`.
      channels: some of `CHANNELS`, for the targets.

    Returns:
      Training and test samples.

    Raises:
      FileNotFoundError: if a file is missing; lists where it was looked for.
      ValueError: if an argument is unknown, there are too few samples, or a file is
        damaged or its axes are in another order.

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.4.
      Wu et al., "Transolver", ICML 2024 (arXiv:2402.02366).
      Xiao et al., "Functional Attention", ICML 2026 (arXiv:2605.31559), App. C.2.
    """
    _checks.option("split", split, SPLITS)
    rows = _FILES.rows(channels)
    points, fields, path = _structured.read(data_dir, _FILES)
    along, across = np.ptp(points[0, :, 0, 0]), np.ptp(points[0, 0, :, 0])
    if along <= across:
        raise ValueError(
            f"X in {path} spans {along} along its first axis and {across} along its "
            "second, expected the channel along the first: exchange the axes (or X and "
            "Y)."
        )
    train, test = _arrays.split(
        len(points),
        num_train=num_train,
        num_test=num_test,
        test="next" if split == "transolver" else "last",
        what=str(path),
    )
    found = _structured.samples(points, fields, rows, name="pipe")
    if split == "functional":
        found = [_on_reference(sample) for sample in found]
    return found[train], found[test]


def generate(
    num_samples: int,
    *,
    seed: int,
    num_elements: int = 64,
    stride: int = 1,
    channels: Sequence[str] = ("u",),
    cache_dir: str | os.PathLike | None = None,
) -> list[Sample]:
    """Solves for samples with our own solver, or reads them from the cache.

    One sample after another in float64 on the CPU, about 0.06 s each with 16 elements a
    side, 0.3 s with 32 and 3 s with 64. Sample `i` depends on `seed` and `i` only, so a
    smaller data set is the start of a larger one.

    Args:
      num_samples: samples to generate.
      seed: seed of the data set; take different ones for training and test data.
      num_elements: elements `n` along and across the channel, for `2 n + 1` points; 64
        as published.
      stride: keep every `stride`-th point; must divide `2 n`.
      channels: some of `CHANNELS`, for the targets.
      cache_dir: folder of the cache; `$OPJAX_CACHE` or else `~/.cache/opjax`.

    Returns:
      Samples on meshes of `(2 n / stride + 1)^2` points.

    Raises:
      ValueError: if a number is not positive, `seed` is negative, `stride` does not
        divide `2 n`, or a channel is unknown.
    """
    _checks.positive(num_samples=num_samples, num_elements=num_elements, stride=stride)
    _checks.non_negative(seed=seed)
    if 2 * num_elements % stride:
        raise ValueError(
            f"{stride=} must divide 2 num_elements={2 * num_elements}, so that both "
            "walls, inlet and outlet stay on the mesh."
        )
    rows = _FILES.rows(channels)
    recipe = {
        "version": _VERSION,
        "num_samples": int(num_samples),
        "seed": int(seed),
        "num_elements": int(num_elements),
        "stride": int(stride),
    }
    arguments = {key: value for key, value in recipe.items() if key != "version"}
    arrays = cached(
        lambda: _build(**arguments), name="pipe", recipe=recipe, cache_dir=cache_dir
    )
    return _structured.samples(arrays["points"], arrays["fields"], rows, name="pipe")


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


def _on_reference(sample: Sample) -> Sample:
    assert sample.grid_shape is not None
    axes = [np.linspace(0, 1, size) for size in sample.grid_shape]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).astype(np.float32)
    return sample._replace(mesh_points=grid.reshape(-1, 2), features=sample.mesh_points)


def _build(
    *, num_samples: int, seed: int, num_elements: int, stride: int
) -> dict[str, np.ndarray]:
    size = 2 * num_elements // stride + 1
    every = (slice(None, None, stride),) * 2
    points = np.empty((num_samples, size, size, 2), np.float32)
    fields = np.empty((num_samples, 3, size, size), np.float32)
    start = time.perf_counter()
    with _reproducible.keys(seed) as key_of:
        for i in range(num_samples):
            centreline = pipe.random_centreline(key_of(i))
            flow = pipe.solve(centreline, num_elements=num_elements)
            points[i] = flow.mesh_points[every]
            fields[i, :2] = np.moveaxis(flow.velocity[every], -1, 0)
            fields[i, 2] = flow.pressure[every]
    _LOGGER.info(
        "Pipe: %d samples of %d x %d points, %.2f s each",
        num_samples,
        size,
        size,
        (time.perf_counter() - start) / num_samples,
    )
    return {"points": points, "fields": fields}
