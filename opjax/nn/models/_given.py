"""Arguments of model calls, and checks that a model uses them."""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypedDict

import jax
import jax.numpy as jnp

from opjax import _checks
from opjax._jitted import pytree
from opjax.nn.attention.subdomains import Subdomains
from opjax.nn.bases.expansions import Basis
from opjax.nn.layers import TimeEmbedding


@pytree
@dataclasses.dataclass(frozen=True)
class Points:
    """Data of the points that blocks pass to their attention, besides features.

    The attention receives the fields that are not None as keyword arguments.

    Attributes:
      mesh_points: coordinates, `(n, p)`.
      quadrature_weights: weights, `(n,)`.
      basis_functions: functions of the mesh, `(n, k)`.
      subdomains: subdomains of the mesh.
      basis: basis that all blocks share.
      axis_name: axis of the devices that share the points.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> points = nn.models.Points(jnp.ones((9, 2)), quadrature_weights=jnp.ones(9))
      >>> sorted(points.there())
      ['mesh_points', 'quadrature_weights']
    """

    mesh_points: jax.Array | None = None
    quadrature_weights: jax.Array | None = None
    basis_functions: jax.Array | None = None
    subdomains: Subdomains | None = None
    basis: Basis | None = None
    axis_name: str | None = dataclasses.field(default=None, metadata={"static": True})

    def there(self) -> dict[str, Any]:
        """Returns the fields that are not `None`, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in named.items() if value is not None}

    def attended(self, attend: Callable[..., Any], x: jax.Array) -> Any:
        """Calls an attention layer, or its method, on features at the points."""
        return attend(x, **self.there())

    def check(self, attention: type) -> None:
        """Raises ValueError if an attention layer requires a missing field."""
        parameters = inspect.signature(attention.__call__).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return
        for name in self.there():
            if name not in parameters:
                raise ValueError(
                    f"{name} is not supported by a model with {attention.__name__}; "
                    "omit it."
                )


NO_POINTS = Points()


class ModelArguments(TypedDict, total=False):
    """Keyword arguments of model calls; each model supports some of them.

    Attributes:
      quadrature_weights: weights of the points, `(n,)`.
      time: scalar time, for a model with a time embedding.
      basis_functions: functions of the mesh, `(n, k)`.
      subdomains: subdomains of the mesh.
      chunk_size: number of points that are computed at once.
      axis_name: axis of the devices that share the points.
    """

    quadrature_weights: jax.Array | None
    time: jax.Array | None
    basis_functions: jax.Array | None
    subdomains: Subdomains | None
    chunk_size: int | None
    axis_name: str | None


def refuse(model: str, **given: Any) -> None:
    """Raises ValueError if an argument is passed that the model does not use."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} is not supported by {model}. Omit it, or use another model."
            )


def joined(
    positions: jax.Array, features: jax.Array | None, feature_dim: int
) -> jax.Array:
    """Concatenates positions `(n, p)` and input values `(n, feature_dim)`.

    Raises:
      TypeError: if the values are not floating point.
      ValueError: if the number of channels or points differs.
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


def with_time(
    z: jax.Array, time: jax.Array | None, embedding: TimeEmbedding | None
) -> jax.Array:
    """Adds an embedded time to all points, if the model has an embedding."""
    check_time(time, embedding is not None)
    if embedding is None or time is None:
        return z
    return z + embedding(time)[None, :]


def check_time(time: Any, takes_time: bool) -> None:
    """Raises ValueError unless a time is passed exactly if the model takes one."""
    if (time is None) == takes_time:
        raise ValueError(
            f"{time=} does not match a model built with time_embedding={takes_time}."
        )
