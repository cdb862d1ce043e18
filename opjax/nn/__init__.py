"""Flax NNX modules that own the parameters of the pure functions.

Modules are plain pytrees: pass them through `jax.jit`, `jax.grad`, `jax.vmap` and optax
like any other. Every module acts on one sample; batch with `jax.vmap`.

By role: `layers`; `attention`, where `BasisAttention` takes a basis and a mixer, others
compare points, and all are called alike; `schwarz`; and `models`, called alike too.
Constructors take constructors: `attention=partial(nn.GalerkinAttention, num_heads=4)`.
"""

from opjax.nn.attention import heads
from opjax.nn.attention.adaptive import (
    AdaptiveBasis,
    EideticAttention,
    draws_noise,
    with_noise,
)
from opjax.nn.attention.bases import (
    Basis,
    FixedBasis,
    HeadInputs,
    IndicatorBasis,
    OrthonormalBasis,
    SoftmaxBasis,
)
from opjax.nn.attention.basis import (
    BasisAttention,
    inner_products,
    least_squares,
    means,
)
from opjax.nn.attention.flare import FlareAttention
from opjax.nn.attention.mixers import (
    CrossValidatedMap,
    FixedRidgeMap,
    FunctionalMap,
    GalerkinMap,
    IdentityMap,
    Mixer,
    ModeGains,
    SoftmaxMap,
)
from opjax.nn.attention.named import (
    FunctionalAttention,
    OrthogonalAttention,
    PhysicsAttention,
)
from opjax.nn.attention.nystromformer import NystromformerAttention
from opjax.nn.attention.points import HeadNorm, PointAttention
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
from opjax.nn.layers import (
    MLP,
    ConvolutionBlock,
    DownScaler,
    Experts,
    FanInLinear,
    GridConvolution,
    LayerNorm,
    Linear,
    PointwiseDecoder,
    ResidualMLP,
    RMSNorm,
    SpectralConvolution,
    SpectralDecoder,
    SpectralLayer,
    TimeEmbedding,
    UpScaler,
    initializers,
    reference_distances,
)
from opjax.nn.layers.position import Coordinates, ReferenceDistances
from opjax.nn.models.darcy import darcy_transformer, inverse_transformer
from opjax.nn.models.deeponet import DeepONet
from opjax.nn.models.dropout import Dropout, with_dropout
from opjax.nn.models.encoder import Block, EncoderLayer
from opjax.nn.models.flare import Flare
from opjax.nn.models.fourier import FourierBlock, FourierNeuralOperator
from opjax.nn.models.galerkin2d import GalerkinTransformer2d
from opjax.nn.models.gnot import GNOT, GNOTBlock
from opjax.nn.models.gnot_original import OriginalGNOT
from opjax.nn.models.latent import LatentNeuralOperator
from opjax.nn.models.narrow import with_precision
from opjax.nn.models.ono import ONO, ONOBlock
from opjax.nn.models.operator import OperatorTransformer
from opjax.nn.models.orthogonal import OrthogonalLayer, OrthogonalNetwork
from opjax.nn.models.regressors import (
    CrossValidatedRegressor,
    FunctionalRegressor,
    IntentionRegressor,
    LinearAttentionRegressor,
    SoftmaxAttentionRegressor,
    TransolverRegressor,
)
from opjax.nn.models.super_resolution import (
    SuperResolutionTransformer,
    coordinate_attention,
)
from opjax.nn.models.variance import unit_variance
from opjax.nn.schwarz import (
    LowRankAttention,
    SchwarzAttention,
    box_attention,
    calibrate,
    laplacian_factors,
    principal_keys,
    scale_products,
)
from opjax.precision import Precision

__all__ = [
    "AdaptiveBasis",
    "Basis",
    "BasisAttention",
    "Block",
    "ConvolutionBlock",
    "Coordinates",
    "CrossValidatedMap",
    "CrossValidatedRegressor",
    "DeepONet",
    "Dropout",
    "DownScaler",
    "EfficientAttention",
    "EideticAttention",
    "EncoderLayer",
    "Experts",
    "FanInLinear",
    "FixedBasis",
    "FixedRidgeMap",
    "Flare",
    "FlareAttention",
    "FourierAttention",
    "FourierBlock",
    "FourierNeuralOperator",
    "FunctionalAttention",
    "FunctionalMap",
    "FunctionalRegressor",
    "GNOT",
    "GNOTBlock",
    "GalerkinAttention",
    "GalerkinMap",
    "GalerkinTransformer2d",
    "GridConvolution",
    "GridSubdomains",
    "HeadInputs",
    "HeadNorm",
    "IdentityMap",
    "IndicatorBasis",
    "IntentionAttention",
    "IntentionRegressor",
    "LatentNeuralOperator",
    "LayerNorm",
    "Linear",
    "LinearAttention",
    "LinearAttentionRegressor",
    "LinformerAttention",
    "LowRankAttention",
    "MLP",
    "MapsOfLevels",
    "MeanAttention",
    "Mixer",
    "ModeGains",
    "NormalizedAttention",
    "NormalizedCrossAttention",
    "NystromAttention",
    "NystromformerAttention",
    "ONO",
    "ONOBlock",
    "OperatorTransformer",
    "OriginalGNOT",
    "OrthogonalAttention",
    "OrthogonalLayer",
    "OrthogonalNetwork",
    "OrthonormalBasis",
    "PerformerAttention",
    "PhysicsAttention",
    "PointAttention",
    "PointwiseDecoder",
    "Precision",
    "RMSNorm",
    "ReferenceDistances",
    "ResidualMLP",
    "SchwarzAttention",
    "SharedNormAttention",
    "SoftmaxAttention",
    "SoftmaxAttentionRegressor",
    "SoftmaxBasis",
    "SoftmaxMap",
    "SpectralConvolution",
    "SpectralDecoder",
    "SpectralLayer",
    "SubdomainAttention",
    "Subdomains",
    "SuperResolutionTransformer",
    "TimeEmbedding",
    "TransolverRegressor",
    "UpScaler",
    "box_attention",
    "calibrate",
    "coordinate_attention",
    "darcy_transformer",
    "draws_noise",
    "heads",
    "initializers",
    "inverse_transformer",
    "inner_products",
    "laplacian_factors",
    "least_squares",
    "means",
    "principal_keys",
    "reference_distances",
    "scale_products",
    "unit_variance",
    "with_dropout",
    "with_noise",
    "with_precision",
]
