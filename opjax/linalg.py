"""The Tikhonov-regularised least-squares problem of all functional maps.

Limits, each marked (M)athematical or (C)onvenience: the Gram matrix is computed
explicitly, which squares the condition number of the data (C); a positive weight is
needed if the data are rank deficient (M).
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array, export, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, _elimination
from opjax._checks import at_least_single
from opjax._jitted import jitted, pytree
from opjax._sequential import one_by_one

# Keys of no size at all keep a map with finite gradients, of next to nothing.
SMALLEST_UNIT = 1e-12


@pytree
@dataclasses.dataclass(frozen=True)
class Additive:
    """The regularised system `A A^T + ridge u I`, also used for a plain number.

    Attributes:
      ridge: Tikhonov weight, not negative; data of a pytree, so it supports `jax.vmap`
        and `jax.grad`.
      relative: whether the unit `u` is the mean eigenvalue of `A A^T` (plus 1e-12, for
        zero data) instead of one: the solution then scales with `A`.

    Examples:
      >>> import numpy as np
      >>> from opjax.linalg import Additive, ridge_solve
      >>> matrix = 2 * np.eye(2)
      >>> float(ridge_solve(matrix, matrix, ridge=Additive(1.0, relative=True))[0, 0])
      0.5
    """

    ridge: ArrayLike
    relative: bool = dataclasses.field(default=False, metadata={"static": True})


@pytree
@dataclasses.dataclass(frozen=True)
class Convex:
    """The regularised system `(1 - ridge) A A^T + ridge u I`.

    Attributes:
      ridge: weight between zero and one; data of a pytree.
      relative: see `Additive`.

    Examples:
      >>> import numpy as np
      >>> from opjax.linalg import Convex, ridge_solve
      >>> float(ridge_solve(np.eye(2), np.eye(2), ridge=Convex(0.5))[0, 0])
      1.0
    """

    ridge: ArrayLike
    relative: bool = dataclasses.field(default=False, metadata={"static": True})


Ridge = ArrayLike | Additive | Convex


def check_ridge(ridge: Ridge) -> None:
    """Raises an error unless a ridge is valid for `ridge_solve`.

    Examples:
      >>> from opjax.linalg import check_ridge
      >>> check_ridge(-1.0)
      Traceback (most recent call last):
          ...
      ValueError: ridge=-1.0 must be non-negative and finite.
    """
    number = ridge.ridge if isinstance(ridge, Additive | Convex) else ridge
    if isinstance(number, type | Additive | Convex):
        raise TypeError(
            f"ridge={ridge!r} is not a ridge; pass a number, opjax.Additive or "
            "opjax.Convex."
        )
    _checks.single_numbers(ridge=number)
    _checks.non_negative(ridge=number)
    if isinstance(ridge, Convex):
        _checks.at_most(1, ridge=number)


@jitted()
def solve(
    system: Float[ArrayLike, "k k"], rhs: Float[ArrayLike, "k c"]
) -> Float[Array, "k c"]:
    """Solves a square linear system, in float32 or higher precision.

    It uses `jnp.linalg.solve`; on the CPU one system after another, forward and
    backward, even in a batch: see `opjax._sequential`. Cholesky is up to 1.4 times
    faster on systems of this size (`benchmarks/solves.py`), which is a thousandth of a
    training step, but it gives NaN for a Gram matrix that rounding made slightly
    indefinite.

    Args:
      system: invertible matrix, shape `(k, k)`.
      rhs: right-hand sides, shape `(k, c)`.

    Returns:
      The solution, shape `(k, c)`, in the dtype of `rhs`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the system is not square or the rows do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.linalg import solve
      >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.ones((2, 1)))[:, 0].tolist()
      [0.5, 0.25]
    """
    system, rhs = _checks.arrays(2, system=system, rhs=rhs)
    if system.shape[0] != system.shape[1]:
        raise ValueError(f"system has shape {system.shape}, expected a square matrix.")
    _checks.same_axis(0, "rows", {"system": system, "rhs": rhs})
    matrix = at_least_single(system)
    columns = at_least_single(rhs).astype(matrix.dtype)
    return _solve(matrix, columns).astype(rhs.dtype)


@jitted(static=("repair",))
def whiten(
    values: Float[ArrayLike, "n k"],
    covariance: Float[ArrayLike, "k k"],
    *,
    repair: bool = True,
) -> Float[Array, "n k"]:
    r"""Returns linear combinations of the columns with uncorrelated values.

        B L^{-T},    R = L L^T   (Cholesky),

    in float32 or higher precision, on the CPU one matrix after another, see
    `opjax._sequential`. If `R` is the mean of `b b^T` over the rows `b` of `B`, that of
    the result is the identity.

    Args:
      values: matrix `B`, shape `(n, k)`.
      covariance: symmetric positive definite matrix `R`, shape `(k, k)`.
      repair: if the factorisation of a finite matrix fails, add 1e-8 times 1, 10, ...,
        1e6 to its diagonal until it succeeds, 1e-6 times these factors in single
        precision. Otherwise the result is NaN.

    Returns:
      The linear combinations, shape `(n, k)`, in the dtype of `values`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.linalg import whiten
      >>> values = np.array([[2.0, 0.0], [0.0, 4.0]])
      >>> whiten(values, np.array([[4.0, 0.0], [0.0, 16.0]])).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    values, covariance = _checks.arrays(2, values=values, covariance=covariance)
    k = values.shape[1]
    if covariance.shape != (k, k):
        raise ValueError(
            f"covariance {covariance.shape} must be square, with one row per "
            f"column of values {values.shape}."
        )
    matrix = at_least_single(covariance)
    if repair:
        shift = _shift(lax.stop_gradient(matrix))
        matrix = matrix + shift * jnp.eye(k, dtype=matrix.dtype)
    rows = at_least_single(values).T.astype(matrix.dtype)
    return _half_solve(matrix, rows).T.astype(values.dtype)


