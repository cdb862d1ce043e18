"""Spectral convolution against its sum over frequencies, and what it preserves."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import opjax
from opjax.spectral import largest_modes
from tests import oracles, refused
from tests.selection import by_day

# Grid and kept frequencies: few, all, the Nyquist frequencies, and too many.
CASES = [
    ((7,), (3,)),
    ((6,), (4,)),
    ((5,), (6,)),
    ((1,), (1,)),
    ((5, 6), (4, 3)),
    ((4, 5), (4, 3)),
    ((4, 4), (3, 3)),
    ((3, 4), (6, 5)),
    ((4, 3), (7, 2)),
    ((3, 4, 4), (2, 3, 2)),
    ((2, 3, 3), (4, 2, 3)),
]
convolve = jax.jit(opjax.spectral_convolution, static_argnames="grid_shape")


def signed(m):
    return range(-(m // 2), m - m // 2)


def frequencies(grid_shape, modes):
    """Yields the index in the kernel and the frequency, of those the grid resolves."""
    *leading, last = grid_shape
    for index in np.ndindex(*modes):
        shifts = [m // 2 for m in modes[:-1]] + [0]
        f = tuple(i - s for i, s in zip(index, shifts, strict=True))
        resolved = all(g in signed(n) for g, n in zip(f[:-1], leading, strict=True))
        if resolved and 2 * f[-1] <= last:
            yield index, f


def summed(values, kernel, *, grid_shape):
    """The formula of the docstring, one frequency after the other."""
    n = len(values)
    x = np.array([np.array(j) / grid_shape for j in np.ndindex(*grid_shape)])
    output = np.zeros((n, kernel.shape[-2]), complex)
    for index, f in frequencies(grid_shape, kernel.shape[: len(grid_shape)]):
        wave = np.exp(2j * np.pi * x @ np.array(f))
        matrix = kernel[index][..., 0] + 1j * kernel[index][..., 1]
        multiple = 1 if f[-1] == 0 or 2 * f[-1] == grid_shape[-1] else 2
        coefficient = wave.conj() @ values / n
        output += multiple * np.outer(wave, coefficient @ matrix)
    return np.real(output)


def problem(rng, grid_shape, modes, channels=3, out_channels=2):
    """Returns values and a kernel."""
    values = rng.normal(size=(math.prod(grid_shape), channels))
    return values, rng.normal(size=(*modes, channels, out_channels, 2))


@pytest.mark.parametrize(("grid_shape", "modes"), by_day(CASES, CASES[1::3]))
def test_value_and_gradient(rng, grid_shape, modes):
    function = functools.partial(convolve, grid_shape=grid_shape)
    oracle = functools.partial(summed, grid_shape=grid_shape)
    args = problem(rng, grid_shape, modes)
    oracles.check(function, oracle, args)


def test_jit_vmap_and_float32(rng):
    function = functools.partial(convolve, grid_shape=(5, 6))
    oracles.check_transforms(function, problem(rng, (5, 6), (4, 3)))


@pytest.mark.parametrize(("grid_shape", "modes"), CASES)
def test_clipping_is_a_kernel_of_zeros_on_a_finer_grid(rng, grid_shape, modes):
    values, kernel = problem(rng, grid_shape, modes)
    cut = np.zeros_like(kernel)
    for index, _ in frequencies(grid_shape, modes):
        cut[index] = kernel[index]
    for weights in (kernel, cut):
        assert_allclose(
            convolve(values, weights, grid_shape=grid_shape),
            summed(values, kernel, grid_shape=grid_shape),
            atol=1e-12,
        )


def band_limited(rng, modes, channels):
    """Returns a function of points, with the frequencies of a kernel of `modes`."""
    waves = [f for _, f in frequencies(modes[:-1] + (2 * modes[-1],), modes)]
    shape = (len(waves), channels)
    amplitudes = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return lambda x: (np.exp(2j * np.pi * x @ np.array(waves).T) @ amplitudes).real


def grid(grid_shape):
    return np.array([np.array(j) / grid_shape for j in np.ndindex(*grid_shape)])


@pytest.mark.parametrize(
    ("coarse", "fine", "modes"),
    [
        ((9,), (14,), (4,)),
        ((5, 6), (10, 12), (3, 3)),
        ((4, 3, 5), (8, 6, 5), (3, 3, 2)),
    ],
)
def test_a_band_limited_function_has_one_image_on_all_grids(rng, coarse, fine, modes):
    function = band_limited(rng, modes, channels=3)
    kernel = rng.normal(size=(*modes, 3, 2, 2))
    images = [
        convolve(function(grid(shape)), kernel, grid_shape=shape)
        for shape in (coarse, fine)
    ]
    common = grid(coarse).tolist(), grid(fine).tolist()
    pairs = [(i, common[1].index(x)) for i, x in enumerate(common[0]) if x in common[1]]
    assert pairs
    at_coarse, at_fine = zip(*pairs, strict=True)
    assert_allclose(
        images[0][np.array(at_coarse)], images[1][np.array(at_fine)], atol=1e-12
    )


def test_a_translation_of_the_input_translates_the_output(rng):
    grid_shape, shift = (5, 6), (2, 1)
    values, kernel = problem(rng, grid_shape, (3, 3))

    def translated(v):
        return np.roll(v.reshape(*grid_shape, -1), shift, (0, 1)).reshape(v.shape)

    function = functools.partial(convolve, grid_shape=grid_shape)
    assert_allclose(
        function(translated(values), kernel),
        translated(np.asarray(function(values, kernel))),
        atol=1e-12,
    )


def test_linear_in_the_values_and_in_the_kernel(rng):
    values, kernel = problem(rng, (4, 5), (3, 3))
    other_values, other_kernel = problem(rng, (4, 5), (3, 3))
    function = functools.partial(convolve, grid_shape=(4, 5))
    for sum_, parts in (
        (function(values - 2 * other_values, kernel), (values, other_values)),
        (function(values, kernel - 2 * other_kernel), (kernel, other_kernel)),
    ):
        first, second = (
            function(part, kernel) if part.ndim == 2 else function(values, part)
            for part in parts
        )
        assert_allclose(sum_, first - 2 * second, atol=1e-12)


@pytest.mark.parametrize("grid_shape", [(7,), (8,), (5, 7), (3, 4, 5)])
def test_identity_matrices_at_all_frequencies_are_the_identity(rng, grid_shape):
    modes = largest_modes(grid_shape)
    values, _ = problem(rng, grid_shape, modes)
    kernel = np.zeros((*modes, 3, 3, 2))
    kernel[..., 0] = np.eye(3)
    output = convolve(values, kernel, grid_shape=grid_shape)
    assert_allclose(output, values, atol=1e-12)


def test_the_conjugate_transpose_of_the_matrices_is_the_adjoint(rng):
    # With as many positive as negative frequencies, and no Nyquist frequency.
    values, kernel = problem(rng, (5, 6), (3, 3))
    others = rng.normal(size=(30, 2))
    adjoint = np.swapaxes(kernel, -3, -2) * np.array([1, -1])
    function = functools.partial(convolve, grid_shape=(5, 6))
    assert_allclose(
        np.vdot(function(values, kernel), others),
        np.vdot(values, function(others, adjoint)),
        rtol=1e-12,
    )


@pytest.mark.parametrize("grid_shape", [(6,), (7,), (4, 6)])
def test_imaginary_parts_that_a_real_function_lacks_have_no_effect(rng, grid_shape):
    """Of frequency zero, and of the Nyquist frequency where there is one."""
    modes = largest_modes(grid_shape)
    values, kernel = problem(rng, grid_shape, modes)
    kernel = jnp.asarray(kernel)

    def total(kernel):
        y = convolve(values, kernel, grid_shape=grid_shape)
        return jnp.sum(y**2)

    gradient = jax.jit(jax.grad(total))(kernel)[..., 1]
    zero = tuple(m // 2 for m in modes[:-1]) + (0,)
    assert_allclose(gradient[zero], 0, atol=1e-10)
    if grid_shape[-1] % 2 == 0:
        nyquist = zero[:-1] + (-1,)
        assert_allclose(gradient[nyquist], 0, atol=1e-10)


def test_bad_input(rng):
    values, kernel = problem(rng, (4, 5), (3, 3))
    refused.each(
        (
            lambda: convolve(
                values, kernel[..., 0] + 1j * kernel[..., 1], grid_shape=(4, 5)
            ),
            r"kernel has dtype complex128",
        ),
        (
            lambda: convolve(np.ones((20, 3), int), kernel, grid_shape=(4, 5)),
            r"values has dtype int64",
        ),
        (
            lambda: convolve(values, kernel, grid_shape=(4, 4)),
            r"values \(20, 3\) must have shape \(16, 3\)",
        ),
        (
            lambda: convolve(values[:, :2], kernel, grid_shape=(4, 5)),
            r"values \(20, 2\) must have shape \(20, 3\)",
        ),
        (
            lambda: convolve(values, kernel, grid_shape=(20,)),
            r"must have 1 frequency axes",
        ),
        (
            lambda: convolve(values, kernel[..., :1], grid_shape=(4, 5)),
            r"axis of 2 \(real, imaginary\)",
        ),
        (lambda: convolve(values[None], kernel, grid_shape=(4, 5)), "2 axes"),
    )
