"""The operator transformer: shapes, masks, depth and errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax
from opjax import nn, schwarz
from tests import refused
from tests.builders import POINTS, transformer
from tests.nn.attention.layers import BASES as ALL_BASES
from tests.nn.attention.layers import BASIS as NUM_BASIS
from tests.nn.attention.layers import assert_close, enlarged, single
from tests.nn.parameters import all_finite, built_once, evaluate, layer_of, size
from tests.selection import by_day

SMALL = {"features": 8, "num_layers": 3, "num_heads": 2, "num_basis": 4}


@built_once
def make(factor=3, **options):
    options = {"point_dim": 2, "feature_dim": 1, "out_features": 1} | SMALL | options
    return enlarged(transformer(rngs=nnx.Rngs(0), **options), factor)


@built_once
def compose(factor=3, **options):
    """A model of any attention."""
    options = {"position": nn.Coordinates(2), "num_layers": 3} | options
    model = nn.OperatorTransformer(
        feature_dim=1, out_features=1, features=8, rngs=nnx.Rngs(0), **options
    )
    return enlarged(model, factor)


SOFTMAX = partial(nn.bases.SoftmaxBasis, num_heads=2, num_basis=4)


def make_schwarz(subdomains=None, coarse=nn.mixers.FunctionalMap, **options):
    """A model with functional attention on subdomains, in a basis of all blocks."""
    local = partial(nn.BasisAttention, num_heads=2, basis=None)
    attention = partial(
        nn.SubdomainAttention, attention=local, coarse=coarse, subdomains=subdomains
    )
    return compose(attention=attention, basis=SOFTMAX, **options)


@pytest.fixture
def mesh(rng):
    return rng.uniform(size=(30, 2)), rng.normal(size=(30, 1))


@pytest.mark.nightly
@pytest.mark.parametrize("grid_shape", [(30,), (5, 6), (2, 3, 5)])
def test_grids_of_every_dimension(rng, grid_shape):
    p = len(grid_shape)
    model = make(point_dim=p, grid_shape=grid_shape, reference_points=3)
    points = rng.uniform(size=(30, p))
    output = evaluate(model, points, rng.normal(size=(30, 1)))
    assert output.shape == (30, 1)
    assert np.all(np.isfinite(output))


def test_the_scan_equals_a_loop_over_the_blocks(mesh):
    @jax.jit
    def loop(model, *mesh):
        z = model.encoder(jnp.concatenate(mesh, axis=1))
        for layer in range(3):
            block = layer_of(model.blocks, layer)
            z = block(z, nn.models.Points(basis=model.basis))
        return model.decoder(model.decoder_norm(z))

    model = make()
    actual, expected = evaluate(model, *mesh), loop(model, *mesh)
    assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize("grid_shape", [None, (5, 6)])
def test_rematerialization_changes_no_gradient(mesh, grid_shape):
    def gradient(model):
        return jax.jit(jax.grad(lambda m: jnp.sum(m(*mesh) ** 2)))(model)

    kept = gradient(make(grid_shape=grid_shape))
    computed_again = gradient(make(grid_shape=grid_shape, rematerialize=True))
    assert_close(computed_again, kept, atol=1e-12)


@pytest.mark.nightly
def test_the_program_does_not_grow_with_depth(mesh):
    def size(num_layers):
        model = make(num_layers=num_layers)
        lowered = jax.jit(lambda m: m(*mesh)).lower(model)
        return len(lowered.as_text().splitlines())

    assert size(24) == size(6)


@pytest.mark.nightly
def test_refining_the_mesh_converges_at_second_order():
    model = make(factor=2, point_dim=1, num_layers=2)
    run = jax.jit(model.__call__)

    def at_fixed_points(n):
        x = np.linspace(0, 1, n)[:, None]
        weights = opjax.grid_weights((n,))
        output = run(x, jnp.sin(4 * x), quadrature_weights=weights)
        return output[:: (n - 1) // 8]

    reference = at_fixed_points(8 * 64 + 1)
    errors = [
        float(np.max(np.abs(at_fixed_points(8 * r + 1) - reference)))
        for r in (4, 8, 16)
    ]
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert np.all(orders > 1.8), (errors, orders)


def test_inspection_has_a_map_and_bases_per_layer_and_head(mesh):
    seen = make().inspect(*mesh)
    assert seen.functional_map.shape == (3, 2, 4, 4)
    assert seen.query_basis.shape == (3, 2, 30, 4)
    assert_allclose(seen.query_basis.sum(-1), 1, rtol=1e-12)


@pytest.mark.parametrize("num_basis", [3, 7])  # fewer and more than channels
@pytest.mark.nightly
def test_condition_numbers_are_those_of_the_systems_of_every_layer(mesh, num_basis):
    model = make(num_basis=num_basis, time_embedding=True)
    weights = np.linspace(0.5, 1.5, 30)
    time = jnp.asarray(0.3)
    actual = jax.jit(model.condition_numbers)(
        *mesh, quadrature_weights=jnp.asarray(weights), time=time
    )
    z = model.encode(*mesh, time=time)
    expected = np.empty((3, 2))
    for layer in range(3):
        block = layer_of(model.blocks, layer)
        values, phi = map(np.asarray, model.basis(block.attention_norm(z)))
        ridge = 1 / (1 + np.exp(-float(block.attention.mixer.ridge_logit[...])))
        for head in range(2):
            weighted = phi[head] * weights[:, None]
            means = weighted.T @ values[head] / (weighted.sum(0) + 1e-5)[:, None]
            key = means @ np.asarray(block.attention.mixer.key.kernel[...])
            system = (1 - ridge) * key @ key.T + ridge * np.eye(num_basis)
            expected[layer, head] = np.linalg.cond(system)
        z = block(z, nn.models.Points(None, jnp.asarray(weights), basis=model.basis))
    assert actual.shape == (3, 2)
    assert_allclose(actual, expected, rtol=1e-8)
    assert np.ptp(expected) > 1e-3


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ("transolver", "SoftmaxMap does not solve a linear system"),
        ("galerkin", "GalerkinAttention has no method condition_numbers"),
        ("schwarz", "SubdomainAttention has no method condition_numbers"),
    ],
)
def test_condition_numbers_need_functional_attention(mesh, attention, message):
    model = make_schwarz() if attention == "schwarz" else make(attention=attention)
    with pytest.raises(ValueError, match=message):
        model.condition_numbers(*mesh)


GRID = nn.attention.GridSubdomains((5, 6), 2, overlap=1)


@pytest.mark.nightly
def test_schwarz_models_of_grids_build_their_levels(mesh):
    model = make_schwarz(GRID)
    levels = nn.attention.Subdomains(
        schwarz.box_cover((5, 6), (2, 2), overlap=1),
        schwarz.partition_hats((5, 6), (3, 3)),
    )
    run = jax.jit(lambda model, **given: model(*mesh, **given))
    expected = run(make_schwarz(), subdomains=levels)
    assert_allclose(run(model), expected, rtol=1e-12)
    z = model.encoder(jnp.concatenate(mesh, axis=1))
    for layer in range(3):
        block = layer_of(model.blocks, layer)
        z = evaluate(block, z, nn.models.Points(basis=model.basis, subdomains=levels))
    expected = model.decoder(model.decoder_norm(z))
    assert_allclose(run(model), expected, rtol=1e-10)
    jitted = jax.jit(jax.vmap(model, in_axes=(None, 0)))(mesh[0], mesh[1][None])
    assert_allclose(jitted[0], expected, rtol=1e-10)
    other = make_schwarz(
        nn.attention.GridSubdomains((5, 6), 2, overlap=1, num_hats=(2, 4))
    )
    hats = schwarz.partition_hats((5, 6), (2, 4))
    expected = run(model, subdomains=nn.attention.Subdomains(levels.cover, hats))
    assert_allclose(run(other), expected, rtol=1e-12)


def test_subdomains_of_the_call_win_and_a_cover_is_a_coarse_space(mesh):
    model = make_schwarz(GRID)
    cover = schwarz.box_cover((5, 6), (1, 3), overlap=1)
    actual = evaluate(model, *mesh, subdomains=nn.attention.Subdomains(cover, cover))
    assert np.all(np.isfinite(actual))
    assert np.max(np.abs(actual - evaluate(model, *mesh))) > 1e-6
    with pytest.raises(ValueError, match="coarse_space is missing"):
        model(*mesh, subdomains=nn.attention.Subdomains(cover))


@pytest.mark.nightly
def test_schwarz_models_act_on_point_clouds(mesh):
    model = make_schwarz()
    labels = schwarz.partition_points(mesh[0], num_subdomains=4)
    cover = schwarz.partition_cover(labels, overlap=0.1, mesh_points=mesh[0])
    output = evaluate(model, *mesh, subdomains=nn.attention.Subdomains(cover, cover))
    order = np.random.default_rng(1).permutation(30)
    turned = schwarz.Cover(np.argsort(order)[cover.indices], cover.weights, 30)
    permuted = evaluate(
        model,
        *(a[order] for a in mesh),
        subdomains=nn.attention.Subdomains(turned, turned),
    )
    assert_allclose(permuted, output[order], rtol=1e-9, atol=1e-11)
    seen = jax.eval_shape(
        lambda: model.inspect(*mesh, subdomains=nn.attention.Subdomains(cover, cover))
    )
    assert seen.maps.shape == (3, 2, 4, 4, 4)
    assert seen.coarse_map.shape == (3, 2, 4, 4)
    assert seen.basis.shape == (3, 2, 30, 4)


@pytest.mark.nightly
def test_one_level_models_have_the_parameters_of_functional_ones(mesh):
    cover = schwarz.box_cover(30, 1, overlap=0)
    model, plain = make_schwarz(coarse=None), make()
    actual = evaluate(model, *mesh, subdomains=nn.attention.Subdomains(cover))
    assert_allclose(actual, evaluate(plain, *mesh), rtol=1e-10, atol=1e-12)
    leaves = [jax.tree.leaves(m) for m in (model, plain)]
    assert [p.shape for p in leaves[0]] == [p.shape for p in leaves[1]]


@pytest.mark.parametrize("attention", ["functional", "galerkin", "orthogonal"])
def test_what_an_attention_does_not_take_is_refused(mesh, attention):
    model = make(attention=attention) if attention != "orthogonal" else orthogonal()
    cover = schwarz.box_cover(30, 1, overlap=0)
    refused.each(
        (
            lambda: model(*mesh, subdomains=nn.attention.Subdomains(cover)),
            "subdomains is not supported by a model with",
        ),
        (lambda: model(*mesh, basis_functions=np.ones((30, 4))), "basis_functions"),
    )


def test_a_shared_basis_of_attentions_without_one_is_refused(mesh):
    attention = partial(nn.GalerkinAttention, num_heads=2)
    with pytest.raises(ValueError, match="GalerkinAttention does not use a basis"):
        compose(attention=attention, basis=SOFTMAX)(*mesh)


def test_schwarz_models_without_a_grid_need_subdomains(mesh):
    model = make_schwarz()
    with pytest.raises(ValueError, match="Pass the `subdomains`.* GridSubdomains"):
        model(*mesh)
    short = schwarz.box_cover(29, 1, overlap=0)
    with pytest.raises(ValueError, match=r"x \(30, 8\) must .* 29 points of cover"):
        model(*mesh, subdomains=nn.attention.Subdomains(short, short))


def orthogonal(**options):
    attention = partial(nn.OrthogonalAttention, num_heads=2, num_basis=4)
    return compose(attention=attention, **options)


@pytest.mark.nightly
def test_orthogonal_models_learn_and_have_no_map(mesh):
    model = single(orthogonal(num_layers=2))
    points, features = (a.astype(jnp.float32) for a in mesh)
    loss = jax.jit(jax.grad(lambda model: jnp.sum(model(points, features) ** 2)))
    gradient = loss(model)
    assert all_finite(gradient)
    with pytest.raises(ValueError, match="no single map between coefficients"):
        model.inspect(points, features)


EVERY = [(name, shared) for name in ALL_BASES for shared in (False, True)]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "shared"), by_day(EVERY, EVERY[::3]))
def test_models_in_every_basis(rng, name, shared):
    points = rng.uniform(size=(20, 1))
    features = rng.normal(size=(20, 1))
    basis = partial(ALL_BASES[name], num_heads=2)
    attention = partial(
        nn.BasisAttention, num_heads=2, basis=None if shared else ALL_BASES[name]
    )
    model = compose(
        position=nn.Coordinates(1),
        attention=attention,
        basis=basis if shared else None,
        num_layers=2,
    )
    functions = jnp.cos(points * np.arange(float(NUM_BASIS))[None])
    given = {"basis_functions": functions} if name == "given" else {}
    weights = np.full(20, 1 / 20)
    z = model.encode(points, features)
    own = {"basis": model.basis} if shared else {}
    own |= {"mesh_points": points, "quadrature_weights": weights} | given
    for layer in range(2):
        block = layer_of(model.blocks, layer)
        z = evaluate(block, z, nn.models.Points(**own))
    actual = evaluate(model, points, features, quadrature_weights=weights, **given)
    assert_allclose(actual, model.decode(z), rtol=1e-9, atol=1e-12)


def test_the_transolver_is_the_operator_transformer(mesh):
    model = make(attention="transolver", shared_basis=False)
    assert isinstance(model.blocks.attention.mixer, nn.mixers.SoftmaxMap)

    @jax.jit
    def written_out(model, *mesh):
        z = model.encoder(jnp.concatenate(mesh, axis=1))
        for layer in range(3):
            block = layer_of(model.blocks, layer)
            z = z + block.attention(block.attention_norm(z))
            z = z + block.mlp(block.mlp_norm(z))
        return model.decoder(model.decoder_norm(z))

    expected = written_out(model, *mesh)
    assert_allclose(evaluate(model, *mesh), expected, rtol=1e-10)
    seen = jax.eval_shape(model.inspect, *mesh)
    assert seen.functional_map.shape == (3, 2, 4, 4)


def test_time_reaches_the_output(mesh):
    model = make(time_embedding=True)
    early, late = (model(*mesh, time=jnp.float64(t)) for t in (0.1, 0.9))
    assert float(np.max(np.abs(early - late))) > 1e-6


def test_mesh_alone_can_be_the_input(mesh):
    assert make(feature_dim=0)(mesh[0]).shape == (30, 1)


def test_the_paper_model_has_the_paper_number_of_parameters():
    model = jax.eval_shape(
        lambda: transformer(
            point_dim=2,
            feature_dim=1,
            out_features=1,
            grid_shape=(85, 85),
            reference_points=8,
            rngs=nnx.Rngs(0),
        )
    )
    # 753,105 in the reference code, whose 128 placeholder entries are never used.
    assert size(model) == 752_977


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x, f: m(x[:, :1], f), r"mesh_points \(30, 1\).*point_dim=2"),
        (lambda m, x, f: m(x), "features None must have 1 channels"),
        (lambda m, x, f: m(x, f[:-1]), r"mesh_points \(30, 2\), features \(29, 1\)"),
        (lambda m, x, f: m(x, f, time=np.ones(())), "time_embedding=False"),
        (lambda m, x, f: m(x[None], f), r"mesh_points has shape \(1, 30, 2\)"),
    ],
)
def test_bad_calls_name_both_sides(mesh, call, message):
    with pytest.raises(ValueError, match=message):
        call(make(), *mesh)


def test_a_grid_of_another_size_is_named(mesh):
    with pytest.raises(ValueError, match=r"grid_shape=\(5, 5\)"):
        make(grid_shape=(5, 5))(*mesh)


def test_integer_points_are_refused(mesh):
    with pytest.raises(TypeError, match="mesh_points has dtype int"):
        make()(np.ones((30, 2), int), mesh[1])


test_impossible_models_are_refused = refused.options(
    make,
    [
        ({"reference_points": 1}, "num_reference=1 must be at least 2"),
        (
            {"reference_box": ((0.0,), (1.0,)), "reference_points": 3},
            r"lower=\(0.0,\) must have point_dim=2 coordinates",
        ),
        (
            {"reference_box": (None, (1.0,)), "reference_points": 3},
            r"upper=\(1.0,\) must have point_dim=2 coordinates",
        ),
    ],
)


@pytest.mark.parametrize(
    "option",
    ["num_layers", "num_basis", "features", "mlp_ratio", "out_features", "point_dim"],
)
def test_counts_must_be_positive(option):
    with pytest.raises(ValueError, match=f"{option}=0 must be positive"):
        make(**{option: 0})


def test_the_reference_grid_can_cover_another_box(mesh):
    box = ((-1.0, 0.0), (1.0, 3.0))
    model = make(reference_points=2, reference_box=box)
    corners = np.array([(-1.0, 0.0), (-1.0, 3.0), (1.0, 0.0), (1.0, 3.0)])
    distances = np.linalg.norm(mesh[0][:, None] - corners[None], axis=2)
    coordinates = make(point_dim=4)
    coordinates.encoder.hidden = model.encoder.hidden
    for part in ("basis", "blocks", "decoder"):
        setattr(coordinates, part, getattr(model, part))
    coordinates.encoder.out = model.encoder.out
    expected = coordinates(jnp.asarray(distances), mesh[1])
    assert_allclose(model(*mesh), expected, rtol=1e-10)


@pytest.mark.nightly
def test_deep_encoders_and_plain_decoders(mesh):
    model = make(residual_encoder=True, decoder_norm=False, num_layers=1)
    first = jax.nn.gelu(
        model.encoder.hidden[0](jnp.concatenate(mesh, axis=1)), approximate=False
    )
    assert first.shape == (30, SMALL["features"])
    second = jax.nn.gelu(model.encoder.hidden[1](first), approximate=False)
    block = layer_of(model.blocks, 0)
    z = block(model.encoder.out(first + second), nn.models.Points(basis=model.basis))
    assert_allclose(model(*mesh), model.decoder(z), rtol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize("attention", POINTS)
def test_attentions_without_a_basis_see_the_coordinates(mesh, attention):
    model = make(attention=attention, num_layers=1)
    assert model.basis is None
    weights = np.full(30, 1 / 30)
    z = model.encoder(jnp.concatenate(mesh, axis=1))
    block = layer_of(model.blocks, 0)
    z = block(z, nn.models.Points(mesh[0], weights))
    expected = model.decoder(model.decoder_norm(z))
    actual = model(*mesh, quadrature_weights=weights)
    assert_allclose(actual, expected, rtol=1e-10)
    with pytest.raises(
        ValueError, match=f"{attention.title()}Attention has no method inspect"
    ):
        model.inspect(*mesh)
