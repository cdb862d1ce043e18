"""What a call of a model is given, where not every argument has a meaning."""

from typing import Any

import jax
import jax.numpy as jnp

from opjax import _checks


def refuse(model: str, **given: Any) -> None:
    """Raises ValueError if an argument without meaning for a model is given."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} has no meaning for {model}. Leave it out, or take another "
                "model."
            )


def joined(
    positions: jax.Array, features: jax.Array | None, feature_dim: int
) -> jax.Array:
    """Returns positions `(n, p)` and input values `(n, feature_dim)` side by side.

    Raises:
      TypeError: if the values are not floating point.
      ValueError: if they have another number of channels, or of points.
    """
    channels = 0 if features is None else jnp.shape(features)[-1]
    if channels != feature_dim:
        raise ValueError(
            f"features {None if features is None else jnp.shape(features)} must "
            f"have {feature_dim} channels for this model."
        )
    if features is None:
        return positions
    _checks.floating(features=features)
    _checks.rank(2, features=features)
    _checks.same_points(mesh_points=positions, features=features)
    return jnp.concatenate([positions, features], axis=1)


def check_time(time: Any, takes_time: bool) -> None:
    """Raises ValueError unless a time is given exactly to a model that takes one."""
    if (time is None) == takes_time:
        raise ValueError(
            f"{time=} does not fit a model built with time_embedding={takes_time}."
        )
