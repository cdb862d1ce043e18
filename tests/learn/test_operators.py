"""Operators by name: all of the registry, compositions, and your own."""

import dataclasses
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import nn
from opjax.learn.config import ModelOptions, RunOptions
from opjax.learn.registry import attentions, models, operators
from opjax.nn import division
from opjax.samples import Sample
from tests.refused import value_error
from tests.selection import by_day

OWN = """
import jax.numpy as jnp
from flax import nnx
from opjax import nn

def build(config, *, point_dim, feature_dim, out_features, grid_shape,
          time_embedding, rngs):
    return Mine(point_dim + feature_dim, out_features, rngs)

class Mine(nnx.Module):
    def __init__(self, inputs, outputs, rngs):
        self.linear = nn.layers.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, mesh_points, features=None, *, quadrature_weights=None,
                 time=None):
        parts = [mesh_points] if features is None else [mesh_points, features]
        return self.linear(jnp.concatenate(parts, axis=1))

class Attention(nnx.Module):
    def __init__(self, features, *, num_heads, rngs):
        self.num_heads = num_heads
        self.linear = nn.layers.Linear(features, features, rngs=rngs)

    def __call__(self, x, *, mesh_points=None, basis=None, quadrature_weights=None):
        return self.linear(x.mean(axis=0, keepdims=True)) + 0 * x

def neither(a, b):
    pass

number = 3
"""


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, ModelOptions):
    pass


def tiny(name, **changes):
    sizes = {"width": 8, "num_layers": 2, "num_heads": 2, "num_basis": 4}
    sizes |= {"num_boxes": 2, "overlap": 1, "num_modes": 2, "num_landmarks": 4}
    sizes |= {"num_random": 8, "num_projected": 4}
    return Config(models=(name,), **(sizes | changes))


def grid(rng, shape=(6, 5)):
    axes = [np.linspace(0, 1, n, dtype=np.float32) for n in shape]
    points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    features = rng.normal(size=(len(points), 1)).astype(np.float32)
    return Sample(points, points[:, :1], features, grid_shape=shape)


def abstract(name, sample, **changes):
    """Builds without computing anything."""
    config, sizes = tiny(name, **changes), operators.sizes([sample])
    return jax.eval_shape(
        lambda key: operators.build(config, sizes, rngs=nnx.Rngs(key)),
        jax.random.key(0),
    )


def assert_can_be_called(model, sample):
    arrays = jnp.asarray(sample.mesh_points), jnp.asarray(sample.features)
    found = jax.eval_shape(lambda model: model(*arrays), model)
    assert found.shape == sample.target.shape


@pytest.mark.parametrize(
    "name", by_day(operators.REGISTRY, list(operators.REGISTRY)[::3])
)
def test_every_name_is_built_and_called_alike(name, rng):
    sample = grid(rng)
    assert_can_be_called(abstract(name, sample, equal_parameters=False), sample)


@pytest.mark.nightly
@pytest.mark.parametrize("basis", operators.BASES)
@pytest.mark.parametrize("mixer", operators.MIXERS)
def test_any_basis_goes_with_any_mixer(basis, mixer, rng):
    sample, name = grid(rng), f"{basis}:{mixer}"
    model = abstract(name, sample, equal_parameters=False, num_basis=9)
    assert_can_be_called(model, sample)


@pytest.mark.nightly
def test_transolver_has_a_basis_for_every_block_and_clips_on_grids_only(rng):
    on_grid = grid(rng)
    scattered = on_grid._replace(grid_shape=None)
    for sample, bounds in ((on_grid, (0.1, 5.0)), (scattered, None)):
        model = abstract("transolver", sample)
        assert model.basis is None
        assert model.blocks.attention.basis.temperature_bounds == bounds
        shared = abstract("functional", sample)
        assert shared.basis.temperature_bounds == (0.1, 5.0)
        free = abstract("functional", sample, min_temperature=0.0)
        assert free.basis.temperature_bounds is None
        assert abstract("functional", sample, shared_basis=False).basis is None


