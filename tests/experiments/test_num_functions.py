import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import num_functions as study
from experiments import num_functions_model as model
from opjax.problems import poisson
from tests import refused, sessions
from tests.experiments.results import read_result

N, MODES = 24, 6
TINY = dataclasses.replace(
    study.PRESETS["smoke"],
    methods=("ranks", "singular"),
    right_sides=("fourier",),
    num_points=(16,),
    num_steps=2,
    gate_steps=2,
    seeds=(0,),
)


_BY_NIGHT = pytest.param("fourier", marks=pytest.mark.nightly)


@pytest.fixture(scope="module", params=["white", _BY_NIGHT])
def pairs(request):
    return model.pairs(request.param, N, MODES)


@pytest.fixture(scope="module")
def learned():
    with sessions.user():
        functions = model.Functions(
            4, num_waves=8, max_frequency=6.0, width=8, threshold=1e-3, rngs=nnx.Rngs(0)
        )
    functions = jax.tree.map(lambda leaf: np.asarray(leaf, float), functions)
    functions.gates[...] = np.array([1.0, -0.5, 0.25, 2.0])
    return functions


class Given:
    """Functions that are given, with gates."""

    def __init__(self, functions, gates=None, threshold=1e-3):
        self.functions = functions
        gates = np.ones(functions.shape[1]) if gates is None else gates
        self.gates, self.threshold = gates, jnp.asarray(threshold)

    def __call__(self, pairs):
        return self.functions, self.functions


def sines(count):
    x = np.arange(1, N + 1) / (N + 1)
    return np.sqrt(2) * np.sin(np.pi * np.outer(x, np.arange(1, count + 1)))


def eigenvalues(count):
    return (
        1 / (2 * (N + 1) * np.sin(np.arange(1, count + 1) * np.pi / 2 / (N + 1))) ** 2
    )


def test_least_errors_of_white_are_tails_of_the_eigenvalues():
    squares = eigenvalues(MODES) ** 2
    expected = [np.sqrt(squares[k:].sum() / squares.sum()) for k in range(MODES + 1)]
    actual = model.widths(model.pairs("white", N, MODES))
    assert_allclose(actual, expected, atol=1e-12)


def test_fixed_sines_have_the_least_error_of_white_and_others_more():
    pairs = model.pairs("white", N, MODES)
    least = model.widths(pairs)[3]
    error = model.fixed_error(model.sines(pairs.points, 3), pairs)
    assert_allclose(error, least, rtol=1e-9)
    for basis in (model.hats, model.polynomials):
        functions = basis(pairs.points, 3)
        maps = np.kron(functions, (functions.T @ pairs.inputs).T)  # linear in the map
        best = np.linalg.lstsq(maps, pairs.targets.ravel(), rcond=None)[0]
        residual = maps @ best - pairs.targets.ravel()
        expected = np.linalg.norm(residual) / np.linalg.norm(pairs.targets)
        error = model.fixed_error(functions, pairs)
        assert_allclose(error, expected, rtol=1e-9)
        assert error > 1.05 * least


@pytest.mark.nightly
def test_columns_of_fourier_have_the_error_of_the_distribution(rng):
    pairs = model.pairs("fourier", N, MODES)
    operator = rng.normal(size=(N, N))
    problem = poisson.fourier_problem(N, num_modes=MODES)
    moment = poisson.population_moment(jax.random.key(0), problem, num_samples=100_000)
    expected = poisson.population_mse(
        lambda columns: operator @ np.asarray(columns), problem, moment
    )
    actual = np.sum((operator @ pairs.inputs - pairs.targets) ** 2) / (N + 1)
    assert_allclose(actual, expected, rtol=1e-9)


def test_the_gated_map_is_that_of_least_squares(pairs, learned):
    query, key = map(np.asarray, learned(pairs))
    assert_allclose(query.T @ query / (N + 1), np.eye(4), atol=1e-6)
    assert_allclose(key.T @ key / (N + 1), np.eye(4), atol=1e-6)
    inputs, targets = key.T @ pairs.inputs, query.T @ pairs.targets
    actual = np.linalg.lstsq(inputs.T, targets.T, rcond=None)[0].T
    gates = np.diag(np.abs(learned.gates[...]))
    expected = gates @ actual @ gates @ inputs / (N + 1)
    coefficients, basis = model.expand(learned, pairs)
    assert_allclose(coefficients, expected, atol=1e-3)
    residual = query @ np.asarray(coefficients) - pairs.targets
    error = model.squared_error(coefficients, basis, pairs)
    assert_allclose(error, np.sum(residual**2) / (N + 1))
    kept = np.array([1.0, 0.0, 1.0, 0.0])
    actual = np.linalg.lstsq(inputs.T, targets[kept > 0].T, rcond=None)[0].T
    again = np.asarray(model.expand(learned, pairs, kept=kept)[0])
    assert_allclose(again[kept > 0], actual @ inputs / (N + 1), atol=1e-3)
    assert_allclose(again[kept == 0], 0, atol=1e-12)


