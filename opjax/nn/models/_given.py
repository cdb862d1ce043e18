"""What a call of a model is given, where not every argument has a meaning."""

from typing import Any, TypedDict

import jax
import jax.numpy as jnp

from opjax import _checks
from opjax.nn.attention.subdomains import Subdomains
from opjax.nn.bases.expansions import Basis


class AttentionArguments(TypedDict, total=False):
    """What an attention may be called with besides features; each takes some of it.

    Attributes:
      mesh_points: points, `(n, p)`.
      basis: the basis that all blocks share.
      basis_functions: functions of the mesh, `(n, k)`.
      quadrature_weights: weights of the points, `(n,)`.
      subdomains: of the mesh.
      axis_name: axis of the devices that share the points.
    """

    mesh_points: jax.Array | None
    basis: Basis | None
    basis_functions: jax.Array | None
    quadrature_weights: jax.Array | None
    subdomains: Subdomains | None
    axis_name: str | None


class ModelArguments(TypedDict, total=False):
    """What a model may be called with by name; each takes some of it.

    Attributes:
      quadrature_weights: weights of the points, `(n,)`.
      time: scalar, of a model with a time embedding.
      basis_functions: functions of the mesh, `(n, k)`.
      subdomains: of the mesh.
      chunk_size: points that are computed at once.
      axis_name: axis of the devices that share the points.
    """

    quadrature_weights: jax.Array | None
    time: jax.Array | None
    basis_functions: jax.Array | None
    subdomains: Subdomains | None
    chunk_size: int | None
    axis_name: str | None


def refuse(model: str, **given: Any) -> None:
    """Raises ValueError if an argument without meaning for a model is given."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} is not supported by {model}. Omit it, or use another model."
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
            f"{time=} does not match a model built with time_embedding={takes_time}."
        )
