"""Scalars of a case: as constant features of any model, and as outputs of any model."""

from collections.abc import Callable
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.layers import MLP
from opjax.nn.models._given import ModelArguments
from opjax.quadrature import weighted_mean


def constant_features(
    features: jax.Array | None, scalars: jax.Array, num_points: int
) -> jax.Array:
    """Appends scalars to the features of every point.

        F'_i = (F_i, s),    i = 1..n.

    Args:
      features: values of the input function, `(n, c)`; None if the mesh is the only
        input.
      scalars: scalars of the sample, `(s,)`, normalised in the same way as features.
      num_points: number `n` of points.

    Returns:
      Features for a model with `feature_dim = c + s`, shape `(n, c + s)`.

    Raises:
      ValueError: if the scalars are not a vector.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> scalars = jnp.array([0.5, 2.0])  # such as a Mach number and an angle
      >>> models.constant_features(jnp.ones((3, 1)), scalars, num_points=3).tolist()
      [[1.0, 0.5, 2.0], [1.0, 0.5, 2.0], [1.0, 0.5, 2.0]]
    """
    _checks.rank(1, scalars=scalars)
    constant = jnp.broadcast_to(scalars, (num_points, len(scalars)))
    if features is None:
        return constant
    return jnp.concatenate([features, constant.astype(features.dtype)], axis=1)


class ScalarHead(nnx.Module):
    r"""Computes scalars from a function, independently of the density of the mesh.

        s = MLP(sum_i w_i v_i / sum_i w_i),

    from the means of channels `v` over the points with the quadrature weights `w`.
    Under mesh refinement they converge to means over the domain. Points of zero weight,
    such as padding, have no effect.

    Args:
      channels: number of channels of the function.
      num_scalars: number of output scalars.
      width: width of the perceptron's hidden layer.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> head = models.ScalarHead(8, 2, width=8, rngs=nnx.Rngs(0))
      >>> head(jnp.ones((9, 8)), quadrature_weights=jnp.ones(9)).shape
      (2,)
    """

    def __init__(
        self, channels: int, num_scalars: int, *, width: int = 64, rngs: nnx.Rngs
    ):
        _checks.positive(channels=channels, num_scalars=num_scalars, width=width)
        self.mlp = MLP(channels, width, num_scalars, rngs=rngs)

    @split_by_compiler
    def __call__(
        self,
        values: jax.Array,
        quadrature_weights: jax.Array | None = None,
        *,
        axis_name: str | None = None,
    ) -> jax.Array:
        """Reads scalars `(num_scalars,)` off values `(n, channels)`.

        Args:
          values: at the points.
          quadrature_weights: non-negative, `(n,)`; None for equal ones.
          axis_name: axis of the devices that share the points, if any.
        """
        if axis_name is None:
            over = jax.vmap(weighted_mean, in_axes=(1, None))
            return self.of_means(over(values, quadrature_weights))
        weights = quadrature_weights
        weights = jnp.ones(len(values), values.dtype) if weights is None else weights
        sums = weights @ jnp.where(weights[:, None] > 0, values, 0)
        total, mass = lax.psum((sums, jnp.sum(weights)), axis_name)
        return self.of_means(total / jnp.where(mass > 0, mass, 1))

    def of_means(self, means: jax.Array) -> jax.Array:
        """Computes scalars from the weighted means of the channels, `(channels,)`."""
        return self.mlp(means)


class ScalarOperator(nnx.Module):
    """A model of a function, and scalars that are computed from additional channels.

        u, v = split(model(points, features)),    s = head(v)

    Args:
      operator: any model with the interface of `nn.OperatorTransformer`; the head reads
        its last channels.
      head: computes the scalars.
      out_features: channels of the output function.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> rngs = nnx.Rngs(0)
      >>> operator = nn.DeepONet(
      ...     point_dim=2, num_sensors=9, feature_dim=1, out_features=5,
      ...     branch_features=(10, 10), trunk_features=(10, 10), rngs=rngs,
      ... )
      >>> head = nn.models.ScalarHead(4, 2, width=8, rngs=rngs)  # of four more channels
      >>> model = nn.models.ScalarOperator(operator, head, out_features=1)
      >>> field, scalars = model.both(jnp.ones((9, 2)), jnp.ones((9, 1)))
      >>> field.shape, scalars.shape
      ((9, 1), (2,))
    """

    def __init__(
        self, operator: Callable[..., Any], head: ScalarHead, out_features: int
    ):
        self.operator, self.head = operator, head
        self.out_features = out_features

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        **given: Unpack[ModelArguments],
    ) -> jax.Array:
        """Returns the output function alone, as the model does."""
        return self.operator(mesh_points, features, **given)[:, : self.out_features]

    def both(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        **given: Unpack[ModelArguments],
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the output function `(n, q)` and the scalars `(t,)`.

        Args:
          mesh_points: shape `(n, p)`.
          features: values of the input function, `(n, c)`.
          **given: further arguments of the model, by name.
        """
        values = self.operator(mesh_points, features, **given)
        field, read = jnp.split(values, [self.out_features], axis=1)
        weights, axis_name = given.get("quadrature_weights"), given.get("axis_name")
        return field, self.head(read, weights, axis_name=axis_name)
