"""Bases for attention: learned, fixed, adaptive, orthonormal.

A basis maps features to functions `(n, k)` for every head. `Basis` defines the
interface; `nn.BasisAttention` uses it.
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
