"""User-defined models and attention layers, named `package.module:function`."""

import functools
import importlib
import inspect
import operator
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flax import nnx

from opjax.learn.config import ModelOptions
from opjax.learn.registry.entries import Basis, Entry, Layer, Operator, Sizes

_MODEL = ("point_dim", "feature_dim", "out_features", "grid_shape", "time_embedding")
_LAYER = ("num_heads", "num_basis", "point_dim", "grid_shape")
_CONTRACT = (
    "a model is `build(config, *, point_dim, feature_dim, out_features, grid_shape, "
    "time_embedding, rngs)`, an attention `attention(features, *, rngs)`, which also "
    f"receives {', '.join(_LAYER)} if its signature contains them"
)


@functools.lru_cache(maxsize=64)
def entry(name: str) -> Entry:
    """Imports `package.module:function`, a function or class, and detects its kind.

    Raises:
      ValueError: if there is no such function, or it is neither a model nor an
        attention layer.
    """
    imported = _imported(name)
    try:
        # The metaclass of modules takes anything; their constructor does not.
        of = (
            partial(imported.__init__, None) if isinstance(imported, type) else imported
        )
        signature = inspect.signature(of)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be called: {error}; {_CONTRACT}.") from None
    if _takes(signature, _MODEL):
        return Entry(model=_model(imported), options=None)
    named = tuple(n for n in _LAYER if n in signature.parameters)
    if _takes(signature, named):
        return Entry(attention=_attention(imported, named), options=named)
    raise ValueError(
        f"{name}{signature} is neither a model nor an attention: {_CONTRACT}."
    )


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ValueError(f"{name!r} must be package.module:function; {_CONTRACT}.")
    # An installed program does not search the current folder, where yours may be.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(
            f"{name!r} refers to the module {module_name!r}, which cannot be "
            f"imported ({error}). The search path is Python's and {os.getcwd()}."
        ) from error
    try:
        imported = operator.attrgetter(path)(module)
    except AttributeError:
        raise ValueError(f"The module {module_name!r} has no {path!r}.") from None
    if not callable(imported):
        raise ValueError(f"{name} is a {type(imported).__name__}; {_CONTRACT}.")
    return imported


def _takes(signature: inspect.Signature, names: Sequence[str]) -> bool:
    """Whether it can be called with one argument, these keywords and `rngs`."""
    try:
        signature.bind(None, **dict.fromkeys([*names, "rngs"]))
    except TypeError:
        return False
    return True


def _model(
    build: Callable[..., Operator],
) -> Callable[[ModelOptions, Sizes, nnx.Rngs], Operator]:
    def model(config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs) -> Operator:
        return build(
            config,
            point_dim=sizes.point_dim,
            feature_dim=sizes.feature_dim,
            out_features=sizes.out_features,
            grid_shape=sizes.grid_shape,
            time_embedding=sizes.time_embedding,
            rngs=rngs,
        )

    return model


def _attention(
    layer: Callable[..., nnx.Module], named: Sequence[str]
) -> Callable[[ModelOptions, Sizes, Basis | None], Layer]:
    def attention(config: ModelOptions, sizes: Sizes, basis: Basis | None) -> Layer:
        del basis
        arguments = {
            "num_heads": config.num_heads,
            "num_basis": config.num_basis,
            "point_dim": sizes.point_dim,
            "grid_shape": sizes.grid_shape,
        }
        return partial(layer, **{name: arguments[name] for name in named})

    return attention
