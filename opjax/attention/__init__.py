"""Attention functions, each for one head of one sample.

Queries are features at `m` points; keys and values are features at `n` points. Use
`jax.vmap` for heads and batches.
"""

from opjax.attention.bases import (
    basis_attention,
    physics_attention,
)
from opjax.attention.flare import flare_attention, softmax_means
from opjax.attention.functional import (
    MapBetweenBases,
    functional_attention,
    functional_attention_map,
    functional_map,
    intention,
    transport,
)
from opjax.attention.linear import galerkin_attention, linear_attention
from opjax.attention.linformer import (
    linformer_attention,
)
from opjax.attention.normalized import normalized_attention
from opjax.attention.nystrom import (
    nystrom_attention,
)
from opjax.attention.orthogonal import (
    mode_gains,
    orthogonal_attention,
)
from opjax.attention.orthonormal import feature_covariance, orthonormal_attention
from opjax.attention.pairwise import fourier_attention, softmax_attention
from opjax.attention.performer import (
    orthogonal_random_features,
    performer_attention,
)

__all__ = [
    "MapBetweenBases",
    "basis_attention",
    "feature_covariance",
    "flare_attention",
    "fourier_attention",
    "functional_attention",
    "functional_attention_map",
    "functional_map",
    "galerkin_attention",
    "intention",
    "linear_attention",
    "linformer_attention",
    "mode_gains",
    "normalized_attention",
    "nystrom_attention",
    "orthogonal_attention",
    "orthogonal_random_features",
    "orthonormal_attention",
    "performer_attention",
    "physics_attention",
    "softmax_attention",
    "softmax_means",
    "transport",
]
