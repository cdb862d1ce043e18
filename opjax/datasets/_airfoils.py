"""What the data sets of flows around random airfoils have in common."""

from collections.abc import Callable, Sequence

import numpy as np

from opjax.samples import Sample, Splits


def check_tolerance(tolerance: float) -> None:
    """Raises ValueError for a residual that no flow in float32 comes down to."""
    if not 1e-5 <= tolerance < 1:
        raise ValueError(f"{tolerance=} must lie between 1e-5 and 1 in float32.")


def with_features(
    found: Splits, features: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Splits:
    """Gives samples features that are functions of the points and of their mean.

    Args:
      found: samples on meshes with as many points, in one order.
      features: of the points of a sample and of the mean `m` of the training meshes,
        both `(n, 2)`, for example the deviation `x - m`.
    """
    mean = np.mean([sample.mesh_points for sample in found.train], axis=0)

    def part(samples: Sequence[Sample]) -> list[Sample]:
        return [s._replace(features=features(s.mesh_points, mean)) for s in samples]

    train, validation, test = map(part, found[:3])
    return found._replace(train=train, validation=validation, test=test)
