"""What the registry's entries are made of, and what they are given."""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import jax
from flax import nnx
from jax.typing import ArrayLike

from opjax import nn
from opjax.learn.config import ModelOptions, RunOptions

# One sample as models see it: `mesh_points (n, p)`, and `features (n, c)`,
# `quadrature_weights (n,)`, `target (n, q)`, `scalars (s,)` and `target_scalars (t,)`
# where there are any.
Encoded = Mapping[str, ArrayLike]
# The same on a device, of one sample or of a batch.
Columns = Mapping[str, jax.Array]
# The options of a program, or the values that were read from the folder of a run.
Configuration = RunOptions | SimpleNamespace
# Constructors of layers, called as `layer(features, rngs=)` and
# `basis(features, num_heads=, rngs=)`.
Layer = partial[Any]
Basis = Callable[..., nn.bases.Basis]
Mixer = Callable[..., nn.mixers.Mixer]


class Operator(Protocol):
    """A model of a function on a mesh, called as `nn.OperatorTransformer` is."""

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
    ) -> jax.Array:
        """Maps points `(n, p)` and input values `(n, c)` to output values `(n, q)`."""
        ...


class Sizes(NamedTuple):
    """What a model has to know of the samples.

    Attributes:
      point_dim: dimension of space.
      feature_dim: channels of the input function and scalars; zero if the mesh is the
        input.
      out_features: channels of the output function; zero if scalars alone are
        predicted.
      grid_shape: points per axis, if all samples are on this grid.
      num_points: points of every sample, if all have as many.
      box: lower and upper corner of all meshes, as the model sees them.
      time_embedding: whether calls take `time`.
      scalar_dim: how many of `feature_dim` are scalars, the same at all points.
      target_scalars: numbers of the whole sample that are predicted.
    """

    point_dim: int
    feature_dim: int
    out_features: int
    grid_shape: tuple[int, ...] | None = None
    num_points: int | None = None
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    time_embedding: bool = False
    scalar_dim: int = 0
    target_scalars: int = 0

    @property
    def grid(self) -> tuple[int, ...]:
        """The grid of a model that needs one.

        Raises:
          ValueError: if the samples are on no common grid.
        """
        if self.grid_shape is None:
            raise ValueError("The samples do not share a grid, which this model needs.")
        return self.grid_shape

    @property
    def points(self) -> int:
        """The number of points of a model that belongs to one.

        Raises:
          ValueError: if samples have different numbers of points.
        """
        if self.num_points is None:
            raise ValueError(
                "The samples have different numbers of points, but this model needs "
                "a fixed number."
            )
        return self.num_points


class Entry(NamedTuple):
    """What a name stands for.

    Attributes:
      attention: `attention(config, sizes, basis)` returns the constructor of attention
        layers, `layer(features, rngs=)`; `basis` is the constructor of a basis, or None
        if the basis is passed with every call.
      model: `model(config, sizes, rngs)` returns a whole model, in place of an
        attention in an `nn.OperatorTransformer`. An entry may have both: then the
        attention is for other models.
      basis: `basis(config, sizes)` returns the constructor of bases, if the attention
        has a basis.
      may_share_basis: whether one basis may serve all blocks, if the options say so.
      options: names of the options that the entry reads, besides those of all models.
        None stands for all options, of a model of your own.
      grid_axes: numbers of axes that the grid may have, of an entry that needs a grid.
      fixed_points: whether the model belongs to one number of points.
      quadratic: whether time grows as the square of the number of points.
      splits_points: whether devices may share the points of a sample in training.
      min_points: name of the option that is the smallest number of points, if any.
      takes_time: whether the model can be built with `Sizes.time_embedding`.
    """

    attention: Callable[[ModelOptions, Sizes, Basis | None], Layer] | None = None
    model: Callable[[ModelOptions, Sizes, nnx.Rngs], Operator] | None = None
    basis: Callable[[ModelOptions, Sizes], Basis] | None = None
    may_share_basis: bool = False
    options: tuple[str, ...] | None = ()
    grid_axes: tuple[int, ...] = ()
    fixed_points: bool = False
    quadratic: bool = False
    splits_points: bool = False
    min_points: str = ""
    takes_time: bool = True
