"""The general neural operator transformer of the original authors."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.layers import MLP, stacked
from opjax.nn.layers.position import Coordinates, check_points
from opjax.nn.models._given import check_time, joined, refuse
from opjax.nn.models.gnot import GNOTBlock


class OriginalGNOT(nnx.Module):
    r"""The general neural operator transformer, as in the authors' code.

        z = MLP([x, theta]),    y_f = MLP_f(f),    z <- Block_l(z, y_1, ...),
        u = MLP(z),

    with any number of input functions `f`, each with its own points, to which all
    blocks attend, and parameters `theta` of the whole sample. Most papers compare with
    `GNOT` instead. In the authors' code, samples are padded with zeros that take part
    in the attention; here masked points do not.

    Without `input_dims` there is one input function: the coordinates and features at
    the mesh points.

    Args:
      point_dim: dimension `p` of the coordinates.
      feature_dim: channels of the input function at the mesh points; zero if the mesh
        is the only input.
      out_features: channels of the output function.
      features: number `c` of channels of the hidden layers.
      num_layers: number of blocks.
      num_heads: heads, dividing `features`.
      num_experts: number of perceptrons in each mixture.
      mlp_ratio: width of the blocks' hidden layers, relative to `c`.
      num_hidden: number of residual hidden layers of the perceptrons outside the
        blocks.
      input_dims: channels of every input function that is passed as `inputs`.
      num_parameters: number of parameters `theta`, which are passed as `parameters`.
      time_embedding: whether calls take a scalar `time`, an additional parameter.
      rematerialize: whether to recompute the blocks in the backward pass.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, the heads do not divide the features, or
        there are input functions of both kinds.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> model = models.OriginalGNOT(
      ...     point_dim=2, feature_dim=0, out_features=1, features=8, num_layers=1,
      ...     num_heads=2, num_hidden=1, input_dims=(3,), rngs=nnx.Rngs(0),
      ... )
      >>> boundary = jnp.ones((5, 3))  # coordinates and a value at five other points
      >>> model(jnp.ones((9, 2)), inputs=[boundary]).shape
      (9, 1)

    References:
      Hao et al., "GNOT: a general neural operator transformer for operator learning",
      ICML 2023 (arXiv:2302.14376).
    """

    def __init__(
        self,
        *,
        point_dim: int,
        feature_dim: int,
        out_features: int,
        features: int = 128,
        num_layers: int = 3,
        num_heads: int = 8,
        num_experts: int = 3,
        mlp_ratio: int = 2,
        num_hidden: int = 3,
        input_dims: Sequence[int] = (),
        num_parameters: int = 0,
        time_embedding: bool = False,
        rematerialize: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            point_dim=point_dim,
            out_features=out_features,
            features=features,
            num_layers=num_layers,
            mlp_ratio=mlp_ratio,
            num_hidden=num_hidden,
        )
        _checks.non_negative(feature_dim=feature_dim, num_parameters=num_parameters)
        if input_dims and feature_dim:
            raise ValueError(
                f"{input_dims=} replaces features at the mesh points, but "
                f"{feature_dim=}."
            )
        self.position, self.feature_dim = Coordinates(point_dim), feature_dim
        self.input_dims = tuple(input_dims)
        self.num_parameters, self.takes_time = num_parameters, time_embedding
        self.rematerialize = rematerialize

        def perceptron(inputs: int, outputs: int = features) -> MLP:
            hidden = (features,) * (1 + num_hidden)
            return MLP(
                inputs, hidden, outputs, residual=True, kernel_init=None, rngs=rngs
            )

        self.point_encoder = perceptron(point_dim + num_parameters + time_embedding)
        dims = self.input_dims or (point_dim + feature_dim,)
        self.encoders = nnx.List([perceptron(channels) for channels in dims])
        layer = partial(
            GNOTBlock,
            features,
            point_dim=point_dim,
            num_heads=num_heads,
            num_inputs=len(dims),
            num_experts=num_experts,
            mlp_ratio=mlp_ratio,
            kernel_init=None,
        )
        self.blocks = stacked(layer, num_layers, rngs=rngs)
        self.decoder = perceptron(features, out_features)

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
        parameters: Array | None = None,
        inputs: Sequence[Array] | None = None,
        input_weights: Sequence[Array | None] | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points, shape `(n, p)`.
          features: values of the input function at these points, shape
            `(n, feature_dim)`; `None` if `feature_dim` is zero.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point.
          time: scalar, if the model takes one.
          parameters: numbers of the sample, shape `(num_parameters,)`, if there are.
          inputs: values of the input functions of `input_dims`, each `(n_f, c_f)`.
          input_weights: weights of the points of `inputs`, each `(n_f,)` or None.

        Returns:
          Values of the output function at the mesh points, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other.
        """
        check_points(self.position, mesh_points)
        if self.input_dims:
            refuse("a model with input_dims", features=features)
            functions, weights = self._functions(inputs), input_weights
        else:
            refuse(
                "a model without input_dims",
                inputs=inputs,
                input_weights=input_weights,
            )
            functions = [joined(mesh_points, features, self.feature_dim)]
            weights = [quadrature_weights]
        encoded = [
            encoder(f) for encoder, f in zip(self.encoders, functions, strict=True)
        ]
        numbers = self._numbers(mesh_points, time, parameters)
        z = self.point_encoder(jnp.concatenate([mesh_points, numbers], axis=1))

        def layer(z: Array, block: GNOTBlock) -> tuple[Array, None]:
            return block(
                z,
                encoded,
                mesh_points,
                quadrature_weights=quadrature_weights,
                input_weights=weights,
            ), None

        if self.rematerialize:
            layer = jax.checkpoint(layer, prevent_cse=False)
        z, _ = lax.scan(layer, z, self.blocks)
        return self.decoder(z)

    def _functions(self, inputs: Sequence[Array] | None) -> list[Array]:
        """Returns the values of the input functions, checked."""
        functions = [] if inputs is None else list(inputs)
        shapes = [jnp.shape(f) for f in functions]
        if tuple(s[-1] for s in shapes) != self.input_dims:
            raise ValueError(
                f"inputs {shapes} must be functions with {self.input_dims} channels."
            )
        for i, function in enumerate(functions):
            _checks.floating(**{f"inputs[{i}]": function})
            _checks.rank(2, **{f"inputs[{i}]": function})
        return functions

    def _numbers(
        self,
        mesh_points: Array,
        time: Array | None,
        parameters: Array | None,
    ) -> Array:
        """Returns the numbers of the whole sample at every point, `(n, t)`."""
        check_time(time, self.takes_time)
        dtype = mesh_points.dtype
        parameters = jnp.zeros(0, dtype) if parameters is None else parameters
        expected = (self.num_parameters,)
        _checks.shaped("parameters", parameters, expected, "this model")
        numbers = [] if time is None else [jnp.reshape(time, (1,))]
        row = jnp.concatenate([*numbers, parameters]).astype(dtype)
        return jnp.broadcast_to(row[None], (mesh_points.shape[0], *row.shape))
