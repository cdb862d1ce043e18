"""Projection of features onto basis functions, and reconstruction.

A basis is an array `(n, k)` of `k` functions at `n` points; coefficients are `(k, d)`,
the expansion of `d` channels. Attention in a basis combines points only through
weighted sums over them, `Moments`, which add up over chunks of points and over devices.
All functions act on one head of one sample.
"""

import dataclasses
import functools
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, linalg, precision
from opjax._jitted import jitted, pytree
from opjax.quadrature import active, select


@pytree
@dataclasses.dataclass(frozen=True)
class Moments:
    r"""Weighted sums over points, which add up over chunks of points.

    Attributes:
      integrals: integrals of features against the basis, `Phi^T W f`, shape `(k, d)`.
      masses: integrals of the basis functions, `Phi^T w`, shape `(k,)`.
      weight: sum of all weights, a scalar.
      count: number of points of positive weight, a scalar.
      gram: inner products of the basis functions, `Phi^T W Phi`, shape `(k, k)`; `None`
        if they were not requested.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import moments
      >>> halves = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> found = moments(np.array([[1.0], [3.0], [5.0], [7.0]]), halves)
      >>> found.masses.tolist(), found.means(offset=0.0)[:, 0].tolist()
      ([2.0, 2.0], [2.0, 6.0])
    """

    integrals: Float[Array, "k d"]
    masses: Float[Array, " k"]
    weight: Float[Array, ""]
    count: Float[Array, ""]
    gram: Float[Array, "k k"] | None = None

    def __add__(self, other: "Moments") -> "Moments":
        """Moments of the points of both."""
        return jax.tree.map(jnp.add, self, other)

    def psum(self, axis_name: str) -> "Moments":
        """Returns the moments over all devices along an axis of `jax.shard_map`."""
        return lax.psum(self, axis_name)

    @property
    def unit(self) -> Array:
        """Average weight of the points with positive weight; one if there are none.

        Only points of positive weight are counted, so padding has no effect.
        """
        some = self.count > 0
        return jnp.where(some, self.weight / jnp.where(some, self.count, 1), 1)

    def mapped(
        self, kernel: Float[Array, "d c"], bias: Float[Array, " c"] | None = None
    ) -> "Moments":
        """Returns the moments of the features `f kernel + bias`."""
        integrals = self.integrals @ kernel
        if bias is not None:
            masses = self.masses.astype(integrals.dtype)
            integrals = integrals + masses[:, None] * bias[None, :]
        return dataclasses.replace(self, integrals=integrals)

    def means(self, *, offset: ArrayLike = 1e-5) -> Array:
        r"""Returns weighted means over the basis functions, shape `(k, d)`.

            (diag(Phi^T w) + offset unit I)^{-1} Phi^T W f.

        Args:
          offset: keeps the mean for an empty basis function finite; in units of the
            average weight, so that a common factor of the weights cancels.
        """
        dtype = self.integrals.dtype
        # Divided first: gradients have squares of masses, which tiny weights underflow.
        unit = self.unit.astype(dtype)
        # In half precision the offset would be subnormal, or zero.
        masses = _checks.at_least_single(self.masses / unit)
        masses = masses + jnp.asarray(offset, masses.dtype)
        means = _checks.at_least_single(self.integrals / unit) / masses[:, None]
        return means.astype(dtype)

    def least_squares(self, *, ridge: ArrayLike = 0.0) -> Array:
        r"""Returns the least-squares coefficients, shape `(k, d)`.

            (Phi^T W Phi + ridge I)^{-1} Phi^T W f.

        Args:
          ridge: Tikhonov weight, in units of the Gram matrix.

        Raises:
          ValueError: if the moments contain no Gram matrix.
        """
        if self.gram is None:
            raise ValueError(
                "These moments contain no Gram matrix; compute them with "
                "with_gram=True."
            )
        identity = jnp.eye(self.gram.shape[0], dtype=self.gram.dtype)
        _checks.single_numbers(ridge=ridge)
        system = self.gram + jnp.asarray(ridge, self.gram.dtype) * identity
        return linalg.solve(system, self.integrals)


