r"""Gaussian random fields on the unit square and on the periodic unit interval.

Fields on the square are defined at the cell centres `x_i = (i + 1/2) / num_points`,
rows first, and have Neumann symmetry. Periodic fields are defined at the points `i /
num_points`. Both have zero mean: the constant mode is omitted.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from opjax import _checks


def spectral_deviations(
    *,
    num_points: int,
    alpha: float = 2.0,
    tau: float = 3.0,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    r"""Standard deviations of the cosine coefficients of a Gaussian random field.

    For the orthonormal discrete cosine transform on `K x K` cell centres, `K =
    num_points`, the coefficient of `cos(pi k_1 x) cos(pi k_2 y)` has the standard
    deviation

        K tau^(alpha - 1) (pi^2 |k|^2 + tau^2)^(-alpha / 2),     zero for k = (0, 0),

    so the field approximates `N(0, tau^(2 alpha - 2) (-Laplace + tau^2)^(-alpha))` for
    any number of points.

    Args:
      num_points: number of cell centres per side.
      alpha: decay of the spectrum; the field is smoother for larger values.
      tau: inverse correlation length, in reciprocal domain lengths.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      Standard deviations, shape `(num_points, num_points)`, indexed by wave number.

    Raises:
      ValueError: if `num_points`, `alpha` or `tau` is not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> from opjax.problems.random_fields import spectral_deviations
      >>> deviations = spectral_deviations(num_points=8)
      >>> float(deviations[0, 0]), bool(deviations[0, 1] > deviations[0, 2])  # decays
      (0.0, True)

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), App. A.3.2.
    """
    _checks.positive(num_points=num_points, alpha=alpha, tau=tau)
    dtype = available_dtype(dtype)
    squares = jnp.square(jnp.pi * jnp.arange(num_points, dtype=dtype))
    modes = squares[:, None] + squares[None, :] + tau**2
    deviations = num_points * tau ** (alpha - 1) * modes ** (-alpha / 2)
    return deviations.at[0, 0].set(0)


@jax.jit
def cosine_synthesis(coefficients: ArrayLike) -> jax.Array:
    r"""Evaluates a cosine series on cell centres, the inverse of an orthonormal DCT-II.

        u(x_i, y_j) = sum_{k, l} c_k c_l u_kl cos(pi k x_i) cos(pi l y_j),

    with `x_i = (i + 1/2) / K`, `c_0 = K^(-1/2)` and `c_k = (2 / K)^(1/2)` otherwise.
    This is an orthogonal map, which preserves the sum of squares.

    Args:
      coefficients: cosine coefficients, shape `(K, K)`.

    Returns:
      Values at the cell centres, shape `(K, K)`, in the dtype of `coefficients`.

    Raises:
      ValueError: if `coefficients` is not a square matrix.
      TypeError: if `coefficients` is not floating point.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.random_fields import cosine_synthesis
      >>> coefficients = np.zeros((4, 4), np.float32)
      >>> coefficients[0, 0] = 4.0
      >>> float(cosine_synthesis(coefficients)[1, 2])  # the constant mode
      1.0
    """
    coefficients = square("coefficients", coefficients)
    return jax.scipy.fft.idctn(coefficients, norm="ortho")


@partial(jax.jit, static_argnames=("num_points", "alpha", "tau", "dtype"))
def gaussian_random_field(
    key: jax.Array,
    *,
    num_points: int,
    alpha: float = 2.0,
    tau: float = 3.0,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    r"""Draws a Gaussian random field with mean zero on cell centres.

    The field is `cosine_synthesis(spectral_deviations(...) * xi)` with independent
    standard normal `xi`. It is the prior of the Darcy data of the Fourier neural
    operator.

    Args:
      key: PRNG key.
      num_points: number of cell centres per side.
      alpha: decay of the spectrum; the field is smoother for larger values.
      tau: inverse correlation length, in reciprocal domain lengths.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The field at the cell centres, shape `(num_points, num_points)`.

    Raises:
      ValueError: if `num_points`, `alpha` or `tau` is not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems.random_fields import gaussian_random_field
      >>> field = gaussian_random_field(jax.random.key(0), num_points=16)
      >>> field.shape, abs(float(field.mean())) < 1e-6
      ((16, 16), True)

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), App. A.3.2.
    """
    deviations = spectral_deviations(
        num_points=num_points, alpha=alpha, tau=tau, dtype=dtype
    )
    xi = jax.random.normal(key, deviations.shape, deviations.dtype)
    return cosine_synthesis(deviations * xi)


@partial(jax.jit, static_argnames=("num_points", "alpha", "tau", "sigma", "dtype"))
def periodic_random_field(
    key: jax.Array,
    *,
    num_points: int,
    alpha: float = 2.0,
    tau: float = 5.0,
    sigma: float = 25.0,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    r"""Draws a periodic Gaussian random field with mean zero on the unit interval.

        u(x) = sum_{k >= 1} s_k 2^(1/2) (xi_k cos(2 pi k x) + eta_k sin(2 pi k x)),
        s_k = sigma (4 pi^2 k^2 + tau^2)^(-alpha / 2),    k < num_points / 2,

    with independent standard normal `xi`, `eta`: approximately the Gaussian measure
    `N(0, sigma^2 (-Laplace + tau^2)^(-alpha))`.

    Args:
      key: PRNG key.
      num_points: number of points of the periodic grid.
      alpha: decay of the spectrum; the field is smoother for larger values.
      tau: inverse correlation length, in reciprocal domain lengths.
      sigma: scale; with `tau^alpha`, the longest waves have an amplitude of about one.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The field at the points `i / num_points`, shape `(num_points,)`.

    Raises:
      ValueError: if `num_points`, `alpha`, `tau` or `sigma` is not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems.random_fields import periodic_random_field
      >>> field = periodic_random_field(jax.random.key(0), num_points=32)
      >>> field.shape, abs(float(field.mean())) < 1e-6
      ((32,), True)

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), App. A.3.1.
    """
    _checks.positive(num_points=num_points, alpha=alpha, tau=tau, sigma=sigma)
    dtype = available_dtype(dtype)
    wave_numbers = jnp.arange(1, (num_points + 1) // 2, dtype=dtype)
    squares = jnp.square(2 * jnp.pi * wave_numbers) + tau**2
    deviations = sigma * squares ** (-alpha / 2) / math.sqrt(2)
    xi = jax.random.normal(key, (wave_numbers.size, 2), dtype)
    coefficients = jax.lax.complex(deviations * xi[:, 0], -deviations * xi[:, 1])
    coefficients = jnp.pad(coefficients, (1, num_points // 2 - wave_numbers.size))
    return jnp.fft.irfft(coefficients, num_points, norm="forward")


def available_dtype(dtype: DTypeLike | None) -> jnp.dtype:
    """Resolves a floating-point dtype; None stands for JAX's default.

    Raises:
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> from opjax.problems.random_fields import available_dtype
      >>> available_dtype(None)  # float64 with jax_enable_x64
      dtype('float32')
    """
    available = jax.dtypes.canonicalize_dtype(float if dtype is None else dtype)
    if not jnp.issubdtype(available, jnp.floating):
        raise TypeError(f"{dtype=} is not a floating-point dtype; use `jnp.float32`.")
    if dtype is not None and jnp.dtype(dtype) != available:
        raise TypeError(
            f"dtype={jnp.dtype(dtype)} is not available, JAX would use "
            f"{available}; pass this dtype, or enable float64 with "
            "`jax.config.update('jax_enable_x64', True)` or `with "
            "jax.enable_x64(True):`."
        )
    return available


def square(name: str, array: ArrayLike) -> jax.Array:
    """Returns a floating-point array, and raises ValueError unless it is square.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.random_fields import square
      >>> try:
      ...     square("field", np.zeros((3, 4)))
      ... except ValueError as error:
      ...     print(str(error).partition(":")[0])
      field has shape (3, 4), expected a square array
    """
    (values,) = _checks.arrays(2, **{name: array})
    if values.shape[0] != values.shape[1]:
        raise ValueError(
            f"{name} has shape {values.shape}, expected a square array: "
            "values on a square grid of cell centres."
        )
    return values
