from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import navier_stokes as problem
from tests.oracles import relative_error
from tests.refused import value_error


def smooth_field(rng, n, *, waves=3):
    """Returns a random field of mean zero with wave numbers up to `waves`."""
    x = 2 * np.pi * np.arange(n) / n
    field = np.zeros((n, n))
    for k in range(-waves, waves + 1):
        for m in range(waves + 1):
            phase = k * x[:, None] + m * x[None, :]
            field += rng.normal() * np.cos(phase) + rng.normal() * np.sin(phase)
    return (field - field.mean()) / waves


def derivative(field, axis):
    """Spectral derivative of a periodic field, coordinates in [0, 1)."""
    n = len(field)
    q = 2j * np.pi * np.fft.fftfreq(n, 1 / n)
    q = q[:, None] if axis == 0 else q[None, :]
    return np.fft.ifft2(q * np.fft.fft2(field)).real


def velocity(field):
    """Solves -Laplace psi = w; returns psi_y and -psi_x."""
    n = len(field)
    k = np.fft.fftfreq(n, 1 / n)
    squares = 4 * np.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2)
    squares[0, 0] = 1
    stream = np.fft.ifft2(np.fft.fft2(field) / squares).real
    return derivative(stream, 1), -derivative(stream, 0)


def invariants(field):
    v_1, v_2 = velocity(field)
    return np.mean(v_1**2 + v_2**2) / 2, np.mean(field**2) / 2


