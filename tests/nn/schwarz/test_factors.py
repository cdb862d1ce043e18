"""Low-rank and Schwarz attention as modules: counts, dense matrices, transforms."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn, schwarz
from tests import refused
from tests.nn.parameters import size

BY_HAND = [[3, 0, 1], [1, 2, 3, 4, 5], [3], [5, 3, 6]]


def normal(key, shape):
    """Larger than the default, so that no tolerance is absolute; nothing to compile."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key))).normal(
        size=shape
    )


apply = jax.jit(lambda model, f: model(f))


def dense(model, num_points):
    return np.asarray(apply(model, np.eye(num_points)))


def hats_on_axis(n, peaks):
    """Piecewise linear functions, one at a peak, zero at -1, n and the other peaks."""
    nodes = [-1, *peaks, n]
    unit = np.eye(len(nodes))[1:-1]
    return np.stack([np.interp(range(n), nodes, e) for e in unit], axis=1)


def boxes(rows, columns, width):
    return [[width * i + j for i in r for j in c] for r in rows for c in columns]


# Covers and coarse spaces, beside the same sets of points and functions by hand.
CASES = {
    "1-D": lambda: (
        schwarz.box_cover(11, 3, overlap=1),
        schwarz.interface_hats(11, 3),
        [range(5), range(3, 9), range(7, 11)],
        hats_on_axis(11, [4, 8]),
    ),
    "2-D": lambda: (
        schwarz.box_cover((4, 6), (2, 2), overlap=1),
        schwarz.uniform_hats((4, 6), (1, 2)),
        boxes([range(3), range(1, 4)], [range(4), range(2, 6)], 6),
        np.kron(hats_on_axis(4, [1.5]), hats_on_axis(6, [4 / 3, 11 / 3])),
    ),
    "by hand": lambda: (
        schwarz.cover(BY_HAND, num_points=7),
        schwarz.cover(BY_HAND, num_points=7),
        BY_HAND,
        np.array([partition_of_unity(s, BY_HAND, 7) for s in BY_HAND]).T,
    ),
}


def partition_of_unity(own, sets, n):
    """1 / m_j at the points of one's own set, zero elsewhere."""
    count = [sum(j in points for points in sets) for j in range(n)]
    return np.array([1 / count[j] if j in own else 0 for j in range(n)])


def two_levels(cover, space, *, rank=2, coarse_rank=2, key=0, **options):
    rngs = nnx.Rngs(key)
    options = {"factor_init": normal} | options
    coarse = nn.schwarz.LowRankAttention(
        space.num_subdomains, rank=coarse_rank, rngs=rngs, **options
    )
    return nn.SchwarzAttention(
        cover, rank=rank, coarse_space=space, coarse=coarse, rngs=rngs, **options
    )


def paper(**options):
    """The model of the paper's section 6."""
    cover, space = schwarz.box_cover(256, 8, overlap=2), schwarz.interface_hats(256, 8)
    options = {"rank": 4, "coarse_rank": 8} | options
    return two_levels(cover, space, **options)


def low_rank(model):
    return np.asarray(model.query[...]) @ np.asarray(model.key[...]).T


def local_part(model, sets, n):
    """sum_i R_i^T D_i^{1/2} Q_i K_i^T D_i^{1/2} R_i, row by row of the factors."""
    matrix = np.zeros((n, n))
    query, key = np.asarray(model.query[...]), np.asarray(model.key[...])
    for i, points in enumerate(sets):
        r = np.eye(n)[list(points)]
        m = len(r)
        root = np.diag(r @ np.sqrt(partition_of_unity(points, sets, n)))
        matrix += r.T @ root @ query[i, :m] @ key[i, :m].T @ root @ r
    return matrix


@pytest.fixture(params=CASES)
def case(request):
    """Returns a module with its dense matrix."""
    cover, space, sets, phi = CASES[request.param]()
    model = two_levels(cover, space)
    n = cover.num_points
    return model, phi @ low_rank(model.coarse) @ phi.T + local_part(model, sets, n)


# parameters


def test_parameters_of_the_global_models_of_the_paper_are_counted():
    for rank, count in ((40, 20480), (5, 2560)):
        model = nn.schwarz.LowRankAttention(256, rank=rank, rngs=nnx.Rngs(0))
        assert model.num_parameters == count
        assert size(model) == count


