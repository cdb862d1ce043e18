"""The samples of the Darcy experiment, from our own solver or the published files."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import normalize
from opjax.datasets import darcy as dataset
from opjax.datasets.samples import Sample, Splits, stack
from opjax.normalize import Normalizer


class Data(NamedTuple):
    """Samples as the model sees them.

    Attributes:
      train: "coefficient", encoded, and "solution", in physical units, each of shape
        `(samples, n, 1)`; likewise `validation` and `test`.
      validation: chooses the model.
      test: used once.
      normalizers: of "coefficient" and "solution", fitted to the training samples.
      source: where the samples come from.
    """

    train: dict[str, np.ndarray]
    validation: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    normalizers: dict[str, Normalizer]
    source: str


def load(config: Any, *, cache_dir: str | None = None) -> Data:
    """Generates or reads the three sets of samples and normalises them.

    Args:
      config: has the data fields of `experiments.darcy.Config`.
      cache_dir: folder of generated data, see `opjax.datasets.darcy.generate`.

    Returns:
      The samples.

    Raises:
      OSError: if a file is missing or cannot be read.
      ValueError: if a file is damaged or holds too few samples.
    """
    splits = read(config, stride=config.stride, cache_dir=cache_dir)
    train, validation, test = (_arrays(part) for part in splits[:3])
    # One mean and deviation for all points: the mesh may change.
    normalizers = {
        name: normalize.fit(values[..., 0]) for name, values in train.items()
    }
    for split in (train, validation, test):
        values = jnp.asarray(split["coefficient"])
        encoded = normalize.encode(normalizers["coefficient"], values)
        split["coefficient"] = np.asarray(encoded)
    return Data(train, validation, test, normalizers, splits.source)


def read(config: Any, *, stride: int, cache_dir: str | None = None) -> Splits:
    """Generates or reads the three sets of samples as they are.

    Args:
      config: as for `load`; its stride is not used.
      stride: keep every so many points of a side.
      cache_dir: as for `load`.
    """
    return dataset.splits(
        num_train=config.num_train,
        num_validation=config.num_validation,
        num_test=config.num_test,
        data_dir=config.data_dir,
        seed=config.data_seed,
        cache_dir=cache_dir,
        num_points=config.num_points,
        stride=stride,
        tolerance=config.tolerance,
    )


def _arrays(found: Sequence[Sample]) -> dict[str, np.ndarray]:
    (stacked,) = stack(found)
    return {"coefficient": stacked["features"], "solution": stacked["target"]}


def mesh_points(grid_shape: tuple[int, int]) -> jax.Array:
    """Returns the nodes of a uniform grid on the unit square, `(n, 2)`, row by row."""
    axes = (jnp.linspace(0, 1, size, dtype=jnp.float32) for size in grid_shape)
    return jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
