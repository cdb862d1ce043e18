import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax.problems import burgers, random_fields
from tests.oracles import check_gradient, check_transforms, relative_error
from tests.refused import value_error

VISCOSITY, LENGTH = 0.1, 2 * np.pi
# Few and small compilations: most tests share these sizes.
solve = functools.partial(
    burgers.solve, viscosity=VISCOSITY, length=LENGTH, num_modes=64, num_steps=100
)


def points(num_points, length=LENGTH):
    return length * np.arange(num_points) / num_points


def smooth_state(num_points):
    x = points(num_points)
    return 0.5 + np.sin(x) + 0.4 * np.cos(2 * x + 1)


def cole_hopf(x, time, viscosity, length):
    """`u = -2 nu w_x / w` for a solution `w` of the heat equation with two waves."""
    w, slope = 2.0, 0.0
    for k, size, phase in ((1, 1.0, 0.3), (2, 0.6, 1.1)):
        q = 2 * np.pi * k / length
        decay = size * np.exp(-viscosity * q**2 * time)
        w = w + decay * np.cos(q * x + phase)
        slope = slope - decay * q * np.sin(q * x + phase)
    return -2 * viscosity * slope / w


def direct_solve(initial, viscosity, length, time):
    """Classical Runge-Kutta for all Fourier coefficients, products by convolution."""
    n, top = len(initial), (len(initial) - 1) // 2
    k = np.arange(-top, top + 1)
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), k) / n)
    q = 2 * np.pi * k / length

    def slope(u):
        return -viscosity * q**2 * u - 0.5j * q * np.convolve(u, u)[top:-top]

    u = waves.conj().T @ initial / n
    num_steps = 200
    h = time / num_steps
    for _ in range(num_steps):
        a = slope(u)
        b = slope(u + h / 2 * a)
        c = slope(u + h / 2 * b)
        u = u + h / 6 * (a + 2 * b + 2 * c + slope(u + h * c))
    return (waves @ u).real


@pytest.mark.parametrize("num_points", [33, 64])
@pytest.mark.parametrize(("viscosity", "length"), [(0.1, 2 * np.pi), (0.02, 1.0)])
def test_solution_is_that_of_cole_and_hopf(num_points, viscosity, length):
    x = points(num_points, length)
    expected = cole_hopf(x, 1.0, viscosity, length)
    initial = cole_hopf(x, 0.0, viscosity, length)
    actual = solve(initial, viscosity=viscosity, length=length)
    assert actual.dtype == jnp.float64
    assert relative_error(actual, expected) < 1e-8


def test_value_and_gradient_are_those_of_a_direct_solve():
    args = smooth_state(16), VISCOSITY, LENGTH, 0.5

    def solution(initial, viscosity, length, time):
        return burgers.solve(
            initial,
            viscosity=viscosity,
            length=length,
            time=time,
            num_modes=8,
            num_steps=50,
        )

    assert relative_error(solution(*args), direct_solve(*args)) < 1e-7
    check_gradient(solution, direct_solve, args, rtol=1e-5)


def test_error_falls_with_the_fourth_power_of_the_time_step():
    initial = smooth_state(64)
    runs = [solve(initial, num_modes=16, num_steps=s) for s in (40, 80, 160)]
    coarse, fine = (relative_error(a, b) for a, b in zip(runs, runs[1:], strict=False))
    assert np.log2(coarse / fine) == pytest.approx(4, abs=0.15)


def test_error_falls_exponentially_with_the_number_of_modes():
    initial = smooth_state(64)
    exact = solve(initial)
    few, more = (relative_error(solve(initial, num_modes=m), exact) for m in (6, 12))
    assert few > 1e-5
    assert more < few**1.7


def test_the_mean_is_conserved():
    initial = smooth_state(64)
    assert_allclose(solve(initial).mean(), initial.mean(), rtol=1e-13)


def test_energy_decays():
    """As fast as the dissipation says: d/dt |u|^2 / 2 = -nu |u_x|^2."""
    initial = smooth_state(64)
    times = 0.01, 0.1, 1.0, 3.0
    energies = [np.sum(solve(initial, time=t) ** 2) for t in times]
    energies = [np.sum(initial**2), *energies]
    assert all(np.diff(energies) < 0)
    slope = np.fft.irfft(1j * np.arange(33) * np.fft.rfft(initial), 64)
    rate = (energies[1] - energies[0]) / 2 / times[0]
    assert rate == pytest.approx(-VISCOSITY * np.sum(slope**2), rel=0.05)


@pytest.mark.parametrize(
    "move", [lambda u: np.roll(u, 5), lambda u: np.roll(-u[::-1], 1)]
)
def test_translations_and_reflections_with_a_change_of_sign_commute(move):
    initial = smooth_state(64)
    assert_allclose(solve(move(initial)), move(solve(initial)), atol=1e-13)


def test_a_constant_stays():
    actual = solve(np.full(16, 2.5))
    assert_allclose(actual, 2.5, rtol=1e-14)


def test_two_halves_of_the_time_are_the_whole():
    initial = smooth_state(64)
    halfway = solve(initial, time=0.5)
    assert_allclose(solve(halfway, time=0.5), solve(initial), atol=1e-6)


def test_units_of_length_and_time_do_not_matter():
    initial = smooth_state(64)
    actual = solve(6 * initial, viscosity=VISCOSITY * 12, length=2 * LENGTH, time=1 / 3)
    assert_allclose(actual, 6 * solve(initial), rtol=1e-10)


def test_the_number_of_points_does_not_matter():
    fine, coarse = (solve(smooth_state(n)) for n in (320, 10))
    assert_allclose(coarse, fine[::32], atol=1e-12)


