"""Models: operators between functions, with a common interface."""

from opjax.nn.models._given import Points
from opjax.nn.models.darcy import darcy_transformer, inverse_transformer
from opjax.nn.models.deeponet import DeepONet
from opjax.nn.models.dropout import Dropout, with_dropout, without_dropout
from opjax.nn.models.encoder import Block, EncoderLayer
from opjax.nn.models.flare import Flare
from opjax.nn.models.fourier import FourierBlock, FourierNeuralOperator
from opjax.nn.models.galerkin2d import GalerkinTransformer2d
from opjax.nn.models.gnot import GNOT, GNOTBlock
from opjax.nn.models.gnot_original import OriginalGNOT
from opjax.nn.models.latent import LatentNeuralOperator
from opjax.nn.models.modulation import Modulation
from opjax.nn.models.narrow import with_precision
from opjax.nn.models.ono import ONO, ONOBlock
from opjax.nn.models.operator import OperatorTransformer
from opjax.nn.models.orthogonal import OrthogonalLayer, OrthogonalNetwork
from opjax.nn.models.scalars import ScalarHead, ScalarOperator, constant_features
from opjax.nn.models.super_resolution import (
    SuperResolutionTransformer,
    coordinate_attention,
)
from opjax.nn.models.variance import unit_variance

__all__ = [
    "Block",
    "DeepONet",
    "Dropout",
    "EncoderLayer",
    "Flare",
    "FourierBlock",
    "FourierNeuralOperator",
    "GNOT",
    "GNOTBlock",
    "GalerkinTransformer2d",
    "LatentNeuralOperator",
    "Modulation",
    "ONO",
    "ONOBlock",
    "OperatorTransformer",
    "OriginalGNOT",
    "OrthogonalLayer",
    "OrthogonalNetwork",
    "Points",
    "ScalarHead",
    "ScalarOperator",
    "SuperResolutionTransformer",
    "constant_features",
    "coordinate_attention",
    "darcy_transformer",
    "inverse_transformer",
    "unit_variance",
    "with_dropout",
    "without_dropout",
    "with_precision",
]
