"""Measures of rollouts: errors over time, valid times, spectra, conservation.

Arrays contain the frames of one sample along axis 0, `(t, n)` or `(t, n, c)`; use
`jax.vmap` for batches. Valid times are counted in steps, see `steps_until`. Units and
half precision are handled as in `opjax.metrics`.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax.metrics import power_below, relative_l2
from opjax.quadrature import active


def errors_of_frames(
    prediction: Float[ArrayLike, "t n ..."],
    target: Float[ArrayLike, "t n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
    axis_name: str | None = None,
    rescale: bool = True,
) -> Float[Array, " t"]:
    """Relative L2 error of every frame, see `metrics.relative_l2`.

    Args:
      prediction: frames, shape `(t, n)` or `(t, n, c)`.
      target: true frames of the same shape.
      quadrature_weights: weights of the points; zero masks a point.
      axis_name: axis of the devices that hold the other points, if any.
      rescale: see `metrics.relative_l2`.

    Returns:
      The errors, shape `(t,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import errors_of_frames
      >>> target = np.ones((2, 5))  # two frames of five points
      >>> errors_of_frames(np.array([[1.0], [2.0]]) * target, target).tolist()
      [0.0, 1.0]
    """
    dtype = jnp.result_type(prediction)
    prediction, target = _frames(prediction, target)

    def one(first: Array, second: Array) -> Array:
        return relative_l2(
            first,
            second,
            quadrature_weights=quadrature_weights,
            axis_name=axis_name,
            rescale=rescale,
        )

    return jax.vmap(one)(prediction, target).astype(dtype)


def correlations_of_frames(
    prediction: Float[ArrayLike, "t n ..."],
    target: Float[ArrayLike, "t n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, " t"]:
    r"""Pearson's correlation of every frame with the true one.

        sum_i w_i p_i t_i / ((sum_i w_i p_i^2) (sum_i w_i t_i^2))^{1/2}

    for values minus their weighted mean over the points, channel by channel. A constant
    frame has correlation zero with any other, and gradient zero.

    Args:
      prediction: frames, shape `(t, n)` or `(t, n, c)`.
      target: true frames of the same shape.
      quadrature_weights: weights of the points; zero masks a point.

    Returns:
      The correlations, between -1 and 1, shape `(t,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import correlations_of_frames
      >>> frames = np.array([[0.0, 2.0], [2.0, 0.0]])
      >>> found = correlations_of_frames(frames, np.array([[0.0, 2.0], [0.0, 2.0]]))
      >>> [round(float(correlation), 3) for correlation in found]
      [1.0, -1.0]
    """
    dtype = jnp.result_type(prediction)
    prediction, target = _frames(prediction, target)
    weights = _weights(prediction, quadrature_weights)

    def centred(frames: Array) -> Array:
        frames = jnp.where(active(weights), frames, 0)
        frames = frames / power_below(frames, axis=(1, 2))
        mean = jnp.sum(weights * frames, axis=1, keepdims=True) / jnp.sum(weights)
        weighted = jnp.sqrt(weights) * (frames - mean)
        return weighted / power_below(weighted, axis=(1, 2))

    p, t = centred(prediction), centred(target)
    square = jnp.sum(p * p, axis=(1, 2)) * jnp.sum(t * t, axis=(1, 2))
    # The root has no derivative at zero; the inner select keeps it out.
    varies = square > 0
    root = jnp.sqrt(jnp.where(varies, square, 1))
    return jnp.where(varies, jnp.sum(p * t, axis=(1, 2)) / root, 0).astype(dtype)


def persistence(
    first: Float[ArrayLike, "n ..."], num_frames: int
) -> Float[Array, "t n ..."]:
    """The prediction that nothing changes: the first frame, repeated.

    Args:
      first: the last known frame, shape `(n,)` or `(n, c)`.
      num_frames: number of frames to predict.

    Returns:
      The frames, shape `(num_frames, *first.shape)`.

    Raises:
      ValueError: if the number is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import persistence
      >>> persistence(np.array([1.0, 2.0]), 2).tolist()
      [[1.0, 2.0], [1.0, 2.0]]
    """
    _checks.positive(num_frames=num_frames)
    first = jnp.asarray(first)
    return jnp.broadcast_to(first, (num_frames, *first.shape))


def steps_until(condition: ArrayLike) -> Array:
    """Number of steps before a condition is first met.

    Args:
      condition: whether the condition is met after every step, booleans of shape
        `(t,)`.

    Returns:
      The number of steps before the first True, `t` if there is none, int32.

    Raises:
      ValueError: if the shape is not `(t,)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import steps_until
      >>> int(steps_until(np.array([False, False, True, False])))
      2
    """
    condition = jnp.asarray(condition)
    _checks.rank(1, condition=condition)
    return jnp.sum(jnp.cumsum(condition) == 0).astype(jnp.int32)


def correlation_time(
    prediction: Float[ArrayLike, "t n ..."],
    target: Float[ArrayLike, "t n ..."],
    *,
    threshold: float = 0.8,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Array:
    """Number of steps until the correlation with the truth falls below a threshold.

    Args:
      prediction: frames, shape `(t, n)` or `(t, n, c)`.
      target: true frames of the same shape.
      threshold: minimum correlation that counts as agreement.
      quadrature_weights: weights of the points; zero masks a point.

    Returns:
      The number of steps before the correlation is first below the threshold or NaN,
      `t` if it never is, int32.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import correlation_time
      >>> target = np.array([[0.0, 2.0], [0.0, 2.0], [0.0, 2.0]])
      >>> prediction = target * [[1], [1], [-1]]  # the last frame is reversed
      >>> int(correlation_time(prediction, target))
      2

    References:
      Kochkov et al., "Machine learning-accelerated computational fluid dynamics", PNAS
      118(21), 2021.
    """
    correlations = correlations_of_frames(
        prediction, target, quadrature_weights=quadrature_weights
    )
    return steps_until(~(correlations >= threshold))


def persistence_time(
    prediction: Float[ArrayLike, "t n ..."],
    target: Float[ArrayLike, "t n ..."],
    first: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Array:
    """Number of steps until the error exceeds that of `persistence`.

    Args:
      prediction: frames, shape `(t, n)` or `(t, n, c)`.
      target: true frames of the same shape.
      first: the last known frame, shape `(n,)` or `(n, c)`.
      quadrature_weights: weights of the points; zero masks a point.

    Returns:
      The number of steps before the error first exceeds that of persistence or is NaN,
      `t` if it never does, int32.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import persistence_time
      >>> target = np.array([[1.0, 2.0], [1.0, 3.0]])
      >>> int(persistence_time(target, target, np.array([1.0, 1.0])))  # never worse
      2
    """
    weights = quadrature_weights
    own = errors_of_frames(prediction, target, quadrature_weights=weights)
    still = persistence(first, len(own))
    trivial = errors_of_frames(still, target, quadrature_weights=weights)
    return steps_until(~(own <= trivial))


def radial_spectrum(
    field: Float[ArrayLike, " n"], *, grid_shape: tuple[int, ...]
) -> Float[Array, " k"]:
    r"""Energy of a field on a periodic grid by wave number.

        E_k = sum_{k - 1/2 <= |q| < k + 1/2} |u_q|^2,    u_q = mean_x u(x) e^{-i q . x},

    over integer wave numbers `q`, for `k = 0, ..., floor(min(grid_shape) / 2)`. Shells
    beyond the last one, in the corners of a square, are omitted. By Parseval's theorem,
    `sum_k E_k = mean u^2` for a field without them.

    Args:
      field: values on the grid, last axis fastest, shape `(n,)`.
      grid_shape: number of points along each of one or two axes; the product is `n`.

    Returns:
      The energies, shape `(floor(min(grid_shape) / 2) + 1,)`.

    Raises:
      TypeError: if the field is not floating point.
      ValueError: if its size differs from the grid, or the grid does not have one or
        two axes.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import radial_spectrum
      >>> wave = np.cos(2 * np.pi * np.arange(8) / 8)  # wave number one
      >>> np.round(radial_spectrum(wave, grid_shape=(8,)), 3).tolist()
      [0.0, 0.5, 0.0, 0.0, 0.0]
    """
    (field,) = _checks.arrays(1, field=field)
    if len(grid_shape) not in (1, 2) or math.prod(grid_shape) != field.size:
        raise ValueError(
            f"grid_shape={tuple(grid_shape)} must have one or two axes and as many "
            f"points as the field, {field.size}; spectra on meshes are not "
            "available."
        )
    dtype, field = field.dtype, _checks.at_least_single(field)
    modes = jnp.fft.fftn(field.reshape(grid_shape)) / field.size
    axes = [np.fft.fftfreq(n, 1 / n) for n in grid_shape]
    squares = sum(q**2 for q in np.meshgrid(*axes, indexing="ij"))
    shells = np.floor(np.sqrt(squares) + 0.5).astype(int).ravel()
    energies = (jnp.real(modes) ** 2 + jnp.imag(modes) ** 2).ravel()
    total = jnp.zeros(shells.max() + 1, field.dtype).at[shells].add(energies)
    return total[: min(grid_shape) // 2 + 1].astype(dtype)


def mean_drift(
    frames: Float[ArrayLike, "t n ..."],
    first: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "t ..."]:
    r"""Drift of the mean of every channel, which a conservation law keeps constant.

        d_t = (m(u_t) - m(u_0)) / (m(u_0^2))^{1/2},    m(u) = sum_i w_i u_i / sum_i w_i.

    Args:
      frames: shape `(t, n)` or `(t, n, c)`.
      first: the previous frame `u_0`, shape `(n,)` or `(n, c)`; where its mean is zero,
        the drift is not divided.
      quadrature_weights: weights of the points; zero masks a point.

    Returns:
      The signed drifts, shape `(t,)` or `(t, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.metrics_time import mean_drift
      >>> mean_drift(np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([1.0, 1.0])).tolist()
      [0.0, 1.0]
    """
    first, dtype = jnp.asarray(first), jnp.result_type(frames)
    both = _frames(frames, jnp.broadcast_to(first, jnp.shape(frames)))
    weights = _weights(both[0], quadrature_weights)
    later, start = (jnp.where(active(weights), values, 0) for values in both)
    unit = power_below(start, axis=(0, 1))  # one where the first frame vanishes
    later, start = later / unit, start / unit

    def mean(values: Array) -> Array:
        return jnp.sum(weights * values, axis=1) / jnp.sum(weights)

    size = jnp.sqrt(mean(start * start))
    drift = (mean(later) - mean(start)) / jnp.where(size > 0, size, 1)
    return drift.reshape(drift.shape[:1] + first.shape[1:]).astype(dtype)


def _frames(prediction: ArrayLike, target: ArrayLike) -> tuple[Array, Array]:
    """Frames as `(t, n, c)`; raises an error unless both are such."""
    _checks.floating(prediction=prediction, target=target)
    p, t = (_checks.at_least_single(jnp.asarray(x)) for x in (prediction, target))
    if p.shape != t.shape or p.ndim not in (2, 3):
        raise ValueError(
            f"prediction has shape {p.shape} and target has shape {t.shape}; both "
            "must be frames (t, n) or (t, n, c) of one sample; use `jax.vmap` for "
            "batches."
        )
    return p.reshape(*p.shape[:2], -1), t.reshape(*t.shape[:2], -1)


def _weights(frames: Array, quadrature_weights: ArrayLike | None) -> Array:
    """Weights of the points `(1, n, 1)`, one each by default, and of size one."""
    if quadrature_weights is None:
        return jnp.ones((1, frames.shape[1], 1), frames.dtype)
    _checks.floating(quadrature_weights=quadrature_weights)
    weights = jnp.asarray(quadrature_weights, frames.dtype)
    if weights.shape != frames.shape[1:2]:
        raise ValueError(
            f"quadrature_weights has shape {weights.shape}, expected "
            f"{frames.shape[1:2]}: one weight per point of a frame."
        )
    weights = weights / power_below(jnp.where(active(weights), weights, 0), even=True)
    return weights[None, :, None]
