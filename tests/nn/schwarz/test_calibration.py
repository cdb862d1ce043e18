"""Starting factors against the formulas of their docstrings, in plain NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn, schwarz
from opjax.problems import poisson
from tests.nn.parameters import all_finite

BY_HAND = [[3, 0, 1, 7], [1, 2, 3, 4, 5], [3, 7], [5, 3, 6]]


def normal(key, shape):
    """Factors of size one; nothing to compile."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key))).normal(
        size=shape
    )


def block(n, rank, key=0):
    return nn.schwarz.LowRankAttention(
        n, rank=rank, factor_init=normal, rngs=nnx.Rngs(key)
    )


def level(cover, space=None, coarse=None, *, rank=2):
    options = {"factor_init": normal, "rngs": nnx.Rngs(5)}
    return nn.SchwarzAttention(
        cover, rank=rank, coarse_space=space, coarse=coarse, **options
    )


def boxes(n, count, coarse):
    cover = schwarz.box_cover(n, count, overlap=1)
    return level(cover, schwarz.interface_hats(n, count), coarse)


def by_hand():
    """Subdomains of different sizes, two of them smaller than the rank."""
    cover = schwarz.cover(BY_HAND, num_points=8)
    return level(cover, schwarz.uniform_hats(8, 3), block(3, 2), rank=3)


