"""Models of the tests: the operator transformer from numbers, as papers state it."""

from functools import partial

from flax import nnx

from opjax import nn

BASES = {"functional": nn.mixers.FunctionalMap, "transolver": nn.mixers.SoftmaxMap}
POINTS = {
    "galerkin": nn.GalerkinAttention,
    "linear": nn.LinearAttention,
    "fourier": nn.FourierAttention,
    "softmax": nn.SoftmaxAttention,
}


def transformer(
    *,
    point_dim,
    features=128,
    num_heads=8,
    num_basis=64,
    attention="functional",
    shared_basis=True,
    grid_shape=None,
    reference_points=None,
    reference_box=(None, None),
    temperature_bounds=(0.1, 5.0),
    ridge_logit=0.0,
    **options,
):
    """Returns an `nn.OperatorTransformer` with attention in softmax bases, or none."""
    softmax = partial(
        nn.bases.SoftmaxBasis,
        num_basis=num_basis,
        grid_shape=grid_shape,
        temperature_bounds=temperature_bounds,
    )
    basis = None
    if attention in BASES:
        mixer = BASES[attention]
        if attention == "functional":
            mixer = partial(mixer, ridge_logit=ridge_logit)
        attend = partial(
            nn.BasisAttention,
            num_heads=num_heads,
            basis=None if shared_basis else softmax,
            mixer=mixer,
        )
        basis = partial(softmax, num_heads=num_heads) if shared_basis else None
    else:
        attend = partial(POINTS[attention], num_heads=num_heads, point_dim=point_dim)
    position = nn.Coordinates(point_dim)
    if reference_points:
        position = nn.ReferenceDistances(point_dim, reference_points, *reference_box)
    return nn.OperatorTransformer(
        position=position, attention=attend, basis=basis, features=features, **options
    )


def small_operator(**options):
    """An `nn.OperatorTransformer` in the plane, from eight channels in two layers."""
    sizes = {"feature_dim": 1, "out_features": 1, "features": 8, "num_layers": 2}
    options = {"position": nn.Coordinates(2), "rngs": nnx.Rngs(0)} | sizes | options
    return nn.OperatorTransformer(**options)
