"""Attention as an expansion: query functions times coefficients of the values."""

from typing import NamedTuple

from jax import Array
from jaxtyping import Float


class Expansion(NamedTuple):
    """The factors of an attention of linear cost: `functions @ coefficients`.

    Coefficients are linear in the values. A linear map can therefore be applied to the
    values, the coefficients or the result, whichever is smallest.

    Attributes:
      functions: functions at the query points, shape `(m, r)`.
      coefficients: coefficients from all values, shape `(r, c)`.
    """

    functions: Float[Array, "m r"]
    coefficients: Float[Array, "r c"]

    def evaluate(self) -> Float[Array, "m c"]:
        """Returns the attention."""
        return self.functions @ self.coefficients