MODELS = {
    "global": lambda: block(13, 4),
    "one level": lambda: level(schwarz.box_cover(13, 3, overlap=1)),
    "two levels": lambda: boxes(13, 4, block(3, 2)),
    "by hand": by_hand,
    "three levels": lambda: boxes(24, 8, boxes(7, 3, block(2, 2))),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def num_points(model):
    return len(model.query) if is_block(model) else model.cover.num_points


def is_block(model):
    return isinstance(model, nn.schwarz.LowRankAttention)


def data(model, num_samples=9, seed=1):
    """Inputs and targets whose samples have very different sizes."""
    rng = np.random.default_rng(seed)
    n = num_points(model)
    sizes = 10.0 ** rng.uniform(-3, 3, size=(2, num_samples))
    inputs, targets = sizes[:, None] * rng.normal(size=(2, n, num_samples))
    return inputs, np.cumsum(targets, axis=0)  # smooth: the coarse level has a share


class Blocks:
    """What the blocks of one level see, represent and weigh, from dense matrices."""

    def __init__(self, model, inputs, targets, weights):
        self.model, self.local = model, not is_block(model)
        if not self.local:
            self.seen, self.wanted, self.weights = [inputs], [targets], [weights]
            self.sets = [np.arange(len(inputs))]
            return
        cover = model.cover
        self.sets = [
            np.asarray(cover.indices)[i, np.asarray(cover.weights)[i] > 0]
            for i in range(cover.num_subdomains)
        ]
        count = np.bincount(np.concatenate(self.sets))[:, None]
        self.seen = [(inputs / np.sqrt(count))[s] for s in self.sets]
        self.wanted = [targets[s] for s in self.sets]
        self.weights = [(weights / count[:, 0])[s] for s in self.sets]


def dense(space):
    phi = np.zeros((space.num_points, space.num_subdomains))
    for j, (points, values) in enumerate(
        zip(space.indices, space.weights, strict=True)
    ):
        phi[points[values > 0], j] = values[values > 0]
    return phi


def levels(model, inputs, targets):
    """Lists the levels from the finest, with their shares of normalised samples."""
    norms = np.linalg.norm(targets, axis=0) * np.sqrt(targets.shape[1])
    inputs, targets, weights = inputs / norms, targets / norms, np.ones(len(inputs))
    found = []
    while True:
        if is_block(model) or model.coarse is None:
            return [*found, Blocks(model, inputs, targets, weights)]
        phi = dense(model.coarse_space)
        coefficients = np.linalg.lstsq(phi, targets, rcond=None)[0]
        found.append(Blocks(model, inputs, targets - phi @ coefficients, weights))
        weights = phi.T**2 @ weights
        model, inputs, targets = model.coarse, phi.T @ inputs, coefficients


def pairs(model, other):
    """Goes through the levels of two models of one structure."""
    while model is not None:
        yield model, other
        if is_block(model):
            return
        model, other = model.coarse, other.coarse


def factors_of(model, name):
    factor = np.asarray(getattr(model, name)[...])
    return factor[None] if is_block(model) else factor


calibrate = jax.jit(nn.schwarz.calibrate)
_principal_keys = jax.jit(nn.schwarz.principal_keys, static_argnames="whitening")


def principal_keys(model, f, u, whitening=1e-2):
    return _principal_keys(model, f, u, whitening=whitening)


# principal keys


@pytest.mark.nightly
@pytest.mark.parametrize("whitening", [1e-2, 0.3, None])
def test_keys_are_scaled_and_filtered_singular_vectors(model, whitening):
    inputs, targets = data(model)
    found = principal_keys(model, inputs, targets, whitening=whitening)
    for blocks in levels(model, inputs, targets):
        own = next(b for a, b in pairs(model, found) if a is blocks.model)
        for i, x in enumerate(blocks.seen):
            u, s, _ = np.linalg.svd(x, full_matrices=False)
            expected = np.sqrt(len(x)) * u
            if not blocks.local and whitening is not None:
                t = s / s[0]
                expected = expected * t / (t**2 + whitening**2)
            actual = factors_of(own, "key")[i]
            rank = min(len(x), actual.shape[1])
            expected = expected[:, :rank]
            # Singular vectors have no sign.
            signs = np.sign(np.sum(actual[: len(x), :rank] * expected, axis=0))
            close = {"rtol": 1e-7, "atol": 1e-8 * np.abs(expected).max()}
            assert_allclose(actual[: len(x), :rank], signs * expected, **close)
            assert_array_equal(actual[len(x) :], 0)
            assert_array_equal(actual[:, rank:], 0)


def test_local_keys_are_orthonormal_times_the_root_of_the_points():
    model = by_hand()
    found = principal_keys(model, *data(model))
    for i, points in enumerate(BY_HAND):
        key = factors_of(found, "key")[i]
        columns = np.arange(3) < len(points)
        expected = len(points) * np.diag(columns)
        assert_allclose(key.T @ key, expected, atol=1e-12)


@pytest.mark.nightly
def test_without_whitening_all_keys_are_orthonormal(model):
    found = principal_keys(model, *data(model), whitening=None)
    for own, _ in pairs(found, found):
        if is_block(own):
            gram = factors_of(own, "key")[0].T @ factors_of(own, "key")[0]
            assert_allclose(gram, num_points(own) * np.eye(len(gram)), atol=1e-10)


def test_queries_start_from_zero(model):
    found = principal_keys(model, *data(model))
    assert jax.tree.structure(found) == jax.tree.structure(model)
    for own, _ in pairs(found, found):
        assert_array_equal(factors_of(own, "query"), 0)


def test_the_model_given_is_untouched():
    model = MODELS["by hand"]()
    before = jax.tree.map(np.array, model)
    inputs, targets = data(model)

    @jax.jit  # one compilation; the module is not an argument, so it is not copied
    def both():
        return nn.schwarz.calibrate(
            nn.schwarz.principal_keys(model, inputs, targets), inputs, targets
        )

    both()
    jax.tree.map(assert_array_equal, before, model)


def weighted_mse(model, f, u):
    return poisson.weighted_mse(model(f), u)


def test_training_starts_at_an_error_of_one(model):
    f, u = data(model)
    found = principal_keys(model, f, u)
    loss = jax.jit(weighted_mse)
    assert loss(found, f, u) == 1
    assert loss(calibrate(found, f, u)[0], f, u) == 1


# calibration


def expected_root(blocks):
    """(share / energy)^(1/4): energy of standard normal queries, by sums."""
    energy = share = 0.0
    for i, x in enumerate(blocks.seen):
        scores = factors_of(blocks.model, "key")[i, : len(x)].T @ x
        energy += blocks.weights[i].sum() * np.sum(scores**2)
        share += np.sum(blocks.weights[i][:, None] * blocks.wanted[i] ** 2)
    return (share / energy) ** 0.25


def test_levels_are_scaled_to_their_shares(model):
    inputs, targets = data(model)
    found, sizes = calibrate(model, inputs, targets)
    roots = [expected_root(b) for b in levels(model, inputs, targets)]
    assert jax.tree.structure(sizes) == jax.tree.structure(model)
    assert jax.tree.structure(found) == jax.tree.structure(model)
    assert all(jnp.shape(leaf) == () for leaf in jax.tree.leaves(sizes))
    for root, (own, scaled), (size, _) in zip(
        roots, pairs(model, found), pairs(sizes, sizes), strict=True
    ):
        for name in ("query", "key"):
            # The coarse space's systems are solved to a relative 1e-5.
            assert_allclose(getattr(size, name)[...], root, rtol=1e-4)
            assert_allclose(
                factors_of(scaled, name),
                getattr(size, name)[...] * factors_of(own, name),
                rtol=1e-12,
            )


def test_functions_of_the_coarse_space_leave_nothing_to_the_local_level(rng):
    model = MODELS["two levels"]()
    inputs, _ = data(model)
    targets = dense(model.coarse_space) @ rng.normal(size=(3, 9))
    found, sizes = calibrate(model, inputs, targets)
    # Sizes are fourth roots of energies: (1e-5)^(1/2), the tolerance of the solver.
    assert float(sizes.query[...]) < 1e-2 * float(sizes.coarse.query[...])
    assert all_finite(found)


def level_outputs(model, f):
    """Images of the levels one by one, the finest first."""
    if is_block(model):
        return [model(f)]
    local = schwarz.two_level_attention(
        model.query[...], model.key[...], f, model.cover
    )
    if model.coarse is None:
        return [local]
    space = model.coarse_space
    rest = level_outputs(model.coarse, schwarz.coarse_restrict(f, space))
    return [local, *(schwarz.coarse_prolong(c, space) for c in rest)]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["one level", "two levels", "by hand"])
