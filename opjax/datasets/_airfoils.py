"""Shared functions of the data sets of flows around random airfoils."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from opjax.problems import airfoil
from opjax.samples import Sample, Splits


@dataclasses.dataclass(frozen=True)
class Solver:
    """How finely our own solver computes a flow; by default as published.

    Its meshes have `num_airfoil + 2 num_wake + 1` times `num_radial + 1` points.

    Args:
      num_airfoil: number of cells around the airfoil, even.
      num_wake: number of cells along either side of the wake.
      num_radial: number of cells outwards.
      tolerance: residual at which the solver stops, at least 1e-5 in float32. The
        relative L2 error of the Mach number is then 0.1 % for 1e-4 and less than
        0.01 % for 1e-5.

    Raises:
      ValueError: if the tolerance is unreachable in float32.

    Examples:
      >>> from opjax.datasets import airfoil
      >>> airfoil.Solver(num_airfoil=60, num_wake=25, num_radial=25).tolerance
      0.0001
    """

    num_airfoil: int = 120
    num_wake: int = 50
    num_radial: int = 50
    tolerance: float = 1e-4

    def __post_init__(self):
        """Refuses a residual that no flow reaches."""
        if not 1e-5 <= self.tolerance < 1:
            raise ValueError(
                f"tolerance={self.tolerance} must lie between 1e-5 and 1 in float32."
            )

    def mesh(self, displacements: jax.Array) -> jax.Array:
        """Returns the mesh around a deformed airfoil, see `problems.airfoil.mesh`."""
        return airfoil.mesh(
            displacements,
            num_airfoil=self.num_airfoil,
            num_wake=self.num_wake,
            num_radial=self.num_radial,
        )


PUBLISHED = Solver()


def mean_mesh(samples: Sequence[Sample]) -> np.ndarray:
    """Returns the mean of meshes with corresponding points, `(n, 2)`."""
    return np.mean([sample.mesh_points for sample in samples], axis=0)


def with_features(found: Splits, features: Callable[[Sample], np.ndarray]) -> Splits:
    """Adds features to every sample, computed by a function."""

    def part(samples: Sequence[Sample]) -> list[Sample]:
        return [sample._replace(features=features(sample)) for sample in samples]

    return found.mapped(part)
