"""Samples as named arrays, in which files store them."""

from collections.abc import Iterable, Mapping

import numpy as np

from opjax.samples.base import ARRAYS, Sample, arrays

_GRIDS = ("grid_shape", "target_grid")


def flatten(sample: Sample, names: Iterable[str] = ARRAYS) -> dict[str, np.ndarray]:
    """Returns the arrays and grid shapes that a sample has, by name.

    Args:
      sample: any sample.
      names: names of the stored arrays.
    """
    stored = arrays(sample, (*names, *_GRIDS))
    return {name: np.asarray(array) for name, array in stored.items()}


def unflatten(stored: Mapping[str, np.ndarray], name: str) -> Sample:
    """Returns the sample of arrays from `flatten`.

    Args:
      stored: the arrays; others are ignored.
      name: name of the sample.
    """

    def shape(name: str) -> tuple[int, ...] | None:
        return tuple(stored[name].tolist()) if name in stored else None

    return Sample(
        stored["mesh_points"],
        stored.get("target"),
        stored.get("features"),
        stored.get("quadrature_weights"),
        grid_shape=shape("grid_shape"),
        name=name,
        target_grid=shape("target_grid"),
        scalars=stored.get("scalars"),
        target_scalars=stored.get("target_scalars"),
    )
