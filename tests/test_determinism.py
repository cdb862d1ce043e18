"""The same seed gives the same numbers: bits on a machine, 1e-5 across versions.

`python -m tests.test_determinism` writes the file that all versions of CI compare with.
"""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from tests.builders import transformer

REFERENCE = Path(__file__).with_name("determinism.json")
STEPS = 50


def sample():
    """Points and values that are functions of their numbers, not of a generator."""
    points = np.stack([np.sin(np.arange(24)), np.cos(2 * np.arange(24))], axis=1)
    features = np.sin(3 * points[:, :1] + 1)
    target = features * points[:, 1:]
    return [jnp.asarray(a, jnp.float32) for a in (points, features, target)]


def model(**options):
    """A small model whose parameters come from a seed."""
    sizes = {"point_dim": 2, "feature_dim": 1, "out_features": 1, "features": 8}
    sizes |= {"num_heads": 2, "num_basis": 4, "num_layers": 1}
    return transformer(**(sizes | options), rngs=nnx.Rngs(0))


@functools.cache
def compiled():
    graph, state = nnx.split(model())
    points, features, target = sample()

    def loss(state):
        values = nnx.merge(graph, state)(points, features)
        return jnp.mean((values - target) ** 2)

    def step(state, _):
        value, gradient = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda p, g: p - 0.1 * g, state, gradient), value

    @jax.jit
    def train(state):
        state, losses = jax.lax.scan(step, state, length=STEPS)
        return losses, nnx.merge(graph, state)(points, features)

    return train, state


def trained():
    train, state = compiled()
    return [np.asarray(a, np.float32) for a in train(state)]


def test_the_same_seed_gives_the_same_bits():
    first, second = trained(), trained()
    for one, other in zip(first, second, strict=True):
        assert one.tobytes() == other.tobytes()


def test_fifty_steps_are_those_of_other_versions():
    expected = json.loads(REFERENCE.read_text())
    losses, values = trained()
    assert losses[-1] < 0.8 * losses[0]
    assert_allclose(losses, expected["losses"], rtol=1e-5, atol=1e-5)
    assert_allclose(values, expected["values"], rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
def test_jit_vmap_and_chunks_agree_in_single_precision():
    """To 2e-6 of unit values: another order of the sums of 24 points."""
    points, features, _ = sample()
    expected = model()(points, features)
    assert expected.dtype == jnp.float32
    calls = jax.jit(lambda m, x, f: m(x, f))
    batch = jax.vmap(model(), in_axes=(0, 0))(points[None], features[None])[0]
    chunks = model(chunk_size=8)(points, features)
    for actual in (calls(model(), points, features), batch, chunks):
        assert_allclose(actual, expected, rtol=2e-6, atol=2e-6)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    found = dict(zip(("losses", "values"), trained(), strict=True))
    REFERENCE.write_text(json.dumps({k: v.tolist() for k, v in found.items()}) + "\n")
