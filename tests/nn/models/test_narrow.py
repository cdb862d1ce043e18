"""Products of points in 16 bits: how far values and gradients are from float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import nn, precision
from opjax.nn.models import narrow
from tests.builders import small_operator
from tests.nn.attention import layers
from tests.nn.models.test_packing import ROUNDOFF
from tests.selection import by_day

LAYERS, SAMPLES, POINTS = 3, 4, 60
# Unit roundoffs of values and of gradients, for every layer: of a model with parameters
# twice those of the start, and of attention alone with four times those, where a ridge
# that the data choose is less certain than others.
MODEL, ATTENTION, CHOSEN = (1, 2), (6, 12), (8, 40)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    shapes = ((SAMPLES, POINTS, c) for c in (1, layers.FEATURES, layers.FEATURES))
    points, x, along = (rng.normal(size=shape) for shape in shapes)
    return jax.nn.sigmoid(points), x, along


def value_and_gradient(module, call, arrays):
    """Values `(s, n, c)`, and gradients of their products with the last array."""

    def one(module, *arrays):
        *given, along = arrays
        value, pull = jax.vjp(lambda module: call(module, *given), module)
        return value, jax.tree.leaves(pull(along))

    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))(module, *arrays)


def errors(found, expected):
    """Norms of the differences over those of what is expected, of all samples."""

    def norm(tree):
        return np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))

    for one, other in zip(found, expected, strict=True):
        yield norm(jax.tree.map(np.subtract, one, other)) / norm(other)


def assert_within(bounds, found, expected, roundoff):
    for error, bound in zip(errors(found, expected), bounds, strict=True):
        assert 0 < error < bound * roundoff


@pytest.mark.parametrize("dtype", precision.PRODUCT_TYPES)
@pytest.mark.parametrize("spec", ["hdk,hdm->hkm", "ce,cm->em", "hmk,hkc->mc"])
def test_products_err_by_two_unit_roundoffs(spec, dtype, rng):
    def value_and_pulled(dtype, x, y, along):
        value, pull = jax.vjp(partial(precision.product, spec, dtype=dtype), x, y)
        return value, *pull(along)

    sizes = dict(zip("hdkmce", (2, 3, 4, 50, 5, 6), strict=True))
    shapes = [
        [sizes[letter] for letter in w] for w in spec.replace("->", ",").split(",")
    ]
    arrays = [
        s * rng.normal(size=w) for s, w in zip((1e9, 1e-9, 1), shapes, strict=True)
    ]
    exact = jax.jit(partial(value_and_pulled, None))
    expected, sizes = exact(*arrays), exact(*map(np.abs, arrays))
    found = jax.jit(partial(value_and_pulled, dtype))(*arrays)
    for one, other, size in zip(found, expected, sizes, strict=True):
        assert np.all(np.abs(one - other) <= 2.01 * ROUNDOFF[dtype] * size)
        assert np.any(one != other)


CASES = [("softmax", mixer, None) for mixer in layers.MIXERS]
CASES += [("given", "functional", None), ("softmax", "softmax", "least_squares")]


@pytest.mark.nightly
@pytest.mark.parametrize(("basis", "mixer", "projection"), by_day(CASES, CASES[::3]))
def test_attention_stays_within_a_few_unit_roundoffs(basis, mixer, projection, arrays):
    def call(layer, points, x):
        return layer(x, **layers.arguments(basis, x, points))

    def of(dtype):
        layer = layers.make(basis, mixer, projection)
        narrow.narrow_attention(layer, layer.basis, dtype)
        return value_and_gradient(layer, call, arrays)

    bounds = CHOSEN if mixer == "functional_gcv" else ATTENTION
    assert_within(bounds, of("bfloat16"), of(None), ROUNDOFF["bfloat16"])


def model(features=None, **options):
    """An operator transformer with the means of functional attention."""
    built = small_operator(
        position=nn.Coordinates(1),
        feature_dim=layers.FEATURES,
        out_features=layers.FEATURES,
        features=layers.FEATURES,
        num_layers=LAYERS,
        attention=partial(
            nn.FunctionalAttention, num_heads=layers.HEADS, num_basis=layers.BASIS
        ),
        **options,
    )
    return nn.with_precision(layers.enlarged(built, 2), nn.Precision(features))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options", by_day([{}, {"chunk_size": 25}], day=[{"chunk_size": 25}])
)
def test_models_stay_within_unit_roundoffs_of_each_layer(options, arrays, expected):
    found = value_and_gradient(model("bfloat16", **options), call, arrays)
    assert_within(MODEL, found, expected, LAYERS * ROUNDOFF["bfloat16"])


def call(model, points, x):
    return model(points, x)


@pytest.fixture(scope="module")
def expected(arrays):
    return value_and_gradient(model(), call, arrays)


@pytest.mark.nightly
def test_sums_and_parameters_stay_wide(arrays):
    points, x, _ = jax.tree.map(lambda array: array[0].astype(jnp.float32), arrays)
    single = layers.single(model("bfloat16"))
    text = str(jax.make_jaxpr(jax.grad(lambda m: jnp.sum(m(points, x))))(single))
    products = [line for line in text.splitlines() if "dot_general[" in line]
    assert products
    assert not [line for line in products if ":bf16" in line.split("=")[0]]
    for line in text.splitlines():
        inside = [
            f for f in ("exp", "rsqrt", "erf", "lu", "cholesky") if f" {f} " in line
        ]
        assert not (inside and "bf16" in line)
    gradients = jax.eval_shape(jax.grad(lambda m: jnp.sum(m(points, x))), single)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradients)} == {np.dtype("float32")}


def test_another_precision_replaces_the_last_one(arrays):
    points, x = (array[0] for array in arrays[:2])
    built = model("bfloat16")
    for features in (None, "bfloat16"):
        nn.with_precision(built, nn.Precision(features))
        assert built.precision == nn.Precision(features)
        text = str(jax.make_jaxpr(partial(call, built))(points, x))
        assert ("bf16[" in text) == (features is not None)


def test_what_has_no_products_in_16_bits_is_refused_by_name():
    given = {"num_heads": layers.HEADS, "num_basis": layers.BASIS}
    waves = partial(nn.BasisAttention, num_heads=layers.HEADS)
    for attention, words in (
        (partial(nn.GalerkinAttention, num_heads=3), "GalerkinAttention has no prod"),
        (partial(nn.FunctionalAttention, **given, grid_shape=(9, 9)), "GridConvolutio"),
        (partial(nn.FunctionalAttention, **given, point_dim=1), "coordinates beside"),
        (partial(waves, basis=layers.BASES["indicator"]), "functions of a IndicatorB"),
        (partial(waves, basis=layers.BASES["orthonormal"]), "a OrthonormalBasis are"),
    ):
        build = partial(
            nn.OperatorTransformer,
            position=nn.Coordinates(1),
            feature_dim=0,
            out_features=1,
            features=layers.FEATURES,
            num_layers=1,
            attention=attention,
        )
        built = jax.eval_shape(lambda build=build: build(rngs=nnx.Rngs(0)))
        with pytest.raises(ValueError, match=f"features='bfloat16': .*{words}"):
            nn.with_precision(built, nn.Precision("bfloat16"))
