"""Flax NNX modules that own the parameters of the pure functions.

Modules are plain pytrees: pass them through `jax.jit`, `jax.grad`, `jax.vmap` and optax
like any other. Every module acts on one sample; batch with `jax.vmap`.
"""

from opjax.nn.attention import BasisAttention, FunctionalAttention
from opjax.nn.calibration import calibrate, principal_keys
from opjax.nn.fourier import FourierBlock, FourierNeuralOperator
from opjax.nn.functional_schwarz import FunctionalSchwarzAttention, SchwarzTransport
from opjax.nn.galerkin import EncoderLayer, GalerkinAttention, HeadNorm
from opjax.nn.galerkin_transformer import GalerkinTransformer2d
from opjax.nn.layers import (
    MLP,
    ConvolutionBlock,
    DownScaler,
    FanInLinear,
    GridConvolution,
    LayerNorm,
    Linear,
    PointwiseDecoder,
    SpectralConvolution,
    SpectralDecoder,
    SpectralLayer,
    TimeEmbedding,
    UpScaler,
    initializers,
    reference_distances,
)
from opjax.nn.learned_basis import LearnedBasis
from opjax.nn.operator import Block, OperatorTransformer
from opjax.nn.orthogonal import OrthogonalAttention
from opjax.nn.physics import PhysicsAttention
from opjax.nn.schwarz import LowRankAttention, SchwarzAttention
from opjax.nn.super_resolution import SuperResolutionTransformer

__all__ = [
    "BasisAttention",
    "Block",
    "ConvolutionBlock",
    "DownScaler",
    "EncoderLayer",
    "FanInLinear",
    "FourierBlock",
    "FourierNeuralOperator",
    "FunctionalAttention",
    "FunctionalSchwarzAttention",
    "GalerkinAttention",
    "GalerkinTransformer2d",
    "GridConvolution",
    "HeadNorm",
    "LayerNorm",
    "LearnedBasis",
    "Linear",
    "LowRankAttention",
    "MLP",
    "OperatorTransformer",
    "OrthogonalAttention",
    "PhysicsAttention",
    "PointwiseDecoder",
    "SchwarzAttention",
    "SchwarzTransport",
    "SpectralConvolution",
    "SpectralDecoder",
    "SpectralLayer",
    "SuperResolutionTransformer",
    "TimeEmbedding",
    "UpScaler",
    "calibrate",
    "initializers",
    "principal_keys",
    "reference_distances",
]
