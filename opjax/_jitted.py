"""Compilation of public functions, and static objects of their programs."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

import jax
import jax.core
import jax.dtypes
import numpy as np

from opjax import _checks
from opjax._explicit import split_by_compiler

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def jitted(
    *, static: Sequence[str] = (), **checks: Callable[..., None]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compiles a pure function, with value checks of its arguments at every call.

    The function itself checks shapes, dtypes and options while it is traced, once for
    each program. Tracing does not see values. Values of quadrature weights (keywords
    that end in `_weights`) and of `checks` are therefore checked here. Inside another
    traced function, the program becomes part of that function's program. NumPy numbers
    in static arguments are converted to Python numbers, lists to tuples.

    Args:
      static: names of arguments that are not arrays.
      **checks: check functions by keyword; each is called with this keyword, unless its
        value and default are None.

    Returns:
      A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        compiled = jax.jit(
            split_by_compiler(function), static_argnames=static, inline=True
        )
        names = inspect.signature(function).parameters
        weights = [name for name in names if name.endswith("_weights")]
        optional = {name for name in names if names[name].default is None}
        of_values = dict.fromkeys(weights, _checks.non_negative) | checks

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, check in of_values.items():
                if name in kwargs and (
                    kwargs[name] is not None or name not in optional
                ):
                    check(**{name: kwargs[name]})
            for name in kwargs.keys() & set(static):
                kwargs[name] = _constant(name, kwargs[name])
            args, kwargs = _canonical((args, kwargs))
            return compiled(*args, **kwargs)

        return checked

    return decorate


def _is_numbers(argument: object) -> bool:
    """Whether an argument is a nested list of numbers, which stands for an array."""
    numbers = (bool, int, float, complex, np.generic, np.ndarray)
    return isinstance(argument, list) and all(
        isinstance(leaf, numbers) for leaf in jax.tree.leaves(argument)
    )


def _canonical(arguments: T) -> T:
    """Returns arguments with arrays for lists, and the types of the present mode.

    JAX keeps what it made of an array of NumPy under `jax.enable_x64(True)` and gives
    it to programs in single precision, which end with RuntimeProgramInputMismatch.
    """
    leaves, structure = jax.tree.flatten(arguments, is_leaf=_is_numbers)
    lists = [i for i, leaf in enumerate(leaves) if isinstance(leaf, list)]
    for i in lists:
        leaves[i] = np.array(leaves[i])
    wide = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, np.ndarray)
        and leaf.dtype.kind in "fiuc"
        and leaf.dtype != jax.dtypes.canonicalize_dtype(leaf.dtype)
    ]
    if not wide and not lists:
        return arguments
    with np.errstate(over="ignore"):
        for i in wide:
            leaves[i] = leaves[i].astype(jax.dtypes.canonicalize_dtype(leaves[i].dtype))
    return jax.tree.unflatten(structure, leaves)


def _constant(name: str, argument: object) -> object:
    """Returns a static argument as numbers that Python compares."""
    if isinstance(argument, jax.core.Tracer):
        raise TypeError(
            f"{name}={argument} is a traced value, but the compiled program "
            "depends on it; pass a Python number."
        )
    if isinstance(argument, list | np.ndarray | np.generic | jax.Array):
        numbers = np.asarray(argument).tolist()
        return tuple(numbers) if isinstance(numbers, list) else numbers
    return argument


def pytree(cls: type[T]) -> type[T]:
    """Registers a dataclass as a pytree whose `static` fields are not data.

    With `jax.tree_util.register_dataclass` (jax 0.10 to 0.12), structures of two
    classes are equal if their static fields are, and `jax.jit` may then run the program
    of one class for the other.

    Args:
      cls: a dataclass.

    Returns:
      The class.
    """
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    static = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if f.name not in static]

    def values(tree: T, names: list[str]) -> tuple[object, ...]:
        return tuple(getattr(tree, name) for name in names)

    def with_keys(tree: T):
        keys = [jax.tree_util.GetAttrKey(name) for name in data]
        return tuple(zip(keys, values(tree, data), strict=True)), values(tree, static)

    def build(constants: tuple[object, ...], leaves: Iterable[object]) -> T:
        tree = object.__new__(cls)
        tree.__dict__.update(zip(data, leaves, strict=True))
        tree.__dict__.update(zip(static, constants, strict=True))
        return tree

    jax.tree_util.register_pytree_with_keys(
        cls, with_keys, build, lambda tree: (values(tree, data), values(tree, static))
    )
    return cls
