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
from tests.nn.parameters import built_once, enlarged, evaluate, layer_of
from tests.selection import by_day


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, ModelOptions):
    """Of any model."""


TINY = Config(width=8, num_layers=2, num_heads=2, num_basis=4, num_landmarks=4)
TINY = dataclasses.replace(TINY, equal_parameters=False)
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


@built_once
def build(name):
    config = dataclasses.replace(TINY, models=(name,))
    return enlarged(operators.build(config, SIZES, rngs=nnx.Rngs(0)))


def observed(model, points, features, weights, back):
    """A sum of the values at `N` points with its gradients, and the values."""

    def loss(model):
        y = model(points, features, quadrature_weights=weights)[back]
        return jnp.sum(
            y * jnp.sin(np.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        ), y

    return jax.value_and_grad(loss, has_aux=True)(model)


@pytest.mark.parametrize("name", by_day(NAMES, ["lno", "gnot"]))
def test_padding_order_and_samples_of_a_batch_change_nothing(name, rng):
    model = build(name)
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
        found = layer_of(batched, case)
        chex.assert_trees_all_close(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", by_day(NAMES, ["lno"]))
def test_single_precision_is_kept_and_is_accurate(name, rng):
    model, back = build(name), np.arange(N)
    points, features = rng.uniform(size=(N, 2)), rng.normal(size=(N, 1))
    given = points, features, rng.uniform(0.5, 1.5, N)
    expected = evaluate(model, *given[:2], quadrature_weights=given[2])
    model, given = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (model, given))
    kept = jax.eval_shape(observed, model, *given, back)
    chex.assert_trees_all_equal_dtypes(kept[1], model)
    values = evaluate(model, *given[:2], quadrature_weights=given[2])
    error = 1e-2 if name in AMPLIFYING else 1e-4
    np.testing.assert_allclose(values, expected, rtol=error, atol=error)
