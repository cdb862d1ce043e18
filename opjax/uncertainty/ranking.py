"""Greedy choice of the cases to solve next: uncertain and far from each other."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax.uncertainty import _distances


class Choice(NamedTuple):
    """Cases in the order in which they are chosen.

    Attributes:
      order: rows of the chosen cases, `(k,)`.
      scores: weight times distance, at the time of the choice.
      distances: from the nearest solved or chosen case, when each was chosen.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import greedy_choice
      >>> greedy_choice(np.array([[0.0], [1.0], [9.0]]), 2).order.tolist()
      [2, 0]
    """

    order: Int[Array, " k"]
    scores: Float[Array, " k"]
    distances: Float[Array, " k"]


def greedy_choice(
    features: Float[ArrayLike, "b f"],
    count: int,
    *,
    weights: Float[ArrayLike, " b"] | None = None,
    known: Float[ArrayLike, "e f"] | None = None,
    ridge: ArrayLike = 0.1,
) -> Choice:
    r"""Chooses cases one by one, each uncertain and far from the solved ones.

        i_{j+1} = argmax_i w_i min_{m known or chosen} |x_i - x_m|_M,

    with weights `w` such as the widths of bands, and the metric `M` of
    `shrunk_distances` over all cases. A chosen case counts as known, so a group of
    similar cases with large weights is chosen only once. Without known cases, the mean
    of the cases replaces them. With equal weights, this is the greedy k-centre choice,
    whose largest remaining distance is at most twice the smallest possible one. If
    scores are equal, the first case is chosen.

    Args:
      features: features of the `b` cases, each of about unit size, `(b, f)`.
      count: number of cases to choose, from 1 to `b`.
      weights: nonnegative weights, `(b,)`; all equal by default.
      known: features of the solved cases, `(e, f)`; none by default.
      ridge: see `shrunk_distances`.

    Returns:
      Rows, scores and distances in the order of choice, `(k,)` each.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, there are fewer cases than `count`, or the
        ridge is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import greedy_choice
      >>> features = np.array([[0.0], [1.0], [1.1], [2.0]])
      >>> weights = np.array([1.0, 3.0, 3.0, 1.0])
      >>> found = greedy_choice(features, 2, weights=weights, known=np.zeros((1, 1)))
      >>> found.order.tolist()  # 3 * 1.1 is the most; its neighbour is near now
      [2, 3]

    References:
      Gonzalez, "Clustering to minimize the maximum intercluster distance", Theoretical
      Computer Science 38, 1985.
      Holzmüller, Zaverkin, Kästner and Steinwart, "A framework and benchmark for deep
      batch active learning for regression", JMLR 24, 2023.
    """
    rows, weight = _distances.matrix(features, ridge)
    shape = rows.shape
    if not 1 <= count <= shape[0]:
        raise ValueError(
            f"{count=} must be from 1 to {shape[0]}, the number of rows of features "
            f"{shape}."
        )
    widths = jnp.ones(shape[0], rows.dtype)
    if weights is not None:
        _checks.floating(weights=weights)
        widths = jnp.asarray(weights, rows.dtype)
    if widths.shape != shape[:1]:
        raise ValueError(
            f"weights has shape {widths.shape}, but features {shape}: expected one "
            "number per row."
        )
    solved = rows[:0]
    if known is not None:
        _checks.floating(known=known)
        solved = jnp.asarray(known, rows.dtype)
    if solved.ndim != 2 or solved.shape[1] != shape[1]:
        raise ValueError(
            f"known has shape {solved.shape}, but features {shape}: expected as many "
            "columns."
        )
    return _choose(rows, widths, solved, weight, count=count)


@partial(jax.jit, static_argnames="count")
def _choose(
    rows: Array, weights: Array, known: Array, ridge: Array, *, count: int
) -> Choice:
    white = _distances.whitened(jnp.concatenate([rows, known]), ridge)
    cases, solved = white[: len(rows)], white[len(rows) :]
    first = jnp.full(len(rows), jnp.inf, white.dtype)
    if not len(solved):
        solved = jnp.zeros((1, white.shape[1]), white.dtype)  # the mean

    def nearer(distances: Array, row: Array) -> tuple[Array, None]:
        off = jnp.linalg.norm(cases - row[None, :], axis=1)
        return jnp.minimum(distances, off), None

    def choose(
        state: tuple[Array, Array], _: None
    ) -> tuple[tuple[Array, Array], Choice]:
        distances, free = state
        scores = jnp.where(free, weights * distances, -1.0)
        place = jnp.argmax(scores)
        picked = Choice(place, scores[place], distances[place])
        distances, _ = nearer(distances, cases[place])
        return (distances, free.at[place].set(False)), picked

    distances, _ = lax.scan(nearer, first, solved)
    state = distances, jnp.ones(len(rows), bool)
    return lax.scan(choose, state, None, length=count)[1]
