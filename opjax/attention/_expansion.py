"""Attentions as expansions: functions of the queries, coefficients of the values."""

from typing import NamedTuple

from jax import Array
from jaxtyping import Float


class Expansion(NamedTuple):
    """An attention of linear cost before its last product, `functions @ coefficients`.

    Coefficients are linear in the values: what is linear may act on the values, on the
    coefficients or on the result, wherever there is least of it.

    Attributes:
      functions: at the query points, shape `(m, r)`.
      coefficients: of all values together, shape `(r, c)`.
    """

    functions: Float[Array, "m r"]
    coefficients: Float[Array, "r c"]

    def evaluate(self) -> Float[Array, "m c"]:
        """Returns the attention."""
        return self.functions @ self.coefficients
