r"""The vorticity equation of viscous flow on a periodic square, as used for the FNO.

    w_t + v . grad w = viscosity Laplace w + f,    v = (psi_y, -psi_x),
    -Laplace psi = w,    (x, y) in [0, 1)^2, periodic, w and f of mean zero.

Fields are arrays `(n, n)` of values at `(i, j) / n`, with `x` along the first axis. At
viscosity 1e-5, a grid of 64 points per side does not resolve the smallest eddies: after
20 units of time, the computed flow has an error of 8 percent (with 128 points, 2
percent). So data are computed on a fine grid, and every fourth point is kept.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from opjax import _checks
from opjax.problems import grids, random_fields

_FEWEST_STEPS = 8  # of a frame: a flow at rest would need none


class NavierStokesSample(NamedTuple):
    """Vorticity at time zero, `(n, n)`, and at the later frames, `(frames, n, n)`.

    Examples:
      >>> import jax
      >>> from opjax.problems import navier_stokes
      >>> few = {"num_points": 16, "num_frames": 3, "steps_per_frame": 4}
      >>> sample = navier_stokes.sample(jax.random.key(0), stride=2, **few)
      >>> sample.initial.shape, sample.vorticity.shape
      ((8, 8), (3, 8, 8))
    """

    initial: jax.Array
    vorticity: jax.Array


def solve(
    initial: ArrayLike,
    forcing: ArrayLike | None = None,
    *,
    viscosity: ArrayLike,
    frame_time: ArrayLike = 1.0,
    num_frames: int = 20,
    steps_per_frame: int | None = None,
    courant: ArrayLike = 1.5,
) -> jax.Array:
    r"""Advances a vorticity field and returns it at equal time intervals.

    For Fourier coefficients of wave numbers `|k_1|, |k_2| < n / 3`, `q = 2 pi k`,

        d/dt w_k = -viscosity |q|^2 w_k + (q_1^2 - q_2^2) (v_1 v_2)_k
                   + q_1 q_2 (v_2^2 - v_1^2)_k + f_k,

    by the classical fourth-order Runge-Kutta method for `exp(viscosity |q|^2 t) w_k`,
    so that viscosity does not limit the step. The products are free of aliasing:
    without viscosity, forcing and time-stepping errors, energy and enstrophy are
    constant. Higher wave numbers and the means of `initial` and `forcing` are omitted.

    The method is unstable for steps above about `2.8 / max |q . v|`. The forcing makes
    the published flow eight times as fast within 20 units of time. So by default, the
    steps of every frame are chosen from the speed at its beginning: at most `courant /
    max |q . v|`, which leaves a margin for acceleration. With a Courant number of 2,
    the published problem agrees within 6e-5 with a solution with 160 steps per frame at
    `n = 128` (relative L2, every frame; 4e-4 at 64); with 1.5, within 4e-5 (2e-4). Both
    take half the time; rounding to float32 adds 3e-5.

    Args:
      initial: vorticity at time zero, shape `(n, n)`, `n >= 4`.
      forcing: forcing `f`, constant in time, with the same shape; zero by default.
      viscosity: non-negative viscosity, in units of `length^2 / time`.
      frame_time: time between frames; the first frame is at this time.
      num_frames: number of frames to return.
      steps_per_frame: number of time steps between frames; None chooses it from
        `courant`.
      courant: Courant number of the steps, if `steps_per_frame` is None.

    Returns:
      The vorticity, shape `(num_frames, n, n)`, in the dtype of `initial`. It is NaN if
      the steps were too long. With `steps_per_frame`, it is differentiable in all
      arrays and numbers; otherwise only in forward mode.

    Raises:
      ValueError: if a field is not square, the shapes differ, there are fewer than four
        points, or a number is out of range.
      TypeError: if a field is not floating point or the two differ in dtype.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import navier_stokes
      >>> x = np.arange(16) / 16
      >>> wave = np.broadcast_to(np.sin(2 * np.pi * x), (16, 16))  # only decays
      >>> how = {"viscosity": 0.01, "num_frames": 1, "steps_per_frame": 4}
      >>> frames = navier_stokes.solve(wave, **how)
      >>> round(float(frames.max()), 4), round(float(np.exp(-0.01 * 4 * np.pi**2)), 4)
      (0.6738, 0.6738)

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), App. A.3.3;
      there by Crank-Nicolson and explicit Euler steps of 1e-4.
      Basdevant, "Technical improvements for direct numerical simulation of homogeneous
      three-dimensional turbulence", J. Comput. Phys. 50, 1983 (the form of the
      products).
    """
    _check_fields(initial, forcing)
    _checks.non_negative(viscosity=viscosity)
    _checks.positive(frame_time=frame_time, courant=courant, num_frames=num_frames)
    if steps_per_frame is not None:
        _checks.positive(steps_per_frame=steps_per_frame)
    if forcing is None:
        forcing = jnp.zeros_like(initial)
    return _solve(
        initial,
        forcing,
        viscosity,
        frame_time,
        courant,
        num_frames=num_frames,
        steps_per_frame=steps_per_frame,
    )


def initial_vorticity(
    key: jax.Array, *, num_points: int = 256, dtype: DTypeLike | None = None
) -> jax.Array:
    r"""Draws an initial vorticity of the published set.

        w_0(x) = Re sum_{k != 0} 2^(1/2) s_k (xi_k + i eta_k) exp(2 pi i k . x),
        s_k = 7^(3/2) (4 pi^2 |k|^2 + 49)^(-5/4),    -n/2 <= k_1, k_2 < n/2,

    with independent standard normal `xi`, `eta`. It is `2^(1/2)` times a field of
    covariance `7^3 (-Laplace + 49)^(-5/2)`: the paper has `7^(3/2)` instead of `7^3`,
    and no factor `2^(1/2)`; the published program has both.

    Args:
      key: PRNG key.
      num_points: number of points per side.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The field, shape `(num_points, num_points)`.

    Raises:
      ValueError: if `num_points` is not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems import navier_stokes
      >>> field = navier_stokes.initial_vorticity(jax.random.key(0), num_points=16)
      >>> field.shape, abs(float(field.mean())) < 1e-6
      ((16, 16), True)

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), App. A.3.3.
    """
    _checks.positive(num_points=num_points)
    dtype = random_fields.available_dtype(dtype)
    k = np.fft.fftfreq(num_points, 1 / num_points)
    squares = 4 * np.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2) + 49
    deviations = np.sqrt(2) * 7**1.5 * squares**-1.25
    deviations[0, 0] = 0
    xi = jax.random.normal(key, (2, num_points, num_points), dtype)
    coefficients = jnp.asarray(deviations, dtype)[None] * xi
    field = jnp.fft.ifft2(jax.lax.complex(*coefficients), norm="forward")
    return jnp.real(field)


def forcing(*, num_points: int = 256, dtype: DTypeLike | None = None) -> jax.Array:
    r"""The published forcing, `0.1 (sin(2 pi (x + y)) + cos(2 pi (x + y)))`.

    Args:
      num_points: number of points per side.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      Its values, shape `(num_points, num_points)`.

    Raises:
      ValueError: if `num_points` is not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> from opjax.problems import navier_stokes
      >>> values = navier_stokes.forcing(num_points=4)
      >>> values.shape, round(float(values[0, 0]), 3)
      ((4, 4), 0.1)
    """
    _checks.positive(num_points=num_points)
    dtype = random_fields.available_dtype(dtype)
    x = np.arange(num_points) / num_points
    phase = 2 * np.pi * (x[:, None] + x[None, :])
    return jnp.asarray(0.1 * (np.sin(phase) + np.cos(phase)), dtype)


@partial(
    jax.jit,
    static_argnames=("num_points", "stride", "num_frames", "steps_per_frame", "dtype"),
)
def sample(
    key: jax.Array,
    *,
    num_points: int = 256,
    stride: int = 4,
    viscosity: ArrayLike = 1e-5,
    num_frames: int = 20,
    steps_per_frame: int | None = None,
    courant: ArrayLike = 1.5,
    dtype: DTypeLike | None = None,
) -> NavierStokesSample:
    """Draws one trajectory of the Navier-Stokes data set.

    Args:
      key: PRNG key.
      num_points: number of points per side of the solver's grid.
      stride: keep every `stride`-th point per side; must divide `num_points`.
      viscosity: see `solve`, also for the options below.
      num_frames: number of frames, one unit of time apart.
      steps_per_frame: number of time steps between frames; None chooses it from
        `courant`.
      courant: Courant number of the steps, if `steps_per_frame` is None.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The initial vorticity and the frames at times 1, 2, ..., at the points `stride
      (i, j) / num_points`.

    Raises:
      ValueError: if `stride` does not divide `num_points`, or as from `solve`.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems import navier_stokes
      >>> few = {"num_points": 16, "num_frames": 2, "steps_per_frame": 4}
      >>> sample = navier_stokes.sample(jax.random.key(0), stride=4, **few)
      >>> sample.vorticity.shape
      (2, 4, 4)
    """
    grids.check_stride(num_points, stride, periodic=True)
    initial = initial_vorticity(key, num_points=num_points, dtype=dtype)
    frames = solve(
        initial,
        forcing(num_points=num_points, dtype=dtype),
        viscosity=viscosity,
        num_frames=num_frames,
        steps_per_frame=steps_per_frame,
        courant=courant,
    )
    return NavierStokesSample(
        initial[::stride, ::stride], frames[:, ::stride, ::stride]
    )


def _check_fields(initial: ArrayLike, forcing: ArrayLike | None) -> None:
    fields = {"initial": initial} | ({} if forcing is None else {"forcing": forcing})
    for name, field in fields.items():
        random_fields.square(name, field)
    if jnp.shape(initial)[0] < 4:
        raise ValueError(
            f"initial has shape {jnp.shape(initial)}, expected at least (4, 4): on a "
            "coarser grid, dealiasing removes all waves."
        )
    if forcing is None:
        return
    if jnp.shape(forcing) != jnp.shape(initial):
        raise ValueError(
            f"forcing has shape {jnp.shape(forcing)}, but initial has shape "
            f"{jnp.shape(initial)}; both must have the same points."
        )
    if jnp.result_type(forcing) != jnp.result_type(initial):
        raise TypeError(
            f"forcing has dtype {jnp.result_type(forcing)}, but initial has dtype "
            f"{jnp.result_type(initial)}; convert one of them."
        )


@partial(jax.jit, static_argnames=("num_frames", "steps_per_frame"))
def _solve(
    initial: ArrayLike,
    forcing: ArrayLike,
    viscosity: ArrayLike,
    frame_time: ArrayLike,
    courant: ArrayLike,
    *,
    num_frames: int,
    steps_per_frame: int | None,
) -> jax.Array:
    initial, forcing = jnp.asarray(initial), jnp.asarray(forcing)
    shape, dtype = initial.shape, initial.dtype
    viscosity, frame_time, courant = (
        jnp.asarray(number).astype(dtype) for number in (viscosity, frame_time, courant)
    )
    waves, kept = _waves(shape[0], dtype)
    squares = waves[0] ** 2 + waves[1] ** 2
    state, source = (
        _times(kept, jnp.fft.rfft2(field, norm="forward"))
        for field in (initial, forcing)
    )
    slope = partial(_slope, waves=waves, kept=kept, source=source, shape=shape)

    def num_steps(state: jax.Array) -> jax.Array | int:
        if steps_per_frame is not None:
            return steps_per_frame
        speed = jnp.sum(jnp.abs(_velocity(state, waves, shape)), axis=0)
        rate = jnp.max(waves[1] * kept) * jnp.max(speed)
        # NaN would become an arbitrary number of steps; a few keep it NaN.
        count = jnp.nan_to_num(jnp.ceil(frame_time * rate / courant), posinf=1)
        return jnp.clip(count, _FEWEST_STEPS).astype(jnp.int32)

    def frame(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        count = num_steps(state)
        step = frame_time / jnp.asarray(count, dtype)
        decay = jnp.exp(-viscosity * step / 2 * squares)
        state = jax.lax.fori_loop(
            0, count, lambda _, w: _runge_kutta(slope, decay, step, w), state
        )
        return state, jnp.fft.irfft2(state, s=shape, norm="forward")

    return jax.lax.scan(frame, state, length=num_frames)[1]


def _waves(num_points: int, dtype: DTypeLike) -> tuple[jax.Array, jax.Array]:
    """`q_1` and `q_2` of every coefficient of `rfft2`, and which ones are kept."""
    k = np.meshgrid(
        np.fft.fftfreq(num_points, 1 / num_points),
        np.arange(num_points // 2 + 1),
        indexing="ij",
    )
    kept = 3 * np.maximum(*np.abs(k)) < num_points
    kept[0, 0] = False
    return jnp.asarray(2 * np.pi * np.stack(k), dtype), jnp.asarray(kept, dtype)


def _velocity(state: jax.Array, waves: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Both components at the points, shape `(2, n, n)`."""
    squares = waves[0] ** 2 + waves[1] ** 2
    inverse = 1 / jnp.where(squares == 0, 1, squares)
    factors = jnp.stack([inverse * waves[1], -inverse * waves[0]])
    # Times the imaginary unit, since they are derivatives of the stream function.
    coefficients = jax.lax.complex(
        -factors * state.imag[None], factors * state.real[None]
    )
    return jnp.fft.irfft2(coefficients, s=shape, norm="forward")


