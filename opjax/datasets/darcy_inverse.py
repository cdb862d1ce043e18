"""The inverse Darcy problem: the coefficient from a noisy measurement of the solution.

Inputs are solutions on a fine grid, normalised point by point, with noise; targets are
coefficients on a coarse grid, averaged over blocks of cells.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from opjax import _checks, normalize


class InverseData(NamedTuple):
    """Pairs of the inverse problem.

    Attributes:
      train: `measurement`, `(samples, f, f)`, and `coefficient`, `(samples, c, c)`.
      test: the same of other samples.
      measurement_normalizer: what the measurements were encoded with, of shape
        `(f * f,)`.
      coefficient_normalizer: for the coefficients, `(c * c,)`; they are not encoded.
    """

    train: dict[str, jax.Array]
    test: dict[str, jax.Array]
    measurement_normalizer: normalize.Normalizer
    coefficient_normalizer: normalize.Normalizer


def prepare(
    key: jax.Array,
    train: Mapping[str, ArrayLike],
    test: Mapping[str, ArrayLike],
    *,
    stride: int,
    target_stride: int,
    noise: float = 0.01,
) -> InverseData:
    """Turns pairs of the Darcy data set into pairs of the inverse problem.

    The noise is normal, of `noise` standard deviations of the clean training solutions
    at its point, and independent between points, samples, and training and test data.

    Args:
      key: PRNG key of the noise.
      train: `coeff` and `sol`, shape `(samples, s, s)`, at least two samples.
      test: the same of other samples.
      stride: keep every `stride`-th point of the solution, `f = ceil(s / stride)`.
      target_stride: points of the solution per coarse cell, `c` about `s /
        target_stride`; must be a multiple of `stride`.
      noise: size of the noise; 0.01, 0.05 and 0.1 were published.

    Returns:
      Training and test pairs in the dtype of `sol`, and their normalisers.

    Raises:
      ValueError: if the shapes do not match, the strides do not divide each other,
        `noise` is negative, or a value is not finite.
      TypeError: if an array is not floating point.

    References:
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), Eq. 23.
    """
    _checks.non_negative(noise=noise)
    train, test = (
        pairs(d["coeff"], d["sol"], stride=stride, target_stride=target_stride)
        for d in (train, test)
    )
    measurements, coefficients = (
        normalize.fit(_flat(train[name]), pointwise=True, unbiased=False)
        for name in ("measurement", "coefficient")
    )
    keys = jax.random.split(key)  # one key for both would repeat the training noise

    def noisy(key: jax.Array, data: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        clean = data["measurement"]
        encoded = normalize.encode(measurements, jnp.asarray(_flat(clean)))
        encoded = encoded + noise * jax.random.normal(key, encoded.shape, encoded.dtype)
        coefficient = jnp.asarray(data["coefficient"])
        return {
            "measurement": encoded.reshape(clean.shape),
            "coefficient": coefficient,
        }

    data = noisy(keys[0], train), noisy(keys[1], test)
    return InverseData(*data, measurements, coefficients)


def pairs(
    coeff: ArrayLike, sol: ArrayLike, *, stride: int, target_stride: int
) -> dict[str, np.ndarray]:
    """Clean measurements, and coefficients averaged over blocks of blocks.

    The coefficient is averaged over `stride x stride` points, and the averages over
    `target_stride / stride` of them along each axis, as published.

    Args:
      coeff: coefficients, shape `(samples, s, s)`.
      sol: solutions, the same shape.
      stride: keep every `stride`-th point of the solution.
      target_stride: points per coarse cell; a multiple of `stride`.

    Returns:
      `measurement`, `(samples, f, f)`, and `coefficient`, `(samples, c, c)`, with `f =
      ceil(s / stride)` and `c = ceil(f stride / target_stride)`, in their dtypes.

    Raises:
      ValueError: if the shapes do not match or the strides do not divide each other.
      TypeError: if an array is not floating point.
    """
    _checks.floating(coeff=coeff, sol=sol)
    coeff, sol = np.asarray(coeff), np.asarray(sol)
    _checks.positive(stride=stride, target_stride=target_stride)
    if coeff.ndim != 3 or coeff.shape[1] != coeff.shape[2] or coeff.shape != sol.shape:
        raise ValueError(
            f"coeff has shape {coeff.shape} and sol {sol.shape}, expected "
            "(samples, s, s) for both."
        )
    if target_stride % stride:
        raise ValueError(
            f"{target_stride=} must be a multiple of {stride=}: coarse cells are made "
            f"of cells of the measurement; try {target_stride // stride * stride}."
        )
    cells = block_mean(coeff, block=stride)
    return {
        "measurement": sol[:, ::stride, ::stride],
        "coefficient": block_mean(cells, block=target_stride // stride),
    }


def block_mean(values: ArrayLike, *, block: int) -> np.ndarray:
    """Averages over blocks of a grid, which is first centred in whole blocks.

    If `block` does not divide an axis, the blocks at both ends, at most one more cut at
    the far end than at the near one, hold fewer values, and are means of these.

    Args:
      values: shape `(..., n, m)`.
      block: values per block and axis.

    Returns:
      The means, shape `(..., ceil(n / block), ceil(m / block))`, in the dtype of
      `values`.

    Raises:
      ValueError: if `values` has fewer than two axes or `block` is not positive.
      TypeError: if `values` is not floating point.
    """
    _checks.floating(values=values)
    _checks.positive(block=block)
    values = np.asarray(values)
    if values.ndim < 2:
        raise ValueError(f"values has shape {values.shape}, expected (..., n, m).")
    for axis in (-2, -1):
        size = values.shape[axis]
        missing = -size % block
        starts = np.maximum(np.arange(0, size + missing, block) - missing // 2, 0)
        counts = np.diff([*starts, size]).reshape((-1,) + (1,) * (-1 - axis))
        sums = np.add.reduceat(values, starts, axis=axis, dtype=np.float64)
        values = (sums / counts).astype(values.dtype)
    return values


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)
