"""Computed factors of the inverse Laplacian against the direct solver."""

import jax
import numpy as np
import pytest
from flax import nnx

from opjax import nn, schwarz
from opjax.problems import poisson, poisson_coefficients
from tests import refused


def build(size=23, boxes=4, rank=9, coarse_rank=8, overlap=1, space=None):
    space = space or schwarz.interface_hats(size, boxes)
    count, rngs = space.num_subdomains, nnx.Rngs(0)
    coarse = nn.schwarz.LowRankAttention(count, rank=coarse_rank, rngs=rngs)
    cover = schwarz.box_cover(size, boxes, overlap=overlap)
    given = {"coarse_space": space, "coarse": coarse}
    return nn.SchwarzAttention(cover, rank=rank, rngs=rngs, **given)


@pytest.mark.nightly
@pytest.mark.parametrize("overlap", [0, 1, 3])
def test_with_full_rank_the_inverse_is_exact(rng, overlap):
    model = build(overlap=overlap)
    found = nn.schwarz.laplacian_factors(model, np.eye(23))
    assert jax.tree.structure(found) == jax.tree.structure(model)
    f = rng.normal(size=(23, 3))
    exact = jax.vmap(poisson.solve, 1, 1)(f)
    np.testing.assert_allclose(found(f), exact, rtol=1e-9, atol=1e-12)


def test_with_harmonic_hats_it_is_exact_for_any_coefficient(rng):
    coefficient = 10.0 ** rng.uniform(-2, 2, size=24)
    model = build(space=schwarz.harmonic_hats(coefficient, 4))
    found = nn.schwarz.laplacian_factors(model, np.eye(23), coefficient=coefficient)
    f = rng.normal(size=(23, 3))
    exact = [poisson_coefficients.solve(column, coefficient) for column in f.T]
    np.testing.assert_allclose(found(f).T, exact, rtol=1e-8, atol=1e-11)


@pytest.mark.nightly
def test_the_rank_goes_where_the_inputs_are():
    problem = poisson.fourier_problem(23, num_modes=2)
    found = nn.schwarz.laplacian_factors(build(rank=4), problem.modes)
    error = np.linalg.norm(found(problem.modes) - problem.solutions)
    assert error < 1e-9 * np.linalg.norm(problem.solutions)
    others = nn.schwarz.laplacian_factors(build(rank=1), problem.modes)
    assert np.linalg.norm(others(problem.modes) - problem.solutions) > 100 * error


def test_other_models_and_inputs_are_refused():
    refused.each(
        (
            lambda: nn.schwarz.laplacian_factors(build(), np.ones((22, 2))),
            r"expected \(23, k\)",
        ),
        (
            lambda: nn.schwarz.laplacian_factors(
                build(), np.ones((23, 2)), coefficient=np.ones(23)
            ),
            r"coefficient has shape \(23,\), expected",
        ),
        (
            lambda: nn.schwarz.laplacian_factors(
                build(coarse_rank=2), np.ones((23, 2))
            ),
            "there are 3 and 2",
        ),
    )
    cover = schwarz.box_cover(23, 4, overlap=1)
    one_level = nn.SchwarzAttention(cover, rank=2, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="must have two levels"):
        nn.schwarz.laplacian_factors(one_level, np.ones((23, 2)))
