"""Attention between points by integrals against keys.

    y = sum_h F_h M_h W_h + b,    M_h made of sum_i w_i G_h(k_i) v_i,

with functions `F_h` of a point's query and functions `G_h` of its key.
"""

import jax
import jax.numpy as jnp
from jax import lax

from opjax import Moments
from opjax.attention.flare import highest_scores, means_of, softmax_moments
from opjax.attention.linear import galerkin_coefficients
from opjax.nn import division
from opjax.nn.attention import columns
from opjax.nn.attention.points import PointAttention, coordinates
from opjax.nn.attention.sums import Added, Given, Local, PointSums, Sums, Totals
from opjax.nn.bases.expansions import Basis
from opjax.nn.division import Use
from opjax.nn.layers.linear import is_affine, promoted


def integrals(functions: jax.Array, values: jax.Array, weights: jax.Array) -> jax.Array:
    """Returns `sum_i w_i g_i f_i^T` of all heads, `(h, r, d)`.

    Args:
      functions: shape `(h, r, m)`.
      values: shape `(h, d, m)`.
      weights: shape `(m,)`.
    """

    def head(functions: jax.Array, values: jax.Array) -> jax.Array:
        return galerkin_coefficients(functions.T, values.T, key_weights=weights)

    return jax.vmap(head)(functions, values)


def exponential_sums(
    scores: jax.Array,
    values: jax.Array,
    weights: jax.Array,
    highest: jax.Array | None = None,
) -> Sums:
    """Returns the sums from which softmaxes over all points are computed.

    Args:
      scores: exponents, shape `(h, k, m)`.
      values: averaged values, shape `(h, d, m)`.
      weights: shape `(m,)`; zero masks a point.
      highest: exponents subtracted before exponentiation, shape `(h, k)`, at least the
        maximum of the scores of these points; by default this maximum.

    Returns:
      Integrals `(h, k, d)` and masses `(h, k)`.
    """
    if highest is None:
        highest = jax.vmap(lambda scores: highest_scores(scores.T, weights))(scores)
    highest = lax.stop_gradient(highest)

    def head(scores: jax.Array, values: jax.Array, top: jax.Array) -> Moments:
        return softmax_moments(values.T, scores.T, weights, top)

    moments = jax.vmap(head)(scores, values, highest)
    return Sums((moments.integrals, moments.masses), highest)


class KeySums(PointAttention, PointSums):
    """Attention between points through integrals of values against keys.

    Keys and values have a layer norm or no norm. An instance norm would need means over
    all points before the sums.
    """

    def trial(self, query: jax.Array) -> jax.Array:
        """Returns functions `(h, r, m)` of the queries, by default the queries."""
        return query

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why a use is not supported, see `PointSums`."""
        del shared
        name = division.name(self)
        if use == "narrow":
            return f"{name} has no products in 16 bits"
        steps = ("__call__", "evaluate", "head_inputs", "norm_of")
        if division.redefines(self, *steps, known_by="sums"):
            return f"{name} computes more of its points than the sums it inherits"
        norms = self.key_norm, self.partner_norm
        if any(norm and norm.normalization == "instance" for norm in norms):
            return "an instance norm takes means over all points together"
        return None

    def evaluate(
        self,
        x: jax.Array,
        mesh_points: jax.Array | None,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Maps the checked arguments of a call to features `(n, c)`."""
        arrays = {"mesh_points": mesh_points, "quadrature_weights": weights}
        present = {name: a for name, a in arrays.items() if a is not None}
        return self.of_all_points(x, present, weights)

    def local(self, x: jax.Array, given: Given, shared: Basis | None = None) -> Local:
        """Returns queries, keys and values, each `(h, d + p, m)`."""
        del shared
        points = coordinates(x.T, given.get("mesh_points"), self.point_dim)

        def heads(name: str) -> jax.Array:
            made = columns.linear(getattr(self, name), x)
            made = made.reshape(self.num_heads, -1, x.shape[1])
            norm = self.norm_of(name)
            weights = given.get("quadrature_weights")
            made = made if norm is None else norm.columns(made, weights)
            if points is None:
                return made
            rows = points.T.astype(x.dtype)
            rows = jnp.broadcast_to(rows, (len(made), *rows.shape))
            return jnp.concatenate([rows, made], axis=1)

        return heads("query"), heads("key"), heads("value")

    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns integrals of values against the keys, `(h, d + p, d + p)`."""
        del highest  # nothing is exponential
        _, key, value = local
        return Sums((integrals(key, value, weights),))

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns the integrals unchanged."""
        del totals, shared
        (integrals,) = added
        assert integrals is not None
        return integrals

    def spread(self, mixed: jax.Array, local: Local) -> jax.Array:
        """Returns expansions in the query functions, `(h (d + p), m)`."""
        functions = self.trial(local[0])
        heads = jnp.einsum("hrd,hrm->hdm", mixed, functions)
        return heads.reshape(-1, functions.shape[2])

    def equal_weights_cancel(self, shared: Basis | None = None) -> bool:
        """Whether a common factor of all weights cancels: no."""
        del shared
        return False

    def coefficient_shape(self, shared: Basis | None = None) -> tuple[int, int, int]:
        """Returns the number of heads, and twice the channels of a head."""
        del shared
        width = self.out.in_features // self.num_heads
        return self.num_heads, width, width


