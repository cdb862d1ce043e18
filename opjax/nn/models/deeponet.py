"""The deep operator network: learned basis functions and learned coefficients."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Float

import opjax
from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.layers import ACTIVATIONS, MLP, Initializer
from opjax.nn.layers.position import Coordinates, check_points
from opjax.nn.models._given import check_time
from opjax.quadrature import select


class DeepONet(nnx.Module):
    r"""Learns basis functions of the points, and their coefficients from the input.

        u(x) = sum_k b_k(f) t_k(x) + c,    b = branch(f),    t = act(trunk(x)),

    with two perceptrons: the branch takes all values `f` at fixed sensors, the trunk
    takes the coordinates of a point. Each output channel has a separate group of
    equally many `b` and `t`, and a separate constant `c`. This is the published
    Cartesian variant, which evaluates all points for one input; `jax.vmap` over samples
    with one point each gives the aligned variant.

    With a proper orthogonal basis of the training outputs, `num_modes` functions that
    are passed as `basis_functions` precede the trunk functions. Without a trunk,
    `trunk_features=()`, only these functions are used, without a constant:

        basis_functions = jnp.linalg.svd(outputs.T, full_matrices=False)[0][:, :modes]

    for `outputs (s, n)` of `s` samples minus their mean, which the model does not add
    back.

    Args:
      point_dim: dimension `p` of the coordinates.
      num_sensors: number of values of the input function, at the same points in the
        same order in all samples.
      feature_dim: channels of the input function; zero if the input consists of the
        coordinates of `num_sensors` mesh points.
      out_features: channels of the output function; must divide the number of
        functions.
      branch_features: widths of the layers of the branch; the last width is the number
        of functions of all channels together.
      trunk_features: widths of the layers of the trunk; the last width is that of the
        branch minus `num_modes`.
      activation: see `MLP`.
      num_modes: number of functions that are passed to the call instead of learned.
      time_embedding: whether calls take a scalar `time`, an additional coordinate of
        the trunk.
      kernel_init: initialiser of all kernels, with zero biases; by default Glorot's
        normal initialiser.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, a network has only one layer, widths are
        inconsistent, or there are no functions.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.DeepONet(
      ...     point_dim=2, num_sensors=9, feature_dim=1, out_features=1,
      ...     branch_features=(10, 10), trunk_features=(10, 10), rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((5, 2)), jnp.ones((9, 1))).shape  # five points, nine sensors
      (5, 1)

    References:
      Lu et al., "Learning nonlinear operators via DeepONet based on the universal
      approximation theorem of operators", Nature Machine Intelligence 3, 2021.
      Lu et al., "A comprehensive and fair comparison of two neural operators", CMAME
      393, 2022.
    """

    def __init__(
        self,
        *,
        point_dim: int,
        num_sensors: int,
        feature_dim: int,
        out_features: int,
        branch_features: Sequence[int] = (128, 128, 128),
        trunk_features: Sequence[int] = (128, 128, 128),
        activation: str = "relu",
        num_modes: int = 0,
        time_embedding: bool = False,
        kernel_init: Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            point_dim=point_dim, num_sensors=num_sensors, out_features=out_features
        )
        _checks.non_negative(feature_dim=feature_dim, num_modes=num_modes)
        functions = num_modes + (trunk_features[-1] if trunk_features else 0)
        if len(branch_features) < 2 or len(trunk_features) == 1:
            raise ValueError(
                f"{branch_features=} and {trunk_features=} must each have at least "
                "two layers."
            )
        if (
            branch_features[-1] != functions
            or functions % out_features
            or not functions
        ):
            raise ValueError(
                f"The last entry of {branch_features=} must be {functions}, the "
                f"number of functions from {trunk_features=} and {num_modes=}, and "
                f"a positive multiple of {out_features=}."
            )
        self.position, self.activation = Coordinates(point_dim), activation
        self.num_sensors, self.feature_dim = num_sensors, feature_dim
        self.num_modes, self.out_features = num_modes, out_features
        self.takes_time = time_embedding
        init = jax.nn.initializers.glorot_normal()
        init = init if kernel_init is None else kernel_init

        def net(inputs: int, widths: Sequence[int]) -> MLP:
            return MLP(
                inputs,
                tuple(widths[:-1]),
                widths[-1],
                activation=activation,
                kernel_init=init,
                rngs=rngs,
            )

        self.branch = net(num_sensors * (feature_dim or point_dim), branch_features)
        bias = nnx.Param(jnp.zeros(out_features, jnp.float32))
        self.bias = bias if trunk_features else None
        coordinates = point_dim + time_embedding
        self.trunk = net(coordinates, trunk_features) if trunk_features else None

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
        basis_functions: Array | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points where the output is wanted, shape `(n, p)`: any points,
            unless their coordinates are the input.
          features: values of the input function at the sensors, shape `(num_sensors,
            feature_dim)`; `None` if `feature_dim` is zero.
          quadrature_weights: weights of the points, shape `(n,)`; where they are the
            sensors, zero takes zeros for the values there. They have no other effect.
          time: scalar, if the model takes one.
          basis_functions: given functions at the points, shape `(n, num_modes)`.

        Returns:
          Values of the output function, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other.
        """
        check_points(self.position, mesh_points)
        check_time(time, self.takes_time)
        sensed = self._sensed(mesh_points, features, quadrature_weights)
        coefficients = self.branch(sensed.reshape(1, -1))[0]
        functions = self._functions(mesh_points, time, basis_functions)
        coefficients = coefficients.reshape(self.out_features, -1, 1)
        functions = functions.reshape(*functions.shape[:1], self.out_features, -1)
        values = jax.vmap(opjax.reconstruct, in_axes=(0, 1), out_axes=1)(
            coefficients, functions
        )[:, :, 0]
        return values if self.bias is None else values + self.bias[...][None, :]

    def _sensed(
        self,
        mesh_points: Array,
        features: Array | None,
        weights: Array | None,
    ) -> Array:
        """Returns the values at the sensors, `(num_sensors, c)`."""
        name, values = "features", features
        if not self.feature_dim:
            if features is not None:
                raise ValueError(
                    f"features {features.shape} were passed to a model without "
                    "features, built with feature_dim=0."
                )
            name, values = "mesh_points without features", mesh_points
        channels = self.feature_dim or self.position.point_dim
        expected = (self.num_sensors, channels)
        where = "this model, which needs the values at its sensors"
        values = _checks.shaped(name, values, expected, where)
        _checks.floating(features=values)
        if weights is not None and weights.shape[0] == self.num_sensors:
            return select(values, weights)
        return values

    def _functions(
        self,
        mesh_points: Array,
        time: Array | None,
        basis_functions: Array | None,
    ) -> Array:
        """Returns all functions at the points, `(n, k)`."""
        parts = []
        expected = (mesh_points.shape[0], self.num_modes)
        if basis_functions is not None or self.num_modes:
            where = "this model and these points"
            parts.append(
                _checks.shaped("basis_functions", basis_functions, expected, where)
            )
        if self.trunk is not None:
            points = mesh_points
            if time is not None:
                when = jnp.full((points.shape[0], 1), time, points.dtype)
                points = jnp.concatenate([points, when], axis=1)
            parts.append(ACTIVATIONS[self.activation](self.trunk(points)))
        return jnp.concatenate(parts, axis=1)
