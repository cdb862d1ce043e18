"""Error measures of one sample; use `jax.vmap` for batches.

All are ratios of norms per sample, which the caller averages: benchmarks report the
mean of ratios, not the ratio of sums.

Units have no effect: squares do not overflow or underflow, because arrays are first
divided by a power of two, the largest one below their maximum, which rounds nothing.
Half precision is computed in float32, and the result is rounded to the dtype of the
arguments.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, _halo
from opjax._explicit import split_by_compiler
from opjax.quadrature import active


@partial(jax.jit, static_argnames=("axis_name", "rescale"))
@split_by_compiler
def relative_l2(
    prediction: Float[ArrayLike, "n ..."],
    target: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
    axis_name: str | None = None,
    rescale: bool = True,
) -> Float[Array, ""]:
    r"""Relative L2 error of a sample.

        (sum_i w_i |p_i - t_i|^2)^{1/2} / (sum_i w_i |t_i|^2)^{1/2},

    with w = 1 unless weights are given. Points of zero weight are masked: their values
    and gradients have no effect, even if they are NaN, so zero weights mask padding.
    The gradient at `prediction == target` is zero.

    Args:
      prediction: values at the `n` points, shape `(n,)` or `(n, c)`.
      target: true values of the same shape. If it is zero at every weighted point, the
        result is inf, or NaN if the prediction is zero as well.
      quadrature_weights: non-negative weights of the points; a common factor cancels.
      axis_name: axis of `jax.shard_map` over whose devices the points are split.
      rescale: divide by powers of two first, to avoid overflow and underflow. False in
        losses with values of usual size, whose steps then round as in earlier versions.

    Returns:
      The relative error, a scalar in the dtype of the prediction.

    Raises:
      TypeError: if an argument is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics import relative_l2
      >>> float(relative_l2(np.array([1.0, 0.0]), np.array([2.0, 0.0])))
      0.5
    """
    _checks.floating(prediction=prediction, target=target)
    dtype = jnp.result_type(prediction)
    prediction, target = _at_least_single(prediction, target)
    _same_shape(prediction, target)
    if rescale:  # a difference of small numbers may underflow, too
        size = power_below(target, axis_name=axis_name)
        prediction, target = prediction / size, target / size
    if quadrature_weights is None:
        error = _ratio(prediction - target, target, axis_name, rescale=rescale)
        return error.astype(dtype)
    _checks.floating(quadrature_weights=quadrature_weights)
    if jnp.shape(quadrature_weights) != prediction.shape[:1]:
        raise ValueError(
            f"quadrature_weights has shape {jnp.shape(quadrature_weights)}, "
            f"expected {prediction.shape[:1]}: one weight per point of prediction."
        )
    weights = jnp.asarray(quadrature_weights, prediction.dtype)
    weights = weights.reshape(weights.shape + (1,) * (prediction.ndim - 1))
    weights = jnp.broadcast_to(weights, prediction.shape)
    # Selecting before any arithmetic keeps NaN padding out of the gradient too: the
    # derivative of `0 * (nan - t)` would be NaN.
    keep = active(weights)
    target = jnp.where(keep, target, 0)
    difference = jnp.where(keep, prediction, 0) - target
    if rescale:
        weights = jnp.where(keep, weights, 0)
        weights = weights / power_below(weights, axis_name=axis_name, even=True)
    root = jnp.sqrt(jnp.where(keep, weights, 1))
    error = _ratio(root * difference, root * target, axis_name, rescale=rescale)
    return error.astype(dtype)


@split_by_compiler
def relative_gradient_error(
    prediction: Float[ArrayLike, "n ..."],
    target: Float[ArrayLike, "n ..."],
    *,
    grid_shape: tuple[int, ...],
    axis_name: str | None = None,
    rescale: bool = True,
) -> Float[Array, ""]:
    r"""Relative error of the spatial gradient on a grid, summed over axes.

        sum_a |D_a p_0 - D_a t|_2 / |D_a t|_2,

    where D_a is the central difference along axis `a` of the field padded by one ring
    of zeros, and p_0 is the prediction with its boundary ring set to zero (the target
    keeps its own). This asymmetry suits fields that are zero on the boundary, such as
    Darcy pressure, and makes this the gradient term of the Darcy training loss. The
    grid spacing cancels.

    Args:
      prediction: values on the grid, last axis fastest, `(n,)` or `(n, c)`.
      target: true values of the same shape. If D_a t is zero along some axis, the
        result is inf, or NaN if D_a p_0 is zero there as well.
      grid_shape: number of points per axis; the product is `n`.
      axis_name: axis of `jax.shard_map` over whose devices the rows of the grid are
        split, see `grid_convolution`; `n` is then the number of points of a device.
      rescale: see `relative_l2`.

    Returns:
      The sum of one relative error per axis, a scalar.

    Raises:
      TypeError: if an argument is not floating point.
      ValueError: if the shapes do not match each other or the grid.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics import relative_gradient_error
      >>> target = np.zeros((5, 5))
      >>> target[2, 2] = 1.0
      >>> given = {"grid_shape": (5, 5)}
      >>> float(relative_gradient_error(0.5 * target.ravel(), target.ravel(), **given))
      1.0

    References:
      Xiao et al., "Functional Attention", ICML 2026 (arXiv:2605.31559), Darcy loss.
    """
    _checks.floating(prediction=prediction, target=target)
    dtype = jnp.result_type(prediction)
    prediction, target = _at_least_single(prediction, target)
    _same_shape(prediction, target)
    if axis_name is None:
        _covers_grid(prediction, grid_shape)
    shape = tuple(grid_shape)
    error = _gradient_error(prediction, target, shape, axis_name, rescale)
    return error.astype(dtype)


@jax.jit
@split_by_compiler
def r_squared(
    prediction: Float[ArrayLike, " n"], target: Float[ArrayLike, " n"]
) -> Float[Array, ""]:
    r"""Coefficient of determination of a quantity over a set of samples.

        R^2 = 1 - sum_i (p_i - t_i)^2 / sum_i (t_i - mean t)^2.

    Args:
      prediction: predicted value of every sample, shape `(n,)`.
      target: true value of every sample, shape `(n,)`.

    Returns:
      At most one, a scalar; negative if the mean of the target is the better
      prediction; NaN or minus infinity if all target values are equal.

    Raises:
      TypeError: if an argument is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics import r_squared
      >>> float(r_squared(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])))
      1.0
    """
    prediction, target = _checks.arrays(1, prediction=prediction, target=target)
    _checks.same_points(prediction=prediction, target=target)
    dtype = prediction.dtype
    prediction, target = _at_least_single(prediction, target)
    size = power_below(target)
    prediction, target = prediction / size, target / size
    apart, error = target - jnp.mean(target), prediction - target
    size = power_below(apart)
    spread = jnp.sum((apart / size) ** 2)
    return (1 - jnp.sum((error / size) ** 2) / spread).astype(dtype)


@jax.jit
@split_by_compiler
def rank_correlation(
    first: Float[ArrayLike, " n"], second: Float[ArrayLike, " n"]
) -> Float[Array, ""]:
    r"""Spearman's rank correlation of two quantities over a set of samples.

        sum_i a_i b_i / (|a| |b|),    a_i = rank(x_i) - mean rank.

    `b` is defined in the same way; equal values share their mean rank.

    Complexity: `O(n^2)`.

    Args:
      first: first quantity of every sample, shape `(n,)`.
      second: second quantity of every sample, shape `(n,)`.

    Returns:
      The correlation, between -1 and 1, a scalar; NaN if all values of one array are
      equal.

    Raises:
      TypeError: if an argument is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics import rank_correlation
      >>> round(float(rank_correlation(np.arange(5.0), np.arange(5.0) ** 3)), 4)
      1.0
    """
    first, second = _checks.arrays(1, first=first, second=second)
    _checks.same_points(first=first, second=second)

    def ranks(values: Array) -> Array:
        above = jnp.sign(values[:, None] - values[None, :])
        return jnp.sum(above, axis=1)  # twice the centred rank

    a, b = map(ranks, _at_least_single(first, second))
    correlation = jnp.sum(a * b) / (_norm(a) * _norm(b))
    return correlation.astype(first.dtype)


@split_by_compiler
def relative_flux_error(
    prediction: Float[ArrayLike, " n"],
    target_gradient: Float[ArrayLike, "n dimension"],
    *,
    grid_shape: tuple[int, ...],
    spacing: ArrayLike,
    coefficient: Float[ArrayLike, " n"] | None = None,
    relative_to: str = "flux",
    rescale: bool = True,
) -> Float[Array, ""]:
    r"""Relative error of the gradient, or of a flux, compared with given values.

        (mean_inner |a_i (D p_i - g_i)|^2)^{1/2} / (mean |a_i g_i|^2)^{1/2},

    where D is the central difference, `(p_{i+1} - p_{i-1}) / (2 spacing)` along each
    axis, and g the gradient of the target. The mean in the numerator excludes the
    boundary, where a neighbour is missing; the mean in the denominator includes it.
    With `relative_to="energy"`, the denominator is the mean of `a_i |g_i|^2`, so the
    error scales like `a^{1/2}`.

    Multiplied by the square root of `gamma h / dimension`, this is the penalty in the
    training of Galerkin transformers, up to a factor of the square root of `(n - 2) /
    n` for Burgers' equation, where the authors use sums instead of means.

    Args:
      prediction: values on the grid, last axis fastest, shape `(n,)`.
      target_gradient: derivatives of the target along the axes of the grid, shape `(n,
        dimension)`. If it is zero, the result is inf, or NaN if the difference is zero
        as well.
      grid_shape: number of points per axis, at least 3; the product is `n`.
      spacing: distance between neighbours, in the units of `target_gradient`.
      coefficient: factor `a` of the gradient, shape `(n,)`; 1 by default.
      relative_to: `"flux"` or `"energy"`; the latter needs `a >= 0`.
      rescale: see `relative_l2`.

    Returns:
      The relative error, a scalar. Its gradient at zero is zero.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match each other or the grid, there are fewer
        than three points along an axis, `spacing` is not positive or `relative_to` is
        unknown.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics import relative_flux_error
      >>> x = np.linspace(0, 1, 5)
      >>> slope = np.full((5, 1), 2.0)
      >>> float(relative_flux_error(2 * x, slope, grid_shape=(5,), spacing=0.25))
      0.0

    References:
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), section 3 and
      App. C.
    """
    _checks.floating(prediction=prediction, target_gradient=target_gradient)
    _checks.rank(1, prediction=prediction)
    _checks.rank(2, target_gradient=target_gradient)
    _checks.single_numbers(spacing=spacing)
    _checks.positive(spacing=spacing)
    _checks.option("relative_to", relative_to, ("flux", "energy"))
    dtype = jnp.result_type(prediction)
    prediction, reference = _at_least_single(prediction, target_gradient)
    _covers_grid(prediction, grid_shape)
    if min(grid_shape) < 3:
        raise ValueError(f"{grid_shape=} needs at least three points along each axis.")
    if reference.shape != (prediction.size, len(grid_shape)):
        raise ValueError(
            f"target_gradient has shape {reference.shape}, expected "
            f"{(prediction.size, len(grid_shape))}: one derivative per axis of "
            f"{grid_shape=} at each point of prediction {prediction.shape}."
        )
    factor = jnp.ones_like(prediction) if coefficient is None else coefficient
    (factor,) = _checks.arrays(1, coefficient=factor)
    _checks.same_points(prediction=prediction, coefficient=factor)
    factor = _checks.at_least_single(factor)
    field, factor = (array.reshape(grid_shape) for array in (prediction, factor))
    reference = jnp.moveaxis(reference, 1, 0).reshape(-1, *grid_shape)
    spacing = jnp.asarray(spacing).astype(field.dtype)
    unit = None
    if rescale:
        unit, size = power_below(factor, even=True), power_below(reference)
        factor, reference, field = factor / unit, reference / size, field / size
    interior = (slice(1, -1),) * len(grid_shape)
    errors = [
        (_central_difference(field, axis) / (2 * spacing) - expected)[interior]
        for axis, expected in enumerate(reference)
    ]
    share = math.sqrt(field.size / field[interior].size)
    error = factor[interior][None] * jnp.stack(errors)
    scale = factor if relative_to == "flux" else jnp.sqrt(factor)
    ratio = _ratio(error, scale[None] * reference, rescale=rescale) * share
    if unit is not None and relative_to == "energy":
        ratio = jnp.sqrt(unit) * ratio
    return ratio.astype(dtype)


def _covers_grid(prediction: Array, grid_shape: tuple[int, ...]) -> None:
    num_points = math.prod(grid_shape)
    if num_points != prediction.shape[0]:
        raise ValueError(
            f"grid_shape={tuple(grid_shape)} has {num_points} points, but "
            f"prediction has shape {prediction.shape}; its first axis must be the "
            "points of the grid."
        )


def _gradient_error(
    prediction: Array,
    target: Array,
    grid_shape: tuple[int, ...],
    axis_name: str | None,
    rescale: bool,
) -> Array:
    local = _halo.local_shape(prediction.shape[0], grid_shape, axis_name)
    numbers = _halo.row_numbers(local[0], axis_name)
    edge = (numbers == 0) | (numbers >= grid_shape[0] - 1)
    interior = (slice(None), *(slice(1, -1),) * (len(grid_shape) - 1))

    def rows(chosen: Array, field: Array) -> Array:
        return chosen.reshape(-1, *(1,) * (field.ndim - 1))

    field = prediction.reshape(local + prediction.shape[1:])
    field = jnp.where(rows(edge, field), 0, field)
    field = jnp.zeros_like(field).at[interior].set(field[interior])
    reference = target.reshape(field.shape)
    reference = _halo.clear(reference, grid_shape[0], axis_name)
    total = jnp.zeros((), prediction.dtype)
    for axis in range(len(grid_shape)):
        expected = _central_difference(reference, axis, axis_name)
        error = _central_difference(field, axis, axis_name) - expected
        error, expected = (
            _halo.clear(x, grid_shape[0], axis_name) for x in (error, expected)
        )
        total = total + _ratio(error, expected, axis_name, rescale=rescale)
    return total


def _central_difference(field: Array, axis: int, axis_name: str | None = None) -> Array:
    """Differences of the neighbours along `axis`, zero outside the grid."""
    padded = _halo.extend(jnp.moveaxis(field, axis, 0), 1, None if axis else axis_name)
    return jnp.moveaxis(padded[2:] - padded[:-2], 0, axis)


def power_below(
    values: Float[Array, "..."],
    *,
    axis: int | tuple[int, ...] | None = None,
    axis_name: str | None = None,
    even: bool = False,
) -> Float[Array, "..."]:
    """Returns the power of two below the largest magnitude, for exact division.

    Args:
      values: values in float32 or float64.
      axis: axes over which the maximum is taken, kept with length 1; None for a scalar
        over all entries.
      axis_name: axis of the devices that hold further entries, if any.
      even: return a power of four, whose square root is a power of two.

    Returns:
      The power, a constant in differentiation; one if all entries are zero, or an entry
      is not finite.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics import power_below
      >>> float(power_below(np.array([1.0, -5.0])))
      4.0
    """
    values = jax.lax.stop_gradient(values)
    kept = axis is not None
    largest = jnp.max(jnp.abs(values), axis=axis, keepdims=kept, initial=0)
    if axis_name is not None:
        largest = jax.lax.pmax(largest, axis_name)
    layout = jnp.finfo(largest.dtype)
    usual = (largest >= layout.tiny) & (largest <= layout.max)
    bits = jax.lax.bitcast_convert_type(
        jnp.where(usual, largest, 1), jnp.dtype(f"uint{layout.bits}")
    )
    step = bits.dtype.type(1 << layout.nmant)  # of the exponent, above the fraction
    bits = bits - bits % step
    if even:  # the bias of exponents is odd
        bits = bits - jnp.where(bits // step % bits.dtype.type(2) == 0, step, 0)
    return jax.lax.bitcast_convert_type(bits, largest.dtype)


def _at_least_single(*arrays: ArrayLike) -> tuple[Array, ...]:
    return tuple(_checks.at_least_single(jnp.asarray(array)) for array in arrays)


def _ratio(
    above: Array, below: Array, axis_name: str | None = None, *, rescale: bool = True
) -> Array:
    """The norm of one array over that of another, whatever their size if rescaled.

    The norms themselves may be too large, or too small, for their type.
    """
    if not rescale:
        return _norm(above, axis_name) / _norm(below, axis_name)
    first, second = (power_below(a, axis_name=axis_name) for a in (above, below))
    ratio = _norm(above / first, axis_name) / _norm(below / second, axis_name)
    return ratio * (first / second)


def _norm(values: Array, axis_name: str | None = None) -> Array:
    """Euclidean norm of entries of size one, with a zero gradient at zero."""
    square = jnp.sum(values * values)
    if axis_name is not None:
        square = jax.lax.psum(square, axis_name)
    positive = square != 0
    # The square root's derivative is infinite at zero; the inner select keeps it out.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def _same_shape(prediction: Array, target: Array) -> None:
    if prediction.shape != target.shape:
        raise ValueError(
            f"prediction has shape {prediction.shape} but target has shape "
            f"{target.shape}; they must be equal (flatten grids to points)."
        )
    if prediction.ndim not in (1, 2):
        raise ValueError(
            f"prediction has shape {prediction.shape}, expected (n,) or (n, c): one "
            "sample; use `jax.vmap` for batches."
        )
