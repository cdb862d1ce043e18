"""The Fourier neural operator: its parts, its grids, its size and errors."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from tests import refused
from tests.nn.parameters import layer_of, size
from tests.selection import by_day

SMALL: dict[str, Any] = {
    "feature_dim": 1,
    "out_features": 2,
    "features": 4,
    "num_layers": 3,
}


def make(grid_shape=(6, 5), modes=2, dtype=jnp.float64, **options):
    """Returns a model with parameters of NumPy, which take no time to compile."""
    options = {"grid_shape": grid_shape, "modes": modes} | SMALL | options
    model = jax.eval_shape(
        lambda: nn.FourierNeuralOperator(**options, rngs=nnx.Rngs(0))
    )
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda p: jnp.asarray(0.4 * rng.normal(size=p.shape), dtype), model
    )


def nodes(grid_shape):
    points = [np.array(j) / grid_shape for j in np.ndindex(*grid_shape)]
    return jnp.asarray(points)


def sample(rng, grid_shape=(6, 5)):
    """Returns mesh points and values."""
    return nodes(grid_shape), rng.normal(size=(math.prod(grid_shape), 1))


def gelu(z):
    return jax.nn.gelu(z, approximate=False)


@nnx.jit(static_argnames="grid_shape")
def run(model, *args, grid_shape=None, time=None):
    return model(*args, grid_shape=grid_shape, time=time)


@pytest.mark.nightly
@pytest.mark.parametrize("grid_shape", [(30,), (6, 5), (2, 3, 5)])
def test_grids_of_every_dimension(rng, grid_shape):
    output = run(make(grid_shape, modes=1), *sample(rng, grid_shape))
    assert output.shape == (30, 2)
    assert np.all(np.isfinite(output))


@pytest.mark.parametrize("norm", by_day([False, True], day=[True]))
@pytest.mark.parametrize("ratio", [None, 0.5])
def test_the_model_equals_a_loop_over_its_parts(rng, ratio, norm):
    model = make(
        block=functools.partial(
            nn.models.FourierBlock, channel_mlp_ratio=ratio, instance_norm=norm
        )
    )
    x, values = sample(rng)

    def normalized(y):
        if not norm:
            return y
        return (y - jnp.mean(y, 0)[None]) / jnp.sqrt(jnp.var(y, 0) + 1e-5)[None]

    @jax.jit
    def loop(model):
        z = model.lifting(jnp.concatenate([x, values], axis=1))
        for i in range(3):
            block = layer_of(model.blocks, i)
            act = gelu if i < 2 else lambda y: y
            y = act(normalized(block.convolution(z)) + block.skip(z))
            if ratio is not None:
                mixed = block.channel_mlp(y) + block.gate[...][None] * z
                y = act(normalized(mixed))
            z = y
        return model.projection(z)

    assert_allclose(run(model, x, values), loop(model), rtol=1e-9)


def test_padding_is_zeros_around_the_domain(rng):
    plain, padded = make((8, 8)), make((5, 6), padding=0.2, pad_multiple=8)
    x, values = sample(rng, (5, 6))
    z = padded.lift(x, values, time=None, grid_shape=(5, 6))
    wide = jnp.pad(z.reshape(5, 6, 4), ((1, 2), (1, 1), (0, 0)))
    assert_array_equal(padded.pad(z, (5, 6)), wide.reshape(64, 4))
    assert_array_equal(padded.crop(wide.reshape(64, 4), (5, 6)), z)
    # The same numbers: the same layers act on the padded grid.
    plain.lift = lambda *_, **__: wide.reshape(64, 4)
    inside = run(plain, None, values).reshape(8, 8, 2)[1:6, 1:7].reshape(30, 2)
    assert_allclose(run(padded, x, values), inside, rtol=1e-10)


def test_every_axis_may_have_a_padding_of_its_own():
    model = make((8, 5), padding=(0.0, 0.2))
    assert model.padded_shape((8, 5)) == (8, 7)
    assert model.padded_shape((6, 10)) == (6, 14)
    z = np.arange(80.0).reshape(40, 2)
    assert_array_equal(model.crop(model.pad(z, (8, 5)), (8, 5)), z)


def test_modes_are_those_of_the_padded_grid():
    model = make((5, 5), modes=4, padding=0.2)
    assert model.blocks.convolution.kernel.shape[1:3] == (7, 4)


def test_on_one_axis_the_sample_is_the_grid(rng):
    model = make((12,))
    for n in (12, 9):
        x, values = sample(rng, (n,))
        expected = run(model, x, values, grid_shape=(n,))
        assert_array_equal(run(model, x, values), expected)


@pytest.mark.nightly
def test_a_linear_model_of_band_limited_functions_has_no_resolution(rng):
    """Frequencies that both grids resolve: the same function on both."""
    block = nn.models.FourierBlock(
        2, grid_shape=(8,), modes=2, channel_mlp_ratio=None, rngs=nnx.Rngs(0)
    )
    block = jax.tree.map(lambda p: p.astype(jnp.float64), block)
    amplitudes = rng.normal(size=(2, 2))

    def image(n):
        x = 2 * np.pi * np.arange(n)[:, None] / n
        values = amplitudes[:1] + np.cos(x) * amplitudes[1:]
        return block(jnp.asarray(values), grid_shape=(n,))

    assert_allclose(image(8)[::2], image(12)[::3], rtol=1e-10)


def test_without_positions_translations_of_the_input_translate_the_output(rng):
    model = make(position=None)
    _, values = sample(rng)

    def turn(v):
        return jnp.roll(v.reshape(6, 5, -1), (2, 1), (0, 1)).reshape(30, -1)

    assert_allclose(
        run(model, None, turn(values)), turn(run(model, None, values)), rtol=1e-9
    )


def test_coarser_grids_leave_frequencies_out(rng):
    model = make((8, 8), modes=4)
    output = run(model, *sample(rng, (3, 4)), grid_shape=(3, 4))
    assert output.shape == (12, 2)
    assert np.all(np.isfinite(output))


def test_positions_may_be_distances_and_time_may_be_given(rng):
    model = make(
        position=functools.partial(nn.ReferenceDistances, num_reference=2),
        time_embedding=True,
        feature_dim=0,
    )
    assert model.lifting.hidden[0].kernel.shape == (4, 8)
    x, _ = sample(rng)
    early, late = (run(model, x, time=jnp.float64(t)) for t in (0.1, 0.9))
    assert float(np.max(np.abs(early - late))) > 1e-8


@pytest.mark.nightly
def test_batches_and_single_precision(rng):
    model = make(dtype=jnp.float32)
    x, values = (a.astype(jnp.float32) for a in sample(rng))
    batch = jnp.stack([values, 2 * values])
    output = nnx.jit(jax.vmap(model, in_axes=(None, 0)))(x, batch)
    assert output.dtype == jnp.float32
    assert_allclose(output[0], run(model, x, values), rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_every_parameter_has_a_gradient(rng):
    model = make()
    x, values = sample(rng)
    gradient = jax.jit(jax.grad(lambda m: jnp.sum(m(x, values) ** 2)))(model)
    for leaf in jax.tree.leaves(gradient):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf != 0)


COUNTS = {
    "package": ({"modes": (12, 7)}, 2_803_393),
    "package with 16 modes": ({"modes": (16, 9)}, 4_769_473),
    "package of width 32": ({"modes": (12, 7), "features": 32}, 701_281),
    "original": (
        {
            "modes": 12,
            "block": functools.partial(nn.models.FourierBlock, channel_mlp_ratio=None),
            "projection_ratio": 1,
        },
        9_466_817,
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_models_have_the_published_number_of_parameters(name):
    options, count = COUNTS[name]
    build = functools.partial(
        nn.FourierNeuralOperator, grid_shape=(85, 85), feature_dim=1, out_features=1
    )
    model = jax.eval_shape(lambda: build(**options, rngs=nnx.Rngs(0)))
    assert size(model) == count


test_bad_options_are_refused = refused.options(
    make,
    [
        ({"modes": (7, 3)}, r"modes=\(7, 3\).*grid_shape=\(6, 5\), at most \(6, 3\)"),
        ({"grid_shape": (2, 2, 2, 2)}, "must have 1, 2 or 3 axes"),
        ({"features": 0}, "features=0 must be positive"),
        ({"position": None, "feature_dim": 0}, "leave the model without inputs"),
        ({"padding": -0.1}, r"padding=\(-0.1, -0.1\) must be non-negative"),
        ({"padding": (0.1,)}, r"padding=\(0.1,\) must be one number, or one per axis"),
    ],
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x, f: m(x), r"features None must have shape \(30, 1\)"),
        (lambda m, x, f: m(None, f), r"mesh_points None must have shape \(30, 2\)"),
        (lambda m, x, f: m(x[:-1], f), r"mesh_points \(29, 2\) must have shape"),
        (lambda m, x, f: m(x, f, grid_shape=(6, 6)), r"grid_shape=\(6, 6\)"),
        (lambda m, x, f: m(x, f, grid_shape=(30,)), "the axes of this"),
        (
            lambda m, x, f: m(x, f, quadrature_weights=np.ones(30)),
            "quadrature_weights is not supported by a Fourier neural operator",
        ),
        (lambda m, x, f: m(x, f, time=np.ones(())), "time_embedding=False"),
    ],
)
def test_bad_calls_name_both_sides(rng, call, message):
    with pytest.raises(ValueError, match=message):
        call(make(), *sample(rng))