def _slope(
    state: jax.Array,
    *,
    waves: jax.Array,
    kept: jax.Array,
    source: jax.Array,
    shape: tuple[int, ...],
) -> jax.Array:
    """Advection and forcing, without viscosity."""
    v_1, v_2 = _velocity(state, waves, shape)
    products = jnp.stack([v_1 * v_2, v_2**2 - v_1**2])
    shear, normal = jnp.fft.rfft2(products, norm="forward")
    advection = _times(kept * (waves[0] ** 2 - waves[1] ** 2), shear)
    return advection + _times(kept * waves[0] * waves[1], normal) + source


def _runge_kutta(
    slope: Callable[[jax.Array], jax.Array],
    decay: jax.Array,
    step: jax.Array,
    w: jax.Array,
) -> jax.Array:
    """One step for `w' = slope(w) + L w`, given `decay = exp(L step / 2)`."""
    first = slope(w)
    second = slope(_times(decay, w + _times(step / 2, first)))
    half = _times(decay, w)
    third = slope(half + _times(step / 2, second))
    last = slope(_times(decay, half + _times(step, third)))
    middle = _times(decay, _times(decay, first) + _times(2.0, second + third))
    return _times(decay, half) + _times(step / 6, middle + last)


def _times(factor: ArrayLike, values: jax.Array) -> jax.Array:
    """Real times complex, which the strict promotion of dtypes refuses."""
    return jax.lax.complex(factor * values.real, factor * values.imag)