@jitted(ridge=check_ridge)
def ridge_solve(
    matrix: Float[ArrayLike, "k d"],
    target: Float[ArrayLike, "k c"],
    *,
    ridge: Ridge,
) -> Float[Array, "d c"]:
    r"""Solves the Tikhonov-regularised least-squares problem in primal or dual form.

    With `A = matrix` and `B = target`, the problem for a number, or for `Additive`, is

        X = argmin_X |A X - B|_F^2 + ridge |X|_F^2
          = A^T (A A^T + ridge I_k)^{-1} B        (primal, a k x k solve)
          = (A^T A + ridge I_d)^{-1} A^T B        (dual, a d x d solve),

    which are equal by the Woodbury identity; the smaller system is solved. `Convex`
    weights both terms, `(1 - ridge) |A X - B|_F^2 + ridge |X|_F^2`, without the factor
    `1 - ridge` on its right-hand side, as in the reference code of functional
    attention:

        X = A^T ((1 - ridge) A A^T + ridge I_k)^{-1} B.

    Half-precision data are solved in float32, with the Gram matrix at the highest
    matrix-product precision; the result has the dtype of `target`.

    Args:
      matrix: the data `A`, shape `(k, d)`; for a functional map, `k` key coefficients
        of `d` channels.
      target: the right-hand sides `B`, shape `(k, c)`.
      ridge: Tikhonov weight in squared units of `matrix`, or `Additive` or `Convex`.
        Zero with rank-deficient data gives NaN or noise; a traced value is not checked.

    Returns:
      The solution `X`, shape `(d, c)`.

    Raises:
      TypeError: if an array is not floating point, or the ridge is not a number.
      ValueError: if shapes do not match, or the ridge is an array, negative or, for
        `Convex`, above one.

    Examples:
      >>> import numpy as np
      >>> from opjax.linalg import ridge_solve
      >>> float(ridge_solve(np.eye(2), np.eye(2), ridge=1.0)[0, 0])
      0.5

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 6, 7 and App. B.1.
    """
    matrix, target = _checks.arrays(2, matrix=matrix, target=target)
    _checks.same_axis(0, "rows", {"matrix": matrix, "target": target})
    k, d = matrix.shape
    a, b = at_least_single(matrix), at_least_single(target)
    factors = _factors(ridge, a)
    # Exports may have symbolic sizes, whose order is not known.
    symbolic = export.is_symbolic_dim
    if symbolic(d) or (not symbolic(k) and k <= d):
        x = _product(a.T, solve(_system(a, *factors), b))
    else:
        x = solve(_system(a.T, *factors), _product(a.T, b))
    return x.astype(target.dtype)


