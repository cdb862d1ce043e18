"""Arrays of generated data sets: reproducible bit for bit from a seed."""

import contextlib
import dataclasses
import functools
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import DTypeLike

from opjax import _checks
from opjax.datasets.cache import cached

_LOGGER = logging.getLogger(__name__)
_SECONDS_BETWEEN_REPORTS = 10.0


def cached_build(
    name: str, *, version: int
) -> Callable[[Callable[..., Mapping[str, np.ndarray]]], Callable[..., Any]]:
    """Decorates a function that builds arrays of samples with a cache on disk.

    Args:
      name: base name of the files.
      version: version of the function, to increase whenever the same arguments give
        different numbers.

    Returns:
      A decorator of `build(num_samples, seed, **options)`, which must depend only on
      its arguments; options are JSON values, NumPy numbers or dataclasses of them. The
      decorated function takes the cache folder as a third argument, and raises
      ValueError if `num_samples` is not positive or `seed` is negative.
    """

    def decorate(
        build: Callable[..., Mapping[str, np.ndarray]],
    ) -> Callable[..., dict[str, np.ndarray]]:
        @functools.wraps(build)
        def call(
            num_samples: int,
            seed: int,
            cache_dir: str | os.PathLike[str] | None,
            **options: Any,
        ) -> dict[str, np.ndarray]:
            _checks.positive(num_samples=num_samples)
            _checks.non_negative(seed=seed)
            arguments = {"num_samples": num_samples, "seed": seed, **options}
            arguments = {key: _plain(value) for key, value in arguments.items()}
            recipe: dict[str, Any] = {"version": version}
            for key, value in arguments.items():
                group = vars(value) if dataclasses.is_dataclass(value) else {key: value}
                assert not recipe.keys() & group.keys()
                recipe |= group
            return cached(
                partial(build, **arguments),
                name=name,
                recipe=recipe,
                cache_dir=cache_dir,
            )

        return call

    return decorate


def draw(
    sample: Callable[[jax.Array, int], Mapping[str, Any]],
    *,
    num_samples: int,
    seed: int,
    name: str,
    dtype: DTypeLike = np.float32,
) -> dict[str, np.ndarray]:
    """Generates samples one by one, in float64 on the CPU, and reports the time.

    Batches are not faster there, and would change the last bits. Sample `i` depends
    only on `seed` and `i`, so a smaller data set is the start of a larger one.

    Args:
      sample: function that returns the arrays of a sample from its PRNG key and index.
      num_samples: number of samples.
      seed: seed of the data set.
      name: name of the samples in progress messages.
      dtype: data type of the result.

    Returns:
      The arrays of all samples, along axis 0.
    """
    arrays: dict[str, np.ndarray] = {}
    start = reported = time.perf_counter()
    with keys(seed) as key_of:
        for i in range(num_samples):
            for key, value in sample(key_of(i), i).items():
                if not i:
                    arrays[key] = np.empty((num_samples, *np.shape(value)), dtype)
                arrays[key][i] = value
            if time.perf_counter() - reported > _SECONDS_BETWEEN_REPORTS:
                reported = time.perf_counter()
                _LOGGER.info("%s: %d of %d samples", name, i + 1, num_samples)
    milliseconds = 1e3 * (time.perf_counter() - start) / num_samples
    _LOGGER.info("%s: %d samples, %.1f ms each", name, num_samples, milliseconds)
    return arrays


@contextlib.contextmanager
def keys(seed: int) -> Generator[Callable[[int], jax.Array]]:
    """Yields a function from sample index to PRNG key, in float64 on the CPU."""
    # The flags change the numbers, so they are part of the generator.
    with (
        jax.enable_x64(True),
        jax.threefry_partitionable(True),
        jax.default_device(_cpu()),
    ):
        yield partial(jax.random.fold_in, jax.random.key(seed, impl="threefry2x32"))


def _cpu() -> Any:
    """Returns the first CPU; None if JAX was told to do without CPUs."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {name: _plain(part) for name, part in vars(value).items()}
        return dataclasses.replace(value, **plain)
    return value.item() if isinstance(value, np.generic) else value