def test_parameters_of_the_schwarz_model_of_the_paper_are_counted():
    model = paper()
    assert model.coarse.query.shape == (7, 7)  # rank 8, cut to 7 hats
    assert model.num_parameters == 2370
    # The two subdomains at the ends have two points less.
    factors = 2 * 4 * (2 * 34 + 6 * 36)
    assert factors + 2 * 7 * 7 == 2370


def test_only_parameters_are_leaves():
    model = paper()
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(model))
    assert shapes == [(7, 7), (7, 7), (8, 36, 4), (8, 36, 4)]


def test_factors_start_with_standard_deviation_002():
    wide = nn.schwarz.LowRankAttention(8 * 1028, rank=10, rngs=nnx.Rngs(0))
    cover = schwarz.box_cover(8192, 8, overlap=2)
    local = nn.SchwarzAttention(cover, rank=10, rngs=nnx.Rngs(0))
    sizes = np.array([1026, *[1028] * 6, 1026])
    used = (np.arange(1028) < sizes[:, None])[..., None]
    used = np.broadcast_to(used, local.query.shape)
    for model, where in ((wide, ...), (local, used)):
        for factor in (model.query, model.key):
            entries = np.asarray(factor[...])[where].ravel()
            error = 5 / np.sqrt(entries.size)  # five standard errors
            assert abs(entries.mean()) < 0.02 * error
            assert abs(entries.std() / 0.02 - 1) < error / np.sqrt(2)
        assert not np.array_equal(model.query[...], model.key[...])
    assert not np.asarray(local.query[...])[~used].any()


def test_keys_decide_the_factors():
    first, again, other = (paper(key=key) for key in (0, 0, 1))
    for a, b, c in zip(*map(jax.tree.leaves, (first, again, other)), strict=True):
        assert_array_equal(a, b)
        assert np.abs(a - c).max() > 0.1


# values


def test_low_rank_attention_is_its_matrix(rng):
    model = nn.schwarz.LowRankAttention(9, rank=3, factor_init=normal, rngs=nnx.Rngs(0))
    f = rng.normal(size=(9, 4))
    assert_allclose(model(f), low_rank(model) @ f, rtol=1e-12)


def test_low_rank_attention_cuts_the_rank_to_the_points():
    model = nn.schwarz.LowRankAttention(3, rank=8, rngs=nnx.Rngs(0))
    assert model.query.shape == model.key.shape == (3, 3)


def test_two_levels_are_their_dense_matrix(case, rng):
    model, matrix = case
    f = rng.normal(size=(len(matrix), 2))
    assert_allclose(apply(model, f), matrix @ f, rtol=1e-12, atol=1e-12)
    assert np.linalg.matrix_rank(matrix) > 2


def test_without_a_coarse_space_there_is_one_level():
    cover, _, sets, _ = CASES["1-D"]()
    model = nn.SchwarzAttention(cover, rank=2, factor_init=normal, rngs=nnx.Rngs(0))
    assert model.coarse_space is None
    assert model.num_parameters == 2 * 2 * (5 + 6 + 4)
    expected = local_part(model, sets, 11)
    assert_allclose(dense(model, 11), expected, atol=1e-12)


def three_levels(**options):
    n, n0 = 24, 7
    middle = two_levels(
        schwarz.box_cover(n0, 3, overlap=1), schwarz.interface_hats(n0, 3), **options
    )
    return nn.SchwarzAttention(
        schwarz.box_cover(n, 8, overlap=1),
        rank=2,
        coarse_space=schwarz.interface_hats(n, 8),
        coarse=middle,
        factor_init=normal,
        rngs=nnx.Rngs(1),
    )


def test_three_levels_are_nested():
    model = three_levels()
    phi, phi0 = hats_on_axis(24, range(3, 24, 3)), hats_on_axis(7, [3, 5])
    small = [range(4), range(2, 6), range(4, 7)]
    large = [range(max(i - 1, 0), min(i + 4, 24)) for i in range(0, 24, 3)]
    middle = phi0 @ low_rank(model.coarse.coarse) @ phi0.T
    middle = middle + local_part(model.coarse, small, 7)
    expected = phi @ middle @ phi.T + local_part(model, large, 24)
    assert_allclose(dense(model, 24), expected, rtol=1e-12, atol=1e-12)
    count = 2 * 2 * (sum(map(len, large)) + sum(map(len, small)) + 2)
    assert model.num_parameters == count