@jitted(ridge=check_ridge)
def condition_number(
    matrix: Float[ArrayLike, "k d"],
    *,
    ridge: Ridge,
) -> Float[Array, ""]:
    r"""Returns the 2-norm condition number of the primal system.

    It is computed from the singular values of `A = matrix`, without the Gram matrix:

        kappa = (s_max^2 + ridge) / (s_min^2 + ridge)                    (Additive),
        kappa = (a s_max^2 + ridge) / (a s_min^2 + ridge), a = 1 - ridge   (Convex),

    where `s_min` is zero if `k > d`. This is the condition number of the `k x k`
    system, even if `ridge_solve` solves the dual one. The dual system for `k > d` has
    only the `d` singular values, without the zeros, and may be much better conditioned.
    A single-precision solve loses about `log10(kappa)` of its seven digits.

    Args:
      matrix: the data `A`, shape `(k, d)`.
      ridge: Tikhonov weight, as in `ridge_solve`.

    Returns:
      The condition number, a scalar; infinite if singular, NaN if the system is zero
      (a zero matrix without ridge).

    Raises:
      TypeError: if `matrix` is not floating point.
      ValueError: if `matrix` does not have two axes, or as from `ridge_solve` for the
        ridge.

    Examples:
      >>> import numpy as np
      >>> from opjax.linalg import condition_number
      >>> float(condition_number(np.array([[3.0, 0.0], [0.0, 1.0]]), ridge=0.0))
      9.0

    References:
      Xiao et al., "Functional Attention", 2026, App. D.2 and D.3 (Fig. 6 and 7).
    """
    (matrix,) = _checks.arrays(2, matrix=matrix)
    k, d = matrix.shape
    matrix = at_least_single(matrix)
    squares = _singular_values(matrix) ** 2
    largest = squares[0]
    smallest = squares[-1] if k <= d else jnp.zeros_like(largest)
    scale, weight = _factors(ridge, matrix)
    return (scale * largest + weight) / (scale * smallest + weight)


