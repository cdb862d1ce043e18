"""Schwarz attention with free factors, and the initialisation of its factors."""

from opjax.nn.schwarz.boxes import box_attention
from opjax.nn.schwarz.calibration import calibrate, principal_keys
from opjax.nn.schwarz.closed_form import laplacian_factors
from opjax.nn.schwarz.factors import LowRankAttention, SchwarzAttention
from opjax.nn.schwarz.scaling import scale_products

__all__ = [
    "LowRankAttention",
    "SchwarzAttention",
    "box_attention",
    "calibrate",
    "laplacian_factors",
    "principal_keys",
    "scale_products",
]
