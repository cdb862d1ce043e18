"""Convolution against written-out loops, by the direct sums and by Winograd's."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from opjax import _winograd
from opjax.convolution import grid_convolution
from tests import oracles
from tests.selection import by_day

# Grid and stencil sizes.
DIRECT = [
    ((1,), (3,)),
    ((7,), (1,)),
    ((8,), (3,)),
    ((3,), (5,)),
    ((1, 1), (3, 3)),
    ((2, 3), (3, 3)),
    ((5, 4), (3, 3)),
    ((5, 4), (1, 1)),
    ((4, 6), (5, 5)),
    ((6, 5), (3, 1)),
    ((2, 3, 4), (3, 3, 3)),
    ((3, 2, 2), (1, 3, 5)),
]
GRIDS = [(1, 1), (1, 6), (2, 3), (4, 4), (5, 4), (8, 7), (9, 12)]  # tiles are 4 x 4
LARGE = (18, 17)  # with 64 channels: by Winograd's filters on CPU


def neighbours(grid_shape, sizes):
    """Yields (output point, shift, input point), skipping inputs beyond the grid."""
    for i in np.ndindex(*grid_shape):
        for s in np.ndindex(*sizes):
            j = tuple(a + b - c // 2 for a, b, c in zip(i, s, sizes, strict=True))
            if all(0 <= a < n for a, n in zip(j, grid_shape, strict=True)):
                yield i, s, j


def looped(values, kernel, grid_shape):
    field = values.reshape(*grid_shape, -1)
    out = np.zeros((*grid_shape, kernel.shape[-1]))
    for i, s, j in neighbours(grid_shape, kernel.shape[:-2]):
        out[i] += field[j] @ kernel[s]
    return out.reshape(-1, kernel.shape[-1])


def looped_gradients(values, kernel, cotangent, grid_shape):
    field = values.reshape(*grid_shape, -1)
    cotangent = cotangent.reshape(*grid_shape, -1)
    values_bar, kernel_bar = np.zeros(field.shape), np.zeros(kernel.shape)
    for i, s, j in neighbours(grid_shape, kernel.shape[:-2]):
        values_bar[j] += kernel[s] @ cotangent[i]
        kernel_bar[s] += np.outer(field[j], cotangent[i])
    return values_bar.reshape(values.shape), kernel_bar


def native(values, kernel, grid_shape):
    """The library's convolution and its own gradients, for grids of two axes."""
    out = lax.conv_general_dilated(
        values.reshape(1, *grid_shape, -1),
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return out.reshape(-1, kernel.shape[-1])


def problem(rng, grid_shape, sizes, channels=3, out_channels=2):
    """Returns values, a kernel, and a cotangent of the output."""
    n = math.prod(grid_shape)
    values = rng.normal(size=(n, channels))
    kernel = rng.normal(size=(*sizes, channels, out_channels))
    return values, kernel, rng.normal(size=(n, out_channels))


def pull_back(function, values, kernel, cotangent):
    return jax.vjp(function, values, kernel)[1](jnp.asarray(cotangent))


@functools.partial(jax.jit, static_argnums=0)
def everything(function, values, kernel, cotangent):
    """The convolution and its gradients, compiled as one program."""
    out, pullback = jax.vjp(function, values, kernel)
    return out, *pullback(jnp.asarray(cotangent))


def convolve(grid_shape):
    return lambda v, k: grid_convolution(v, k, grid_shape=grid_shape)


def minimal_filtering(grid_shape):
    def function(values, kernel):
        field = jnp.asarray(values).reshape(*grid_shape, -1)
        field = jnp.pad(field, [(1, 1), (0, 0), (0, 0)])
        out = _winograd.correlate(field, jnp.asarray(kernel))
        return out.reshape(-1, kernel.shape[-1])

    return function


def close(actual, expected, tolerance=1e-12):
    assert actual.shape == expected.shape
    limit = tolerance * np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=limit)


def all_close(actual, expected, tolerance=1e-12):
    for a, e in zip(actual, expected, strict=True):
        close(a, e, tolerance)


