"""Classes of registry entries and their arguments."""

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
    """A model of a function on a mesh, called like `nn.OperatorTransformer`."""

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
    """Sizes of the samples that a model needs at construction.

    Attributes:
      point_dim: dimension of space.
      feature_dim: number of channels of the input function and scalars; zero if the
        mesh is the only input.
      out_features: number of channels of the output function; zero if only scalars are
        predicted.
      grid_shape: points per axis, if all samples share this grid.
      num_points: number of points, if it is the same for all samples.
      box: lower and upper corner of all meshes, in the coordinates that the model
        receives.
      time_embedding: whether the model receives `time`.
      scalar_dim: number of scalars among `feature_dim`, which are the same at all
        points.
      target_scalars: number of predicted scalars per sample.
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
          ValueError: if the samples do not share a grid.
        """
        if self.grid_shape is None:
            raise ValueError("The samples do not share a grid, which this model needs.")
        return self.grid_shape

    @property
    def points(self) -> int:
        """The number of points of a model that supports only one.

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
    """A registry entry: how to build an attention layer or a model.

    Attributes:
      attention: `attention(config, sizes, basis)` returns the constructor of attention
        layers, `layer(features, rngs=)`; `basis` is the constructor of a basis, or None
        if the basis is passed with every call.
      model: `model(config, sizes, rngs)` returns a whole model, in place of an
        attention in an `nn.OperatorTransformer`. If an entry has both, its attention
        is used inside models of other entries.
      basis: `basis(config, sizes)` returns the constructor of bases, if the attention
        uses a basis.
      may_share_basis: whether all blocks can share one basis, if the options request
        it.
      options: names of the options that the entry reads, in addition to those that all
        models read. None means all options, for user-defined models.
      grid_axes: supported numbers of grid axes; empty if no grid is needed.
      fixed_points: whether the model supports only the number of points that it was
        built for.
      quadratic: whether the run time grows as the square of the number of points.
      splits_points: whether devices can share the points of a sample in training.
      min_points: name of the option that is a lower bound of the number of points, if
        any.
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
