"""Schwarz attention with free factors, and how its factors start."""

from opjax.nn.schwarz.calibration import calibrate, principal_keys
from opjax.nn.schwarz.factors import LowRankAttention, SchwarzAttention

__all__ = ["LowRankAttention", "SchwarzAttention", "calibrate", "principal_keys"]