@pytest.mark.parametrize("n", [15, 16])
def test_slope_is_that_of_the_equation(n, rng):
    # Waves up to 2 make products up to 4, which both grids hold without aliasing.
    w, f = smooth_field(rng, n, waves=2), smooth_field(rng, n, waves=2)
    v_1, v_2 = velocity(w)
    laplace = derivative(derivative(w, 0), 0) + derivative(derivative(w, 1), 1)
    expected = 0.02 * laplace + f - v_1 * derivative(w, 0) - v_2 * derivative(w, 1)
    step = 1e-6
    frames = problem.solve(
        w, f, viscosity=0.02, frame_time=step, num_frames=2, steps_per_frame=1
    )
    before, after = w, np.asarray(frames)
    actual = (4 * after[0] - 3 * before - after[1]) / (2 * step)
    assert_allclose(actual, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("steps", [3, None])
def test_taylor_green_vortices_decay_and_stay_in_place(steps):
    x = 2 * np.pi * np.arange(24) / 24
    w = np.cos(2 * x)[:, None] * np.cos(3 * x)[None, :]
    w += np.sin(3 * x)[:, None] * np.sin(2 * x)[None, :]  # the same eigenvalue
    frames = problem.solve(
        w, viscosity=1e-3, frame_time=0.5, num_frames=3, steps_per_frame=steps
    )
    times = 0.5 * np.arange(1, 4)[:, None, None]
    expected = np.exp(-1e-3 * 4 * np.pi**2 * 13 * times) * w
    assert_allclose(frames, expected, atol=1e-13)


def test_a_single_wave_is_forced_towards_its_steady_state():
    n, viscosity = 12, 0.05
    f = np.asarray(problem.forcing(num_points=n))
    rate = viscosity * 4 * np.pi**2 * 2
    frame = problem.solve(
        np.zeros((n, n)), f, viscosity=viscosity, num_frames=1, steps_per_frame=400
    )[0]
    assert_allclose(frame, (1 - np.exp(-rate)) / rate * f, atol=1e-9)


@pytest.mark.nightly
def test_time_steps_are_of_fourth_order(rng):
    w, f = smooth_field(rng, 24), smooth_field(rng, 24)
    run = partial(problem.solve, w, f, viscosity=1e-3, frame_time=0.3, num_frames=1)
    exact = run(steps_per_frame=320)
    errors = [relative_error(run(steps_per_frame=n), exact) for n in (10, 20, 40)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert_allclose(orders, 4, atol=0.2)


def test_energy_and_enstrophy_are_constant_without_viscosity_and_forcing(rng):
    w = smooth_field(rng, 24, waves=7)
    run = partial(problem.solve, w, viscosity=0.0, frame_time=0.2, num_frames=2)
    frames = np.asarray(run(steps_per_frame=200))
    assert relative_error(frames[-1], w) > 0.2  # it moved
    for frame in frames:
        assert_allclose(invariants(frame), invariants(w), rtol=1e-8)


def test_mean_vorticity_stays_zero(rng):
    w, f = smooth_field(rng, 16), smooth_field(rng, 16)
    frames = problem.solve(w + 1.0, f + 1.0, viscosity=1e-3, num_frames=2)
    assert_allclose(np.mean(frames, axis=(1, 2)), 0, atol=1e-14)


def test_chosen_steps_are_fine_and_finer_ones_change_little(rng):
    w, f = 9 * smooth_field(rng, 32), smooth_field(rng, 32)
    run = partial(problem.solve, w, f, viscosity=1e-4, frame_time=0.3, num_frames=2)
    exact = run(steps_per_frame=200)
    errors = [relative_error(run(courant=c), exact) for c in (2.0, 1.0, 0.5)]
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 8
    assert errors[2] < errors[1] / 8


def test_a_turned_flow_turns(rng):
    # The published forcing is the same for x and y exchanged; then v and w change sign.
    w = smooth_field(rng, 16)
    run = partial(problem.solve, viscosity=1e-3, num_frames=1, steps_per_frame=50)
    assert_allclose(run(-w.T), -jnp.swapaxes(run(w), 1, 2), atol=1e-12)


def test_initial_vorticity_has_the_published_spectrum():
    n = 8
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = partial(problem.initial_vorticity, num_points=n)
    fields = np.asarray(jax.jit(jax.vmap(draw))(keys))
    assert_allclose(fields.mean(axis=(1, 2)), 0, atol=1e-14)
    spectrum = np.mean(np.abs(np.fft.fft2(fields) / n**2) ** 2, axis=0)
    for k in ((1, 0), (0, 1), (2, 3), (-1, 2)):
        # The real part of c_k exp + c_-k exp: half of the sum of two variances.
        deviation = 7**1.5 * (4 * np.pi**2 * (k[0] ** 2 + k[1] ** 2) + 49) ** -1.25
        assert spectrum[k] == pytest.approx(2 * deviation**2, rel=0.06)


@pytest.mark.nightly
def test_samples_keep_every_stride_th_point_and_depend_on_the_key():
    key = jax.random.key(1)
    draw = partial(problem.sample, num_points=24, num_frames=2)
    fine, coarse = draw(key, stride=1), draw(key, stride=3)
    assert coarse.vorticity.shape == (2, 8, 8)
    assert_array_equal(coarse.initial, fine.initial[::3, ::3])
    assert_array_equal(coarse.vorticity, fine.vorticity[:, ::3, ::3])
    other = draw(jax.random.key(2), stride=3)
    assert relative_error(other.vorticity, coarse.vorticity) > 0.1
    again = problem.solve(
        fine.initial, problem.forcing(num_points=24), viscosity=1e-5, num_frames=2
    )
    assert_allclose(again, fine.vorticity, atol=1e-13)


@pytest.mark.nightly
def test_batches_equal_single_flows_and_float32_is_kept(rng):
    fields = np.stack([smooth_field(rng, 16), 3 * smooth_field(rng, 16)])
    run = partial(problem.solve, viscosity=1e-3, frame_time=0.2, num_frames=2)
    batch = jax.vmap(run)(fields)
    for field, frames in zip(fields, batch, strict=True):
        assert_allclose(run(field), frames, atol=1e-12)
    single = run(jnp.asarray(fields[0], jnp.float32))
    assert single.dtype == jnp.float32
    assert relative_error(single, batch[0]) < 1e-5


@pytest.mark.nightly
def test_gradients_agree_with_differences(rng):
    w, direction = smooth_field(rng, 12), smooth_field(rng, 12)

    def energy(amount, viscosity):
        frames = problem.solve(
            w + amount * direction,
            viscosity=viscosity,
            frame_time=0.1,
            num_frames=1,
            steps_per_frame=5,
        )
        return jnp.sum(frames**2)

    gradient = jax.grad(energy, argnums=(0, 1))(0.3, 0.01)
    for i, step in enumerate(((1e-5, 0.0), (0.0, 1e-6))):
        ahead = energy(0.3 + step[0], 0.01 + step[1])
        behind = energy(0.3 - step[0], 0.01 - step[1])
        expected = (ahead - behind) / (2 * max(step))
        assert gradient[i] == pytest.approx(float(expected), rel=1e-6)


def test_what_is_not_finite_stays_so_and_ends():
    w = np.full((8, 8), np.nan)
    assert np.isnan(problem.solve(w, viscosity=1e-3, num_frames=1)).all()
    x = 2 * np.pi * np.arange(32) / 32
    fast = 1e3 * (np.cos(x)[:, None] + np.cos(2 * x)[None, :])
    frames = problem.solve(fast, viscosity=0.0, num_frames=2, steps_per_frame=8)
    assert np.isnan(frames[-1]).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": np.ones((4, 5))}, "expected a square array"),
        ({"initial": np.ones((2, 8, 8))}, "vmap"),
        ({"initial": np.ones((3, 3))}, r"at least \(4, 4\)"),
        (
            {"forcing": np.ones((6, 6))},
            r"forcing has shape \(6, 6\), but initial has shape \(8, 8\)",
        ),
        ({"viscosity": -1.0}, "viscosity=-1.0"),
        ({"frame_time": 0.0}, "frame_time=0.0"),
        ({"num_frames": 0}, "num_frames=0"),
        ({"steps_per_frame": 0}, "steps_per_frame=0"),
        ({"courant": 0.0}, "courant=0.0"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"initial": np.ones((8, 8)), "viscosity": 1e-3} | changes
    with value_error(message):
        problem.solve(arguments.pop("initial"), **arguments)


def test_bad_dtypes_and_strides_are_refused():
    with pytest.raises(TypeError, match="floating"):
        problem.solve(np.ones((8, 8), int), viscosity=1e-3)
    with pytest.raises(TypeError, match="forcing has dtype float32"):
        problem.solve(np.ones((8, 8)), np.ones((8, 8), np.float32), viscosity=1e-3)
    with value_error("stride=3 must divide"):
        problem.sample(jax.random.key(0), num_points=8, stride=3)
