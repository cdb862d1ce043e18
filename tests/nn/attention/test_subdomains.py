"""Attention on subdomains: against dense matrices, and its symmetries."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn, schwarz
from tests import oracles, refused
from tests.nn.attention.layers import (
    BASES,
    BASIS,
    FEATURES,
    HEADS,
    MIXERS,
    PAIRS,
    PROJECTIONS,
    WIDTH,
    arguments,
    assert_close,
    enlarged,
    numpy,
    single,
)
from tests.nn.parameters import built_once, size
from tests.oracles import replaced
from tests.schwarz.test_covers import dense
from tests.selection import by_day

POINTS = 20
# By hand: different sizes, a point in three subdomains, not in order.
SETS = [[3, 0, 1, 2, 7, 5], [4, 5, 6, 7, 8, 9, 10, 11], [*range(10, 20), 5]]
COVERS = {
    "by hand": lambda: schwarz.cover(SETS, num_points=POINTS),
    "boxes": lambda: schwarz.box_cover((4, 5), (2, 2), overlap=1),
    "one": lambda: schwarz.box_cover(POINTS, 1, overlap=0),
}
SPACES = {
    "none": lambda: None,
    "hats": lambda: schwarz.partition_hats((4, 5), (2, 3)),
    "interface": lambda: schwarz.interface_hats((4, 5), (2, 2)),  # not a partition
    "cover": COVERS["by hand"],
}


def attention_of(
    basis="softmax", mixer="functional", projection=None, shared=False, **options
):
    """Returns the constructor of an attention on subdomains."""
    basis = None if shared else partial(BASES[basis], **options)
    return partial(
        nn.BasisAttention,
        num_heads=HEADS,
        basis=basis,
        mixer=MIXERS[mixer],
        projection=projection and PROJECTIONS[projection],
    )


@built_once
def make(coarse=True, mixer="functional", subdomains=None, **options):
    layer = nn.SubdomainAttention(
        FEATURES,
        attention=attention_of(mixer=mixer, **options),
        coarse=MIXERS[mixer] if coarse else None,
        subdomains=subdomains,
        rngs=nnx.Rngs(0),
    )
    return enlarged(layer)


def on(*levels):
    """The keyword of a call."""
    return {"subdomains": nn.attention.Subdomains(*levels)}


def on_three_levels():
    """Subdomains by hand, of six hats, and four functions."""
    pairs = schwarz.cover([[0, 1, 2], [2, 3], [5, 4, 3]], num_points=6)
    coarser = nn.attention.Subdomains(pairs, schwarz.partition_hats((2, 3), (2, 2)))
    return on(COVERS["by hand"](), SPACES["hats"](), coarser)


# Compiled once for all covers of the same shapes.
run = jax.jit(lambda layer, x, **given: layer(x, **given))
differentiate = jax.jit(
    jax.value_and_grad(lambda layer, x, **given: jnp.sum(layer(x, **given) ** 2))
)


@pytest.fixture
def x(rng):
    return rng.normal(size=(POINTS, FEATURES))


@pytest.fixture
def weights(rng):
    """Returns quadrature weights, two of them zero."""
    weights = rng.uniform(0.5, 1.5, POINTS)
    weights[[2, 13]] = 0
    return weights


def attend(maps, values, scores, tau, score, weights):
    """One functional attention with a system of all basis functions."""
    phi = oracles.softmax_rows(scores @ score[0] + score[1], tau)
    s = oracles.project(values, phi, weights, method="mean")
    q, k, v = (s @ m.kernel[...] for m in (maps.query, maps.key, maps.value))
    a = 1 / (1 + np.exp(-maps.ridge_logit[...]))
    return phi @ oracles.functional_map(q, k, ridge=a, convex=True) @ v


def oracle(layer, levels, x, weights=None):
    """The layer from its equations: level by level, subdomain by subdomain."""
    p = numpy(layer)
    x, n = np.asarray(x), len(x)
    w = np.ones(n) if weights is None else np.asarray(weights)
    basis = p.local.basis
    projected = x @ basis.projection.kernel[...] + basis.projection.bias[...]
    score = basis.score_kernel[...], basis.score_bias[...]
    outputs = np.zeros((n, FEATURES))
    for head in range(HEADS):
        columns = slice(head * WIDTH, (head + 1) * WIDTH)
        values = projected[:, :FEATURES][:, columns]
        scores = projected[:, FEATURES:][:, columns]
        tau = np.clip(basis.temperature[...][head], 0.1, 5.0)
        attend_here = partial(attend, tau=tau, score=score)
        outputs[:, columns] = level(p, attend_here, levels, values, scores, w)
    return outputs @ p.local.out.kernel[...] + p.local.out.bias[...]


def level(p, attend, levels, values, scores, w):
    """The sum of the subdomains of a level and the levels above it, of one head."""
    cover, coarse_space, coarser = levels
    y = np.zeros_like(values)
    for indices, d in zip(cover.indices, cover.weights, strict=True):
        r = np.eye(len(w))[indices[d > 0]]
        d = np.diag(d[d > 0])
        local = attend(p.local.mixer, r @ values, r @ scores, weights=d @ r @ w)
        y += r.T @ d @ local
    if coarse_space is None:
        return y
    h = dense(coarse_space)
    means = [oracles.project(f, h, w, method="mean") for f in (values, scores)]
    if coarser is None:
        return y + h @ attend(p.coarse, *means, weights=h.T @ w)
    return y + h @ level(p, attend, coarser, *means, h.T @ w)


@pytest.mark.parametrize(
    ("name", "space"),
    by_day(
        [("by hand", space) for space in SPACES] + [("boxes", "hats"), ("one", "none")],
        day=[("by hand", next(iter(SPACES))), ("boxes", "hats"), ("one", "none")],
    ),
)
def test_the_layer_equals_its_equations(x, weights, name, space):
    cover, coarse_space = COVERS[name](), SPACES[space]()
    layer = make(coarse=coarse_space is not None)
    given = on(cover, coarse_space)
    for w in (None, weights):
        expected = oracle(layer, given["subdomains"], x, w)
        actual = run(layer, x, **given, quadrature_weights=w)
        assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


def test_three_levels_equal_their_equations(x, weights):
    layer, given = make(), on_three_levels()
    expected = oracle(layer, given["subdomains"], x, weights)
    actual = run(layer, x, **given, quadrature_weights=weights)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)
    # The second level is there, and has no parameters of its own.
    two = given["subdomains"]._replace(coarser=None)
    without = run(layer, x, subdomains=two, quadrature_weights=weights)
    assert np.abs(actual - without).max() > 1e-3
    # Inspection shows on the hats what two levels show with the hats' means as points.
    inspect = jax.jit(layer.inspect)
    maps = inspect(x, **given, quadrature_weights=weights)
    w, h = np.asarray(weights), dense(given["subdomains"].coarse_space)
    projected = run(layer.local.basis.projection, x)
    means = oracles.project(np.asarray(projected), h, w, method="mean")
    hats = make()
    hats.local.basis.projection = lambda means: means
    hats.coarse = layer.coarse
    hats = jax.jit(hats.inspect)(
        means, subdomains=given["subdomains"].coarser, quadrature_weights=h.T @ w
    )
    for name in ("maps", "coarse_map", "basis"):
        actual = getattr(maps.coarser, name)
        assert_allclose(actual, getattr(hats, name), rtol=1e-8, atol=1e-10)
    assert_array_equal(maps.coarse_map, maps.coarser.coarse_map)
    without = inspect(x, subdomains=two, quadrature_weights=weights)
    assert_allclose(maps.maps, without.maps, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("levels", by_day([1, 2, 3], [3]))
def test_gradients_are_those_of_the_equations(x, weights, levels):
    given = on_three_levels()
    if levels < 3:
        given = on(*given["subdomains"][:levels])
    leaves, structure = jax.tree.flatten(make(coarse=levels > 1))
    inside = np.flatnonzero(weights)

    def function(x, positive, *leaves):
        w = jnp.zeros(POINTS).at[inside].set(positive)
        layer = jax.tree.unflatten(structure, leaves)
        return layer(x, **given, quadrature_weights=w)

    def expected(x, positive, *leaves):
        w = np.zeros(POINTS)
        w[inside] = positive
        layer = jax.tree.unflatten(structure, leaves)
        return oracle(layer, given["subdomains"], x, w)

    args = [x, weights[inside], *leaves]
    oracles.check_gradient(function, expected, args, rtol=1e-6, step=2e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_one_subdomain_without_coarse_level_is_functional_attention(
    x, weights, weighted
):
    layer, cover = make(coarse=False), COVERS["one"]()
    w = weights if weighted else None
    actual = run(layer, x, **on(cover), quadrature_weights=w)
    expected = run(layer.local, x, quadrature_weights=w)
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    alone = nn.FunctionalAttention(
        FEATURES, num_heads=HEADS, num_basis=BASIS, rngs=nnx.Rngs(0)
    )
    assert_close(enlarged(alone), layer.local, rtol=0, atol=0)


def test_coefficients_of_every_subdomain_come_from_its_own_points(x):
    layer, cover = make(coarse=False), COVERS["by hand"]()
    changed = run(layer, replaced(x, 12, x[12] + 1.0), **on(cover)) != run(
        layer, x, **on(cover)
    )
    assert_array_equal(changed.all(axis=1), np.isin(range(20), SETS[2]))
    layer, space = make(), SPACES["hats"]()
    given = on(cover, space)
    assert np.all(
        run(layer, replaced(x, 12, x[12] + 1.0), **given) != run(layer, x, **given)
    )


@pytest.mark.nightly
@pytest.mark.parametrize("space", SPACES)
def test_permuting_points_and_cover_permutes_the_output(x, rng, space):
    order = rng.permutation(POINTS)
    rank = np.argsort(order)

    def permuted(cover):
        return schwarz.Cover(rank[cover.indices], cover.weights, POINTS)

    cover, coarse_space = COVERS["by hand"](), SPACES[space]()
    layer = make(coarse=coarse_space is not None)
    expected = run(layer, x, **on(cover, coarse_space))
    coarse_space = coarse_space and permuted(coarse_space)
    actual = run(layer, x[order], **on(permuted(cover), coarse_space))
    assert_allclose(actual, expected[order], rtol=1e-9, atol=1e-12)


def test_renumbering_the_subdomains_changes_nothing(x):
    layer, cover = make(), COVERS["by hand"]()
    turned = jax.tree.map(lambda a: a[::-1], cover)
    expected = run(layer, x, **on(cover, cover))
    actual = run(layer, x, **on(turned, turned))
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def test_masked_points_change_neither_values_nor_gradients(x, rng):
    layer, cotangent = make(), rng.normal(size=x.shape)
    cover, n = COVERS["by hand"](), POINTS
    # Five points of zero weight, in subdomains old and new.
    sets = [[*SETS[0], 20], [*SETS[1], 20, 21], SETS[2], [22, 23, 24]]
    padded = schwarz.cover(sets, num_points=25)
    junk = jnp.concatenate([x, rng.normal(size=(5, FEATURES))])

    def loss(layer, x, cover, weights):
        given = on(cover, cover)
        return jnp.sum(layer(x, **given, quadrature_weights=weights)[:n] * cotangent)

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    expected, expected_gradients = run(layer, x, cover, None)
    mask = jnp.concatenate([np.ones(n), np.zeros(5)])
    actual, (layer_gradient, x_gradient) = run(layer, junk, padded, mask)
    assert_allclose(actual, expected, rtol=1e-10)
    assert_array_equal(x_gradient[n:], 0)
    assert_close((layer_gradient, x_gradient[:n]), expected_gradients, rtol=1e-8)


def test_convolutional_projections_see_across_subdomains(rng):
    layer = make(grid_shape=(4, 5), coarse=False)
    x = rng.normal(size=(POINTS, FEATURES))
    cover = schwarz.box_cover((4, 5), (2, 1), overlap=0)
    changed = run(layer, replaced(x, 5, x[5] + 1.0), **on(cover)) != run(
        layer, x, **on(cover)
    )
    assert changed.any(axis=1).all()  # point 5 is in the first box, next to the second
    changed = run(layer, replaced(x, 0, x[0] + 1.0), **on(cover)) != run(
        layer, x, **on(cover)
    )
    assert_array_equal(changed.any(axis=1), np.arange(POINTS) < 10)


@pytest.mark.nightly
def test_jit_vmap_and_single_precision(x, weights):
    layer, cover, space = make(), COVERS["by hand"](), SPACES["hats"]()

    given = on(cover, space)

    def in_precision_of_x(x, w):
        cast = jax.tree.map(lambda p: p.astype(x.dtype), layer)
        return cast(x, **given, quadrature_weights=w)

    oracles.check_transforms(in_precision_of_x, (x, weights), rtol32=1e-3)
    expected = in_precision_of_x(x, weights)
    # Covers may be arguments of compiled functions, too.
    actual = run(layer, x, **given, quadrature_weights=weights)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)
    output = run(
        single(layer), x.astype(jnp.float32), **given, quadrature_weights=weights
    )
    assert output.dtype == jnp.float32
    assert_allclose(output, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "order", by_day(["grad of vmap", "vmap of grad"], day=["grad of vmap"])
)
def test_gradients_of_batches(x, order):
    layer, cover = make(), COVERS["by hand"]()

    def loss(layer, x):
        return jnp.sum(layer(x, **on(cover, cover)) ** 2)

    batch = jnp.stack([x, x - 1])
    given = on(cover, cover)
    one_by_one = [differentiate(layer, sample, **given)[1] for sample in batch]
    expected = jax.tree.map(lambda *g: sum(g), *one_by_one)
    mapped = jax.vmap(loss if order == "grad of vmap" else jax.grad(loss), (None, 0))
    if order == "grad of vmap":
        actual = jax.jit(jax.grad(lambda layer: jnp.sum(mapped(layer, batch))))(layer)
    else:
        actual = jax.tree.map(lambda g: jnp.sum(g, 0), jax.jit(mapped)(layer, batch))
    assert_close(actual, expected, rtol=1e-8, atol=1e-10)


def test_heads_one_by_one_are_heads_together(x, monkeypatch):
    layer, cover = make(), COVERS["by hand"]()
    expected = run(layer, x, **on(cover, cover))
    monkeypatch.setattr(nn.attention.heads, "_ENTRIES_IN_CACHE", 0)
    actual = jax.jit(lambda x: layer(x, **on(cover, cover)))(x)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def test_on_cpu_no_batch_of_solves_grows_with_the_subdomains(x):
    # Large batches, forward and backward, waited for each other for ever.
    layer, cover = make(), schwarz.box_cover((4, 5), (4, 5), overlap=1)
    program = differentiate.lower(layer, x, **on(cover, cover)).as_text()
    calls = [line for line in program.splitlines() if "@lapack" in line]
    assert calls
    assert all('num_batch_dims = "0"' in call for call in calls)


def test_a_shared_basis_is_the_owned_one(x):
    layer, shared = make(), make(shared=True)
    shared.local.mixer, shared.local.out = layer.local.mixer, layer.local.out
    shared.coarse = layer.coarse
    cover = COVERS["boxes"]()
    given = on(cover, cover)
    actual = run(shared, x, basis=layer.local.basis, **given)
    assert_array_equal(actual, run(layer, x, **given))


@pytest.mark.nightly
def test_inspection_shows_the_maps_of_both_levels(x, weights):
    layer, cover, space = make(), COVERS["by hand"](), SPACES["hats"]()
    given = {"quadrature_weights": weights}
    seen = jax.jit(layer.inspect)(x, **on(cover, space), **given)
    assert seen.maps.shape == (HEADS, 3, BASIS, BASIS)
    values, phi = run(layer.local.basis, x)
    assert_allclose(seen.basis, phi, rtol=1e-12)
    # A subdomain's map is that of functional attention to its points alone.
    indices = cover.indices[1][cover.weights[1] > 0]
    own = cover.weights[1][cover.weights[1] > 0] * np.asarray(weights)[indices]
    alone = jax.jit(layer.local.inspect)(np.asarray(x)[indices], quadrature_weights=own)
    assert_allclose(seen.maps[:, 1], alone.functional_map, rtol=1e-9)
    # The coarse map is that of functional attention to the means.
    means = oracles.project(
        np.asarray(run(layer.local.basis.projection, x)),
        dense(space),
        np.asarray(weights),
        method="mean",
    )
    coarse = make(coarse=False)
    coarse.local.basis.projection = lambda means: means
    coarse.local.mixer = layer.coarse
    alone = jax.jit(lambda means, w: coarse.local.inspect(means, quadrature_weights=w))(
        means, dense(space).T @ np.asarray(weights)
    )
    assert_allclose(seen.coarse_map, alone.functional_map, rtol=1e-9)
    one_level = make(coarse=False)
    seen = jax.eval_shape(lambda: one_level.inspect(x, **on(cover), **given))
    assert seen.coarse_map is None


def test_the_coarse_level_costs_three_maps_and_a_ridge():
    def count(**options):
        return size(make(**options))

    alone = nn.FunctionalAttention(
        FEATURES, num_heads=HEADS, num_basis=BASIS, rngs=nnx.Rngs(0)
    )
    assert count(coarse=False) == size(alone)
    assert count() - count(coarse=False) == 3 * WIDTH**2 + 1


LOCAL = [pair for pair in PAIRS if pair[0] != "orthonormal"]


@pytest.mark.nightly
@pytest.mark.parametrize(("basis", "projection"), by_day(LOCAL, day=LOCAL[::6]))
def test_every_basis_and_projection_of_points_is_restricted(
    x, rng, weights, basis, projection
):
    points = rng.uniform(size=(POINTS, 1))
    given = arguments(basis, x, points)
    layer = make(basis=basis, projection=projection, coarse=False)
    # One subdomain is the layer itself, whatever the default weights.
    assert_allclose(
        run(layer, x, **on(COVERS["one"]()), **given),
        run(layer.local, x, **given),
        rtol=1e-9,
        atol=1e-12,
    )
    # Several are added up; each is the layer itself, all other points masked.
    cover, bias = COVERS["by hand"](), layer.local.out.bias[...][None]
    expected = jnp.broadcast_to(bias, x.shape)
    for d in dense(cover).T:
        y = run(layer.local, x, quadrature_weights=jnp.asarray(d) * weights, **given)
        expected += jnp.asarray(d)[:, None] * (y - bias)
    actual = run(layer, x, **on(cover), quadrature_weights=weights, **given)
    assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize("mixer", MIXERS)
def test_every_mixer_acts_on_both_levels(x, mixer):
    layer, cover = make(mixer=mixer), COVERS["by hand"]()
    y = run(layer, x, **on(cover, cover))
    assert np.all(np.isfinite(y))
    one_level = run(make(mixer=mixer, coarse=False), x, **on(cover))
    assert float(np.max(np.abs(y - one_level))) > 1e-6


GRID = nn.attention.GridSubdomains((4, 5), 2, overlap=1)


@pytest.mark.nightly
def test_subdomains_of_grids_are_boxes_with_hats(x):
    cover = schwarz.box_cover((4, 5), (2, 2), overlap=1)
    hats = schwarz.partition_hats((4, 5), (3, 3))
    layer = make(subdomains=GRID)
    close = {"rtol": 1e-12, "atol": 1e-14}
    given = on(cover, hats)
    assert_allclose(run(layer, x), run(layer, x, **given), **close)
    one_level = make(subdomains=GRID, coarse=False)
    expected = run(one_level, x, **on(cover))
    assert_allclose(run(one_level, x), expected, **close)
    # Those of a call win.
    whole = on(COVERS["one"](), COVERS["one"]())
    expected = run(make(), x, **whole)
    assert_allclose(run(layer, x, **whole), expected, **close)
    # A grid of hats has half as many boxes, which overlap by one hat.
    grid = nn.attention.GridSubdomains((9, 10), (4, 5), overlap=2, num_levels=3)
    _, hats, coarser = grid.build()
    assert hats.num_subdomains == 5 * 6
    assert coarser is nn.attention.GridSubdomains((5, 6), (2, 2), overlap=1).build()
    assert GRID.build() is nn.attention.GridSubdomains([4, 5], 2, overlap=1).build()


test_subdomains_that_do_not_fit_the_grid_are_refused = refused.options(
    partial(nn.attention.GridSubdomains, (4, 5)),
    [
        ({"num_boxes": 2, "overlap": 4}, "overlap=4 is larger than a neighbouring"),
        ({"num_boxes": (2,)}, r"num_boxes=\(2,\) must have the same number of axes"),
        ({"num_boxes": 4, "num_levels": 1}, "num_levels=1 must be at least 2"),
        (
            {"num_boxes": (2, 4), "num_levels": 3},
            r"num_levels=3 need at least 4 boxes per axis, but num_boxes=\(2, 4\)",
        ),
        ({"num_boxes": 4, "num_levels": 4}, "num_levels=4 need at least 8 boxes"),
        ({"num_boxes": 2, "num_hats": 7}, r"num_hats=\(7, 7\) must be between"),
    ],
)


ONE = schwarz.box_cover(POINTS, 1, overlap=0)
SHORT = schwarz.box_cover(POINTS - 1, 1, overlap=0)
BAD_CALLS = {
    "cover points": (
        lambda x: make(coarse=False)(x, **on(SHORT)),
        r"x \(20, 12\) must have one row for each of the 19 points of cover",
    ),
    "coarse points": (
        lambda x: make()(x, **on(ONE, SHORT)),
        r"x \(20, 12\) must have one row for each of the 19 points of coarse_space",
    ),
    "coarse missing": (
        lambda x: make()(x, **on(ONE)),
        "coarse_space is missing, the layer has a coarse mixer",
    ),
    "coarse superfluous": (
        lambda x: make(coarse=False)(x, **on(ONE, ONE)),
        "coarse_space is given, the layer has no coarse mixer",
    ),
    "levels without coarse": (
        lambda x: nn.SubdomainAttention(
            FEATURES,
            attention=attention_of(),
            coarse=None,
            subdomains=nn.attention.GridSubdomains((8, 8), 4, num_levels=3),
            rngs=nnx.Rngs(0),
        ),
        "num_levels=3 has no effect without a coarse level",
    ),
    "coarser points": (
        lambda x: make()(x, **on(ONE, ONE, nn.attention.Subdomains(ONE, ONE))),
        "coarse_space with 1 functions must have one row for each of the 20 points",
    ),
    "coarser functions missing": (
        lambda x: make(coarse=False)(x, **on(ONE, None, nn.attention.Subdomains(ONE))),
        "coarser divides coarse functions: pass a coarse_space",
    ),
    "weights points": (
        lambda x: make()(x, **on(ONE, ONE), quadrature_weights=np.ones(19)),
        r"quadrature_weights \(19,\), x \(20, 12\)",
    ),
    "weights axes": (
        lambda x: make()(x, **on(ONE, ONE), quadrature_weights=np.ones((20, 1))),
        r"quadrature_weights has shape \(20, 1\)",
    ),
    "weights negative": (
        lambda x: make()(x, **on(ONE, ONE), quadrature_weights=-np.ones(20)),
        "must be non-negative",
    ),
    "weights dtype": (
        lambda x: make()(x, **on(ONE, ONE), quadrature_weights=np.ones(20, int)),
        "quadrature_weights has dtype int64",
    ),
    "no subdomains": (lambda x: make()(x), "Pass the `subdomains` of the mesh"),
    "functions of all points": (
        lambda x: make(basis="orthonormal")(x, **on(ONE, ONE)),
        "OrthonormalBasis depend on all points .* cannot be restricted",
    ),
    "basis missing": (
        lambda x: make(shared=True)(x, **on(ONE, ONE)),
        "Pass `basis` only to a layer",
    ),
    "basis superfluous": (
        lambda x: make()(x, **on(ONE, ONE), basis=make().local.basis),
        "Pass `basis` only to a layer",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_name_both_sides(x, case):
    call, message = BAD_CALLS[case]
    with pytest.raises(TypeError if "dtype" in case else ValueError, match=message):
        call(x)
