"""Position features: coordinates, or distances to reference points."""

import dataclasses

import jax

from opjax import _checks
from opjax.nn.layers.embedding import reference_distances


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """The coordinates themselves.

    Attributes:
      point_dim: dimension `p` of space.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> position = nn.Coordinates(2)
      >>> position.features, position(jnp.ones((9, 2))).shape
      (2, (9, 2))
    """

    point_dim: int

    @property
    def features(self) -> int:
        """Number of position features."""
        return self.point_dim

    def __call__(self, mesh_points: jax.Array) -> jax.Array:
        """Maps points `(n, p)` to position features `(n, features)`."""
        return mesh_points


@dataclasses.dataclass(frozen=True)
class ReferenceDistances:
    """Distances to a grid of reference points, see `reference_distances`.

    Attributes:
      point_dim: dimension `p` of space.
      num_reference: number of reference points per axis, at least two.
      lower: lower corner of the box of the reference points; zeros by default.
      upper: upper corner of the box; ones by default.

    Raises:
      ValueError: if there is only one reference point, or a corner does not have `p`
        coordinates.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> position = nn.ReferenceDistances(2, num_reference=4, upper=(2.0, 1.0))
      >>> position.features, position(jnp.ones((9, 2))).shape
      (16, (9, 16))
    """

    point_dim: int
    num_reference: int
    lower: tuple[float, ...] | None = None
    upper: tuple[float, ...] | None = None

    def __post_init__(self):
        """Refuses what fits no point, before any work is done."""
        if self.num_reference < 2:
            raise ValueError(f"num_reference={self.num_reference} must be at least 2.")
        for name in ("lower", "upper"):
            corner = getattr(self, name)
            if corner is not None and len(corner) != self.point_dim:
                raise ValueError(
                    f"{name}={corner} must have point_dim={self.point_dim} coordinates."
                )

    @property
    def features(self) -> int:
        """Number of position features."""
        return self.num_reference**self.point_dim

    def __call__(self, mesh_points: jax.Array) -> jax.Array:
        """Maps points `(n, p)` to position features `(n, features)`."""
        return reference_distances(
            mesh_points,
            num_reference=self.num_reference,
            lower=self.lower,
            upper=self.upper,
        )


Position = Coordinates | ReferenceDistances


def check_points(position: Position, mesh_points: jax.Array) -> None:
    """Raises an error unless the points have the dimension of the position features."""
    _checks.floating(mesh_points=mesh_points)
    _checks.rank(2, mesh_points=mesh_points)
    if mesh_points.shape[1] != position.point_dim:
        raise ValueError(
            f"mesh_points {mesh_points.shape} must have shape (n, "
            f"{position.point_dim}) for this model's point_dim={position.point_dim}."
        )
