"""Checks of shapes, dtypes and options, whose errors state both sides of a mismatch.

Arrays are checked only by shape and dtype, so every check also works under `jax.jit`.
Numbers are checked if they are concrete and skipped if they are traced.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float


def floating(**arrays: Any) -> None:
    """Raises TypeError unless every array is real floating point."""
    for name, array in arrays.items():
        _floating(name, array)


def _floating(name: str, array: ArrayLike) -> None:
    if isinstance(array, list | tuple):
        raise TypeError(
            f"{name} is a {type(array).__name__}; pass an array, `jnp.asarray({name})`."
        )
    if not jnp.issubdtype(jnp.result_type(array), jnp.floating):
        raise TypeError(
            f"{name} has dtype {jnp.result_type(array)}, expected a floating-point "
            f"dtype; convert it with `jnp.asarray({name}, jnp.float32)`."
        )


def rank(expected: int, **arrays: Any) -> None:
    """Raises ValueError unless every array has `expected` axes."""
    for name, array in arrays.items():
        _rank(expected, name, array)


def _rank(expected: int, name: str, array: ArrayLike) -> None:
    if jnp.ndim(array) != expected:
        raise ValueError(
            f"{name} has shape {jnp.shape(array)}, expected {expected} axes; "
            "functions act on one head of one sample, use `jax.vmap` for batches."
        )


def arrays(axes: int, **arrays: ArrayLike) -> list[Array]:
    """Converts floating-point arrays that must have a number of axes.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if an array has other axes.
    """
    converted = {name: jnp.asarray(array) for name, array in arrays.items()}
    for name, array in converted.items():
        _floating(name, array)
    for name, array in converted.items():
        _rank(axes, name, array)
    return list(converted.values())


def shaped(
    name: str, array: Array | None, expected: tuple[int, ...], where: str
) -> Array:
    """Returns an array, and raises ValueError unless it has the expected shape."""
    shape = None if array is None else jnp.shape(array)
    if array is None or shape != expected:
        raise ValueError(f"{name} {shape} must have shape {expected} for {where}.")
    return array


def layer_input(channels: int, **arrays: Any) -> None:
    """Raises ValueError unless arrays are features `(n, channels)` of one sample."""
    for name, array in arrays.items():
        shape = jnp.shape(array)
        if len(shape) != 2 or shape[1] != channels:
            raise ValueError(
                f"{name} has shape {shape}, expected (n, {channels}) for this "
                f"layer with {channels} channels; use `jax.vmap` for batches."
            )


def same_axis(axis: int, meaning: str, arrays: Mapping[str, Any]) -> None:
    """Raises ValueError unless all arrays agree in the length of `axis`."""
    lengths = {name: jnp.shape(array)[axis] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shapes = ", ".join(f"{k} {jnp.shape(v)}" for k, v in arrays.items())
        raise ValueError(f"Different numbers of {meaning}: {shapes}.")


def same_points(**arrays: Any) -> None:
    """Raises ValueError unless all arrays have the same number of rows."""
    same_axis(0, "points (axis 0)", arrays)


def same_channels(**arrays: Any) -> None:
    """Raises ValueError unless all arrays have the same number of columns."""
    same_axis(1, "channels (axis 1)", arrays)


def same_basis(**arrays: Any) -> None:
    """Raises ValueError unless coefficients have the same number of basis functions."""
    same_axis(0, "basis functions (axis 0)", arrays)


def on_host(**arrays: Any) -> None:
    """Raises TypeError if JAX is tracing one of the arrays.

    Args:
      **arrays: arguments of a function that runs on the host, by name.
    """
    traced = [
        name for name, array in arrays.items() if isinstance(array, jax.core.Tracer)
    ]
    if traced:
        raise TypeError(
            f"{', '.join(traced)}: this function runs on the host, in NumPy, and "
            "cannot be used inside jax.jit, vmap or grad; call it outside and pass "
            "its result."
        )


def single_numbers(**numbers: Any) -> None:
    """Raises an error unless every argument is a single number, traced or not.

    Raises:
      TypeError: if it is not a number, such as None or a string.
      ValueError: if it is an array with axes, even of length one.
    """
    for name, number in numbers.items():
        if number is None or isinstance(number, str) or jnp.iscomplexobj(number):
            raise _no_number(name, number)
        if jnp.ndim(number):
            raise ValueError(
                f"{name} has shape {jnp.shape(number)}, expected a scalar; for one "
                "value per head or sample, use `jax.vmap`."
            )


def _no_number(name: str, number: Any) -> TypeError:
    return TypeError(
        f"{name}={number!r} is not a real number; pass one, such as {name}=0.1."
    )


def non_negative(**numbers: Any) -> None:
    """Raises ValueError if a concrete number is negative or not finite."""
    _compared_with_zero(numbers, np.greater_equal, "non-negative")


def positive(**numbers: Any) -> None:
    """Raises ValueError if a concrete number is not positive and finite."""
    _compared_with_zero(numbers, np.greater, "positive")


def _compared_with_zero(
    numbers: Mapping[str, Any], compare: Callable[..., Any], what: str
) -> None:
    for name, number in numbers.items():
        if number is None or isinstance(number, str):
            raise _no_number(name, number)
        if _is_concrete(number) and not np.all(
            np.isfinite(number) & compare(number, 0)
        ):
            raise ValueError(f"{name}={number} must be {what} and finite.")


def at_most(bound: float, **numbers: Any) -> None:
    """Raises ValueError if a concrete number is above `bound`."""
    for name, number in numbers.items():
        if _is_concrete(number) and not np.all(np.asarray(number) <= bound):
            raise ValueError(f"{name}={number} must be at most {bound}.")


def option(name: str, value: str, choices: Collection[str]) -> None:
    """Raises ValueError unless `value` is one of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is unknown; choose from {listed}.")


def _is_concrete(number: Any) -> bool:
    return not isinstance(number, jax.core.Tracer)


def at_least_single(a: Float[Array, " *shape"]) -> Float[Array, " *shape"]:
    """Converts half precision to float32; returns anything else unchanged."""
    return a.astype(jnp.float32) if jnp.finfo(a.dtype).bits < 32 else a
