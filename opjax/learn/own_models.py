"""Models and attentions of your own, named `package.module:function`."""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from opjax.learn.attentions import Entry

_MODEL = ("point_dim", "feature_dim", "out_features", "grid_shape", "time_embedding")
_LAYER = ("num_heads", "num_basis", "point_dim", "grid_shape")
_CONTRACT = (
    "a model is `build(config, *, point_dim, feature_dim, out_features, grid_shape, "
    "time_embedding, rngs)`, an attention `attention(features, *, rngs)`, which also "
    f"gets those of {', '.join(_LAYER)} that its signature names"
)


@functools.lru_cache(maxsize=64)
def entry(name: str) -> Entry:
    """Imports what a name says and finds out whether it is a model or an attention.

    Args:
      name: `package.module:function`; classes are functions too.

    Raises:
      ValueError: if it cannot be imported, or called as one of the two.
    """
    found = _imported(name)
    try:
        # The metaclass of modules takes anything; their constructor does not.
        if isinstance(found, type):
            signature = inspect.signature(functools.partial(found.__init__, None))
        else:
            signature = inspect.signature(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be called: {error}; {_CONTRACT}.") from None
    if _takes(signature, (*_MODEL, "rngs")):
        return Entry(model=functools.partial(_model, found), options=None)
    named = [name for name in _LAYER if name in signature.parameters]
    if _takes(signature, (*named, "rngs")):
        return Entry(
            attention=functools.partial(_attention, found, named), options=tuple(named)
        )
    raise ValueError(f"{name}{signature} is neither: {_CONTRACT}.")


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, path = name.partition(":")
    if not module_name or not all(map(str.isidentifier, path.split("."))):
        raise ValueError(f"{name!r} must be package.module:function; {_CONTRACT}.")
    # An installed program has not the current folder, where your own modules are.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"{name!r} names the module {module_name!r}, which cannot be imported "
            f"({error}). It is looked for where Python looks, and in {os.getcwd()}."
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"The module {module_name!r} has no {path!r}.")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{name} is a {type(found).__name__}; {_CONTRACT}.")
    return found


def _takes(signature: inspect.Signature, names: tuple[str, ...]) -> bool:
    """Whether it can be called with one argument and these keywords."""
    try:
        signature.bind(None, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def _model(build: Callable[..., Any], config: Any, sizes: Any, rngs: Any) -> Any:
    given = {name: getattr(sizes, name) for name in _MODEL}
    return build(config, **given, rngs=rngs)


def _attention(
    layer: Callable[..., Any], named: list[str], config: Any, sizes: Any, basis: Any
) -> Any:
    del basis
    given = {
        name: getattr(config if name.startswith("num_") else sizes, name)
        for name in named
    }
    return functools.partial(layer, **given)
