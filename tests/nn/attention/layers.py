"""Small layers of every basis, mixer and projection, for tests."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import opjax
from opjax import nn
from tests.nn.parameters import built_once

FEATURES, HEADS, BASIS = 12, 3, 5
WIDTH = FEATURES // HEADS

SOFTMAX = partial(nn.bases.SoftmaxBasis, num_basis=BASIS)
WAVES = partial(opjax.fourier_basis, num_frequencies=2, lengths=(2.0,))
HATS = partial(opjax.hat_basis, num_nodes=BASIS)
BASES = {
    "softmax": SOFTMAX,
    "indicator": partial(nn.bases.IndicatorBasis, num_basis=BASIS),
    "fourier": partial(nn.bases.FixedBasis, functions=WAVES, num_basis=BASIS),
    "hat": partial(nn.bases.FixedBasis, functions=HATS, num_basis=BASIS, one_sign=True),
    "given": partial(nn.bases.FixedBasis, functions=None, num_basis=BASIS),
    "orthonormal": partial(nn.bases.OrthonormalBasis, inner=SOFTMAX),
}
ONE_SIGN = ("softmax", "indicator", "hat")
MIXERS = {
    "functional": nn.mixers.FunctionalMap,
    "functional_gcv": nn.mixers.CrossValidatedMap,
    "softmax": nn.mixers.SoftmaxMap,
    "galerkin": nn.mixers.GalerkinMap,
    "modes": nn.mixers.ModeGains,
    "identity": nn.mixers.IdentityMap,
}
PROJECTIONS = {
    "means": opjax.Means(),
    "inner_products": opjax.InnerProducts(),
    "least_squares": opjax.LeastSquares(1e-2, relative=True),
}
# Every basis with every projection that it has.
PAIRS = [
    (basis, projection)
    for basis in BASES
    for projection in PROJECTIONS
    if projection != "means" or basis in ONE_SIGN
]


def enlarged(module, factor=4, dtype=float):
    """Large enough that attention is far from its small start, where all is zero."""
    return jax.tree.map(lambda p: jnp.asarray(factor * np.asarray(p, dtype)), module)


def single(module):
    """The same in float32."""
    return jax.tree.map(lambda p: jnp.asarray(np.asarray(p, np.float32)), module)


@built_once
def make(basis="softmax", mixer="functional", projection=None, **options):
    """A layer from names."""
    layer = nn.BasisAttention(
        FEATURES,
        num_heads=HEADS,
        basis=BASES[basis],
        mixer=MIXERS[mixer],
        projection=projection and PROJECTIONS[projection],
        rngs=nnx.Rngs(0),
        **options,
    )
    return enlarged(layer)


def arguments(basis, x, points):
    """What a layer in a basis is given besides features at points of an interval."""
    given = {"mesh_points": points}
    if basis == "given":
        given["basis_functions"] = jnp.sin(x[:, :BASIS])
    return given


def numpy(module):
    """The same with arrays of NumPy."""
    return jax.tree.map(np.asarray, module)


def assert_close(actual, expected, rtol=1e-9, atol=1e-11):
    """Compares two pytrees leaf by leaf."""
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
