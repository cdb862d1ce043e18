"""An option that is one number is no array, whatever fits by accident.

Heads that were not mapped gave a wrong result without a word where their number was the
width of a head: a vector as ridge meant a different thing in each form of the system.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import opjax
from opjax import attention, basis, linalg, metrics, projection, uncertainty

K = 4
X = np.random.default_rng(0).random((K, K))
W = X / X.sum(axis=1, keepdims=True)

# Function of one option, by its name; every axis has length four.
OPTIONS = {
    "ridge_solve": ("ridge", partial(opjax.ridge_solve, X, X)),
    "ridge_solve, dual": ("ridge", partial(opjax.ridge_solve, X[:, :2], X)),
    "condition_number": ("ridge", partial(linalg.condition_number, X)),
    "functional_map": ("ridge", partial(opjax.functional_map, X, X)),
    "functional_attention": (
        "ridge",
        partial(opjax.functional_attention, X, X, X, W, W),
    ),
    "transport": ("ridge", partial(opjax.transport, X, X, X)),
    "intention": ("ridge", partial(attention.intention, X, X, X)),
    "convex": (
        "ridge",
        lambda ridge: opjax.ridge_solve(X, X, ridge=opjax.Convex(ridge)),
    ),
    "ridge of a projection": (
        "ridge",
        lambda ridge: opjax.functional_attention(
            *(X, X, X, W, W), ridge=0.1, projection=opjax.LeastSquares(ridge)
        ),
    ),
    "project": (
        "ridge",
        lambda ridge: opjax.project(X, W, projection=opjax.LeastSquares(ridge)),
    ),
    "offset of project": (
        "offset",
        lambda offset: opjax.project(X, W, projection=opjax.Means(offset)),
    ),
    "least_squares": (
        "ridge",
        lambda ridge: projection.moments(X, W, with_gram=True).least_squares(
            ridge=ridge
        ),
    ),
    "temperature": (
        "temperature",
        lambda temperature: basis.softmax_basis(X, temperature=temperature[None]),
    ),
    "shrunk_distances": ("ridge", partial(uncertainty.shrunk_distances, X)),
    "factor of a band": ("factor", partial(uncertainty.band, X[0], X[0])),
    "spacing": (
        "spacing",
        partial(metrics.relative_flux_error, X[0], X[:, :1], grid_shape=(K,)),
    ),
}
VALUES = np.array([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("case", OPTIONS)
@pytest.mark.parametrize("traced", [False, True])
def test_an_array_is_refused_where_a_number_is_meant(case, traced):
    name, function = OPTIONS[case]

    def call(value):
        return function(**{name: value})

    run = jax.jit(call) if traced else call
    with pytest.raises(ValueError, match=rf"{name} has shape .*vmap"):
        run(jnp.asarray(VALUES))
    if case != "temperature":
        with pytest.raises(ValueError, match=rf"{name} has shape \(1,\).*vmap"):
            run(jnp.asarray(VALUES[:1]))
    if case != "temperature" and not traced:
        both = jax.jit(lambda values: (jax.vmap(call)(values), call(values[1])))
        mapped, one = both(VALUES)
        jax.tree.map(
            lambda many, single: np.testing.assert_allclose(many[1], single),
            mapped,
            one,
        )


@pytest.mark.parametrize("value", [None, "1e-3", 1j])
def test_what_is_no_number_is_named(value):
    for call in (opjax.ridge_solve, opjax.functional_map):
        with pytest.raises(TypeError, match="ridge"):
            call(X, X, ridge=value)
    with pytest.raises(TypeError, match="ridge=None is not a real number"):
        opjax.functional_attention(X, X, X, W, W, ridge=None)
