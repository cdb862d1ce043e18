"""Attentions of linear cost among points, with products in the cheapest order."""

import abc

import jax
import jax.numpy as jnp

from opjax.attention._expansion import Expansion
from opjax.nn.attention.heads import merge_heads
from opjax.nn.attention.points import Given, PointAttention


class ExpandingAttention(PointAttention):
    r"""Attention of linear cost, an expansion of values in functions of queries.

        y = sum_h F_h M_h W_h + b,

    with `r` functions `F_h` for each head, coefficients `M_h`, linear in the values,
    and the blocks `W_h` of the last map. Whether coefficients are of values or of the
    input, and what `W_h` is applied to, is decided by the numbers of points and
    channels, see `opjax.nn.attention.folding`: the result is the same.
    """

    # Whether the functions themselves are added, an identity to the coefficients, and
    # whether the coefficients are integrals against functions that all heads share.
    adds_functions = False
    shares_integrals = False

    @property
    def rank(self) -> int:
        """Number of functions `r` of each head; their width by default."""
        return self.query.out_features // self.num_heads + self.point_dim

    @abc.abstractmethod
    def expand(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> Expansion:
        """Returns functions `(n, r)` and coefficients `(r, c)` of values `(n, c)`."""

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns the attention of one head, `(n, d + p)`."""
        functions, coefficients = self.expand(query, key, value, weights)
        functions = functions.astype(value.dtype)
        return functions @ self._complete(coefficients.astype(value.dtype))

    def keys(self, given: Given) -> jax.Array:
        """Returns what `expand` takes as keys, of every head."""
        return given.key()

    def evaluate(self, given: Given) -> jax.Array:
        """Returns features `(n, c)` of what a call was given."""
        shared = self.shares_integrals
        folds = given.is_linear("value") and given.sizes.folds_values(
            self.rank, shared=shared
        )
        value = given.enriched() if folds else given.value()

        def expand(query: jax.Array, key: jax.Array, value: jax.Array):
            return self.expand(query, key, value, given.weights)

        by_head = jax.vmap(expand, in_axes=(0, 0, None if folds else 0))
        found = by_head(given.query(), self.keys(given), value)
        functions, coefficients = (a.astype(value.dtype) for a in found)
        if folds:
            coefficients = coefficients @ given.map_of("value")
        return self.output(given, functions, self._complete(coefficients))

    def output(
        self, given: Given, functions: jax.Array, coefficients: jax.Array
    ) -> jax.Array:
        """Maps functions `(h, n, r)` and coefficients `(h, r, d + p)` to `(n, c)`."""
        if not given.sizes.folds_output(functions.shape[2]):
            return self.out(merge_heads(functions @ coefficients))
        mapped = coefficients @ given.output_maps()
        y = jnp.einsum("hnr,hrc->nc", functions, mapped)
        return given.with_output_bias(y)

    def _complete(self, coefficients: jax.Array) -> jax.Array:
        """Adds the identity, if the functions themselves are part of the result."""
        if not self.adds_functions:
            return coefficients
        identity = jnp.eye(self.rank, dtype=coefficients.dtype)
        return coefficients + jnp.broadcast_to(identity, coefficients.shape)


class TrialAttention(ExpandingAttention):
    r"""Attention whose functions are its queries, `Q M(K, V)`.

    Queries are linear in the input `z = [points, x, 1]`, so that

        y = z (sum_h A_h M_h W_h) + b,

    one product at the points for all heads. Without a normalisation keys and values
    are linear, too, and coefficients are made of `z^T W z`.
    """

    @abc.abstractmethod
    def coefficients(
        self, key: jax.Array, value: jax.Array, weights: jax.Array | None
    ) -> jax.Array:
        """Returns coefficients `(d, c)` of keys `(n, d)` and values `(n, c)`."""

    @abc.abstractmethod
    def coefficients_of_gram(
        self, z: jax.Array, key: jax.Array, value: jax.Array, weights: jax.Array | None
    ) -> jax.Array:
        """Returns coefficients of keys `z key` and values `z value`, `(d, c)`."""

    def expand(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> Expansion:
        """Returns queries and coefficients of one head."""
        return Expansion(query, self.coefficients(key, value, weights))

    def evaluate(self, given: Given) -> jax.Array:
        """Returns features `(n, c)` of what a call was given."""
        if not (given.is_linear("query") and given.sizes.folds_queries()):
            return self.output(given, given.query(), self._coefficients(given))
        maps = given.map_of("query"), self._coefficients(given), given.output_maps()
        combined = jnp.einsum("hed,hdf,hfc->ec", *maps, optimize="optimal")
        return given.with_output_bias(given.enriched() @ combined)

    def _coefficients(self, given: Given) -> jax.Array:
        """Returns the coefficients of every head, `(h, d, d)`."""
        linear = given.is_linear("value")
        if linear and given.is_linear("key") and given.sizes.folds_keys_and_values():
            z = given.enriched()

            def of_gram(key: jax.Array, value: jax.Array):
                return self.coefficients_of_gram(z, key, value, given.weights)

            return jax.vmap(of_gram)(given.map_of("key"), given.map_of("value"))
        folds = linear and given.sizes.folds_values(self.rank)
        value = given.enriched() if folds else given.value()

        def coefficients(key: jax.Array, value: jax.Array):
            return self.coefficients(key, value, given.weights)

        by_head = jax.vmap(coefficients, in_axes=(0, None if folds else 0))
        found = by_head(given.key(), value)
        return found @ given.map_of("value") if folds else found
