"""Schwarz attention with factors that are computed instead of learned."""

from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import ArrayLike

from opjax.nn.schwarz.factors import LowRankAttention, SchwarzAttention


def laplacian_factors(
    model: SchwarzAttention, inputs: ArrayLike, *, coefficient: ArrayLike | None = None
) -> SchwarzAttention:
    r"""Returns the model with factors of the discrete inverse Laplacian in 1D.

    On an interval, the exact inverse splits at the maxima of the interface hats: the
    Galerkin solution in the coarse space is exact at the maxima, and the rest are
    Dirichlet problems between them,

        A^{-1} = Phi (Phi^T A Phi)^{-1} Phi^T + sum_i S_i^T B_i S_i,
        B_i = (S_i A S_i^T)^{-1},

    with `A` from the scheme `(2 u_i - u_{i-1} - u_{i+1}) / h^2`, `h = 1 / (n + 1)`, or
    from `-(a u')'` with a coefficient, for which the hats must be harmonic. The images
    of the inputs under `B_i` are truncated to the local rank: with left singular
    vectors `U` of `B_i S_i inputs`, `B_i` becomes `U U^T B_i`.

    Args:
      model: a two-level model on a `schwarz.box_cover` of an interval, with its
        `schwarz.interface_hats`, and a `LowRankAttention` of at least as many columns
        between them; with a coefficient, with its `schwarz.harmonic_hats`.
      inputs: input functions as columns, whose mean square error is minimised, shape
        `(n, k)`.
      coefficient: values `a` between points and at both ends, shape `(n + 1,)`; ones by
        default.

    Returns:
      A new model of the same structure, with factors in float64.

    Raises:
      ValueError: if the model has another structure, or shapes do not match.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import schwarz
      >>> build = {"num_boxes": 2, "rank": 3, "coarse_rank": 1, "overlap": 1}
      >>> model = schwarz.box_attention((8,), **build, rngs=nnx.Rngs(0))
      >>> model = schwarz.laplacian_factors(model, jnp.eye(8))
      >>> model(jnp.ones((8, 1))).shape  # nearly the solution of -u'' = 1
      (8, 1)

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      sections 3 and 4.
    """
    cover, space, coarse = model.cover, model.coarse_space, model.coarse
    inputs, size = np.asarray(inputs, np.float64), cover.num_points
    if np.ndim(inputs) != 2 or len(inputs) != size:
        raise ValueError(
            f"inputs has shape {inputs.shape}, expected ({size}, k): functions at "
            "the points of the model as columns."
        )
    if space is None or not isinstance(coarse, LowRankAttention):
        raise ValueError("The model must have two levels, with interface hats.")
    count = space.num_subdomains
    rank = coarse.query.shape[1]
    if count != cover.num_subdomains - 1 or rank < count:
        raise ValueError(
            f"{cover.num_subdomains} subdomains need one hat less than subdomains "
            f"and as many coarse columns, but there are {count} and {rank}."
        )
    hats = np.zeros((size, count))
    rows, values = np.asarray(space.indices), np.asarray(space.weights)
    np.add.at(hats, (rows, np.arange(count)[:, None]), values)
    peaks = [-1, *np.argmax(hats, axis=0), size]
    a = np.ones(size + 1) if coefficient is None else np.asarray(coefficient, float)
    if a.shape != (size + 1,):
        raise ValueError(f"coefficient has shape {a.shape}, expected ({size + 1},).")
    jumps = np.eye(size + 1, size) - np.eye(size + 1, size, k=-1)
    matrix = (size + 1.0) ** 2 * jumps.T @ (a[:, None] * jumps)
    vectors, values, _ = np.linalg.svd(np.linalg.inv(hats.T @ matrix @ hats))
    query, key = _local_factors(model, matrix, peaks, inputs)
    other: Any = jax.tree.map(lambda leaf: leaf, model)
    other.query, other.key = nnx.Param(query), nnx.Param(key)
    other.coarse.query = nnx.Param(vectors * values)
    other.coarse.key = nnx.Param(vectors)
    return other


def _local_factors(
    model: SchwarzAttention, matrix: np.ndarray, peaks: list[int], inputs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Factors `(s, m, r)` of the Dirichlet problems between maxima of hats."""
    cover, shape = model.cover, model.query.shape
    query, key = np.zeros(shape), np.zeros(shape)
    for i, (left, right) in enumerate(zip(peaks, peaks[1:], strict=False)):
        inside = np.arange(left + 1, right)
        if not inside.size:
            continue
        inverse = np.linalg.inv(matrix[np.ix_(inside, inside)])
        vectors, _, _ = np.linalg.svd(inverse @ inputs[inside], full_matrices=False)
        vectors = vectors[:, : shape[-1]]
        rows = np.searchsorted(np.asarray(cover.indices)[i, : cover.sizes[i]], inside)
        roots = np.sqrt(np.asarray(cover.weights)[i, rows])[:, None]
        query[i, rows, : vectors.shape[1]] = vectors / roots
        key[i, rows, : vectors.shape[1]] = inverse @ vectors / roots
    return query, key