@pytest.mark.parametrize(("grid_shape", "sizes"), DIRECT)
def test_convolution_is_the_written_out_sum(rng, grid_shape, sizes):
    values, kernel, cotangent = problem(rng, grid_shape, sizes)
    actual = everything(convolve(grid_shape), values, kernel, cotangent)
    expected = looped_gradients(values, kernel, cotangent, grid_shape)
    all_close(actual, [looped(values, kernel, grid_shape), *expected])


@pytest.mark.parametrize("grid_shape", GRIDS)
def test_minimal_filtering_is_the_written_out_sum(rng, grid_shape):
    values, kernel, cotangent = problem(rng, grid_shape, (3, 3))
    actual = everything(minimal_filtering(grid_shape), values, kernel, cotangent)
    expected = looped_gradients(values, kernel, cotangent, grid_shape)
    all_close(actual, [looped(values, kernel, grid_shape), *expected])


def test_large_convolution_is_the_written_out_sum(rng):
    values, kernel, cotangent = problem(rng, LARGE, (3, 3), 64, 65)
    actual = everything(convolve(LARGE), values, kernel, cotangent)
    expected = looped_gradients(values, kernel, cotangent, LARGE)
    all_close(actual, [looped(values, kernel, LARGE), *expected])


@pytest.mark.parametrize(
    ("grid_shape", "sizes", "channels"), [((5, 4), (3, 3), 3), (LARGE, (3, 3), 64)]
)
def test_convolution_transforms(rng, grid_shape, sizes, channels):
    arguments = problem(rng, grid_shape, sizes, channels, channels)[:2]
    oracles.check_transforms(convolve(grid_shape), arguments)


@pytest.mark.parametrize(
    ("grid_shape", "sizes"), [((5,), (3,)), ((5, 4), (3, 3)), ((2, 3, 2), (3, 1, 3))]
)
def test_gradients_pair_with_every_direction(rng, grid_shape, sizes):
    arguments = problem(rng, grid_shape, sizes)[:2]
    oracle = lambda v, k: looped(v, k, grid_shape)  # noqa: E731
    oracles.check_gradient(convolve(grid_shape), oracle, arguments)


@pytest.mark.parametrize(
    ("grid_shape", "channels"), by_day([((5, 4), 3), (LARGE, 64)], [((5, 4), 3)])
)
def test_adjoint_is_the_convolution_with_the_reflected_kernel(
    rng, grid_shape, channels
):
    u, kernel, v = problem(rng, grid_shape, (3, 3), channels, channels)
    adjoint = kernel[::-1, ::-1].swapaxes(2, 3)
    function = convolve(grid_shape)
    expected = np.sum(u * function(v, adjoint))
    np.testing.assert_allclose(np.sum(function(u, kernel) * v), expected, rtol=1e-11)
    close(pull_back(function, u, kernel, v)[0], np.asarray(function(v, adjoint)))


@pytest.mark.parametrize(
    ("grid_shape", "channels"), by_day([((5, 4), 3), (LARGE, 64)], [((5, 4), 3)])
)
@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (0, 0)])
def test_batches_match_a_loop_over_samples(rng, grid_shape, channels, in_axes):
    samples = [problem(rng, grid_shape, (3, 3), channels, channels) for _ in range(3)]
    values, kernels, cotangents = (np.stack(a) for a in zip(*samples, strict=True))
    arguments = [values, kernels]
    for i, axis in enumerate(in_axes):
        if axis is None:  # the same array in all samples
            arguments[i][:] = arguments[i][0]
            arguments[i] = arguments[i][0]
    one = there_and_back(grid_shape)

    @jax.jit
    def batched(*arguments):
        mapped = jax.vmap(convolve(grid_shape), in_axes)
        return jax.vmap(one, (*in_axes, 0))(*arguments), pull_back(mapped, *arguments)

    (values_of_batch, gradients), found = batched(*arguments, cotangents)
    samples = [one(*s) for s in zip(values, kernels, cotangents, strict=True)]
    close(values_of_batch, np.stack([value for value, _ in samples]))
    loop = [np.stack(a) for a in zip(*[back for _, back in samples], strict=True)]
    all_close(gradients, loop)
    summed = [
        a if axis == 0 else a.sum(axis=0) for a, axis in zip(loop, in_axes, strict=True)
    ]
    all_close(found, summed)


