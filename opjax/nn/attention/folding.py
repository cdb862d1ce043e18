r"""Which products of an attention layer are formed first, from its numbers of channels.

A layer of linear cost is a product of matrices, of which few are as tall as the mesh,

    y = sum_h F_h M_h W_h + b,    M_h = B_h V_h,

with functions `F_h` of the queries, `B_h` of the keys, values `V_h` and the blocks
`W_h` of the last map; and where no normalisation stands between, queries, keys and
values are `z A_h` of the input `z = [points, x, 1]`. Any order gives the same numbers.
Here multiplications are counted, and the caller takes the order with the fewest:
gradients take twice as many in every order.
"""

from typing import Any, NamedTuple

_MANY_POINTS = 2**40


class Sizes(NamedTuple):
    """Numbers that the cost of a layer depends on.

    Attributes:
      points: points `n`, symbolic where a model is exported: then as if they were many.
      heads: heads `h`.
      inputs: channels `e` of the input with coordinates and a one.
      width: channels `d` of a head, with coordinates.
      features: channels `c` of the layer.
    """

    points: Any
    heads: int
    inputs: int
    width: int
    features: int

    @property
    def n(self) -> int:
        """The number of points."""
        return self.points if isinstance(self.points, int) else _MANY_POINTS

    @property
    def _projection(self) -> int:
        """A map of the features to those of all heads, at all points."""
        return self.n * self.features**2

    def _outputs(self, rank: int) -> tuple[int, int]:
        """Applies `r` functions of each head: `(F M) W`, and `F (M W)`."""
        n, h, _, d, c = self.n, *self[1:]
        return n * h * d * (rank + c), h * rank * c * (d + n)

    def folds_output(self, rank: int) -> bool:
        """Whether the last map acts on coefficients of `r` functions, not at points."""
        made, folded = self._outputs(rank)
        return folded < made

    def _values(self, rank: int, shared: bool) -> tuple[int, int]:
        """Coefficients of values: `B (z A)`, and `(B z) A`."""
        n, h, e, d, _ = self.n, *self[1:]
        made = self._projection + h * rank * n * d
        return made, rank * e * ((1 if shared else h) * n + h * d)

    def folds_values(self, rank: int, *, shared: bool = False) -> bool:
        """Whether coefficients of the input are mapped, `r` of each head.

        They may be the same for all heads.
        """
        made, folded = self._values(rank, shared)
        return folded < made

    def folds_queries(self) -> bool:
        """Whether queries, what they expand and the last map are one matrix."""
        n, h, e, d, c = self.n, *self[1:]
        folded = e * (h * d * (d + c) + n * c)
        return folded < self._projection + min(self._outputs(self.width))

    def folds_keys_and_values(self) -> bool:
        """Whether inner products of keys and values come from those of the input."""
        n, h, e, d, _ = self.n, *self[1:]
        folded = e * (n * e + h * d * (e + d))
        values = min(self._values(self.width, shared=False))
        return folded < self._projection + values

    def folds_pairs(self) -> bool:
        """Whether attention among all pairs of points averages outputs, not values."""
        n, h, e, d, c = self.n, *self[1:]
        made = self._projection + h * n * d * (n + c)
        return h * c * (e * (d + n) + n * n) < made

    def folds_basis(self, rank: int, *, scores: bool, shared: bool) -> bool:
        """Whether coefficients in a basis are of the input, and mapped to the output.

        Args:
          rank: basis functions of each head.
          scores: whether they are functions of scores, linear in the input.
          shared: whether all heads have the same ones.
        """
        n, h, e, d, c = self.n, *self[1:]
        own = 1 if shared else h
        projection = n * e * h * d
        made = projection + n * h * d * (2 * rank + c)
        folded = own * n * rank * (e + c) + h * rank * d * (e + c)
        if scores:
            made += projection + n * h * d * rank
            folded += h * e * rank * (d + n)
        return folded < made
