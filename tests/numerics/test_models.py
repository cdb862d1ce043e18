"""Every model of the registry for points anywhere: padding, order, batches, precision.

A new entry is covered without a test of its own. Models of one grid or of
one number of points are left out.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax.learn.config import ModelOptions, RunOptions
from opjax.learn.registry import operators
from tests.nn.parameters import enlarged
from tests.selection import by_day


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, ModelOptions):
    """Of any model."""


TINY = Config(width=8, num_layers=2, num_heads=2, num_basis=4, num_landmarks=4)
N, PADDING = 9, 4
SIZES = operators.Sizes(2, 1, 2, box=((0.0, 0.0), (1.0, 1.0)))
NAMES = [
    name
    for name, entry in operators.REGISTRY.items()
    if not (entry.fixed_points or entry.grid_axes)
]
# Landmarks are means of runs of points.
IN_ORDER = ("nystrom", "ono", "ono_original")
# Covariances of so few points are nearly singular, and divide what is rounded.
AMPLIFYING = ("ono", "ono_original")
DAY = ["functional", "gnot"]


@pytest.mark.parametrize("name", by_day(NAMES, DAY))
def test_padding_order_and_samples_of_a_batch_change_nothing(name, rng):
    config = dataclasses.replace(TINY, models=(name,))
    model = enlarged(operators.build(config, SIZES, rngs=nnx.Rngs(0)))
    cotangent = rng.normal(size=(N, 2))

    def observed(model, points, features, weights, back):
        def loss(model):
            y = model(points, features, quadrature_weights=weights)[back]
            return jnp.sum(y * cotangent.astype(y.dtype)), y

        return jax.value_and_grad(loss, has_aux=True)(model)

    there = np.arange(N + PADDING) < N
    points, features = rng.uniform(size=(N + PADDING, 2)), rng.normal(size=(13, 1))
    weights, order = there * rng.uniform(0.5, 1.5, 13), rng.permutation(13)
    other = np.where(there[:, None], points, 7.0), np.where(there, features.T, -50.0).T
    cases = [
        (points, features, weights, np.arange(N)),
        (*other, weights, np.arange(N)),
        (points[order], features[order], weights[order], np.argsort(order)[:N]),
    ]
    stacked = map(jnp.asarray, map(np.stack, zip(*cases, strict=True)))
    batched = jax.jit(jax.vmap(observed, in_axes=(None, 0, 0, 0, 0)))(model, *stacked)
    alone = [jnp.asarray(array[:N]) for array in cases[0]]
    expected = jax.jit(observed)(model, *alone)
    for case in range(2 if name in IN_ORDER else 3):
        found = jax.tree.map(lambda leaf, case=case: leaf[case], batched)
        chex.assert_trees_all_close(found, expected, rtol=1e-8, atol=1e-10)

    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (model, alone[:3]))
    kept = jax.eval_shape(observed, single[0], *single[1], alone[3])
    chex.assert_trees_all_equal_dtypes(kept[1], single[0])
    model, (points, features, weights) = single
    values = jax.jit(type(model).__call__)(
        model, points, features, quadrature_weights=weights
    )
    error = 1e-2 if name in AMPLIFYING else 1e-4
    np.testing.assert_allclose(values, expected[0][1], rtol=error, atol=error)