@functools.cache
def there_and_back(grid_shape):
    """Value and pulled back cotangent, by one program."""
    function = convolve(grid_shape)
    return jax.jit(lambda v, k, c: (function(v, k), pull_back(function, v, k, c)))


def test_batches_of_batches_match_a_loop(rng):
    values = rng.normal(size=(2, 2, math.prod(LARGE), 64))
    kernel = rng.normal(size=(3, 3, 64, 64))
    function = convolve(LARGE)
    twice = jax.vmap(jax.vmap(function, (0, None)), (0, None))
    expected = np.stack([[function(v, kernel) for v in row] for row in values])
    close(jax.jit(twice)(values, kernel), expected)


@pytest.mark.parametrize(("grid_shape", "channels"), [((5, 4), 3), (LARGE, 64)])
def test_scanned_layers_have_the_gradients_of_a_loop(rng, grid_shape, channels):
    values, _, target = problem(rng, grid_shape, (3, 3), channels, channels)
    kernels = rng.normal(size=(3, 3, 3, channels, channels)) / (3 * channels**0.5)

    def scanned(values, kernels):
        def layer(v, kernel):
            return v + jnp.tanh(grid_convolution(v, kernel, grid_shape=grid_shape)), ()

        return jnp.sum(lax.scan(layer, values, kernels)[0] * target)

    def unrolled(values, kernels):
        for kernel in kernels:
            values = values + jnp.tanh(native(values, kernel, grid_shape))
        return jnp.sum(values * target)

    actual = jax.jit(jax.grad(scanned, (0, 1)))(values, kernels)
    all_close(actual, jax.jit(jax.grad(unrolled, (0, 1)))(values, kernels))


@pytest.mark.nightly
@pytest.mark.parametrize(("grid_shape", "channels"), [((5, 4), 3), (LARGE, 64)])
@pytest.mark.parametrize("batched", [False, True])
def test_gradients_have_gradients(rng, grid_shape, channels, batched):
    values, kernel, cotangent = problem(rng, grid_shape, (3, 3), channels, channels)

    def squared_gradients(convolution):
        def loss(v, k):
            if batched:
                out = jax.vmap(convolution, (0, None))(jnp.stack([v, 0.5 * v]), k)
                return jnp.sum(cotangent * jnp.sum(out**2, axis=0))
            return jnp.sum(cotangent * convolution(v, k) ** 2)

        def sizes(v, k):
            return sum(jnp.sum(g**2) for g in jax.grad(loss, (0, 1))(v, k))

        return jax.jit(jax.grad(sizes, (0, 1)))(values, kernel)

    expected = squared_gradients(lambda v, k: native(v, k, grid_shape))
    all_close(squared_gradients(convolve(grid_shape)), expected)


def test_scanned_layers_have_hessians(rng):
    values, kernel, _ = problem(rng, (3, 2), (3, 3), 2)

    def scanned(convolution):
        def layer(v, kernel):
            return jnp.tanh(convolution(v, kernel)), ()

        return lambda t: jnp.sum(lax.scan(layer, t * values, kernel[None])[0])

    ours, expected = map(scanned, (convolve((3, 2)), lambda v, k: native(v, k, (3, 2))))
    reverse = jax.jacrev(jax.grad(ours))
    twice = (jax.hessian(ours), reverse, jax.hessian(expected))
    found = jax.jit(lambda t: [function(t) for function in twice])(1.0)
    all_close(found[:2], [found[2]] * 2)


def test_forward_mode_is_refused(rng):
    values, kernel, _ = problem(rng, (5, 4), (3, 3))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(convolve((5, 4)), (values, kernel), (values, kernel))


