"""How public functions are compiled: values are checked, then one program runs."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import jax
import numpy as np

from opjax import _checks

P = ParamSpec("P")
R = TypeVar("R")


def jitted(
    *, static: Sequence[str] = (), **checks: Callable[..., None]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compiles a pure function and checks the values of its arguments at every call.

    The function checks shapes, dtypes and options itself, while it is traced: once for
    each program. A trace does not see values. Those of quadrature weights, keywords
    that end in `_weights`, are checked here, and those of `checks`. Within a function
    that is traced, the program becomes part of that function's. A list in a static
    argument becomes a tuple.

    Args:
      static: names of arguments that are no arrays.
      **checks: for the keyword of that name a check, called with this keyword unless it
        is None by default.

    Returns:
      A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        compiled = jax.jit(function, static_argnames=static, inline=True)
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
            for name in static:
                if isinstance(kwargs.get(name), list | np.ndarray):
                    kwargs[name] = tuple(np.asarray(kwargs[name]).tolist())
            return compiled(*args, **kwargs)

        return checked

    return decorate