@pytest.mark.nightly
def test_rivals_are_what_their_names_say(rng):
    sample = grid(rng)
    plus = abstract("transolver_plus", sample, temperature=0.3)
    assert plus.basis is None
    assert isinstance(plus.blocks.attention.basis, nn.bases.AdaptiveBasis)
    assert isinstance(plus.blocks.attention.mixer, nn.mixers.SoftmaxMap)
    flare = abstract("flare", sample, num_basis=5, equal_parameters=False)
    assert isinstance(flare, nn.Flare)
    assert flare.blocks.attention.latents.shape == (2, 2, 5, 4)
    lno = abstract("lno", sample, mlp_layers=3, equal_parameters=False)
    assert isinstance(lno, nn.LatentNeuralOperator)
    assert len(lno.trunk.hidden) == 4
    # FLARE's attention goes into other models, the others' model is its own.
    sizes = operators.sizes([sample])
    layer = operators.attention("flare", sizes, ModelOptions(num_basis=5))(
        8, rngs=nnx.Rngs(0)
    )
    assert isinstance(layer, nn.FlareAttention)
    with value_error("'lno' is a complete model"):
        operators.attention("lno", sizes)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", by_day(["flare", "transolver_plus", "lno"], day=["flare"])
)
def test_rivals_take_time(name, rng):
    sample = grid(rng)
    sizes = operators.sizes([sample], time_embedding=True)
    model = operators.build(tiny(name, num_layers=1), sizes, rngs=nnx.Rngs(0))
    arrays = jnp.asarray(sample.mesh_points), jnp.asarray(sample.features)
    found = jax.eval_shape(lambda t: model(*arrays, time=t), jnp.float32(0.5))
    assert found.shape == sample.target.shape


@pytest.mark.nightly
def test_parameters_are_made_about_equal(rng):
    def count(name, **changes):
        model = abstract(name, grid(rng), width=32, **changes)
        return sum(leaf.size for leaf in jax.tree.leaves(model))

    wanted = count("functional")
    for name in ("transolver", "galerkin"):
        assert count(name) == pytest.approx(wanted, rel=0.08)
    for name in ("transolver", "softmax", "fno"):
        assert abs(count(name) - wanted) < abs(
            count(name, equal_parameters=False) - wanted
        )


def test_what_a_model_needs_is_said(rng):
    sample = grid(rng)
    scattered = operators.sizes([sample._replace(grid_shape=None)])
    for name in ("fno", "galerkin2d", "functional_schwarz"):
        with value_error("needs samples on one grid"):
            operators.build(tiny(name), scattered, rngs=nnx.Rngs(0))
    short = Sample(sample.mesh_points[:9], sample.target[:9], sample.features[:9])
    several = operators.sizes([sample, short])
    assert several.num_points is None
    assert several.grid_shape is None
    for name in ("linformer", "deeponet"):
        with value_error("same number of points in all samples"):
            operators.build(tiny(name), several, rngs=nnx.Rngs(0))


def test_sizes_are_those_of_the_samples(rng):
    sample = grid(rng)
    found = operators.sizes([sample, sample], time_embedding=True)
    assert found == operators.Sizes(2, 1, 1, (6, 5), 30, ((0, 0), (1, 1)), True)
    bare = operators.sizes([Sample(sample.mesh_points, np.zeros(30, np.int32))])
    assert (bare.feature_dim, bare.out_features) == (0, 1)


@pytest.mark.parametrize("name", by_day(models.ONO_ATTENTIONS, ["mean"]))
def test_every_attention_of_ono_is_built_and_called_alike(name, rng):
    sample = grid(rng)
    options = {"equal_parameters": False, "ono_attention": name}
    assert_can_be_called(abstract("ono", sample, **options), sample)


def test_unknown_names_are_refused_with_all_that_there_is():
    with value_error("'nothing' is unknown; .*galerkin.*fourier"):
        operators.entry("nothing")
    with value_error("'soft', which cannot be imported"):
        operators.entry("soft:functional")


def test_options_without_a_meaning_are_refused():
    def check(name, **changes):
        operators.check_options(tiny(name, **changes), tiny(name))

    check("functional", ridge_logit=1.0)
    check("fourier:functional", ridge_logit=1.0)
    with value_error("ridge_logit=1.0 has no effect on .*galerkin"):
        check("galerkin", ridge_logit=1.0)
    with value_error("num_modes=3 has no effect"):
        check("functional", num_modes=3)
    with value_error("num_basis=5 has no effect on .*fno"):
        check("fno", num_basis=5)
    check("ono", num_basis=5, ono_attention="mean", reference_points=4)
    with value_error("reference_points=4 has no effect"):
        check("ono_original", reference_points=4)
    with value_error("num_heads=4 has no effect on .*deeponet"):
        check("deeponet", num_heads=4)
    with value_error("num_experts=2 has no effect on .*ono"):
        check("ono", num_experts=2)
    with value_error("temperature=0.2 has no effect"):
        check("hat:softmax", temperature=0.2)
    check("transolver_plus", temperature=0.2)
    check("lno", mlp_layers=3)
    for name, option in (
        ("flare", {"reference_points": 4}),
        ("lno", {"mlp_ratio": 2}),
        ("transolver_plus", {"min_temperature": 0.05}),
        ("transolver_plus", {"convolution": False}),
        ("functional", {"mlp_layers": 3}),
    ):
        with value_error("has no effect on"):
            check(name, **option)
    both = dataclasses.replace(
        tiny("fno", ridge_logit=1.0), models=("fno", "functional")
    )
    operators.check_options(both, tiny("fno"))