@runtime_checkable
class Projection(Protocol):
    """Maps moments of features to coefficients `(k, d)`.

    The attributes `needs_gram`, `needs_one_sign` and `weights_cancel` state which
    moments it needs. Any callable pytree with them is a projection, such as

        @jax.tree_util.register_static
        @dataclasses.dataclass(frozen=True)  # equal instances share one compilation
        class Ridge:
            needs_gram, needs_one_sign, weights_cancel = True, False, False

            def __call__(self, moments):
                return moments.least_squares(ridge=1e-3)

    Examples:
      >>> import numpy as np
      >>> from opjax import projection
      >>> halves = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> values = np.array([[1.0], [3.0], [5.0], [7.0]])
      >>> means = projection.Means(offset=0.0)  # or your own class
      >>> projection.project(values, halves, projection=means)[:, 0].tolist()
      [2.0, 6.0]
    """

    @property
    def needs_gram(self) -> bool:
        """Whether the moments must contain a Gram matrix."""
        ...

    @property
    def needs_one_sign(self) -> bool:
        """Whether the basis functions must be non-negative."""
        ...

    @property
    def weights_cancel(self) -> bool:
        """Whether a common factor of all weights cancels."""
        ...

    def __call__(self, moments: Moments, /) -> Array:
        """Returns the coefficients."""
        ...


@pytree
@dataclasses.dataclass(frozen=True)
class Means:
    """Weighted means over basis functions of one sign, see `Moments.means`.

    Attributes:
      offset: keeps the mean for an empty basis function finite, in units of the average
        weight.

    Examples:
      >>> from opjax.projection import Means
      >>> Means().offset, Means().needs_one_sign
      (1e-05, True)
    """

    offset: ArrayLike = 1e-5

    needs_gram, needs_one_sign, weights_cancel = False, True, True

    def __call__(self, moments: Moments, /) -> Array:
        """Returns the means."""
        return moments.means(offset=self.offset)


@pytree
@dataclasses.dataclass(frozen=True)
class InnerProducts:
    """Inner products with the basis functions, `Phi^T W f`.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import InnerProducts, project
      >>> halves = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> values = np.array([[1.0], [3.0], [5.0], [7.0]])
      >>> project(values, halves, projection=InnerProducts())[:, 0].tolist()
      [4.0, 12.0]
    """

    needs_gram, needs_one_sign, weights_cancel = False, False, False

    def __call__(self, moments: Moments, /) -> Array:
        """Returns the integrals unchanged."""
        return moments.integrals


@pytree
@dataclasses.dataclass(frozen=True)
class LeastSquares:
    """Least-squares fit, the pseudo-inverse of the basis, see `Moments.least_squares`.

    Attributes:
      ridge: Tikhonov weight, in units of the Gram matrix.
      relative: whether the unit is the mean square of the basis functions, `trace(Phi^T
        W Phi) / k`. In this unit, 1e-2 suffices for nearly equal softmax functions, and
        a common factor of the weights cancels.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import LeastSquares, project
      >>> x = np.linspace(0, 1, 5)[:, None]
      >>> basis = np.concatenate([np.ones_like(x), x], axis=1)
      >>> project(1 + 2 * x, basis, projection=LeastSquares())[:, 0].round(3).tolist()
      [1.0, 2.0]
    """

    ridge: ArrayLike = 0.0
    relative: bool = dataclasses.field(default=False, metadata={"static": True})

    needs_gram, needs_one_sign = True, False

    @property
    def weights_cancel(self) -> bool:
        """Whether a common factor of all weights cancels."""
        return self.relative

    def __call__(self, moments: Moments, /) -> Array:
        """Returns the coefficients of the best fit."""
        ridge = self.ridge
        if self.relative and moments.gram is not None:
            ridge = ridge * jnp.trace(moments.gram) / moments.gram.shape[0]
        return moments.least_squares(ridge=ridge)


