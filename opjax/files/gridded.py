"""Files without points, with fields on a grid."""

import math
from collections.abc import Iterable

import numpy as np

from opjax.files.npz import Arrays
from opjax.samples.from_arrays import grid_points


def on_grid(name: str, arrays: Arrays, fields: Iterable[str], axes: int) -> Arrays:
    """Returns the arrays of a sample on a uniform grid, with fields listed by point.

    The grid covers the unit square (or interval, or cube), including its boundary.

    Args:
      name: name of the sample, for messages.
      arrays: arrays of its file.
      fields: names of the arrays on the grid, if they exist.
      axes: number of axes of the grid.

    Raises:
      ValueError: if the file has points, or fields are not on a common grid.
    """
    if "mesh_points" in arrays:
        raise ValueError(f"{name} has mesh_points; omit grid_axes.")
    present = {key: np.asarray(arrays[key]) for key in fields if key in arrays}
    shapes = {array.shape[:axes] for array in present.values()}
    fits = all(array.ndim in (axes, axes + 1) for array in present.values())
    if len(shapes) != 1 or not fits:
        listed = ", ".join(f"{key} {array.shape}" for key, array in present.items())
        raise ValueError(
            f"{name}: fields must have the same {axes} grid axes, and optionally a "
            f"channel axis, but they are {listed or 'none'}; use another grid_axes."
        )
    (shape,) = shapes
    flat = {
        key: array.reshape(math.prod(shape), *array.shape[axes:])
        for key, array in present.items()
    }
    points = {"mesh_points": grid_points(shape), "grid_shape": np.array(shape)}
    return flat | points
