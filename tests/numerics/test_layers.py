"""Every basis, mixer and attention of the registry on inputs that break arithmetic.

A new entry is covered without a test of its own. One program for each entry computes
all cases, in single precision. Stated limits: features up to 1e8 times unit variance
(layers are behind a norm, and a functional map has products of four of them, which end
at 3e38), and so many points of positive weight as the entry says it needs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax.learn.config import ModelOptions
from opjax.learn.registry import operators
from opjax.learn.registry.attentions import BASES, MIXERS
from opjax.learn.registry.entries import Entry
from tests.selection import by_day

N, FEATURES = 9, 8
SIZES = operators.Sizes(2, 0, 1, num_points=N, box=((-1.0, -1.0), (1.0, 1.0)))
OPTIONS = ModelOptions(
    num_heads=2, num_basis=4, num_landmarks=4, num_random=8, convolution=False
)
NAMES = [f"softmax:{mixer}" for mixer in MIXERS]
NAMES += [f"{basis}:functional" for basis in BASES if basis != "softmax"]
# `functional` and its kin are compositions of the above.
NAMES += [n for n in operators.ATTENTIONS if operators.entry(n).basis is None]


def cases() -> dict[str, tuple[float, np.ndarray, np.ndarray, np.ndarray]]:
    """Factor of the parameters, features, points and weights, by name."""
    rng = np.random.default_rng(0)
    x, points = rng.normal(size=(N, FEATURES)), rng.uniform(-1, 1, (N, 2))
    weights, one = rng.uniform(0.5, 1.5, N), np.eye(N)[0]
    padded = np.where(np.arange(N) < 6, weights, 0.0)
    same = np.repeat(x[:1], N, axis=0), np.repeat(points[:1], N, axis=0)
    return {
        "plain": (1.0, x, points, weights),
        "large features": (1.0, 1e8 * x, points, weights),
        "small features": (1.0, 1e-30 * x, points, weights),
        "constant features": (1.0, np.ones_like(x), points, weights),
        "no features": (1.0, 0 * x, points, weights),
        "features of rank one": (1.0, x[:, :1] * x[:1], points, weights),
        "coincident points": (1.0, *same, weights),
        "small weights": (1.0, x, points, 1e-30 * weights),
        "padding": (1.0, x, points, padded),
        "fewer points than functions": (1.0, x, points, one),
        "no points": (1.0, x, points, 0 * weights),
        "large parameters": (1e4, x, points, weights),
        "no parameters": (0.0, x, points, weights),
    }


def needs_points(name: str) -> bool:
    """Whether an entry says that it needs as many points as functions."""
    found: Entry = operators.entry(name)
    return bool(found.min_points)


DAY = [
    "softmax:functional",
    "orthonormal:functional",
    "galerkin",
    "flare",
]


@pytest.mark.parametrize("name", by_day(NAMES, DAY))
def test_values_and_gradients_are_finite_whatever_the_input(name):
    layer = operators.attention(name, SIZES, OPTIONS)(FEATURES, rngs=nnx.Rngs(0))
    graph, state = nnx.split(layer)
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), state)

    def values(state, x, points, weights):
        given = {"mesh_points": points, "quadrature_weights": weights}
        return nnx.merge(graph, state)(x, **given)

    def both(factor, x, points, weights):
        scaled = jax.tree.map(lambda leaf: factor * leaf, single)
        y, pull = jax.vjp(lambda s, x: values(s, x, points, weights), scaled, x)
        return y, pull(y / jnp.maximum(jnp.abs(y).max(), 1e-30))

    found = cases()
    arrays = [np.stack(a).astype(np.float32) for a in zip(*found.values(), strict=True)]
    y, gradients = jax.jit(jax.vmap(both))(*arrays)
    bad = set()
    for row, case in enumerate(found):
        for leaf in jax.tree.leaves((y, gradients)):
            if not np.isfinite(leaf[row]).all():
                bad.add(case)
    if needs_points(name):
        bad -= {"fewer points than functions", "no points"}
    assert not bad
