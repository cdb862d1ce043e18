"""Type names of pytrees, whose leaves Python's types do not distinguish."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

PyTree = Any  # of arrays
Batch = Any  # a pytree of arrays with samples along axis 0
Model = Callable[..., Any]  # a pytree that is called, such as a module of Flax
Arrays = Mapping[str, jax.Array]  # of one sample, by name
Columns = Mapping[str, Any]  # of one mesh, by name: whatever can be sliced
Json = Mapping[str, Any]  # a JSON object
Number = float | jax.Array