def test_normal_queries_give_every_level_its_share(name):
    model = MODELS[name]()
    f, u = data(model)
    found, sizes = calibrate(model, f, u)
    norms = np.linalg.norm(u, axis=0) * np.sqrt(u.shape[1])

    def energies(key):
        def draw(path, leaf, size):
            path_key = jax.random.fold_in(key, len(path))
            noise = size * jax.random.normal(path_key, leaf.shape)
            return noise if "query" in jax.tree_util.keystr(path) else leaf

        drawn = jax.tree_util.tree_map_with_path(draw, found, sizes)
        return jnp.stack([jnp.sum(o**2) for o in level_outputs(drawn, f / norms)])

    keys = jax.random.split(jax.random.key(7), 4000)
    drawn = np.asarray(jax.jit(jax.vmap(energies))(keys))
    means, errors = drawn.mean(0), drawn.std(0) / np.sqrt(len(keys))
    for mean, error, blocks in zip(means, errors, levels(model, f, u), strict=True):
        share = sum(
            np.sum(weights[:, None] * wanted**2)
            for weights, wanted in zip(blocks.weights, blocks.wanted, strict=True)
        )
        assert abs(mean - share) < 5 * error < 0.2 * share


# properties


def start(model, f, u):
    return calibrate(principal_keys(model, f, u), f, u)


@functools.partial(jax.jit, static_argnames="steps")
def train(model, f, u, *, steps=20):
    """Trains as the experiments do; losses, then the model."""
    model, sizes = start(model, f, u)
    # No offset in the denominator: it is the one scale that Adam knows of.
    optimizer = optax.adam(0.05, eps=1e-100)

    def step(carry, _):
        model, state = carry
        loss, gradient = jax.value_and_grad(weighted_mse)(model, f, u)
        updates, state = optimizer.update(gradient, state, model)
        updates = jax.tree.map(jnp.multiply, updates, sizes)
        return (optax.apply_updates(model, updates), state), loss

    carry = model, optimizer.init(model)
    (model, _), losses = jax.lax.scan(step, carry, length=steps)
    return losses, model


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["by hand", "three levels"])
def test_units_of_inputs_and_targets_change_nothing_but_the_units(name):
    model = MODELS[name]()
    f, u = data(model)
    a, b = 2.0**-20, 2.0**14
    with jax.numpy_dtype_promotion("standard"):  # optax needs it
        losses, trained = train(model, f, u)
        scaled_losses, scaled = train(model, a * f, b * u)
    assert losses[0] == 1
    assert losses[-1] < 0.97
    assert_allclose(scaled_losses, losses, rtol=1e-6)
    for one, other in zip(*map(jax.tree.leaves, (trained, scaled)), strict=True):
        expected = np.sqrt(b / a) * one
        close = {"rtol": 1e-5, "atol": 1e-6 * np.abs(expected).max()}
        assert_allclose(other, expected, **close)


def test_units_enter_the_sizes_by_their_root(model):
    f, u = data(model)
    _, sizes = calibrate(model, f, u)
    _, scaled = calibrate(model, 9 * f, 4 * u)
    for one, other in zip(*map(jax.tree.leaves, (sizes, scaled)), strict=True):
        assert_allclose(other, np.sqrt(4 / 9) * one, rtol=1e-9)


