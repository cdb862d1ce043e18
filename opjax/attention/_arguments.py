"""Checks of arguments that all attentions take."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from opjax import _checks


def check_weights(**arrays: jax.Array) -> None:
    """Checks quadrature weights, the argument so named, against their points."""
    weights = {name: a for name, a in arrays.items() if name.endswith("_weights")}
    _checks.floating(**weights)
    _checks.rank(1, **weights)
    _checks.same_points(**arrays)
    _checks.non_negative(**weights)


def features(**arrays: ArrayLike) -> list[jax.Array]:
    """Converts features of points, which must have the same channels."""
    converted = {name: jnp.asarray(array) for name, array in arrays.items()}
    _checks.floating(**converted)
    _checks.rank(2, **converted)
    _checks.same_channels(**converted)
    return list(converted.values())