def test_minimal_filtering_keeps_six_digits_of_float32(rng):
    grid_shape = (45, 45)
    exact = problem(rng, grid_shape, (3, 3), 64, 128)
    single = [jnp.asarray(a, jnp.float32) for a in exact]
    function = convolve(grid_shape)

    actual = everything(function, *single)
    assert all(a.dtype == jnp.float32 for a in actual)
    rounded = [jnp.asarray(a, jnp.float64) for a in single]
    expected = everything(lambda v, k: native(v, k, grid_shape), *rounded)
    all_close(actual, expected, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
@pytest.mark.parametrize(("grid_shape", "channels"), [((5, 4), 3), (LARGE, 64)])
def test_dtype_is_kept(rng, dtype, grid_shape, channels):
    values, kernel, cotangent = (
        jnp.asarray(a, dtype)
        for a in problem(rng, grid_shape, (3, 3), channels, channels)
    )
    found = jax.eval_shape(
        functools.partial(everything, convolve(grid_shape)), values, kernel, cotangent
    )
    assert [a.dtype for a in found] == [dtype] * 3


def test_minimal_filtering_is_for_large_planar_convolutions():
    def chosen(grid_shape, sizes, channels, dtype=jnp.float32):
        padded = grid_shape[0] + sizes[0] - 1, *grid_shape[1:]
        field = jax.ShapeDtypeStruct((*padded, channels), dtype)
        kernel = jax.ShapeDtypeStruct((*sizes, channels, 64), dtype)
        return _winograd.pays_off(field, kernel)

    assert chosen((85, 85), (3, 3), 128)
    assert chosen((16, 16), (3, 3), 64)
    assert chosen((16, 16), (3, 3), 64, jnp.float64)
    assert not chosen((16, 16), (3, 3), 64, jnp.bfloat16)
    assert not chosen((15, 85), (3, 3), 128)
    assert not chosen((85, 85), (3, 3), 63)
    assert not chosen((85, 85), (5, 5), 128)
    assert not chosen((85, 85), (3, 1), 128)
    assert not chosen((8000,), (3,), 128)
    assert not chosen((20, 20, 20), (3, 3, 3), 128)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other code elsewhere")
def test_large_convolutions_are_matrix_products_on_cpu(rng):
    def compiled(channels):
        arguments = problem(rng, LARGE, (3, 3), channels, channels)
        gradients = jax.jit(lambda *a: pull_back(convolve(LARGE), *a))
        return gradients.lower(*arguments).compile().as_text()

    assert " convolution(" in compiled(3)
    assert " convolution(" not in compiled(64)


@pytest.mark.parametrize(
    ("values", "kernel", "grid_shape", "match"),
    [
        ((19, 3), (3, 3, 3, 2), (5, 4), r"values \(19, 3\) must have shape \(20, 3\)"),
        ((20, 4), (3, 3, 3, 2), (5, 4), r"values \(20, 4\) must have shape \(20, 3\)"),
        ((20, 3), (3, 3, 3, 2), (20,), "must have 1 stencil axes"),
        ((20, 3), (3, 3, 2), (5, 4), "must have 2 stencil axes"),
        ((20, 3), (2, 3, 3, 2), (5, 4), "odd stencil sizes"),
        ((20, 3), (3, 4, 3, 2), (5, 4), "odd stencil sizes"),
        ((2, 20, 3), (3, 3, 3, 2), (5, 4), r"use `jax\.vmap`"),
    ],
)
def test_mismatched_shapes_are_named(values, kernel, grid_shape, match):
    with pytest.raises(ValueError, match=match):
        grid_convolution(np.ones(values), np.ones(kernel), grid_shape=grid_shape)


@pytest.mark.parametrize("name", ["values", "kernel"])
def test_integers_are_refused(name):
    arrays = {"values": np.ones((20, 3)), "kernel": np.ones((3, 3, 3, 2))}
    arrays[name] = arrays[name].astype(int)
    with pytest.raises(TypeError, match=f"{name} has dtype int"):
        grid_convolution(**arrays, grid_shape=(5, 4))
