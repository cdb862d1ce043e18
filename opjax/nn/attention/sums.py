"""Attention by sums over points, which can be added over chunks.

A layer consists of three steps; only the second one combines points,

    here = local(x)                     at every point alone,
    mixed = combine(sum of sums(here))  of all points together, a small array,
    y = out(spread(mixed, here))        at every point alone again,

with points as columns, see `opjax.nn.attention.columns`.
"""

import abc
import dataclasses
import operator
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from opjax._jitted import pytree
from opjax.nn.attention import columns
from opjax.nn.bases.expansions import Basis
from opjax.nn.division import Use
from opjax.quadrature import active

# Arrays of some points by name, `(m, ...)`, that a call takes besides the features.
Given = Mapping[str, jax.Array]
# Arrays of every head at some points, `(h, ..., m)`.
Local = tuple[jax.Array, ...]
Added = tuple[jax.Array | None, ...]
# The sum of all weights, and the number of positive weights.
Totals = tuple[jax.Array, jax.Array]


@pytree
@dataclasses.dataclass(frozen=True)
class Sums:
    """Sums over points, which add up over chunks.

    Attributes:
      added: arrays `(h, ...)`; sums of exponentials are divided by `exp(highest)`, so
        that they stay finite.
      highest: maximum exponents over these points, shape `(h, k)`, for arrays `(h, k,
        ...)`; `None` if nothing was divided.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.nn.attention import Sums
      >>> sums = Sums((jnp.ones((2, 4)),), highest=jnp.zeros((2, 4)))
      >>> relative = sums.relative_to(jnp.ones((2, 4)))  # divided by exp(1)
      >>> round(float(relative.added[0][0, 0]), 4)
      0.3679
    """

    added: Added
    highest: jax.Array | None = None

    def __add__(self, other: "Sums") -> "Sums":
        """Sums over the points of both, arrays of JAX or of NumPy."""
        one, two = self, other
        top = None
        if self.highest is not None and other.highest is not None:
            numpy = self.highest.__array_namespace__()
            top = numpy.maximum(self.highest, other.highest)
            one, two = self.relative_to(top), other.relative_to(top)
        return Sums(jax.tree.map(operator.add, one.added, two.added), top)

    def relative_to(self, highest: jax.Array) -> "Sums":
        """The same sums, with exponentials relative to other exponents."""
        if self.highest is None:
            return self
        numpy = highest.__array_namespace__()
        factor = numpy.exp(self.highest - highest)

        def scaled(x: jax.Array) -> jax.Array:
            return x * factor.reshape(factor.shape + (1,) * (x.ndim - factor.ndim))

        return Sums(jax.tree.map(scaled, self.added), highest)

    def over(self, axis_name: str | None) -> "Sums":
        """Sums over the points of all devices of an axis, if there is one."""
        if axis_name is None:
            return self
        one = self
        if self.highest is not None:
            one = self.relative_to(lax.pmax(self.highest, axis_name))
        return Sums(lax.psum(one.added, axis_name), one.highest)


def nothing(like: Sums) -> Sums:
    """Returns the sums over an empty set of points, with the shapes of others."""
    highest = like.highest
    if highest is not None:
        highest = jnp.full_like(highest, jnp.finfo(highest.dtype).min)
    return Sums(jax.tree.map(jnp.zeros_like, like.added), highest)


class PointSums(abc.ABC):
    """Interface of an attention layer that supports chunks of points.

    If layers share a basis, which is passed with every call, they receive it as
    `shared`.

    Attributes:
      out: last linear map, from merged heads `(h d, m)` to features `(c, m)`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.GalerkinAttention(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> isinstance(layer, nn.attention.PointSums)  # its points can be divided
      True
      >>> layer.coefficient_shape()
      (2, 4, 4)
    """

    out: nnx.Linear

    @abc.abstractmethod
    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why a use is not supported, or `None`."""

    @abc.abstractmethod
    def local(self, x: jax.Array, given: Given, shared: Basis | None = None) -> Local:
        """Returns the values that each depend on only one point.

        Args:
          x: features of some points, shape `(c, m)`.
          given: other arrays of these points.
          shared: the shared basis, if the layer has none.
        """

    @abc.abstractmethod
    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns the sums over some points.

        Args:
          local: result of `local` for these points.
          weights: shape `(m,)`; zero masks a point.
          highest: exponents that are subtracted; by default the maxima over these
            points.
        """

    @abc.abstractmethod
    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns the coefficients `(h, k, d)` from the sums over all points.

        Args:
          added: sums over all points.
          totals: the sum of all weights, and the number of positive weights.
          shared: the shared basis, if the layer has none.
        """

    @abc.abstractmethod
    def spread(self, mixed: jax.Array, local: Local) -> jax.Array:
        """Returns the outputs of the heads at some points, `(h d, m)`."""

    def output(
        self, mixed: jax.Array, local: Local, x: jax.Array, given: Given
    ) -> jax.Array:
        """Returns features `(c, m)`: the last map of the outputs of the heads.

        Args:
          mixed: coefficients from all points.
          local: result of `local` for some points.
          x: features of these points, shape `(c, m)`.
          given: other arrays of these points.
        """
        del x, given
        return columns.linear(self.out, self.spread(mixed, local))

    def of_all_points(
        self, x: jax.Array, given: Given, weights: jax.Array | None
    ) -> jax.Array:
        """Performs the three steps for all points at once.

        Args:
          x: features, shape `(n, c)`.
          given: other arrays of the points.
          weights: weights of the points, shape `(n,)`; equal weights if None.

        Returns:
          Features at the points, shape `(n, c)`.
        """
        if weights is None:
            equal = 1 if self.equal_weights_cancel() else 1 / max(x.shape[0], 1)
            weights = jnp.full(x.shape[0], equal, x.dtype)
        weights = jnp.where(active(weights), weights, 0).astype(x.dtype)
        totals = jnp.sum(weights), jnp.sum(active(weights).astype(x.dtype))
        local = self.local(x.T, given)
        mixed = self.combine(self.sums(local, weights).added, totals)
        return self.output(mixed, local, x.T, given).T

    @abc.abstractmethod
    def equal_weights_cancel(self, shared: Basis | None = None) -> bool:
        """Whether ones can replace the default weights `1 / n`."""

    @abc.abstractmethod
    def coefficient_shape(self, shared: Basis | None = None) -> tuple[int, int, int]:
        """Returns the shape of the coefficients: heads, functions, channels."""

    def convolved_basis(self, shared: Basis | None = None) -> Basis | None:
        """Returns the basis if its projection is a convolution on a grid."""
        del shared
        return None

    def arrays(self, shared: Basis | None = None) -> tuple[str, ...]:
        """Returns the names of the per-point arrays that every call requires."""
        del shared
        return ()
