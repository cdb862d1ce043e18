"""Models and attentions of your own, named `package.module:function`."""

import functools
import importlib
import inspect
import operator
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
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
    """Imports `package.module:function` and finds out what it is; classes are, too."""
    found = _imported(name)
    try:
        # The metaclass of modules takes anything; their constructor does not.
        of = partial(found.__init__, None) if isinstance(found, type) else found
        signature = inspect.signature(of)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be called: {error}; {_CONTRACT}.") from None
    if _takes(signature, _MODEL):
        return Entry(model=partial(_model, found), options=None)
    named = tuple(n for n in _LAYER if n in signature.parameters)
    if _takes(signature, named):
        return Entry(attention=partial(_attention, found, named), options=named)
    raise ValueError(f"{name}{signature} is neither: {_CONTRACT}.")


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ValueError(f"{name!r} must be package.module:function; {_CONTRACT}.")
    # An installed program has not the current folder, where your own modules are.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"{name!r} names the module {module_name!r}, which cannot be imported "
            f"({error}). It is looked for where Python looks, and in {os.getcwd()}."
        ) from error
    try:
        found = operator.attrgetter(path)(module)
    except AttributeError:
        raise ValueError(f"The module {module_name!r} has no {path!r}.") from None
    if not callable(found):
        raise ValueError(f"{name} is a {type(found).__name__}; {_CONTRACT}.")
    return found


def _takes(signature: inspect.Signature, names: Sequence[str]) -> bool:
    """Whether it can be called with one argument and these keywords, and `rngs`."""
    try:
        signature.bind(None, **dict.fromkeys([*names, "rngs"]))
    except TypeError:
        return False
    return True


def _model(build: Callable[..., Any], config: Any, sizes: Any, rngs: Any) -> Any:
    given = {name: getattr(sizes, name) for name in _MODEL}
    return build(config, **given, rngs=rngs)


def _attention(
    layer: Any, named: Sequence[str], config: Any, sizes: Any, basis: None
) -> Any:
    del basis
    of = {"num_heads": config, "num_basis": config}
    return partial(layer, **{n: getattr(of.get(n, sizes), n) for n in named})
