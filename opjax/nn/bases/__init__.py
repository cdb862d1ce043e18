"""Bases that attention expands features in: learned, fixed, adaptive, orthonormal.

A basis maps features to functions `(n, k)` for every head; see `Basis` for what it has
to offer, and `nn.BasisAttention` for what uses it.
"""

from opjax.nn.bases.adaptive import AdaptiveBasis, draws_noise, with_noise
from opjax.nn.bases.expansions import (
    Basis,
    FixedBasis,
    HeadInputs,
    IndicatorBasis,
    OrthonormalBasis,
    SoftmaxBasis,
)

__all__ = [
    "AdaptiveBasis",
    "Basis",
    "FixedBasis",
    "HeadInputs",
    "IndicatorBasis",
    "OrthonormalBasis",
    "SoftmaxBasis",
    "draws_noise",
    "with_noise",
]
