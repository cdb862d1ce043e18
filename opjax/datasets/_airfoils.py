"""Shared functions of the data sets of flows around random airfoils."""

from collections.abc import Callable, Sequence

import numpy as np

from opjax.samples import Sample, Splits


def check_tolerance(tolerance: float) -> None:
    """Raises ValueError for a residual tolerance that float32 cannot reach."""
    if not 1e-5 <= tolerance < 1:
        raise ValueError(f"{tolerance=} must lie between 1e-5 and 1 in float32.")


def mean_mesh(samples: Sequence[Sample]) -> np.ndarray:
    """Returns the mean of meshes with corresponding points, `(n, 2)`."""
    return np.mean([sample.mesh_points for sample in samples], axis=0)


def with_features(found: Splits, features: Callable[[Sample], np.ndarray]) -> Splits:
    """Adds features to every sample, computed by a function."""

    def part(samples: Sequence[Sample]) -> list[Sample]:
        return [sample._replace(features=features(sample)) for sample in samples]

    train, validation, test = map(part, found[:3])
    return found._replace(train=train, validation=validation, test=test)
