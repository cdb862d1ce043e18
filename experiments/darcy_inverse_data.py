"""The samples of the inverse Darcy experiment, with noise drawn once."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import darcy_data
from opjax import normalize
from opjax.datasets import darcy_inverse
from opjax.datasets.samples import Sample, stack
from opjax.normalize import Normalizer

Samples = dict[str, np.ndarray]


class Splits(NamedTuple):
    """Samples with one noise: "measurement", encoded, and "coefficient", physical.

    Attributes:
      train: shapes `(samples, n_fine, 1)` and `(samples, n_coarse, 1)`.
      validation: the same; chooses the model.
      test: the same; used once.
    """

    train: Samples
    validation: Samples
    test: Samples


class Data(NamedTuple):
    """Samples as the models see them.

    Attributes:
      noises: samples by the size of their noise.
      normalizers: of "measurement" and "coefficient", pointwise, fitted to the clean
        training samples.
      source: where the samples come from.
    """

    noises: dict[float, Splits]
    normalizers: dict[str, Normalizer]
    source: str


def noise_sizes(text: str) -> tuple[float, ...]:
    """Splits noises at commas and rounds them to six digits, as in names of folders.

    Raises:
      ValueError: if one is not a non-negative number or is there twice.
    """
    try:
        sizes = tuple(float(f"{float(size):g}") for size in text.split(","))
    except ValueError:
        sizes = (math.nan,)
    if not all(0 <= size < math.inf for size in sizes):
        raise ValueError(
            f"noises={text!r} must be non-negative numbers separated by commas, such "
            "as 0,0.01,0.1."
        )
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"noises={text!r} contains a noise twice.")
    return sizes


def load(config: Any, *, cache_dir: str | None = None) -> Data:
    """Generates or reads the samples and adds noise.

    All noises are multiples of the same normal numbers, which depend on the seed of the
    data only and are independent between training, validation and test samples.

    Args:
      config: has the data fields of `experiments.darcy_inverse.Config`.
      cache_dir: folder of generated data, see `opjax.datasets.darcy.generate`.

    Returns:
      The samples.

    Raises:
      OSError: if a file is missing or cannot be read.
      ValueError: if a file is damaged or holds too few samples.
    """
    found = darcy_data.read(config, stride=1, cache_dir=cache_dir)
    noises, normalizers = {}, {}
    for noise in config.noise_sizes:
        made = darcy_inverse.measure(
            found,
            seed=config.data_seed,
            stride=config.stride,
            target_stride=config.target_stride,
            noise=noise,
        )
        noises[noise] = Splits(*map(_arrays, made[:3]))
        assert made.normalizers is not None
        normalizers = {
            "measurement": _flat(made.normalizers["features"]),
            "coefficient": _flat(made.normalizers["target"]),
        }
    return Data(noises, normalizers, found.source)


def decode(normalizer: Normalizer, values: jax.Array) -> jax.Array:
    """Brings values `(n, 1)` of one sample to physical units."""
    return normalize.decode(normalizer, values[:, 0])[:, None]


def _arrays(found: Sequence[Sample]) -> Samples:
    (stacked,) = stack(found)
    return {"measurement": stacked["features"], "coefficient": stacked["target"]}


def _flat(normalizer: Normalizer) -> Normalizer:
    return Normalizer(*(values[:, 0] for values in normalizer))