def check_projection(projection: object) -> None:
    """Raises an error unless a projection is valid.

    Raises:
      TypeError: if it is a name or lacks an attribute.
      ValueError: if its number is an array or negative.

    Examples:
      >>> from opjax.projection import check_projection
      >>> check_projection("means")
      Traceback (most recent call last):
          ...
      TypeError: projection='means' is a string, expected an object: ...
    """
    if isinstance(projection, str):
        raise TypeError(
            f"projection={projection!r} is a string, expected an object: "
            "opjax.Means(), opjax.InnerProducts() or opjax.LeastSquares()."
        )
    if isinstance(projection, type):
        raise TypeError(
            f"projection={projection.__name__} is a class; pass an instance, such "
            f"as {projection.__name__}()."
        )
    if not isinstance(projection, Projection):
        names = ("needs_gram", "needs_one_sign", "weights_cancel", "__call__")
        missing = [name for name in names if not hasattr(projection, name)]
        raise TypeError(
            f"projection={projection!r} has no {', '.join(missing)}; a projection "
            "must define these attributes, see opjax.projection.Projection."
        )
    if isinstance(projection, Means):
        _checks.single_numbers(offset=projection.offset)
        _checks.non_negative(offset=projection.offset)
    elif isinstance(projection, LeastSquares):
        _checks.single_numbers(ridge=projection.ridge)
        _checks.non_negative(ridge=projection.ridge)


