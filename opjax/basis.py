"""Families of basis functions, evaluated at points: arrays `(n, k)` of `k` functions.

`opjax.projection` projects onto them and reconstructs from them.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, _elimination, linalg
from opjax._jitted import jitted
from opjax._sequential import one_by_one
from opjax.projection import check_weights, gram
from opjax.quadrature import active

ORTHONORMALIZATIONS = ("qr", "cholesky")


@jitted(temperature=_checks.positive)
def softmax_basis(
    scores: Float[ArrayLike, "n k"],
    *,
    temperature: ArrayLike = 1.0,
    uniform: Float[ArrayLike, "n k"] | None = None,
) -> Float[Array, "n k"]:
    r"""Returns a learned basis: a softmax of scores over the basis functions.

        phi_j(x) = exp(s_j(x) / temperature) / sum_l exp(s_l(x) / temperature),

    which is a smooth partition of unity that tends to `indicator_basis` as the
    temperature tends to zero. With uniform random numbers `u` on [0, 1), Gumbel noise
    is added to the scores,

        s_j + g(u_j),    g(u) = -log(-log(u + 1e-8) + 1e-8),

    so that the indicator basis samples functions with the probabilities of the softmax.

    Args:
      scores: the scores `s_j`, shape `(n, k)`.
      temperature: positive scalar, or one per point, shape `(n,)`; a traced value is
        not checked.
      uniform: random numbers `u`, shape `(n, k)`; no noise by default. Equal numbers at
        a point cancel.

    Returns:
      The basis at the points, shape `(n, k)`; rows sum to one.

    Raises:
      TypeError: if `scores` or `uniform` is not floating point.
      ValueError: if shapes do not match or a temperature is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.basis import softmax_basis
      >>> softmax_basis(np.zeros((2, 4)))[0].tolist()
      [0.25, 0.25, 0.25, 0.25]

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 9, 10 and Prop. 4.3; with noise and
      temperatures of points, Luo et al., "Transolver++", ICML 2025 (arXiv:2502.02414).
    """
    (scores,) = _checks.arrays(2, scores=scores)
    if jnp.ndim(temperature) == 1:
        _checks.same_points(scores=scores, temperature=temperature)
    else:
        _checks.single_numbers(temperature=temperature)
    temperature = jnp.asarray(temperature, scores.dtype)
    if temperature.ndim:
        temperature = temperature[:, None]
    if uniform is not None:
        (uniform,) = _checks.arrays(2, uniform=uniform)
        _checks.same_points(scores=scores, uniform=uniform)
        _checks.same_channels(scores=scores, uniform=uniform)
        noise = -jnp.log(-jnp.log(uniform + 1e-8) + 1e-8)
        scores = scores + noise.astype(scores.dtype)
    return jax.nn.softmax(scores / temperature, axis=1)


@jitted()
def indicator_basis(scores: Float[ArrayLike, "n k"]) -> Float[Array, "n k"]:
    r"""Returns piecewise-constant (P0) functions, the limit of `softmax_basis`.

        phi_j(x) = 1 if s_j(x) > s_l(x) for every l != j, else 0;

    where ties select the smallest index, so that rows sum to one.

    Args:
      scores: the scores `s_j`, shape `(n, k)`.

    Returns:
      The basis at the points, shape `(n, k)`, zeros and ones, without a gradient.

    Raises:
      TypeError: if `scores` is not floating point.
      ValueError: if `scores` does not have two axes.

    Examples:
      >>> import numpy as np
      >>> from opjax.basis import indicator_basis
      >>> indicator_basis(np.array([[0.1, 0.9], [0.8, 0.2]])).tolist()
      [[0.0, 1.0], [1.0, 0.0]]

    References:
      Xiao et al., "Functional Attention", 2026, Prop. 4.3 (ii).
    """
    (scores,) = _checks.arrays(2, scores=scores)
    return jax.nn.one_hot(jnp.argmax(scores, 1), scores.shape[1], dtype=scores.dtype)


@jitted(static=("num_frequencies", "lengths"))
def fourier_basis(
    mesh_points: Float[ArrayLike, "n p"],
    *,
    num_frequencies: int | Sequence[int],
    lengths: Sequence[float] | None = None,
) -> Float[Array, "n k"]:
    r"""Returns tensor products of real Fourier modes, orthonormal on a periodic box.

    Per axis of length `L` and `m = num_frequencies`, the `2 m + 1` functions

        1/sqrt(L), sqrt(2/L) cos(2 pi j x / L), sqrt(2/L) sin(2 pi j x / L), j = 1..m.

    They are orthonormal in the inner product of a uniform periodic grid if `2 m` is
    less than the number of points; on scattered points, pass them to `orthonormalize`.

    Args:
      mesh_points: points, shape `(n, p)`, in the units of `lengths`.
      num_frequencies: number `m`, one for all axes or one per axis.
      lengths: periods per axis; one by default.

    Returns:
      The basis at the points, shape `(n, prod(2 m + 1))`; the last axis of space
      varies fastest.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if frequencies or lengths do not match the dimension of space.

    Examples:
      >>> import numpy as np
      >>> from opjax.basis import fourier_basis
      >>> mesh_points = np.random.default_rng(0).uniform(size=(9, 2))
      >>> fourier_basis(mesh_points, num_frequencies=(1, 2)).shape  # 3 x 5 functions
      (9, 15)
    """
    (mesh_points,) = _checks.arrays(2, mesh_points=mesh_points)
    p = mesh_points.shape[1]
    frequencies = _per_axis("num_frequencies", num_frequencies, p)
    periods = _per_axis("lengths", 1.0 if lengths is None else lengths, p)
    if any(m < 0 for m in frequencies) or any(length <= 0 for length in periods):
        raise ValueError(
            f"num_frequencies={frequencies} must be non-negative, and "
            f"lengths={periods} positive."
        )
    factors = []
    for x, m, length in zip(mesh_points.T, frequencies, periods, strict=True):
        modes = jnp.arange(1, m + 1, dtype=x.dtype)
        angle = 2 * jnp.pi / length * x[:, None] * modes[None, :]
        constant = jnp.full((x.shape[0], 1), length**-0.5, x.dtype)
        waves = (2 / length) ** 0.5 * jnp.stack(
            [jnp.cos(angle), jnp.sin(angle)], axis=2
        )
        factors.append(
            jnp.concatenate([constant, waves.reshape(x.shape[0], 2 * m)], axis=1)
        )
    return functools.reduce(_row_wise_product, factors)


@jitted(static=("num_nodes", "lower", "upper"))
def hat_basis(
    mesh_points: Float[ArrayLike, "n p"],
    *,
    num_nodes: int | Sequence[int],
    lower: Sequence[float] | None = None,
    upper: Sequence[float] | None = None,
) -> Float[Array, "n k"]:
    r"""Returns tensor products of hat functions on uniform nodes, a partition of unity.

    Per axis with nodes `t_j = lower + j h`, `j = 0..num_nodes - 1`,

        phi_j(x) = max(0, 1 - |x - t_j| / h).

    Args:
      mesh_points: points, shape `(n, p)`; points outside the box are treated as the
        nearest point of the box.
      num_nodes: number of nodes, at least two, one for all axes or one per axis.
      lower: lower corner of the reference grid; zeros by default.
      upper: upper corner of the reference grid; ones by default.

    Returns:
      The basis at the points, shape `(n, prod(num_nodes))`; rows sum to one; the last
      axis of space varies fastest.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if nodes or corners do not match the dimension of space.

    Examples:
      >>> import numpy as np
      >>> from opjax.basis import hat_basis
      >>> hat_basis(np.array([[0.25]]), num_nodes=3)[0].tolist()
      [0.5, 0.5, 0.0]
    """
    (mesh_points,) = _checks.arrays(2, mesh_points=mesh_points)
    p = mesh_points.shape[1]
    nodes = _per_axis("num_nodes", num_nodes, p)
    lower = _per_axis("lower", 0.0 if lower is None else lower, p)
    upper = _per_axis("upper", 1.0 if upper is None else upper, p)
    if any(m < 2 for m in nodes) or any(
        a >= b for a, b in zip(lower, upper, strict=True)
    ):
        raise ValueError(
            f"num_nodes={nodes} must be at least 2 and lower={lower} below "
            f"upper={upper} on every axis."
        )
    factors = []
    for x, m, a, b in zip(mesh_points.T, nodes, lower, upper, strict=True):
        position = jnp.clip((x - a) / (b - a), 0, 1) * (m - 1)
        distance = jnp.abs(position[:, None] - jnp.arange(m, dtype=x.dtype)[None, :])
        factors.append(jnp.maximum(0, 1 - distance))
    return functools.reduce(_row_wise_product, factors)


@jitted(static=("method",))
def orthonormalize(
    basis: Float[ArrayLike, "n k"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
    method: str = "qr",
) -> Float[Array, "n k"]:
    r"""Returns an orthonormal basis with the same span, `Q^T W Q = I`.

    From the factorisation `W^{1/2} Phi = U R` ("qr") or `Phi^T W Phi = R^T R`
    ("cholesky", faster, but it loses twice the digits), `Q = Phi R^{-1}`; `R` has a
    positive diagonal, so that both agree.

    For linearly dependent functions, there is no such derivative. With "qr" it is
    finite: a diagonal entry of `R` is bounded below by the rounding error of the
    largest.

    Args:
      basis: linearly independent basis functions at the points, shape `(n, k)`, `n >=
        k`.
      quadrature_weights: non-negative weights `W`, shape `(n,)`; ones by default.
      method: `"qr"` or `"cholesky"`.

    Returns:
      The orthonormal basis at the points, shape `(n, k)`, zero where the weight is
      zero; half precision is factorised in float32 and rounded at the end.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the points do not match, there are fewer points than basis
        functions, a weight is negative, or the method is unknown.

    Examples:
      >>> import numpy as np
      >>> from opjax.basis import orthonormalize
      >>> weights = np.full(5, 0.2)
      >>> q = orthonormalize(np.vander(np.arange(5.0), 2), quadrature_weights=weights)
      >>> np.round(q.T * weights @ q, 3).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    (basis,) = _checks.arrays(2, basis=basis)
    _checks.option("method", method, ORTHONORMALIZATIONS)
    n, k = basis.shape
    dtype, basis = basis.dtype, linalg.at_least_single(basis)
    if n < k:
        raise ValueError(
            f"basis {basis.shape}: {n} points support at most {n} orthonormal "
            f"functions, not {k}."
        )
    if quadrature_weights is None:
        return _orthonormal(basis, basis, method).astype(dtype)
    weights = check_weights(quadrature_weights, basis=basis)[:, None]
    weights = weights.astype(basis.dtype)
    counted = active(weights)
    root = jnp.sqrt(jnp.where(counted, weights, 1))
    basis = jnp.where(counted, basis, 0)
    q = _orthonormal(basis, root * basis, method)
    if method == "qr":
        q = jnp.where(counted, q / root, 0)
    return q.astype(dtype)