@jitted()
def inf_sup_constant(
    form: Float[ArrayLike, "r d"],
    trial_gram: Float[ArrayLike, "r r"],
    test_gram: Float[ArrayLike, "d d"],
) -> Float[Array, ""]:
    r"""Returns the inf-sup constant of a bilinear form on two spaces of functions.

    With trial functions `q_i`, test functions `v_j` and `B_ij = b(v_j, q_i)`,

        c = min_q max_v |b(v, q)| / (|v| |q|) = s_min(M_Q^{-1/2} B M_V^{-1/2}),

    the discrete Ladyzhenskaya-Babuska-Brezzi constant: the solution of the
    Petrov-Galerkin problem exists if it is positive, and its error is that of the best
    approximation up to a factor `1 / c`. It depends on the spaces, not on the functions
    that span them. If `b` is the inner product of the norms, `c` is the cosine of the
    largest angle between trial space and test space.

    Args:
      form: values `B` of the form, shape `(r, d)`; for features `Q`, `V` at points with
        quadrature weights `w`, the inner product is `Q^T diag(w) V`.
      trial_gram: inner products `M_Q` of the trial functions, symmetric and positive
        definite, shape `(r, r)`.
      test_gram: inner products `M_V` of the test functions, shape `(d, d)`.

    Returns:
      The constant, a scalar; zero if there are fewer test than trial functions, NaN if
      functions are linearly dependent.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.linalg import inf_sup_constant
      >>> angle = 0.1  # between two functions of norm one
      >>> c = inf_sup_constant(np.array([[np.cos(angle)]]), np.eye(1), np.eye(1))
      >>> bool(np.isclose(c, np.cos(angle)))
      True

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Lemma D.6.
    """
    form, trial_gram, test_gram = map(jnp.asarray, (form, trial_gram, test_gram))
    _checks.floating(form=form, trial_gram=trial_gram, test_gram=test_gram)
    _checks.rank(2, form=form)
    r, d = form.shape
    if (trial_gram.shape, test_gram.shape) != ((r, r), (d, d)):
        raise ValueError(
            f"trial_gram {trial_gram.shape} and test_gram {test_gram.shape} must "
            f"be square and match the rows and columns of form {form.shape}, "
            "respectively."
        )
    half = whiten(at_least_single(form), test_gram, repair=False)
    whole = whiten(half.T, trial_gram, repair=False)
    if r > d:
        return jnp.zeros((), whole.dtype)
    return _singular_values(whole)[-1]


_solve = one_by_one(jnp.linalg.solve, columns=1, elementary=_elimination.solve)
_singular_values = one_by_one(partial(jnp.linalg.svd, compute_uv=False))


_triangular = partial(lax.linalg.triangular_solve, left_side=True)


@partial(one_by_one, elementary=_elimination.half_solve)
def _half_solve(system: Array, rhs: Array) -> Array:
    """Returns `L^{-1} B` for `L L^T = A`."""
    factor = jnp.linalg.cholesky(system, symmetrize_input=False)
    return _triangular(factor, rhs, lower=True)


def _succeeds(matrix: Array) -> Array:
    """Whether Cholesky ends."""
    factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
    return ~jnp.any(jnp.isnan(factor))


def _first_shift(
    matrix: Array, succeeds: Callable[[Array], Array] = _succeeds
) -> Array:
    """Returns the first of 0, 1e-8, 1e-7, ... on the diagonal that lets Cholesky end.

    The `1e-8` is 1e-6 in single precision.
    """
    single = jnp.finfo(matrix.dtype).bits < 64
    shifts = [0.0] + [(1e-6 if single else 1e-8) * 10.0**i for i in range(7)]
    shifts = jnp.asarray(shifts, matrix.dtype)
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)

    def breaks_down(tried: Any) -> Array:
        shifted = matrix + shifts[tried] * identity
        return (tried < len(shifts) - 1) & ~succeeds(shifted)

    return shifts[lax.while_loop(breaks_down, lambda tried: tried + 1, 0)]


_shift = one_by_one(
    _first_shift, elementary=partial(_first_shift, succeeds=_elimination.is_positive)
)


def _factors(ridge: Ridge, matrix: Array) -> tuple[Array | float, Array]:
    """Returns the factors of the Gram matrix of the rows and of the identity."""
    form = ridge if isinstance(ridge, Additive | Convex) else Additive(ridge)
    weight = jnp.asarray(form.ridge, matrix.dtype)
    scale = 1 - weight if isinstance(form, Convex) else 1.0
    if form.relative:
        unit = jnp.sum(matrix**2) / matrix.shape[0] + SMALLEST_UNIT
        weight = weight * unit
    return scale, weight


def _system(a: Array, scale: Array | float, weight: Array) -> Array:
    """Returns the regularised Gram matrix of the rows of `a`."""
    gram = scale * _product(a, a.T)
    return gram + weight * jnp.eye(a.shape[0], dtype=gram.dtype)


def _product(a: Array, b: Array) -> Array:
    # On accelerators the default product of float32 rounds to 10 bits or fewer, and the
    # solve multiplies that error by the condition number.
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
