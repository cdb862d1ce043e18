"""The inverse Darcy problem: the coefficient from noisy values of the solution.

Features are solutions on a fine grid, normalised pointwise, with noise. Targets are
coefficients on a coarse grid, `target_grid`, averaged over blocks of cells.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from opjax import _checks, normalize
from opjax.datasets import _structured, darcy
from opjax.datasets.requests import Request
from opjax.samples import Sample, Splits

# Sample numbers, which are folded into the same keys, do not reach it.
_NOISE_STREAM = 2**31 - 1


def splits(
    request: Request,
    *,
    num_points: int = 421,
    stride: int = 3,
    target_stride: int = 6,
    noise: float = 0.01,
    tolerance: float = 1e-9,
) -> Splits:
    """Returns the samples of a benchmark, see `requests.Request` and `measure`."""
    solutions = darcy.splits(
        request, num_points=num_points, stride=1, tolerance=tolerance
    )
    return measure(
        solutions,
        seed=request.seed,
        stride=stride,
        target_stride=target_stride,
        noise=noise,
    )


def measure(
    found: Splits, *, seed: int, stride: int, target_stride: int, noise: float = 0.01
) -> Splits:
    """Converts samples of the Darcy data set to samples of the inverse problem.

    The noise is normal, with `noise` standard deviations of the clean training
    solutions at its point, and independent between points, samples and sets. All noise
    levels are multiples of the same normal numbers.

    Args:
      found: samples on a grid of `s x s` points, at least two of them for training.
      seed: seed of the noise.
      stride: keep every `stride`-th point of the solution, `f = ceil(s / stride)`.
      target_stride: number of solution points per coarse cell, `c` about `s /
        target_stride`; must be a multiple of `stride`.
      noise: noise level; 0.01, 0.05 and 0.1 were published.

    Returns:
      Samples with `features` `(f^2, 1)`, encoded, and `target` `(c^2, 1)` on the grid
      `target_grid`, in the dtype of the solutions; `normalizers` are pointwise and
      fitted to the clean training samples.

    Raises:
      ValueError: if the samples are not on one grid, the strides do not divide each
        other, `noise` is negative, or a value is not finite.
      TypeError: if an array is not floating point.

    References:
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), Eq. 23.
    """
    _checks.non_negative(noise=noise)
    sets = [
        _pairs(part, stride=stride, target_stride=target_stride) if part else None
        for part in found[:3]
    ]
    assert sets[0] is not None
    normalizers = {
        name: normalize.fit(sets[0][name], pointwise=True, unbiased=False)
        for name in ("features", "target")
    }
    key = jax.random.fold_in(jax.random.key(seed), _NOISE_STREAM)
    # Test samples do not depend on the number of validation samples.
    key_validation, key_test = jax.random.split(key)
    keys = (*jax.random.split(key_validation), jax.random.split(key_test)[1])

    def noisy(key: jax.Array, clean: np.ndarray) -> np.ndarray:
        encoded = normalize.encode(normalizers["features"], jnp.asarray(clean))
        drawn = jax.random.normal(key, encoded.shape[:2], encoded.dtype)
        return np.asarray(encoded + noise * drawn[..., None])

    train, validation, test = (
        _samples(noisy(key, pairs["features"]), pairs["target"]) if pairs else []
        for key, pairs in zip(keys, sets, strict=True)
    )
    return Splits(train, validation, test, found.source, normalizers)


def _pairs(
    found: Sequence[Sample], *, stride: int, target_stride: int
) -> dict[str, np.ndarray]:
    coeff, sol = (array[..., 0] for array in _structured.fields(found))
    made = pairs(coeff, sol, stride=stride, target_stride=target_stride)
    return {
        name: made[key].reshape(len(coeff), -1, 1)
        for name, key in (("features", "measurement"), ("target", "coefficient"))
    }


def _samples(features: np.ndarray, target: np.ndarray) -> list[Sample]:
    fine, coarse = (2 * (round(array.shape[1] ** 0.5),) for array in (features, target))
    points = _structured.unit_grid(fine)
    return [
        Sample(
            points, t, f, grid_shape=fine, name=f"darcy_inverse {i}", target_grid=coarse
        )
        for i, (f, t) in enumerate(zip(features, target, strict=True))
    ]


def pairs(
    coeff: ArrayLike, sol: ArrayLike, *, stride: int, target_stride: int
) -> dict[str, np.ndarray]:
    """Returns noise-free measurements, and block averages of coefficients.

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
    darcy.check_squares(coeff, sol)
    if target_stride % stride:
        raise ValueError(
            f"{target_stride=} must be a multiple of {stride=}, because each "
            "coarse cell must consist of whole cells of the measurement grid; try "
            f"{target_stride // stride * stride}."
        )
    cells = block_mean(coeff, block=stride)
    return {
        "measurement": sol[:, ::stride, ::stride],
        "coefficient": block_mean(cells, block=target_stride // stride),
    }


def block_mean(values: ArrayLike, *, block: int) -> np.ndarray:
    """Returns averages over blocks of a grid, which is centred in whole blocks.

    If `block` does not divide an axis, the blocks at both ends contain fewer values,
    and are means of these. The far end is cut by at most one value more than the near
    end.

    Args:
      values: shape `(..., n, m)`.
      block: number of values per block and axis.

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
