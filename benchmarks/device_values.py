"""Values and gradients of pure functions on a device, against oracles and the CPU."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import opjax
from benchmarks.device_cases import Numbers
from benchmarks.device_functions import relative
from opjax import convolution, linalg, schwarz
from opjax.projection import Projection
from tests import oracles

_M, _N, _D, _C, _KQ, _KK, _RANK = 70, 110, 8, 3, 6, 9, 4
_GRID, _RIDGE = (10, 11), 1e-2


class Check(NamedTuple):
    """A function, the names of its arrays, and the oracle in NumPy, if there is one."""

    function: Callable[..., jax.Array]
    arrays: str
    oracle: Callable[..., Any] | None = None


def _arrays() -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(0), (_M, _N)
    m, n = sizes
    found = {
        "q": rng.normal(size=(m, _D)),
        "k": rng.normal(size=(n, _D)),
        "v": rng.normal(size=(n, _C)),
        "w": rng.uniform(0.5, 1.5, n),
        "field": rng.normal(size=(n, 64)),
        "stencil": rng.normal(size=(3, 3, 64, 64)),
        "modes": rng.normal(size=(4, 3, 64, 2, 2)),
    }
    for name, shape in (("phi", (m, _KQ)), ("psi", (n, _KK))):
        logits = np.exp(rng.normal(size=shape))
        found[name] = logits / logits.sum(axis=1, keepdims=True)
    size = (*np.shape(_COVER.indices), _RANK)
    return found | {name: rng.normal(size=size) for name in ("left", "right")}


_COVER = schwarz.box_cover(_GRID, (2, 3), overlap=1)


def _functional(method: str, projection: Projection, *, convex: bool = False) -> Check:
    ridge = opjax.Convex(_RIDGE) if convex else opjax.Additive(_RIDGE)
    return Check(
        lambda *a: opjax.functional_attention(*a, ridge=ridge, projection=projection),
        "q k v phi psi",
        lambda q, k, v, phi, psi: oracles.functional_attention(
            *(q, k, v, phi, psi), ridge=_RIDGE, convex=convex, method=method
        ),
    )


def _low_rank(left: jax.Array, right: jax.Array, values: jax.Array) -> jax.Array:
    return left @ (right.T @ values)


FUNCTIONS = {
    "functional": _functional("transpose", opjax.InnerProducts()),
    "functional pseudo inverse": _functional("pseudo_inverse", opjax.LeastSquares()),
    "functional layer": _functional("mean", opjax.Means(), convex=True),
    "physics": Check(opjax.physics_attention, "q k v phi psi"),
    "softmax": Check(opjax.softmax_attention, "q k v", oracles.softmax_attention),
    "galerkin": Check(opjax.galerkin_attention, "q k v", lambda q, k, v: q @ (k.T @ v)),
    "fourier": Check(opjax.fourier_attention, "q k v"),
    "linear": Check(opjax.linear_attention, "q k v"),
    "intention": Check(
        lambda *a: opjax.intention(*a, ridge=_RIDGE),
        "q k v",
        lambda *a: oracles.intention(*a, ridge=_RIDGE),
    ),
    "ridge_solve": Check(
        lambda a, b: linalg.ridge_solve(a, b, ridge=_RIDGE),
        "k v",
        lambda a, b: oracles.ridge_lstsq(a, b, ridge=_RIDGE),
    ),
    "orthonormalize": Check(
        lambda b, w: opjax.orthonormalize(b, quadrature_weights=w),
        "psi w",
        oracles.gram_schmidt,
    ),
    "whiten": Check(lambda x: linalg.whiten(x, x.T @ x / len(x)), "k"),
    "additive": Check(
        lambda f, *a: schwarz.additive(f, _COVER, _low_rank, *a), "field left right"
    ),
    "convolution": Check(
        lambda *a: convolution.grid_convolution(*a, grid_shape=_GRID), "field stencil"
    ),
    "spectral": Check(
        lambda *a: opjax.spectral_convolution(*a, grid_shape=_GRID), "field modes"
    ),
}


def against_cpu(name: str) -> Numbers:
    """Errors of values and gradients on the device, products in full precision.

    The gradient is that of a random combination of the values in all arrays. Double
    precision on the CPU is the reference, and itself compared with an oracle in NumPy.
    """
    check, arrays = FUNCTIONS[name], _arrays()
    given = tuple(arrays[key] for key in check.arrays.split())

    def both(*arrays: jax.Array) -> Any:
        def energy(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = check.function(*arrays)
            mix = np.random.default_rng(1).normal(size=values.shape)
            return jnp.sum(values * jnp.asarray(mix, values.dtype)), values

        numbers = tuple(range(len(arrays)))
        (_, values), slopes = jax.value_and_grad(energy, numbers, has_aux=True)(*arrays)
        return values, slopes

    def run(device: jax.Device, dtype: type) -> Any:
        placed = jax.device_put([a.astype(dtype) for a in given], device)
        return jax.device_get(jax.jit(both)(*placed))

    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        reference = run(jax.devices("cpu")[0], np.float64)
        double = run(jax.devices()[0], np.float64)
        single = run(jax.devices()[0], np.float32)
        expected = check.oracle(*given) if check.oracle else reference[0]
    return {
        "oracle_error": relative(reference[0], expected) if check.oracle else None,
        "float64_value_error": relative(double[0], reference[0]),
        "float64_gradient_error": relative(double[1], reference[1]),
        "float32_value_error": relative(single[0], reference[0]),
        "float32_gradient_error": relative(single[1], reference[1]),
    }
