"""Layers that make up the attention layers and the models."""

from opjax.nn.layers import initializers
from opjax.nn.layers.decoders import PointwiseDecoder, SpectralDecoder, SpectralLayer
from opjax.nn.layers.embedding import TimeEmbedding, reference_distances
from opjax.nn.layers.experts import Experts
from opjax.nn.layers.grid import GridConvolution
from opjax.nn.layers.initializers import Initializer, fan_in_uniform, trunk_init
from opjax.nn.layers.linear import ACTIVATIONS, MLP, FanInLinear, Linear, ResidualMLP
from opjax.nn.layers.norm import LayerNorm, RMSNorm, normalized
from opjax.nn.layers.scalers import ConvolutionBlock, DownScaler, UpScaler
from opjax.nn.layers.spectral import SpectralConvolution
from opjax.nn.layers.stacks import stacked

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "ConvolutionBlock",
    "DownScaler",
    "Experts",
    "FanInLinear",
    "GridConvolution",
    "Initializer",
    "LayerNorm",
    "Linear",
    "PointwiseDecoder",
    "RMSNorm",
    "ResidualMLP",
    "SpectralConvolution",
    "SpectralDecoder",
    "SpectralLayer",
    "TimeEmbedding",
    "UpScaler",
    "fan_in_uniform",
    "initializers",
    "normalized",
    "reference_distances",
    "stacked",
    "trunk_init",
]
