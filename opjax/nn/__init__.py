"""Flax NNX modules that own the parameters of the pure functions.

Modules are plain pytrees: pass them through `jax.jit`, `jax.grad`, `jax.vmap` and optax
like any other. Every module acts on one sample; batch with `jax.vmap`.
"""

from opjax.nn import initializers
from opjax.nn.attention import BasisAttention, FunctionalAttention
from opjax.nn.calibration import calibrate, principal_keys
from opjax.nn.decoders import PointwiseDecoder, SpectralDecoder, SpectralLayer
from opjax.nn.embedding import TimeEmbedding, reference_distances
from opjax.nn.few_shot import (
    FunctionalRegressor,
    IntentionRegressor,
    TransolverRegressor,
)
from opjax.nn.few_shot_attention import (
    LinearAttentionRegressor,
    SoftmaxAttentionRegressor,
)
from opjax.nn.fourier import FourierBlock, FourierNeuralOperator
from opjax.nn.functional_schwarz import FunctionalSchwarzAttention, SchwarzTransport
from opjax.nn.galerkin import EncoderLayer, GalerkinAttention, HeadNorm
from opjax.nn.galerkin_transformer import GalerkinTransformer2d
from opjax.nn.layers import MLP, FanInLinear, GridConvolution, LayerNorm, Linear
from opjax.nn.learned_basis import LearnedBasis
from opjax.nn.operator import Block, OperatorTransformer
from opjax.nn.orthogonal import OrthogonalAttention
from opjax.nn.perceptron import Perceptron
from opjax.nn.physics import PhysicsAttention
from opjax.nn.scalers import ConvolutionBlock, DownScaler, UpScaler
from opjax.nn.schwarz import LowRankAttention, SchwarzAttention
from opjax.nn.spectral import SpectralConvolution
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
    "FunctionalRegressor",
    "FunctionalSchwarzAttention",
    "GalerkinAttention",
    "GalerkinTransformer2d",
    "GridConvolution",
    "HeadNorm",
    "IntentionRegressor",
    "LayerNorm",
    "LearnedBasis",
    "Linear",
    "LinearAttentionRegressor",
    "LowRankAttention",
    "MLP",
    "OperatorTransformer",
    "OrthogonalAttention",
    "Perceptron",
    "PhysicsAttention",
    "PointwiseDecoder",
    "SchwarzAttention",
    "SchwarzTransport",
    "SoftmaxAttentionRegressor",
    "SpectralConvolution",
    "SpectralDecoder",
    "SpectralLayer",
    "SuperResolutionTransformer",
    "TimeEmbedding",
    "TransolverRegressor",
    "UpScaler",
    "calibrate",
    "initializers",
    "principal_keys",
    "reference_distances",
]