def test_samples_count_by_their_relative_errors(model, rng):
    """A linear operator relates multiples of a sample, so its size says nothing."""
    f, u = data(model)
    units = 10 ** rng.uniform(-3, 3, size=f.shape[1])
    for one, other in zip(
        jax.tree.leaves(start(model, f, u)),
        jax.tree.leaves(start(model, units * f, units * u)),
        strict=True,
    ):
        # Of vectors that differ by rounding alone, the signs are the same.
        assert_allclose(np.abs(other), np.abs(one), rtol=1e-6, atol=1e-9)


def test_the_order_of_samples_does_not_matter(model, rng):
    f, u = data(model)
    order = rng.permutation(f.shape[1])
    for one, other in zip(
        jax.tree.leaves(calibrate(model, f, u)),
        jax.tree.leaves(calibrate(model, f[:, order], u[:, order])),
        strict=True,
    ):
        assert_allclose(other, one, rtol=1e-9)


@pytest.mark.nightly
def test_batches_are_mapped_over_seeds():
    model = MODELS["three levels"]()
    samples = [data(model, seed=seed) for seed in range(3)]
    mapped = jax.jit(jax.vmap(start, in_axes=(None, 0, 0)))(
        model, *map(np.stack, zip(*samples, strict=True))
    )
    for i, sample in enumerate(samples):
        for one, other in zip(
            jax.tree.leaves(start(model, *sample)),
            jax.tree.leaves(mapped),
            strict=True,
        ):
            assert_allclose(np.abs(other[i]), np.abs(one), rtol=1e-7, atol=1e-9)


def test_single_precision_stays_single_and_close():
    model = MODELS["three levels"]()
    f, u = data(model)
    f, u = f / np.linalg.norm(u, axis=0), u / np.linalg.norm(u, axis=0)
    double = start(model, f, u)
    as_single = functools.partial(np.asarray, dtype=np.float32)
    single = start(*jax.tree.map(as_single, (model, f, u)))
    for one, other in zip(*map(jax.tree.leaves, (double, single)), strict=True):
        assert other.dtype == jnp.float32
        close = {"rtol": 1e-2, "atol": 1e-3 * np.abs(one).max(initial=0)}
        assert_allclose(np.abs(other), np.abs(one), **close)


def test_samples_that_vanish_are_left_out():
    f, u = data(block(13, 4))
    padded = [np.pad(values, ((0, 0), (0, 1))) for values in (f, u)]
    expected = principal_keys(block(13, 4), f, u).key[...]
    actual = principal_keys(block(13, 4), *padded).key[...]
    assert_allclose(np.abs(actual), np.abs(expected), rtol=1e-7)


# errors

MODEL = MODELS["by hand"]()
X = np.ones((8, 4))
BAD_CALLS = {
    "points": (lambda f: f(MODEL, X, X[1:]), r"inputs \(8, 4\), targets \(7, 4\)"),
    "samples": (lambda f: f(MODEL, X, X[:, 1:]), r"inputs \(8, 4\), targets \(8, 3\)"),
    "axes": (lambda f: f(MODEL, X[0], X), r"inputs has shape \(4,\), expected 2 axes"),
    "model": (
        lambda f: f(MODEL, X[1:], X[1:]),
        r"\(7, 4\) must have one row for each of the 8 points",
    ),
    "dtype": (lambda f: f(MODEL, X.astype(int), X), "inputs has dtype int64"),
    "other dtype": (lambda f: f(MODEL, X, X.astype(int)), "targets has dtype int64"),
}


@pytest.mark.parametrize("function", [nn.schwarz.principal_keys, nn.schwarz.calibrate])
@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_named_in_the_error(case, function):
    call, message = BAD_CALLS[case]
    with pytest.raises(TypeError if "dtype" in case else ValueError, match=message):
        call(function)


@pytest.mark.parametrize("function", [nn.schwarz.principal_keys, nn.schwarz.calibrate])
def test_points_of_a_global_model_are_those_of_the_data(function):
    with pytest.raises(ValueError, match="9 points"):
        function(block(9, 2), X, X)


@pytest.mark.nightly
def test_a_batch_holds_a_sample_for_each_column():
    with pytest.raises(ValueError, match="2 samples, but a block has 3 columns"):
        nn.schwarz.principal_keys(MODEL, X[:, :2], X[:, :2])


@pytest.mark.parametrize("whitening", [0.0, -1.0, np.nan])
def test_whitening_is_positive(whitening):
    with pytest.raises(ValueError, match=f"whitening={whitening} must be positive"):
        nn.schwarz.principal_keys(MODEL, X, X, whitening=whitening)
