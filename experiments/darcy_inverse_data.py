"""The samples of the inverse Darcy experiment, with noise drawn once."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import darcy_data
from opjax import normalize
from opjax.datasets import darcy_inverse
from opjax.normalize import Normalizer

# Sample numbers, which are folded into the same keys, do not reach it.
_NOISE_STREAM = 2**31 - 1

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
    (train, validation, test), source = darcy_data.read(
        config, stride=1, cache_dir=cache_dir
    )
    key = jax.random.fold_in(jax.random.key(config.data_seed), _NOISE_STREAM)
    key_validation, key_test = jax.random.split(key)
    noises, normalizers = {}, {}
    for noise in config.noise_sizes:
        options = {
            "stride": config.stride,
            "target_stride": config.target_stride,
            "noise": noise,
        }
        first = darcy_inverse.prepare(key_validation, train, validation, **options)
        # Apart, so that the test samples do not depend on the validation samples.
        second = darcy_inverse.prepare(key_test, train, test, **options)
        noises[noise] = Splits(*map(_flat, (first.train, first.test, second.test)))
        normalizers = {
            "measurement": first.measurement_normalizer,
            "coefficient": first.coefficient_normalizer,
        }
    return Data(noises, normalizers, source)


def decode(normalizer: Normalizer, values: jax.Array) -> jax.Array:
    """Brings values `(n, 1)` of one sample to physical units."""
    return normalize.decode(normalizer, values[:, 0])[:, None]


def _flat(split: dict[str, jax.Array]) -> Samples:
    return {
        name: np.asarray(values).reshape(len(values), -1, 1)
        for name, values in split.items()
    }