def test_no_functions_have_less_than_the_least_error(pairs, learned):
    learned.gates[...] = np.ones(4)
    error = np.exp(model.loss(learned, pairs, method="ranks"))
    assert np.sqrt(error) >= model.widths(pairs)[4]


def test_eigenfunctions_have_the_least_error():
    pairs = model.pairs("white", N, MODES)
    error = np.exp(model.loss(Given(sines(3)), pairs, method="ranks"))
    assert_allclose(np.sqrt(error), model.widths(pairs)[3], rtol=1e-5)


@pytest.mark.parametrize("method", ["gates", "map"])
def test_penalties_keep_singular_values_above_the_threshold(method):
    pairs = model.pairs("white", N, MODES)
    squares = -np.diff(model.widths(pairs) ** 2)
    gates = np.zeros((61, MODES))
    gates[:, 1] = np.linspace(0, 1.2, len(gates))

    @jax.jit
    def losses(threshold):
        def one(gates):
            given = Given(sines(MODES), gates, threshold)
            return model.loss(given, pairs, method=method)

        return jax.vmap(one)(gates)

    assert np.argmin(losses(0.9 * squares[1])) > 0
    assert np.argmin(losses(1.1 * squares[1])) == 0


def test_truncation_keeps_singular_values_above_the_threshold(rng):
    left, right = (np.linalg.qr(rng.normal(size=(5, 5)))[0] for _ in range(2))
    values = np.array([3.0, 2, 1, 0.5, 0.1])
    parts, number = model.truncate((left * values) @ right, 0.9)
    assert number == 3
    assert_allclose(parts, (left[:, :3] * values[:3]) @ right[:3], atol=1e-12)


def test_rows_above_a_hundredth_of_the_root_of_the_threshold_are_open():
    rows = 1e-3 * np.array([[0.0, -2.0], [0.8, 0.8], [0.5, 0.8], [0.0, 0.0]])
    actual = model.open_rows(rows, 1e-2)
    assert_array_equal(actual, [True, True, False, False])


def test_choices_are_those_of_the_replicas_of_seeds_and_thresholds(learned):
    config = dataclasses.replace(
        TINY,
        methods=("gates",),
        right_sides=("white",),
        gate_points=(N,),
        max_functions=4,
        white_modes=MODES,
        seeds=(5, 7),
    )
    (member,) = config.members().values()
    functions = jax.tree.map(lambda leaf: np.stack([leaf] * 4), learned)
    functions.gates[...] = np.tril(np.ones((4, 4)))  # so many are open
    with sessions.user():
        rows = study.evaluate(functions, member)["rows"]
    actual = [(row["threshold"], row["seed"], row["chosen"]) for row in rows]
    assert actual == [(1e-2, 5, 1), (1e-2, 7, 2), (1e-3, 5, 3), (1e-3, 7, 4)]


def test_gradients_are_central_differences_and_thresholds_are_constant(learned, rng):
    pairs = model.pairs("white", N, MODES)
    ways = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), learned)

    def loss(step, threshold):
        moved = jax.tree.map(lambda leaf, way: leaf + step * way, learned, ways)
        moved.threshold[...] = threshold
        methods = "ranks", "gates", "map"
        return sum(model.loss(moved, pairs, method=method) for method in methods)

    both = jax.jit(jax.value_and_grad(loss, (0, 1)))
    low, middle, high = (both(step, 0.1) for step in (-1e-5, 0.0, 1e-5))
    slope = (high[0] - low[0]) / 2e-5
    assert_allclose(middle[1], [slope, 0], rtol=1e-6)


def test_the_least_rank_is_that_of_the_same_error():
    widths = np.array([1.0, 0.5, 0.1, 0.0])
    assert [study.least_rank(widths, e) for e in (2, 0.6, 0.1, 0.09995, 0)] == [
        *(0, 1, 2, 2, 3)
    ]


def test_every_distribution_has_the_ranks_that_its_modes_leave():
    members = study.Config().members()
    assert len(members) == 30 + 20 + 12
    ranks = {m.functions for m in members.values() if m.right == "fourier"}
    assert ranks == {2, 4, 8, 16, 32}
    assert {m.num_steps for m in members.values() if m.method == "map"} == {800}


@pytest.mark.nightly
def test_a_run_compares_errors_and_chosen_numbers(tmp_path):
    with sessions.user():
        study.run(TINY, workdir=tmp_path)
    result = read_result(tmp_path)
    assert result["largest_ratio"] > 1 - 1e-4
    assert set(result["chosen_by_least"]) == {"fourier_singular"}
    text = (tmp_path / "tables.md").read_text()
    assert "singular values, no penalty" in text
    assert (tmp_path / "num_functions.png").exists()


def test_members_do_not_depend_on_other_members():
    more = dataclasses.replace(TINY, methods=("ranks", "gates", "singular"))
    both, members = more.members(), TINY.members()
    assert {name: both[name] for name in members} == members


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        ({"gate_points": (3,)}, "4 modes are more than a grid of 3 points resolves"),
        ({"ranks": (5,)}, "ranks=5 are all above"),
        (
            {"ranks": (2, 6), "right_sides": ("white",), "white_modes": 6},
            "ranks=6 must be less than white_modes=6",
        ),
    ],
)
