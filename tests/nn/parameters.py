"""Parameters at which tests see every part of a module, and what it computes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def enlarged(module, dtype=jnp.float64):
    """Parameters away from their small and repeated initial values."""

    def enlarge(leaf):
        noise = np.sin(1 + 7 * np.arange(leaf.size)).reshape(leaf.shape)
        return jnp.asarray(np.asarray(leaf) + 0.5 * noise, dtype)

    return jax.tree.map(enlarge, module)


def built_once(build):
    """Equal modules are built once, and every call gets a copy."""
    built = functools.lru_cache(maxsize=None, typed=True)(build)

    @functools.wraps(build)
    def copied(*args, **options):
        try:
            module = built(*args, **options)
        except TypeError:  # of what has no hash, or of the module
            module = build(*args, **options)
        return jax.tree.map(lambda leaf: leaf, module)

    return copied


def evaluate(module, *args, **given):
    """Arrays of NumPy from one program, where a module is one for every operation."""
    return jax.tree.map(np.asarray, _evaluate(module, *args, **given))


@jax.jit
def _evaluate(module, *args, **given):
    return module(*args, **given)


def size(module):
    """The number of its parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(module))


def layer_of(stacked, index):
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def all_finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))
