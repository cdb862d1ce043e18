"""Operator learning with attention: pure functions for grids, meshes and clouds.

Functions act on one head of one sample; use `jax.vmap` for heads and batches. Other
packages must be imported by name: modules are in `opjax.nn`, training and prediction in
`opjax.learn`, data sets in `opjax.datasets`, their solvers in `opjax.problems`.
"""

from importlib import metadata as _metadata

from opjax import (
    attention,
    basis,
    linalg,
    metrics,
    metrics_time,
    normalize,
    point_clouds,
    projection,
    quadrature,
    schwarz,
    uncertainty,
)
from opjax.adaptive_ridge import gcv_ridge
from opjax.attention import (
    MapBetweenBases,
    basis_attention,
    feature_covariance,
    flare_attention,
    fourier_attention,
    functional_attention,
    functional_attention_map,
    functional_map,
    galerkin_attention,
    intention,
    linear_attention,
    linformer_attention,
    mode_gains,
    normalized_attention,
    nystrom_attention,
    orthogonal_attention,
    orthogonal_random_features,
    orthonormal_attention,
    performer_attention,
    physics_attention,
    softmax_attention,
    softmax_means,
    transport,
)
from opjax.basis import (
    fourier_basis,
    hat_basis,
    indicator_basis,
    orthonormalize,
    softmax_basis,
)
from opjax.eigenfunctions import (
    grid_eigenfunctions,
    heat_kernel_signature,
    laplacian_eigenfunctions,
)
from opjax.interpolation import interpolate_grid
from opjax.linalg import (
    Additive,
    Convex,
    condition_number,
    inf_sup_constant,
    ridge_solve,
)
from opjax.projection import (
    InnerProducts,
    LeastSquares,
    Means,
    Moments,
    gram,
    moments,
    project,
    reconstruct,
)
from opjax.quadrature import cell_weights, grid_weights, scattered_weights
from opjax.rollouts import rollout
from opjax.spectral import spectral_convolution

__version__ = _metadata.version("opjax")

__all__ = [
    "Additive",
    "Convex",
    "InnerProducts",
    "LeastSquares",
    "MapBetweenBases",
    "Means",
    "Moments",
    "attention",
    "basis",
    "basis_attention",
    "cell_weights",
    "condition_number",
    "feature_covariance",
    "flare_attention",
    "fourier_attention",
    "fourier_basis",
    "functional_attention",
    "functional_attention_map",
    "functional_map",
    "galerkin_attention",
    "gcv_ridge",
    "gram",
    "grid_eigenfunctions",
    "grid_weights",
    "hat_basis",
    "heat_kernel_signature",
    "indicator_basis",
    "inf_sup_constant",
    "intention",
    "interpolate_grid",
    "laplacian_eigenfunctions",
    "linalg",
    "linear_attention",
    "linformer_attention",
    "metrics",
    "metrics_time",
    "mode_gains",
    "moments",
    "normalize",
    "normalized_attention",
    "nystrom_attention",
    "orthogonal_attention",
    "orthogonal_random_features",
    "orthonormal_attention",
    "orthonormalize",
    "performer_attention",
    "physics_attention",
    "point_clouds",
    "project",
    "projection",
    "quadrature",
    "reconstruct",
    "ridge_solve",
    "rollout",
    "scattered_weights",
    "schwarz",
    "softmax_attention",
    "softmax_basis",
    "softmax_means",
    "spectral_convolution",
    "transport",
    "uncertainty",
]
