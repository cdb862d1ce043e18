"""Attention that knows the points by sums over them: all that chunks have to add up.

A layer is three steps, of which only the second one looks at all points,

    here = local(x)                     at every point alone,
    mixed = combine(sum of sums(here))  of all points together, a small array,
    y = out(spread(mixed, here))        at every point alone again,

with points as columns, see `opjax.nn.attention.columns`.
"""

import abc
import dataclasses
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


@pytree
@dataclasses.dataclass(frozen=True)
class Sums:
    """Sums over points, which are added for points in several chunks.

    Attributes:
      added: arrays `(h, ...)`; where exponentials are summed, these divided by
        `exp(highest)`, so that they stay finite.
      highest: the highest exponents of these points, shape `(h, k)`, of arrays
        `(h, k, ...)`; `None` where nothing was divided.

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
        return Sums(jax.tree.map(_plus, one.added, two.added), top)

    def relative_to(self, highest: jax.Array) -> "Sums":
        """The same sums, with exponentials divided by those of other exponents."""
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


def _plus(one: jax.Array, other: jax.Array) -> jax.Array:
    return one + other


def nothing(like: Sums) -> Sums:
    """Returns the sums over no points, of the shapes of others."""
    highest = like.highest
    if highest is not None:
        highest = jnp.full_like(highest, jnp.finfo(highest.dtype).min)
    return Sums(jax.tree.map(jnp.zeros_like, like.added), highest)


class PointSums(abc.ABC):
    """What an attention layer offers whose points may be divided.

    Layers that share a basis, which is passed with every call, get it as `shared`.

    Attributes:
      out: the last map, from merged heads `(h d, m)` to features `(c, m)`.

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
        """Returns what is in the way of a use, or `None`."""

    @abc.abstractmethod
    def local(self, x: jax.Array, given: Given, shared: Basis | None = None) -> Local:
        """Returns what the layer computes at every point alone.

        Args:
          x: features of some points, shape `(c, m)`.
          given: arrays of these points.
          shared: the basis, if the layer owns none.
        """

    @abc.abstractmethod
    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns the sums over some points.

        Args:
          local: of these points.
          weights: shape `(m,)`; a zero leaves a point out.
          highest: what exponentials are divided by; by default those of these points.
        """

    @abc.abstractmethod
    def combine(
        self,
        added: Added,
        totals: tuple[jax.Array, jax.Array],
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns what points are told of each other, coefficients `(h, k, d)`.

        Args:
          added: sums over all points.
          totals: the sum of all weights, and how many are positive.
          shared: the basis, if the layer owns none.
        """

    @abc.abstractmethod
    def spread(self, mixed: jax.Array, local: Local) -> jax.Array:
        """Returns what the heads find at some points, `(h d, m)`."""

    def output(
        self, mixed: jax.Array, local: Local, x: jax.Array, given: Given
    ) -> jax.Array:
        """Returns features `(c, m)`: the last map of what the heads find.

        Args:
          mixed: coefficients of all points.
          local: of some points.
          x: features of these points, shape `(c, m)`.
          given: arrays of these points.
        """
        del x, given
        return columns.linear(self.out, self.spread(mixed, local))

    def of_all_points(
        self, x: jax.Array, given: Given, weights: jax.Array | None
    ) -> jax.Array:
        """Takes the three steps with all points at once.

        Args:
          x: features, shape `(n, c)`.
          given: arrays of the points.
          weights: of the points, shape `(n,)`, equal ones if None.

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
        """Whether weights may be ones in place of `1 / n` where none are given."""

    @abc.abstractmethod
    def coefficient_shape(self, shared: Basis | None = None) -> tuple[int, int, int]:
        """Returns the shape of what `combine` returns: heads, functions, channels."""

    def convolved_basis(self, shared: Basis | None = None) -> Basis | None:
        """Returns the basis if its projection reads neighbouring points of a grid."""
        del shared
        return None

    def arrays(self, shared: Basis | None = None) -> tuple[str, ...]:
        """Returns names of the arrays of points that a call cannot do without."""
        del shared
        return ()
