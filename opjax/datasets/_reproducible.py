"""One setting of JAX for all generators, so that the same seed gives the same bits."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import jax


@contextlib.contextmanager
def keys(seed: int) -> Iterator[Callable[[int], jax.Array]]:
    """Computes in float64 on the CPU; gives a function from sample to its PRNG key."""
    # The flags change the numbers, so they are part of the generator.
    with (
        jax.enable_x64(True),
        jax.threefry_partitionable(True),
        jax.default_device(_cpu()),
    ):
        yield partial(jax.random.fold_in, jax.random.key(seed, impl="threefry2x32"))


def _cpu():
    """The first CPU; None, the default device, where JAX was told to do without."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
