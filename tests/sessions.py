"""Sessions of users: JAX as it comes, which the tests make stricter."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def lenient() -> Iterator[None]:
    """Types and ranks are promoted."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def user() -> Iterator[None]:
    """So in single precision, as all programs run."""
    with lenient(), jax.enable_x64(False):
        yield