# padding


def small_blocks(**options):
    """Subdomains of 3, 5, 1 and 3 points and rank 4."""
    cover = schwarz.cover(BY_HAND, num_points=7)
    return two_levels(cover, cover, rank=4, coarse_rank=9, **options)


# Which entries of its factors a subdomain needs: points by at most as many columns.
USED = np.zeros((4, 5, 4), bool)
for block, points in enumerate(BY_HAND):
    USED[block, : len(points), : len(points)] = True


def test_a_rank_larger_than_a_subdomain_is_cut_to_it():
    model = small_blocks()
    assert_array_equal(model.used_factors(4), USED)
    for factor in (model.query, model.key):
        assert_array_equal(np.asarray(factor[...]) != 0, USED)
    assert model.num_parameters == 2 * (9 + 5 * 4 + 1 + 9) + 2 * 4 * 4


def test_a_rank_larger_than_all_subdomains_is_cut_to_the_largest():
    cover = schwarz.cover(BY_HAND, num_points=7)
    model = nn.SchwarzAttention(cover, rank=100, rngs=nnx.Rngs(0))
    assert model.query.shape == (4, 5, 5)
    assert model.num_parameters == 2 * (9 + 25 + 1 + 9)


def fit(model, f, u, *, steps):
    """Trains by Adam inside one `lax.scan`."""
    optimizer = optax.adam(1e-2)

    def step(carry, _):
        model, state = carry
        loss, gradient = jax.value_and_grad(lambda m: jnp.mean((m(f) - u) ** 2))(model)
        updates, state = optimizer.update(gradient, state, model)
        return (optax.apply_updates(model, updates), state), loss

    carry = model, optimizer.init(model)
    (model, _), losses = jax.lax.scan(step, carry, length=steps)
    return model, losses


def test_padding_stays_zero_in_training(rng):
    model = small_blocks()
    f = rng.normal(size=(7, 5))
    with jax.numpy_dtype_promotion("standard"):  # optax needs it
        trained, losses = jax.jit(functools.partial(fit, steps=50))(model, f, -f)
    assert losses[-1] < 0.5 * losses[0]
    for before, after in ((model.query, trained.query), (model.key, trained.key)):
        assert_array_equal(np.asarray(after[...]) != 0, USED)
        moved = np.asarray(after[...])[USED] != np.asarray(before[...])[USED]
        assert moved.all()


# transforms


def test_jit_changes_nothing(rng):
    model, f = small_blocks(), rng.normal(size=(7, 2))
    assert_allclose(apply(model, f), model(f), rtol=1e-12, atol=1e-12)


def test_gradients_of_all_levels_are_exact(rng):
    model = three_levels()
    f, cotangent = rng.normal(size=(2, 24, 2))

    def value(model):
        return jnp.sum(model(f) * cotangent)

    value_and_grad = jax.jit(jax.value_and_grad(value))
    before, gradient = value_and_grad(model)
    assert jax.tree.structure(gradient) == jax.tree.structure(model)
    # The operator is linear in all queries together, and in all keys together.
    for name in ("query", "key"):

        def step(path, leaf, name=name):
            moves = name in jax.tree_util.keystr(path)
            return moves * rng.normal(size=leaf.shape)

        change = jax.tree_util.tree_map_with_path(step, model)
        after, _ = value_and_grad(jax.tree.map(np.add, model, change))
        products = jax.tree.map(np.vdot, gradient, change)
        expected = sum(jax.tree.leaves(products))
        assert_allclose(after - before, expected, rtol=1e-9)


