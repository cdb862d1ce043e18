"""Checks of strides on structured grids."""

import math

from opjax import _checks


def check_stride(num_points: int, stride: int, *, periodic: bool) -> None:
    """Raises ValueError unless every `stride`-th point is a grid of the same kind.

    Args:
      num_points: number of points per axis.
      stride: keep every `stride`-th point.
      periodic: whether the grid is periodic. If not, the coarse grid keeps both ends.
    """
    _checks.positive(num_points=num_points, stride=stride)
    if periodic and num_points % stride:
        raise ValueError(
            f"{stride=} must divide {num_points=}, so that the coarse grid is periodic "
            f"too; try stride={math.gcd(num_points, stride)}."
        )
    if not periodic and (num_points - 1) % stride:
        raise ValueError(
            f"{stride=} must divide num_points - 1 = {num_points - 1}, so that the "
            "coarse grid keeps both ends; try num_points="
            f"{(num_points - 1) // stride * stride + 1}."
        )
