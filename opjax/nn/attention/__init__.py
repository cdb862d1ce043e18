"""Attention layers with one interface: in a basis, between points, on subdomains."""

from opjax.nn.attention.basis import BasisAttention
from opjax.nn.attention.flare import FlareAttention
from opjax.nn.attention.named import (
    EideticAttention,
    FunctionalAttention,
    OrthogonalAttention,
    PhysicsAttention,
)
from opjax.nn.attention.nystromformer import NystromformerAttention
from opjax.nn.attention.points import HeadNorm, HeadwiseAttention, PointAttention
from opjax.nn.attention.pointwise import (
    FourierAttention,
    GalerkinAttention,
    IntentionAttention,
    LinearAttention,
    LinformerAttention,
    NystromAttention,
    PerformerAttention,
    SoftmaxAttention,
)
from opjax.nn.attention.softmaxed import (
    EfficientAttention,
    MeanAttention,
    NormalizedAttention,
    NormalizedCrossAttention,
    SharedNormAttention,
)
from opjax.nn.attention.subdomains import (
    GridSubdomains,
    MapsOfLevels,
    SubdomainAttention,
    Subdomains,
)
from opjax.nn.attention.sums import PointSums, Sums

__all__ = [
    "BasisAttention",
    "EfficientAttention",
    "EideticAttention",
    "FlareAttention",
    "FourierAttention",
    "FunctionalAttention",
    "GalerkinAttention",
    "GridSubdomains",
    "HeadNorm",
    "HeadwiseAttention",
    "IntentionAttention",
    "LinearAttention",
    "LinformerAttention",
    "MapsOfLevels",
    "MeanAttention",
    "NormalizedAttention",
    "NormalizedCrossAttention",
    "NystromAttention",
    "NystromformerAttention",
    "OrthogonalAttention",
    "PerformerAttention",
    "PhysicsAttention",
    "PointAttention",
    "PointSums",
    "SharedNormAttention",
    "SoftmaxAttention",
    "SubdomainAttention",
    "Subdomains",
    "Sums",
]
