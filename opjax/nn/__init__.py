"""Flax NNX modules, which hold the parameters of the pure functions.

Modules are plain pytrees: pass them through `jax.jit`, `jax.grad`, `jax.vmap` and optax
like any other. Every module acts on one sample; batch with `jax.vmap`.

This package exports the models and the most common attention layers. The others are in
subpackages: `nn.bases` and `nn.mixers` contain the two parts of `BasisAttention`;
`nn.attention` all attention layers, `nn.layers` other layers, and `nn.models` all
models; `nn.schwarz` Schwarz attention with free factors and its initialisation.
Constructors take constructors: `attention=partial(nn.GalerkinAttention, num_heads=4)`.
"""

from opjax.nn import attention, bases, layers, mixers, models, schwarz
from opjax.nn.attention import (
    BasisAttention,
    FlareAttention,
    FourierAttention,
    FunctionalAttention,
    GalerkinAttention,
    LinearAttention,
    OrthogonalAttention,
    PhysicsAttention,
    SoftmaxAttention,
    SubdomainAttention,
)
from opjax.nn.layers import MLP
from opjax.nn.layers.position import Coordinates, ReferenceDistances
from opjax.nn.models import (
    GNOT,
    ONO,
    DeepONet,
    Flare,
    FourierNeuralOperator,
    GalerkinTransformer2d,
    LatentNeuralOperator,
    OperatorTransformer,
    SuperResolutionTransformer,
    unit_variance,
    with_precision,
)
from opjax.nn.schwarz import SchwarzAttention
from opjax.precision import Precision

__all__ = [
    "BasisAttention",
    "Coordinates",
    "DeepONet",
    "Flare",
    "FlareAttention",
    "FourierAttention",
    "FourierNeuralOperator",
    "FunctionalAttention",
    "GNOT",
    "GalerkinAttention",
    "GalerkinTransformer2d",
    "LatentNeuralOperator",
    "LinearAttention",
    "MLP",
    "ONO",
    "OperatorTransformer",
    "OrthogonalAttention",
    "PhysicsAttention",
    "Precision",
    "ReferenceDistances",
    "SchwarzAttention",
    "SoftmaxAttention",
    "SubdomainAttention",
    "SuperResolutionTransformer",
    "attention",
    "bases",
    "layers",
    "mixers",
    "models",
    "schwarz",
    "unit_variance",
    "with_precision",
]
