"""Flax NNX modules that own the parameters of the pure functions.

Modules are plain pytrees: pass them through `jax.jit`, `jax.grad`, `jax.vmap` and optax
like any other. Every module acts on one sample; batch with `jax.vmap`.
"""

from opjax.nn.attention import FunctionalAttention, LearnedBasis
from opjax.nn.embedding import TimeEmbedding, reference_distances
from opjax.nn.layers import MLP, GridConvolution, LayerNorm, Linear
from opjax.nn.operator import Block, OperatorTransformer

__all__ = [
    "MLP",
    "Block",
    "FunctionalAttention",
    "GridConvolution",
    "LayerNorm",
    "LearnedBasis",
    "Linear",
    "OperatorTransformer",
    "TimeEmbedding",
    "reference_distances",
]