class TrialSums(KeySums):
    r"""Attention by integrals that is linear in the queries.

        y = z (sum_h A_h M_h W_h) + b,    z = [points, x, 1],

    with queries `z A_h`: one matrix product at the points serves all heads. It makes a
    training step of `elasticity --preset=fast --models=galerkin` 1.18 times faster.
    """

    def output(
        self, mixed: jax.Array, local: Local, x: jax.Array, given: Given
    ) -> jax.Array:
        """Returns features `(c, m)` of all points, by one linear map of the input."""
        if not (is_affine(self.query) and is_affine(self.out)):
            return super().output(mixed, local, x, given)
        x, kernel, bias = promoted(self.query, x.T)
        heads, p = self.num_heads, self.point_dim
        expanded = mixed @ self.out.kernel[...].reshape(heads, -1, x.shape[1])
        points, functions = expanded[:, :p], expanded[:, p:].reshape(-1, x.shape[1])
        y = (kernel @ functions).T @ x.T
        offset = 0 if self.out.bias is None else self.out.bias[...]
        offset = offset if bias is None else offset + bias @ functions
        if p:
            y = y + jnp.sum(points, axis=0).T @ given["mesh_points"].T.astype(y.dtype)
        return y + jnp.broadcast_to(offset, x.shape[1])[:, None]


class MeanKeySums(KeySums):
    """Attention by integrals that are divided by the sum of all weights."""

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns means over the points."""
        weight, _ = totals
        integrals = super().combine(added, totals, shared)
        return integrals / jnp.where(weight > 0, weight, 1).astype(integrals.dtype)

    def equal_weights_cancel(self, shared: Basis | None = None) -> bool:
        """Whether a common factor of all weights cancels: yes."""
        del shared
        return True


class SoftmaxKeySums(KeySums):
    """Averages of values, weighted by a softmax of every key over the points."""

    def trial(self, query: jax.Array) -> jax.Array:
        """Returns softmaxes of the queries over their channels."""
        return columns.softmax(query)

    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns integrals and masses of the exponentials of the keys."""
        _, key, value = local
        return exponential_sums(key, value, weights, highest)

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns the averages; zero if all points are masked."""
        del shared
        return jax.vmap(means_of)(columns.of_heads((*added, None), *totals))

    def equal_weights_cancel(self, shared: Basis | None = None) -> bool:
        """Whether a common factor of all weights cancels: yes."""
        del shared
        return True
