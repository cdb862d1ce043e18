"""Flax NNX modules that own the parameters of the pure functions.

Modules are plain pytrees: pass them through `jax.jit`, `jax.grad`, `jax.vmap` and optax
like any other. Every module acts on one sample; batch with `jax.vmap`.
"""

from opjax.nn import initializers
from opjax.nn.attention import FunctionalAttention, LearnedBasis
from opjax.nn.calibration import calibrate, principal_keys
from opjax.nn.embedding import TimeEmbedding, reference_distances
from opjax.nn.fourier import FourierBlock, FourierNeuralOperator
from opjax.nn.functional_schwarz import FunctionalSchwarzAttention, SchwarzTransport
from opjax.nn.layers import MLP, GridConvolution, LayerNorm, Linear
from opjax.nn.operator import Block, OperatorTransformer
from opjax.nn.schwarz import LowRankAttention, SchwarzAttention
from opjax.nn.spectral import SpectralConvolution

__all__ = [
    "MLP",
    "Block",
    "FourierBlock",
    "FourierNeuralOperator",
    "FunctionalAttention",
    "FunctionalSchwarzAttention",
    "GridConvolution",
    "LayerNorm",
    "LearnedBasis",
    "Linear",
    "LowRankAttention",
    "OperatorTransformer",
    "SchwarzAttention",
    "SchwarzTransport",
    "SpectralConvolution",
    "TimeEmbedding",
    "calibrate",
    "initializers",
    "principal_keys",
    "reference_distances",
]