def test_eager_jit_vmap_and_float32_agree():
    check_transforms(solve, [smooth_state(64)])


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stiff_states_keep_their_dtype_and_accuracy(dtype):
    initial = burgers.initial_state(jax.random.key(0), num_points=512, dtype=dtype)
    actual = solve(initial, num_modes=256)
    exact = solve(np.asarray(initial, float), num_modes=256, num_steps=800)
    assert actual.dtype == dtype
    tolerance = 5e-8 if dtype == "float64" else 1e-5
    assert relative_error(actual, np.asarray(exact)) < tolerance


def test_default_modes_and_steps_solve_the_published_problem():
    initial = burgers.initial_state(jax.random.key(1))
    numbers = {"viscosity": 0.1, "length": LENGTH}
    actual = burgers.solve(initial, **numbers)
    exact = burgers.solve(initial, num_modes=512, num_steps=200, **numbers)
    assert actual.shape == (8192,)
    assert relative_error(actual, np.asarray(exact)) < 5e-8


def test_initial_states_have_the_published_spectrum():
    keys = jax.random.split(jax.random.key(2), 2000)
    draw = jax.vmap(lambda key: burgers.initial_state(key, num_points=16))
    states = np.asarray(draw(keys))
    coefficients = np.fft.rfft(states, norm="forward")
    assert_allclose(coefficients[:, [0, 8]], 0, atol=1e-15)
    k = np.arange(1, 8)
    deviations = 25 / (4 * np.pi**2 * k**2 + 25)
    variances = np.mean(np.abs(coefficients[:, 1:8] / deviations) ** 2, axis=0)
    # Five standard errors of a mean of 2000 unit exponential variables.
    assert_allclose(variances, 1, atol=5 / np.sqrt(2000))


@pytest.mark.parametrize("num_points", [1, 2, 5, 8])
def test_periodic_fields_sum_their_waves(num_points):
    key = jax.random.key(3)
    draw = functools.partial(
        random_fields.periodic_random_field, num_points=num_points, tau=3.0, sigma=9.0
    )
    field = jax.jit(draw)(key)
    wave_numbers = np.arange(1, (num_points + 1) // 2)
    xi = np.asarray(jax.random.normal(key, (wave_numbers.size, 2)))
    expected = np.zeros(num_points)
    for k, (a, b) in zip(wave_numbers, xi, strict=True):
        size = np.sqrt(2) * 9 / (4 * np.pi**2 * k**2 + 9)
        angle = 2 * np.pi * k * np.arange(num_points) / num_points
        expected += size * (a * np.cos(angle) + b * np.sin(angle))
    assert field.shape == (num_points,)
    assert_allclose(field, expected, atol=1e-14)


def test_sample_is_a_state_and_its_solution_at_every_stride_th_point():
    key = jax.random.key(0)
    state = burgers.initial_state(key, num_points=64)
    solution = solve(state)
    sample = burgers.sample(key, num_points=64, stride=4, num_modes=64)
    assert_allclose(sample.initial, state[::4], atol=1e-14)
    assert_allclose(sample.solution, solution[::4], atol=1e-14)


def test_dtype_is_the_one_asked_for():
    draw = functools.partial(burgers.sample, jax.random.key(0), num_points=16)
    result = jax.eval_shape(functools.partial(draw, dtype="float32"))
    assert result.initial.dtype == result.solution.dtype == jnp.float32
    assert jax.eval_shape(draw).solution.dtype == jnp.float64


def read(shared_dir, name):
    path = shared_dir / "data" / "pde" / name
    if not path.is_file():
        pytest.skip(f"no published samples at {path}")
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key].astype(float) for key in file.files}


def test_published_samples_are_reproduced(shared_dir):
    """To the precision of the plots that they were recovered from."""
    data = read(shared_dir, "burgers_R10_4samples_from_svg.npz")
    solutions = jax.vmap(functools.partial(solve, num_modes=256))(data["u0"])
    errors = [relative_error(*pair) for pair in zip(solutions, data["u1"], strict=True)]
    assert np.all(np.array(errors) < [5e-5, 2.1e-4, 7e-4, 1.7e-4])


@pytest.mark.parametrize(("start", "tolerance"), [(0, 4e-4), (2, 1e-5)])
def test_published_trajectories_are_reproduced(start, tolerance, shared_dir):
    """Sixteen points tell little of a rough state, more after 0.12 time units."""
    u = read(shared_dir, "neuralop_burgers_train_16.npz")["u"][:200]
    advance = functools.partial(
        solve, viscosity=0.01, length=1.0, time=0.06 * (16 - start)
    )
    assert relative_error(jax.vmap(advance)(u[:, start]), u[:, 16]) < tolerance


def test_wrong_arguments_are_named_in_the_error():
    good = smooth_state(8)
    with value_error("jax.vmap"):
        solve(good[None])
    with value_error(r"initial has shape \(3,\).*\(4,\)"):
        solve(good[:3])
    with pytest.raises(TypeError, match="initial has dtype int64"):
        solve(np.arange(8))
    with value_error("initial has 2 non-finite values of 8"):
        solve(np.where(good > 1.2, [np.nan] * 8, good))
    for name in ("viscosity", "length", "time", "num_modes", "num_steps"):
        with value_error(f"{name}=-1"):
            solve(good, **{name: -1})
    with value_error("stride=3 must divide num_points=8192"):
        burgers.sample(jax.random.key(0), stride=3)
    with value_error("tau"):
        random_fields.periodic_random_field(jax.random.key(0), num_points=4, tau=0.0)
    with pytest.raises(TypeError, match="int32"):
        burgers.initial_state(jax.random.key(0), dtype="int32")
