"""Data that the tests of all attentions share."""

import numpy as np
import pytest


@pytest.fixture
def points(rng):
    """Returns query, key and value, all axes different."""
    m, n, d, c = 7, 11, 4, 3
    return tuple(rng.normal(size=shape) for shape in ((m, d), (n, d), (n, c)))


@pytest.fixture
def key_weights(rng) -> np.ndarray:
    return rng.uniform(0.5, 1.5, 11)
