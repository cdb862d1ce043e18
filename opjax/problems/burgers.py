r"""The viscous Burgers equation on a periodic domain, as published with the FNO.

    u_t + u u_x = viscosity u_xx,    u(0, x) = u_0(x),    u of period `length`,

at the points `x_i = length i / n`, `i = 0, ..., n - 1`, of a periodic grid. Viscosity
damps high wave numbers so fast that a few hundred modes suffice. The solver truncates
the Fourier series of the initial state to these modes, advances them, and evaluates the
series at all points.

The published set (R10) was computed with viscosity 0.1 on a domain of length `2 pi`,
not 1 as stated in its papers; in coordinates scaled to [0, 1] that is `u_t + u u_x / (2
pi) = 0.1 / (4 pi^2) u_xx`. The defaults here are those of the data.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from opjax import _checks
from opjax.problems import grids, random_fields

_SERIES_TERMS = 16  # of the exponential, which then is exact to rounding below 1


class BurgersSample(NamedTuple):
    """Initial state and solution at the same points, shape `(num_points,)`.

    Examples:
      >>> import jax
      >>> from opjax.problems import burgers
      >>> small = {"num_points": 64, "num_modes": 16, "stride": 2}
      >>> sample = burgers.sample(jax.random.key(0), **small)
      >>> sample.initial.shape, sample.solution.shape
      ((32,), (32,))
    """

    initial: jax.Array
    solution: jax.Array


def solve(
    initial: ArrayLike,
    *,
    viscosity: ArrayLike,
    length: ArrayLike,
    time: ArrayLike = 1.0,
    num_modes: int = 256,
    num_steps: int = 100,
) -> jax.Array:
    r"""Advances one periodic state by Burgers' equation to a given time.

    For the Fourier coefficients of wave numbers `k < num_modes`, `q = 2 pi k / length`,

        d/dt u_k = -viscosity q^2 u_k - (i q / 2) (u^2)_k,

    by ETDRK4, which is exact in the first term and of fourth order in the second. The
    product is computed on a grid of `3 num_modes` points, which avoids aliasing.

    For the published problem, the defaults agree within 2e-8 (relative L2, float64;
    3e-6 in float32) with a solution with all 4096 wave numbers of its grid and 400
    steps, in 4 ms instead of 260 ms on a CPU. A smaller viscosity needs more modes and
    steps: a jump of height `d` is smoothed over a width `4 viscosity / d`, which must
    be several times the shortest wavelength, `length / num_modes`. To estimate either
    error, double the modes or the steps.

    Args:
      initial: initial state at the `n >= 4` points `length i / n`. The highest wave
        number of an even `n` is omitted, because its phase is unknown.
      viscosity: positive viscosity, in units of `length^2 / time`.
      length: period of the domain.
      time: final time.
      num_modes: number of wave numbers of the solver, for any `n`.
      num_steps: number of time steps.

    Returns:
      The solution at the same points, shape `(n,)`, in the dtype of `initial`. It is
      differentiable in `initial` and in the three numbers. With too large steps it
      oscillates and finally becomes NaN; with too few modes it oscillates.

    Raises:
      ValueError: if `initial` does not have one axis, has fewer than four points or
        non-finite values, or a number is not positive (the last two are not checked
        while tracing).
      TypeError: if `initial` is not floating point.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import burgers
      >>> x = 2 * np.pi * np.arange(32) / 32
      >>> how = {"viscosity": 0.1, "length": 2 * np.pi, "num_modes": 12}
      >>> weak = burgers.solve(1e-3 * np.sin(x), **how)  # only decays, as exp(-0.1)
      >>> round(float(abs(weak).max() / 1e-3), 3)
      0.905

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), App. A.3.1.
      Kassam and Trefethen, "Fourth-order time-stepping for stiff PDEs", SIAM J. Sci.
      Comput. 26(4), 2005, Eqs. 26-29.
    """
    _check_initial(initial)
    _checks.positive(viscosity=viscosity, length=length, time=time)
    _checks.positive(num_modes=num_modes, num_steps=num_steps)
    return _solve(
        initial, viscosity, length, time, num_modes=num_modes, num_steps=num_steps
    )


def initial_state(
    key: jax.Array, *, num_points: int = 8192, dtype: DTypeLike | None = None
) -> jax.Array:
    r"""Draws an initial state of the published Burgers set.

    It is a periodic Gaussian field with mean zero, whose coefficient of wave number `k`
    has the standard deviation `25 / (4 pi^2 k^2 + 25)`: covariance `625 (-Laplace +
    25)^-2`, in coordinates scaled to [0, 1].

    Args:
      key: PRNG key.
      num_points: number of points of the periodic grid.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The state, shape `(num_points,)`.

    Raises:
      ValueError: if `num_points` is not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems import burgers
      >>> state = burgers.initial_state(jax.random.key(0), num_points=64)
      >>> state.shape, abs(float(state.mean())) < 1e-6
      ((64,), True)

    References:
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), App. C.2.
    """
    return random_fields.periodic_random_field(
        key, num_points=num_points, alpha=2.0, tau=5.0, sigma=25.0, dtype=dtype
    )


@partial(
    jax.jit,
    static_argnames=("num_points", "stride", "num_modes", "num_steps", "dtype"),
)
def sample(
    key: jax.Array,
    *,
    num_points: int = 8192,
    stride: int = 1,
    viscosity: ArrayLike = 0.1,
    length: ArrayLike = 2 * math.pi,
    time: ArrayLike = 1.0,
    num_modes: int = 256,
    num_steps: int = 100,
    dtype: DTypeLike | None = None,
) -> BurgersSample:
    """Draws one pair of the Burgers data set: a random initial state and its solution.

    Args:
      key: PRNG key.
      num_points: number of points of the periodic grid; 8192 was published.
      stride: keep every `stride`-th point; must divide `num_points`.
      viscosity: see `solve`, also for the options below.
      length: period of the domain.
      time: time of the solution.
      num_modes: number of wave numbers of the solver.
      num_steps: number of time steps.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      Initial state and solution at the points `length stride i / num_points`.

    Raises:
      ValueError: if `stride` does not divide `num_points`, or as from `solve`.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> from functools import partial
      >>> import jax
      >>> from opjax.problems import burgers
      >>> keys = jax.random.split(jax.random.key(0), 4)
      >>> draw = partial(burgers.sample, num_points=64, num_modes=16)
      >>> jax.vmap(draw)(keys).solution.shape  # four samples
      (4, 64)
    """
    grids.check_stride(num_points, stride, periodic=True)
    initial = initial_state(key, num_points=num_points, dtype=dtype)
    solution = solve(
        initial,
        viscosity=viscosity,
        length=length,
        time=time,
        num_modes=num_modes,
        num_steps=num_steps,
    )
    return BurgersSample(initial[::stride], solution[::stride])


def _check_initial(initial: ArrayLike) -> None:
    _checks.floating(initial=initial)
    _checks.rank(1, initial=initial)
    if jnp.shape(initial)[0] < 4:
        raise ValueError(
            f"initial has shape {jnp.shape(initial)}, expected at least (4,): fewer "
            "points of a periodic grid represent only a constant and one wave."
        )
    if not isinstance(initial, jax.core.Tracer):
        bad = int(jnp.sum(~jnp.isfinite(jnp.asarray(initial))))
        if bad:
            raise ValueError(
                f"initial has {bad} non-finite values of {jnp.shape(initial)[0]}; "
                "remove this sample."
            )


@partial(jax.jit, static_argnames=("num_modes", "num_steps"))
def _solve(
    initial: ArrayLike,
    viscosity: ArrayLike,
    length: ArrayLike,
    time: ArrayLike,
    *,
    num_modes: int,
    num_steps: int,
) -> jax.Array:
    initial = jnp.asarray(initial)
    num_points, dtype = initial.shape[0], initial.dtype
    viscosity, length, time = (
        jnp.asarray(number).astype(dtype) for number in (viscosity, length, time)
    )
    coefficients = jnp.fft.rfft(initial, norm="forward")[: (num_points + 1) // 2]
    coefficients = _resize(coefficients, num_modes)
    frequency = 2 * jnp.pi / length * jnp.arange(num_modes, dtype=dtype)
    advance = _etdrk4(
        -viscosity * frequency**2 * time / num_steps,
        partial(_convection, frequency=frequency * time / num_steps),
    )
    coefficients, _ = jax.lax.scan(
        lambda u, _: (advance(u), None), coefficients, length=num_steps
    )
    # A coarse grid samples the waves that it cannot resolve: a multiple of it can.
    refinement = -(-2 * num_modes // num_points)
    values = jnp.fft.irfft(coefficients, refinement * num_points, norm="forward")
    return values[::refinement]


def _resize(coefficients: jax.Array, num_modes: int) -> jax.Array:
    """Cuts the highest wave numbers, or appends zeros for them."""
    cut = coefficients[:num_modes]
    return jnp.pad(cut, (0, num_modes - cut.size))


def _convection(coefficients: jax.Array, *, frequency: jax.Array) -> jax.Array:
    """Coefficients of `-(u^2 / 2)_x`, without aliasing by the 3/2 rule."""
    num_modes = coefficients.size
    values = jnp.fft.irfft(coefficients, 3 * num_modes, norm="forward")
    square = jnp.fft.rfft(values * values, norm="forward")[:num_modes]
    return jax.lax.complex(jnp.zeros_like(frequency), -frequency / 2) * square


def _etdrk4(
    linear: jax.Array, nonlinear: Callable[[jax.Array], jax.Array]
) -> Callable[[jax.Array], jax.Array]:
    """The unit step of `u' = linear u + nonlinear(u)`, `linear` real, not positive."""
    first, second, third = _phi_functions(linear)
    # Complex, as the strict promotion of dtypes wants factors of complex numbers.
    whole, half, stage, at_start, at_middle, at_end = (
        jax.lax.complex(factor, jnp.zeros_like(factor))
        for factor in (
            jnp.exp(linear),
            jnp.exp(linear / 2),
            _phi_functions(linear / 2)[0] / 2,
            first - 3 * second + 4 * third,
            2 * second - 4 * third,
            4 * third - second,
        )
    )

    def advance(u: jax.Array) -> jax.Array:
        slope = nonlinear(u)
        a = half * u + stage * slope
        slope_a = nonlinear(a)
        slope_b = nonlinear(half * u + stage * slope_a)
        slope_c = nonlinear(half * a + stage * (2 * slope_b - slope))
        middle = at_middle * (slope_a + slope_b)
        return whole * u + at_start * slope + middle + at_end * slope_c

    return advance


def _phi_functions(z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    r"""`phi_j(z) = sum_m z^m / (m + j)!` for real `z <= 0`, `j = 1, 2, 3`.

    Above -1 by the series, below by `phi_j = (phi_{j-1} - 1 / (j - 1)!) / z`, which
    would lose all digits near zero.
    """
    near = z > -1
    small, large = jnp.where(near, z, 0), jnp.where(near, -1, z)
    closed, functions = jnp.exp(large), []
    for j in (1, 2, 3):
        closed = (closed - 1 / math.factorial(j - 1)) / large
        series = jnp.zeros_like(z)
        for m in reversed(range(_SERIES_TERMS)):
            series = series * small + 1 / math.factorial(m + j)
        functions.append(jnp.where(near, series, closed))
    return tuple(functions)