@jitted(static=("with_gram", "compute_dtype"))
def moments(
    values: Float[ArrayLike, "n d"],
    basis: Float[ArrayLike, "n k"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
    with_gram: bool = False,
    compute_dtype: str | None = None,
) -> Moments:
    r"""Returns the sums over points that projections need.

        Phi^T W f,    Phi^T w,    sum_i w_i,    number of w_i > 0,    (Phi^T W Phi).

    Moments of parts of a mesh add up to those of the whole mesh:

        moments(f, Phi) = moments(f[:i], Phi[:i]) + moments(f[i:], Phi[i:]).

    Args:
      values: values at the points, shape `(n, d)`.
      basis: basis functions at the same points, shape `(n, k)`.
      quadrature_weights: weights `W = diag(w)`, shape `(n,)`; ones by default, zero
        masks a point.
      with_gram: whether to compute the Gram matrix as well. If so, all products have
        the highest precision, and half precision becomes float32.
      compute_dtype: 16-bit dtype to which factors of integrals are rounded, if there is
        no Gram matrix; see `precision.product`.

    Returns:
      The moments.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the points do not match or a weight is negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import moments
      >>> halves = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> found = moments(np.array([[1.0], [3.0], [5.0], [7.0]]), halves)
      >>> found.integrals[:, 0].tolist(), float(found.weight)
      ([4.0, 12.0], 4.0)
    """
    values, basis = _checks.arrays(2, values=values, basis=basis)
    _checks.same_points(values=values, basis=basis)
    weights = None
    if quadrature_weights is not None:
        weights = check_weights(quadrature_weights, values=values)
    product = functools.partial(precision.matmul, dtype=compute_dtype)
    if with_gram:
        values, basis = map(linalg.at_least_single, (values, basis))
        product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    if weights is None:
        single = linalg.at_least_single(values).dtype
        count = jnp.asarray(values.shape[0], single)
        return Moments(
            integrals=product(basis.T, values),
            masses=jnp.sum(basis, axis=0),
            weight=count,
            count=count,
            gram=product(basis.T, basis) if with_gram else None,
        )
    basis = select(basis, weights)
    column = weights[:, None].astype(values.dtype)
    weighted = column * select(values, weights)
    return Moments(
        integrals=product(basis.T, weighted),
        masses=weights.astype(basis.dtype) @ basis,
        weight=jnp.sum(select(weights, weights)),
        count=jnp.sum(active(weights).astype(weights.dtype)),
        gram=product((column * basis).T, basis) if with_gram else None,
    )


@jitted()
def gram(
    basis: Float[ArrayLike, "n k"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "k k"]:
    r"""Returns the inner products of the basis functions, `Phi^T W Phi`.

    Args:
      basis: basis functions at the points, shape `(n, k)`.
      quadrature_weights: non-negative weights `W`, shape `(n,)`; ones by default.

    Returns:
      The Gram matrix, shape `(k, k)`, computed at the highest matrix-product precision.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the points do not match or a weight is negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import gram
      >>> gram(np.array([[1.0, 0.0], [1.0, 2.0]])).tolist()
      [[2.0, 2.0], [2.0, 4.0]]
    """
    (basis,) = _checks.arrays(2, basis=basis)
    left = basis
    if quadrature_weights is not None:
        weights = check_weights(quadrature_weights, basis=basis)
        basis = select(basis, weights)
        left = weights[:, None].astype(basis.dtype) * basis
    return jnp.matmul(left.T, basis, precision=lax.Precision.HIGHEST)


@jitted(projection=check_projection)
def project(
    values: Float[ArrayLike, "n d"],
    basis: Float[ArrayLike, "n k"],
    *,
    projection: Projection = InnerProducts(),
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "k d"]:
    r"""Projects values at points to coefficients in a basis (analysis).

        Means            (diag(Phi^T w) + offset mean(w) I)^{-1} Phi^T W f
        InnerProducts    Phi^T W f
        LeastSquares     (Phi^T W Phi + ridge I)^{-1} Phi^T W f

    with `mean(w)` over the points of positive weight. The three agree for an
    orthonormal basis and zero ridge, up to the scaling of the mean. Means need basis
    functions of one sign. Half-precision least squares are computed in float32.

    Args:
      values: values at the points, shape `(n, d)`.
      basis: basis functions at the same points, shape `(n, k)`.
      projection: computes coefficients from moments, such as `LeastSquares(1e-6)`.
      quadrature_weights: weights `W = diag(w)`, shape `(n,)`; ones by default.

    Returns:
      The coefficients, shape `(k, d)`.

    Raises:
      TypeError: if an array is not floating point or the projection is a name.
      ValueError: if the points do not match, or a weight or the number in the
        projection is negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import Means, project
      >>> halves = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> values = np.array([[1.0], [3.0], [5.0], [7.0]])
      >>> project(values, halves, projection=Means(offset=0.0))[:, 0].tolist()
      [2.0, 6.0]

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4, Remark 4.1 and App. D.2.
    """
    sums = moments(
        values,
        basis,
        quadrature_weights=quadrature_weights,
        with_gram=projection.needs_gram,
    )
    return projection(sums).astype(jnp.result_type(values))


@jitted()
def reconstruct(
    coefficients: Float[ArrayLike, "k d"], basis: Float[ArrayLike, "n k"]
) -> Float[Array, "n d"]:
    r"""Evaluates an expansion at points (synthesis), `Phi c`.

    Args:
      coefficients: the expansion, shape `(k, d)`.
      basis: basis functions at the points, shape `(n, k)`.

    Returns:
      The values at the points, shape `(n, d)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the numbers of basis functions differ.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import reconstruct
      >>> halves = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> reconstruct(np.array([[2.0], [6.0]]), halves)[:, 0].tolist()
      [2.0, 2.0, 6.0, 6.0]
    """
    coefficients, basis = _checks.arrays(2, coefficients=coefficients, basis=basis)
    if coefficients.shape[0] != basis.shape[1]:
        raise ValueError(
            f"Different numbers of basis functions: coefficients {coefficients.shape} "
            f"(axis 0), basis {basis.shape} (axis 1)."
        )
    return basis @ coefficients


def check_weights(
    quadrature_weights: Float[ArrayLike, " n"], **points: Array
) -> Float[Array, " n"]:
    """Returns quadrature weights after checks against the arrays of their points.

    Examples:
      >>> import numpy as np
      >>> from opjax.projection import check_weights
      >>> check_weights(np.ones(3), values=np.ones((4, 1)))
      Traceback (most recent call last):
          ...
      ValueError: Different numbers of points (axis 0): quadrature_weights (3,), ...
    """
    (weights,) = _checks.arrays(1, quadrature_weights=quadrature_weights)
    _checks.same_points(quadrature_weights=weights, **points)
    _checks.non_negative(quadrature_weights=quadrature_weights)
    return weights