@pytest.mark.nightly
def test_constructor_and_call_are_mapped_over_seeds(rng):
    cover, space, *_ = CASES["by hand"]()
    keys = jax.random.split(jax.random.key(3), 4)
    f = rng.normal(size=(4, 7, 2))

    def make(key):
        init = jax.nn.initializers.normal(1.0)
        return two_levels(cover, space, key=key, factor_init=init)

    models = jax.jit(jax.vmap(make))(keys)
    assert models.query.shape == (4, 4, 5, 2)
    images = jax.jit(jax.vmap(lambda model, f: model(f)))(models, f)
    make = jax.jit(make)
    for i in range(4):
        assert_allclose(images[i], apply(make(keys[i]), f[i]), rtol=1e-9)


def test_equal_modules_share_a_compiled_function():
    @jax.jit
    @chex.assert_max_traces(n=2)  # two covers
    def image(model, f):
        return model(f)

    def make(overlap, key):
        cover = schwarz.box_cover(16, 4, overlap=overlap)
        return two_levels(cover, schwarz.interface_hats(16, 4), key=key)

    f = np.ones((16, 3))
    first, second = make(1, 0), make(1, 1)
    assert jax.tree.structure(first) == jax.tree.structure(second)
    images = [np.asarray(image(model, f)) for model in (first, second)]
    assert np.abs(images[0] - images[1]).max() > 0.1
    image(make(0, 0), f)
    image(make(1, 2), f)


def test_covers_of_one_shape_with_other_points_are_told_apart():
    f = np.ones((4, 1))
    for sets in ([[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [2, 1]]):
        cover = schwarz.cover(sets, num_points=4)
        model = nn.SchwarzAttention(cover, rank=1, factor_init=normal, rngs=nnx.Rngs(0))
        expected = local_part(model, sets, 4) @ f
        assert_allclose(apply(model, f), expected, rtol=1e-12)


# precision


def test_modules_are_single_precision_where_jax_is(rng):
    f = rng.normal(size=(7, 2))
    model = small_blocks()
    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), model)
    image = apply(single, f.astype(np.float32))
    assert image.dtype == jnp.float32
    assert_allclose(image, apply(model, f), rtol=1e-4, atol=1e-5)
    with jax.enable_x64(False):
        model = small_blocks(factor_init=nn.layers.trunk_init)
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(model)} == {"float32"}
        assert apply(model, np.ones((7, 1), np.float32)).dtype == jnp.float32


# errors

COVER, HATS = schwarz.box_cover(11, 3, overlap=1), schwarz.interface_hats(11, 3)
RNGS = nnx.Rngs(0)


def block(num_points=2):
    return nn.schwarz.LowRankAttention(num_points, rank=2, rngs=RNGS)


def schwarz_module(cover=COVER, **options):
    return nn.SchwarzAttention(cover, rngs=RNGS, **({"rank": 2} | options))


test_bad_input_is_named_in_the_error = refused.calls(
    (
        lambda: nn.schwarz.LowRankAttention(0, rank=2, rngs=RNGS),
        "num_points=0 must be positive",
    ),
    (
        lambda: nn.schwarz.LowRankAttention(3, rank=0, rngs=RNGS),
        "rank=0 must be positive",
    ),
    (lambda: schwarz_module(rank=-1), "rank=-1 must be positive"),
    (lambda: schwarz_module(coarse_space=HATS), "both coarse_space and"),
    (lambda: schwarz_module(coarse=block()), "both coarse_space and"),
    (
        lambda: schwarz_module(
            coarse_space=schwarz.interface_hats(12, 3), coarse=block()
        ),
        "coarse space has 12 points, but the cover has 11",
    ),
    (
        lambda: schwarz_module(coarse_space=HATS, coarse=block(3))(np.ones((11, 1))),
        r"key \(3, 2\), value \(2, 1\)",
    ),
    (lambda: block()(np.ones((3, 1))), r"key \(2, 2\), value \(3, 1\)"),
    (lambda: block()(np.ones(2)), r"value has shape \(2,\)"),
    (lambda: block()(np.ones((2, 1), int)), "value has dtype int64"),
    (
        lambda: schwarz_module()(np.ones((10, 1))),
        r"\(10, 1\) must have one row for each of the 11 points",
    ),
    (lambda: schwarz_module()(np.ones(11)), r"has shape \(11,\)"),
    (lambda: schwarz_module()(np.ones((11, 1), int)), "has dtype int64"),
)
