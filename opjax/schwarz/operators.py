"""One- and two-level additive Schwarz operators, matrix-free."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from opjax import _checks
from opjax._jitted import jitted
from opjax.schwarz.covers import Cover, checked_values, gather, sum_to_points

# Share of the points in a support from which a dense product beats gathering it.
_WIDE_SUPPORT = 1 / 32
_WEIGHTINGS = ("symmetric", "restricted")


@jitted()
def low_rank_attention(
    query: Float[ArrayLike, "m r"],
    key: Float[ArrayLike, "n r"],
    value: Float[ArrayLike, "n c"],
) -> Float[Array, "m c"]:
    r"""Applies attention without softmax or scaling, `Q (K^T V)`.

    Complexity: `O((m + n) r c)`.

    Args:
      query: factor at the query points, shape `(m, r)`.
      key: factor at the mesh points, shape `(n, r)`.
      value: input functions, shape `(n, c)`.

    Returns:
      The output functions, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or ranks do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> query, key = np.ones((5, 2)), np.ones((8, 2))
      >>> schwarz.low_rank_attention(query, key, np.ones((8, 3))).shape
      (5, 3)

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      Eq. 6-8.
    """
    query, key, value = _checks.arrays(2, query=query, key=key, value=value)
    _checks.same_channels(query=query, key=key)
    _checks.same_points(key=key, value=value)
    return query @ (key.T @ value)


def additive(
    values: Float[ArrayLike, "n c"],
    cover: Cover,
    local: Callable[..., Array],
    *arguments: ArrayLike,
    weighting: str = "symmetric",
) -> Float[Array, "n o"]:
    r"""Sums local operators over subdomains, combined by the partition of unity.

        symmetric:   sum_i R_i^T D_i^{1/2} G_i(D_i^{1/2} R_i f),
        restricted:  sum_i R_i^T D_i G_i(R_i f).

    Symmetric weighting preserves the symmetry of operators. Restricted weighting does
    not scale the input, as nonlinear operators require.

    Args:
      values: the function `f`, shape `(n, c)`.
      cover: subdomains with their partition of unity.
      local: `local(*arguments_i, f_i)`, the operator `G_i` on one subdomain, from local
        values `(m, c)` to `(m, c')`. On padding its input is zero and its output has no
        effect. It is not compiled.
      *arguments: arrays with one slice per subdomain, shape `(s, ...)`.
      weighting: `"symmetric"` or `"restricted"`.

    Returns:
      The output function, shape `(n, c')`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if points or subdomains do not match, a local operator returns another
        number of points, or the weighting is unknown.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> cover = schwarz.box_cover(8, 2, overlap=1)
      >>> values = np.arange(8.0)[:, None]
      >>> schwarz.additive(values, cover, lambda f: 2 * f)[:, 0].round(2).tolist()
      [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      Eq. 12-14; Cai and Sarkis, "A restricted additive Schwarz preconditioner", 1999.
    """
    values = checked_values(cover, values)
    _checks.option("weighting", weighting, _WEIGHTINGS)
    for number, argument in enumerate(arguments):
        if jnp.shape(argument)[:1] != (cover.num_subdomains,):
            raise ValueError(
                f"Argument {number} of the local operators has shape "
                f"{jnp.shape(argument)}; expected one slice for each of the "
                f"{cover.num_subdomains} subdomains, such as `restrict(values, cover)` "
                "of values at all points."
            )
    restricted, weights = _weighted(values, cover, weighting=weighting)
    images = jax.vmap(local)(*arguments, restricted)
    if images.shape[:-1] != restricted.shape[:-1]:
        raise ValueError(
            f"The local operators return {images.shape[1:]} for local values "
            f"{restricted.shape[1:]}; they must keep the {restricted.shape[1]} points "
            "of a subdomain."
        )
    return _glued(images, weights, cover)


@jitted(static=("weighting",))
def _weighted(
    values: Array, cover: Cover, *, weighting: str
) -> tuple[Float[Array, "s m c"], Float[Array, "s m 1"]]:
    """Returns what local operators get, and what their images are multiplied by."""
    weights = cover.weights_as(values.dtype)[..., None]
    inside, restricted = weights > 0, gather(values, cover)
    if weighting == "restricted":
        return jnp.where(inside, restricted, 0), weights
    # Selects before the root, whose derivative is infinite on padding.
    weights = jnp.where(inside, jnp.sqrt(jnp.where(inside, weights, 1)), 0)
    return weights * restricted, weights


@jitted()
def _glued(images: Array, weights: Array, cover: Cover) -> Float[Array, "n c"]:
    return sum_to_points(jnp.where(weights > 0, weights * images, 0), cover)


@jitted()
def coarse_restrict(
    values: Float[ArrayLike, "n c"], coarse_space: Cover
) -> Float[Array, "n0 c"]:
    """Returns the inner products with the coarse functions, `Phi^T f`.

    Args:
      values: the function `f`, shape `(n, c)`.
      coarse_space: functions `phi_i`, such as hats.

    Returns:
      Coarse values, shape `(n0, c)`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if the number of values is not `n`.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> hats = schwarz.interface_hats(7, 2)
      >>> schwarz.coarse_restrict(np.ones((7, 1)), hats).tolist()
      [[4.0]]
    """
    values = checked_values(coarse_space, values)
    if _is_wide(coarse_space, values.shape[1]):
        sums = _matrix(coarse_space, values.dtype).T @ values
    else:
        weights = coarse_space.weights_as(values.dtype)
        on_supports = values[jnp.asarray(coarse_space.indices)]
        sums = jnp.einsum("sm,smc->sc", weights, on_supports)
    return total(sums, coarse_space)


@jitted()
def coarse_prolong(
    coefficients: Float[ArrayLike, "n0 c"], coarse_space: Cover
) -> Float[Array, "n c"]:
    """Returns the function with given coarse coefficients, `Phi c`.

    It is the exact adjoint of `coarse_restrict`.

    Args:
      coefficients: shape `(n0, c)`.
      coarse_space: functions `phi_i`, such as hats.

    Returns:
      Values at all points, shape `(n, c)`.

    Raises:
      TypeError: if the coefficients are not floating point.
      ValueError: if their number is not `n0`.

    Examples:
      >>> from opjax import schwarz
      >>> hats = schwarz.partition_hats(5, 3)
      >>> schwarz.coarse_prolong([[0.0], [2.0], [4.0]], hats)[:, 0].tolist()
      [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    (coefficients,) = _checks.arrays(2, coefficients=coefficients)
    if coefficients.shape[0] != coarse_space.num_subdomains:
        raise ValueError(
            f"coefficients {coefficients.shape} must have one row for each of the "
            f"{coarse_space.num_subdomains} functions of the coarse space."
        )
    if _is_wide(coarse_space, coefficients.shape[1]):
        return _matrix(coarse_space, coefficients.dtype) @ coefficients
    weights = coarse_space.weights_as(coefficients.dtype)
    return sum_to_points(weights[..., None] * coefficients[:, None, :], coarse_space)


def two_level_attention(
    query: Float[ArrayLike, "s m r"],
    key: Float[ArrayLike, "s m r"],
    value: Float[ArrayLike, "n c"],
    cover: Cover,
    *,
    coarse_space: Cover | None = None,
    coarse: Callable[[Array], Array] | None = None,
) -> Float[Array, "n c"]:
    r"""Applies two-level overlapping Schwarz attention, matrix-free.

        M f = Phi G_0(Phi^T f) + sum_i R_i^T D_i^{1/2} Q_i K_i^T D_i^{1/2} R_i f.

    Factors belong to subdomains, functions to all points: `restrict(q, cover)` converts
    features `q` to factors. There are no quadrature weights: multiply `f` by them. The
    operator is linear in `f`, so columns of `value` may be channels or a whole batch.
    Without a coarse space it has one level; with another two-level operator as `G_0` it
    has three.

    Complexity: `O(sum_i n_i r c)`, also for memory.

    Args:
      query: local factors `Q_i`, shape `(s, m, r)`, such as `restrict(q, cover)` for
        features `(n, r)`; finite padding has no effect.
      key: local factors `K_i`, shape `(s, m, r)`.
      value: input functions, shape `(n, c)`.
      cover: subdomains with their partition of unity.
      coarse_space: functions `Phi`, such as interface hats.
      coarse: the operator `G_0` from coarse values `(n0, c)` to coefficients `(n0, c)`,
        such as `functools.partial(low_rank_attention, query, key)`.

    Returns:
      The output functions, shape `(n, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points, subdomains or ranks do not match, or only one of coarse
        space and coarse operator is given.

    Examples:
      >>> from functools import partial
      >>> import jax
      >>> from opjax import schwarz
      >>> cover, hats = schwarz.box_cover(8, 2, overlap=1), schwarz.interface_hats(8, 2)
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 8, 2))
      >>> local = schwarz.restrict(query, cover), schwarz.restrict(key, cover)
      >>> coarse = partial(schwarz.low_rank_attention, query[:1], key[:1])
      >>> schwarz.two_level_attention(
      ...     *local, value, cover, coarse_space=hats, coarse=coarse
      ... ).shape
      (8, 2)

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      Eq. 14-18.
    """
    if (coarse_space is None) != (coarse is None):
        raise ValueError("Pass both coarse_space and coarse, or neither.")
    image = additive(value, cover, low_rank_attention, query, key)
    if coarse_space is None or coarse is None:
        return image
    coefficients = coarse(coarse_restrict(value, coarse_space))
    return image + coarse_prolong(coefficients, coarse_space)


def total(values: Array, coarse_space: Cover) -> Array:
    """Adds up the sums of all devices, if devices share the points."""
    axis_name = coarse_space.axis_name
    return values if axis_name is None else lax.psum(values, axis_name)


def matrix_of(
    operator: Callable[[Array], Array],
    num_points: int,
    *,
    dtype: DTypeLike | None = None,
) -> Float[Array, "m n"]:
    """Returns the dense matrix of a linear operator, for inspection.

    Args:
      operator: linear operator, from `(n, c)` to `(m, c)`, which acts on each column
        separately.
      num_points: number `n` of points.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The matrix, shape `(m, n)`.

    Examples:
      >>> from functools import partial
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> query, key = np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])
      >>> operator = partial(schwarz.low_rank_attention, query, key)
      >>> schwarz.matrix_of(operator, 2).tolist()
      [[1.0, 3.0], [2.0, 6.0]]
    """
    return operator(jnp.eye(num_points, dtype=dtype))


def _is_wide(coarse_space: Cover, columns: int) -> bool:
    """Whether the dense `Phi` is fast and no larger than the values on supports."""
    width, n = jnp.shape(coarse_space.indices)[1], coarse_space.num_points
    return width >= _WIDE_SUPPORT * n and width * columns >= n


def _matrix(coarse_space: Cover, dtype: DTypeLike) -> Array:
    """The functions as columns of a dense matrix, shape `(n, n0)`."""
    weights = coarse_space.weights_as(dtype)
    shape = (coarse_space.num_points, coarse_space.num_subdomains)
    columns = jnp.arange(shape[1])[:, None]
    rows = jnp.asarray(coarse_space.indices)
    return jnp.zeros(shape, dtype).at[rows, columns].add(weights)
