"""The Pipe data set of Geo-FNO: generated here, or read from published files.

It maps the shape of a channel to the velocity along it, on a structured mesh: 129 x 129
points as published. The first axis goes along the channel, the second from the lower to
the upper wall.

Generated samples solve the same equations with the same elements as the published ones,
but with our solver, and with estimated distributions of the shape; see
`opjax.problems.pipe`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from opjax import _checks
from opjax._files import OnePath
from opjax.datasets import _arrays, _generated, _structured
from opjax.datasets.requests import Request
from opjax.problems import grids, pipe
from opjax.samples import Sample, Splits

CHANNELS = ("u", "v", "p")
SPLITS = ("transolver", "functional")

_FILES = _structured.Files("Pipe", ("pipe",), CHANNELS)


def splits(
    request: Request,
    *,
    split: str = "transolver",
    num_elements: int = 64,
    stride: int = 1,
) -> Splits:
    """Returns the samples of a benchmark, see `requests.Request`; the target is `u`.

    The split is as for `load`; for generated samples it only selects the mesh points.
    The other options are as for `generate`.
    """
    _checks.option("split", split, SPLITS)
    if request.data_dir:
        source = f"published files in {request.data_dir}, split {split}"
        return request.read(partial(load, split=split), source)
    source = f"own solver on {num_elements} x {num_elements} elements"
    divided = request.generate_together(
        partial(generate, num_elements=num_elements, stride=stride), source
    )
    if split == "transolver":
        return divided
    return divided.mapped(lambda part: list(map(_on_reference, part)))


def load(
    data_dir: OnePath,
    *,
    num_train: int = 1000,
    num_test: int = 200,
    split: str = "transolver",
    channels: Sequence[str] = ("u",),
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published files, or files of the same layout made by `save`.

    Searches `data_dir`, and its subfolder `pipe`, for `Pipe_X.npy`, `Pipe_Y.npy`,
    `(samples, h, w)`, and `Pipe_Q.npy`, `(samples, 3, h, w)`; as published, 2310
    samples of 129 x 129 points.

    The literature uses two splits, whose errors are not comparable:

    * `transolver`, also used by Geo-FNO: the test samples follow the training samples;
      mesh points are those of the channel.
    * `functional`, used by the code of functional attention: the test samples are the
      last ones; mesh points are those of the unit square, and features are those of the
      channel.

    Args:
      data_dir: folder of the files.
      num_train: number of training samples, the first ones.
      num_test: number of test samples.
      split: one of `SPLITS`.
      channels: target channels, some of `CHANNELS`.

    Returns:
      Training and test samples.

    Raises:
      FileNotFoundError: if a file is missing. The message lists the searched paths.
      ValueError: if an argument is unknown, there are too few samples, or a file is
        damaged or has its axes in another order.

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
            f"X in {path} spans {along} along its first axis and {across} along "
            "its second, but the channel must run along the first: swap the axes "
            "(or X and Y)."
        )
    train, test = _arrays.split(
        len(points),
        num_train,
        num_test,
        test="next" if split == "transolver" else "last",
        what=str(path),
    )
    samples = _structured.samples(points, fields, rows, name="pipe")
    if split == "functional":
        samples = [_on_reference(sample) for sample in samples]
    return samples[train], samples[test]


def generate(
    num_samples: int,
    *,
    seed: int,
    num_elements: int = 64,
    stride: int = 1,
    channels: Sequence[str] = ("u",),
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates samples with our solver, or reads them from the cache.

    Samples are solved one by one in float64 on the CPU, about 0.06 s each with 16
    elements per side, 0.3 s with 32 and 3 s with 64. Sample `i` depends only on `seed`
    and `i`, so a smaller data set is the start of a larger one.

    Args:
      num_samples: number of samples.
      seed: seed of the data set; use different seeds for training and test data.
      num_elements: number `n` of elements along and across the channel, with `2 n + 1`
        points; 64 as published.
      stride: keep every `stride`-th point; must divide `2 n`.
      channels: target channels, some of `CHANNELS`.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples on meshes of `(2 n / stride + 1)^2` points.

    Raises:
      ValueError: if a number is not positive, `seed` is negative, `stride` does not
        divide `2 n`, or a channel is unknown.
    """
    _checks.positive(num_elements=num_elements)
    grids.check_stride(2 * num_elements + 1, stride, periodic=False)
    rows = _FILES.rows(channels)
    arrays = _build(
        num_samples, seed, cache_dir, num_elements=num_elements, stride=stride
    )
    return _structured.samples(arrays["points"], arrays["fields"], rows, name="pipe")


def save(data_dir: OnePath, samples: Sequence[Sample]) -> None:
    """Writes samples of all `CHANNELS` in the published layout, for `load`.

    Raises:
      ValueError: if a sample lacks a channel or has a different grid than the first.
      OSError: if a file cannot be written.
    """
    _structured.write(data_dir, _FILES, samples)


def _on_reference(sample: Sample) -> Sample:
    assert sample.grid_shape is not None
    grid = _structured.unit_grid(sample.grid_shape)
    return sample._replace(mesh_points=grid, features=sample.mesh_points)


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("pipe", version=1)
def _build(
    *, num_samples: int, seed: int, num_elements: int, stride: int
) -> dict[str, np.ndarray]:
    every = (slice(None, None, stride),) * 2

    def draw(key: jax.Array, _: int) -> dict[str, Any]:
        flow = pipe.solve(pipe.random_centreline(key), num_elements=num_elements)
        fields = np.concatenate([flow.velocity, flow.pressure[..., None]], axis=-1)
        return {
            "points": flow.mesh_points[every],
            "fields": np.moveaxis(fields[every], -1, 0),
        }

    return _generated.draw(draw, num_samples=num_samples, seed=seed, name="Pipe")