def test_every_option_of_the_registry_exists():
    fields = {field.name for field in dataclasses.fields(ModelOptions)}
    for name in operators.REGISTRY:
        assert operators.options_of(name) <= fields
    used = frozenset().union(*map(operators.options_of, operators.REGISTRY))
    assert used | {"model_options"} == fields


def test_names_become_file_names():
    assert operators.slug("fourier:functional") == "fourier_functional"
    assert operators.slug("a.b:C.d") == "a.b_C.d"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Returns the name of a module in the current folder, out of the way of Python."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.chdir(tmp_path)
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    yield name
    sys.modules.pop(name, None)


def test_models_and_attentions_of_your_own(own, rng):
    for part in ("build", "Attention"):
        sample = grid(rng)
        assert_can_be_called(abstract(f"{own}:{part}", sample), sample)
    operators.check_options(tiny(f"{own}:build", num_modes=3), tiny("functional"))
    with value_error("num_modes=3 has no effect"):
        operators.check_options(
            tiny(f"{own}:Attention", num_modes=3), tiny("functional")
        )


def test_what_cannot_be_your_own_is_said(own):
    cases = {
        "missing_module:build": "cannot be imported .*missing_module.*search path",
        f"{own}:nothing": "has no 'nothing'",
        f"{own}:number": "is a int; a model is `build",
        f"{own}:neither": "neither a model nor an attention: a model is `build",
        f"{own}:": "must be package.module:function",
        ":build": "must be package.module:function",
        "os:system": "neither",
    }
    for name, words in cases.items():
        with value_error(words):
            operators.entry(name)


def test_bases_have_as_many_functions_as_fit():
    for count, axes, root in (
        (32, 2, 5),
        (64, 2, 8),
        (64, 3, 4),
        (63, 3, 3),
        (8, 1, 8),
    ):
        assert attentions._per_axis(count, axes) == root


@pytest.mark.nightly
def test_features_of_blocks_are_kept_in_16_bits(rng):
    sample = grid(rng)
    given = {"storage_dtype": "float16", "compute_dtype": "bfloat16"}
    given["convolution"] = False
    for keeps in ({"chunk_size": 7}, {"rematerialize": True}):
        config = tiny("functional", **given, **keeps)
        model = operators.build(config, operators.sizes([sample]), rngs=nnx.Rngs(0))
        assert model.precision == nn.Precision("bfloat16", "float16")
    with value_error("has no effect without chunk_size or remat"):
        tiny("functional", **given)
    preset = tiny("fno", rematerialize=True, convolution=False)
    given = dataclasses.replace(preset, storage_dtype="bfloat16")
    with value_error("storage_dtype=bfloat16 has no effect on"):
        operators.check_options(given, preset)
    given = dataclasses.replace(preset, compute_dtype="bfloat16")
    with value_error("compute_dtype=bfloat16 has no effect on"):
        operators.check_options(given, preset)
    config = tiny("galerkin", compute_dtype="bfloat16", convolution=False)
    with value_error("GalerkinAttention has no products in 16"):
        operators.build(config, operators.sizes([sample]), rngs=nnx.Rngs(0))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", by_day(operators.ATTENTIONS, operators.ATTENTIONS[::3])
)
def test_devices_share_points_of_the_models_that_say_so(name):
    sizes = operators.Sizes(2, 1, 1, None, 30, ((0, 0), (1, 1)))
    config = tiny(name)
    build = partial(operators.build, config, sizes)

    def trained():
        return nn.bases.with_noise(build(rngs=nnx.Rngs(0)), jax.random.key(0))

    model = jax.eval_shape(trained)
    expected = division.obstacle(model, "devices") is None
    assert operators.splits_points(config) == expected
