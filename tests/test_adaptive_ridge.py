"""Generalised cross-validation against its definition with dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import opjax
from tests import oracles

SHAPES = [(6, 9), (9, 6), (5, 5)]


def gcv(matrix, target, ridge):
    """The definition, with the dense matrix of the fit."""
    k = matrix.shape[0]
    gram = matrix @ matrix.T
    left = np.eye(k) - gram @ np.linalg.inv(gram + ridge * np.eye(k))
    return k * np.sum((left @ target) ** 2) / np.trace(left) ** 2


def noisy(rng, k, d, noise):
    """A smoothing problem: singular values fall, and the solution is smooth."""
    u, _ = np.linalg.qr(rng.normal(size=(k, min(k, d))))
    v, _ = np.linalg.qr(rng.normal(size=(d, min(k, d))))
    values = 0.5 ** np.arange(min(k, d))
    matrix = u * values @ v.T
    truth = v @ (values[:, None] * rng.normal(size=(min(k, d), 3)))
    clean = matrix @ truth
    return matrix, clean + noise * rng.normal(size=clean.shape), clean


@pytest.mark.parametrize("shape", SHAPES)
def test_the_ridge_minimises_the_score_of_its_definition(rng, shape):
    matrix, target, _ = noisy(rng, *shape, 0.02)
    ridge = float(opjax.gcv_ridge(matrix, target))
    largest = np.linalg.norm(matrix, 2) ** 2
    grid = largest * np.geomspace(1e-6, 10, 2000)
    scores = [gcv(matrix, target, r) for r in grid]
    at = grid[np.argmin(scores)]
    best = scipy.optimize.minimize_scalar(
        lambda log: gcv(matrix, target, np.exp(log)),
        bounds=(np.log(at) - 0.1, np.log(at) + 0.1),
        method="bounded",
    )
    assert gcv(matrix, target, ridge) <= best.fun * (1 + 1e-4)


@pytest.mark.parametrize("shape", [(40, 12), (24, 24)])
def test_the_fit_is_nearly_as_good_as_that_of_the_best_ridge(shape):
    """What the choice is known for, in the mean over samples of noise."""
    chosen, best = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        matrix, target, clean = noisy(rng, *shape, 0.05)

        def error(ridge, matrix=matrix, target=target, clean=clean):
            gram = matrix.T @ matrix + ridge * np.eye(matrix.shape[1])
            return np.sum(
                (matrix @ np.linalg.solve(gram, matrix.T @ target) - clean) ** 2
            )

        chosen.append(error(float(opjax.gcv_ridge(matrix, target))))
        best.append(min(map(error, np.geomspace(1e-6, 10, 200))))
    assert np.mean(chosen) < 1.5 * np.mean(best)


def test_more_noise_asks_for_more_ridge(rng):
    ridges = [
        float(opjax.gcv_ridge(*noisy(np.random.default_rng(1), 60, 8, n)[:2]))
        for n in (1e-4, 1e-2, 1.0)
    ]
    assert ridges == sorted(ridges)
    assert ridges[0] < ridges[-1]


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_scaling_the_data_scales_the_ridge_by_the_square(rng, shape):
    matrix, target, _ = noisy(rng, *shape, 0.1)
    ridge = opjax.gcv_ridge(matrix, target)
    np.testing.assert_allclose(
        opjax.gcv_ridge(3.0 * matrix, 7.0 * target), 9.0 * ridge, rtol=1e-9
    )


def test_transforms_and_single_precision(rng):
    matrix, target, _ = noisy(rng, 9, 6, 0.05)
    oracles.check_transforms(opjax.gcv_ridge, (matrix, target))


def test_gradients_see_a_constant(rng):
    matrix, target, _ = noisy(rng, 6, 9, 0.05)
    gradient = jax.jit(jax.grad(lambda a: opjax.gcv_ridge(a, target)))(
        jnp.asarray(matrix)
    )
    assert not np.any(gradient)


def test_data_of_zeros_have_a_positive_ridge():
    ridge = opjax.gcv_ridge(jnp.zeros((4, 3)), jnp.zeros((4, 2)))
    assert np.isfinite(ridge)
    assert ridge > 0
    solution = opjax.ridge_solve(jnp.zeros((4, 3)), jnp.zeros((4, 2)), ridge=ridge)
    assert not np.any(solution)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_candidates": 2}, "num_candidates=2 must be at least 3"),
        ({"smallest": 1.0, "largest": 0.5}, "smallest=1.0 and largest=0.5"),
        ({"smallest": 0.0}, "smallest=0.0"),
    ],
)
def test_candidates_without_a_meaning_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        opjax.gcv_ridge(np.ones((3, 2)), np.ones((3, 1)), **options)


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="rows"):
        opjax.gcv_ridge(np.ones((3, 2)), np.ones((4, 1)))
    with pytest.raises(TypeError, match="floating"):
        opjax.gcv_ridge(np.ones((3, 2), int), np.ones((3, 1)))
