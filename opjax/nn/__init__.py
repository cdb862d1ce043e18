"""Flax NNX modules that own the parameters of the pure functions.

Modules are plain pytrees: pass them through `jax.jit`, `jax.grad`, `jax.vmap` and optax
like any other. Every module acts on one sample; batch with `jax.vmap`.
"""

from opjax.nn.attention import BasisAttention, FunctionalAttention, LearnedBasis
from opjax.nn.calibration import calibrate, principal_keys
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
from opjax.nn import initializers
from opjax.nn.attention import FunctionalAttention, LearnedBasis
from opjax.nn.calibration import calibrate, principal_keys
from opjax.nn.embedding import TimeEmbedding, reference_distances
from opjax.nn.fourier import FourierBlock, FourierNeuralOperator
from opjax.nn.functional_schwarz import FunctionalSchwarzAttention, SchwarzTransport
from opjax.nn.layers import MLP, GridConvolution, LayerNorm, Linear
from opjax.nn.operator import Block, OperatorTransformer
from opjax.nn.perceptron import Perceptron
from opjax.nn.physics import PhysicsAttention
from opjax.nn.schwarz import LowRankAttention, SchwarzAttention
from opjax.nn.spectral import SpectralConvolution

__all__ = [
    "MLP",
    "BasisAttention",
    "Block",
    "FourierBlock",
    "FourierNeuralOperator",
    "FunctionalAttention",
    "FunctionalRegressor",
    "FunctionalSchwarzAttention",
    "GridConvolution",
    "IntentionRegressor",
    "LayerNorm",
    "LearnedBasis",
    "Linear",
    "LinearAttentionRegressor",
    "LowRankAttention",
    "OperatorTransformer",
    "PhysicsAttention",
    "Perceptron",
    "SchwarzAttention",
    "SchwarzTransport",
    "SoftmaxAttentionRegressor",
    "SpectralConvolution",
    "TimeEmbedding",
    "TransolverRegressor",
    "calibrate",
    "initializers",
    "principal_keys",
    "reference_distances",
]