def _orthonormal(basis: Array, weighted: Array, method: str) -> Array:
    """Orthonormalises weighted functions ("qr"), or functions by the Gram matrix."""
    if method == "qr":
        return _orthonormal_columns(weighted)
    return linalg.whiten(basis, gram(weighted), repair=False)


def _positive_qr(a: Array) -> tuple[Array, Array]:
    """Factors `a = Q R` with a non-negative diagonal of `R`."""
    q, r = jnp.linalg.qr(a)
    signs = jnp.sign(jnp.diagonal(r))
    return q * signs[None, :], signs[:, None] * r


@jax.custom_jvp
def _factor(a: Array) -> Array:
    """The orthonormal columns of `a`, with a finite derivative where they depend.

    `da R^{-1}` is part of the derivative. A diagonal of `R` below the rounding of its
    largest entry counts as that rounding; JAX's own derivative divides by it.
    """
    return _positive_qr(a)[0]


@_factor.defjvp
def _factor_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (a,), (da,) = primals, tangents
    q, r = _positive_qr(a)
    diagonal = jnp.diagonal(r)
    largest = jnp.max(diagonal)
    least = jnp.finfo(r.dtype).eps * jnp.where(largest > 0, largest, 1)
    raised = r + jnp.diag(jnp.maximum(diagonal, least) - diagonal)
    scaled = solve_triangular(raised, da.T, trans="T").T
    products = q.T @ scaled
    lower = jnp.tril(products, -1)
    return q, scaled + q @ (lower - lower.T - products)


_orthonormal_columns = one_by_one(_factor, elementary=_elimination.orthonormal_columns)


def _per_axis(name: str, value: float | Sequence[float], p: int) -> tuple[Any, ...]:
    # Python numbers: those of NumPy would promote the dtype of the points.
    values = tuple(np.asarray(value).tolist()) if np.ndim(value) else (value,) * p
    if len(values) != p:
        raise ValueError(
            f"{name}={values} must have one entry per axis; points have {p}."
        )
    return values


def _row_wise_product(a: Array, b: Array) -> Array:
    return (a[:, :, None] * b[:, None, :]).reshape(a.shape[0], -1)
