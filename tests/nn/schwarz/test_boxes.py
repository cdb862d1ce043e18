"""Schwarz attention on boxes: what it is made of, and what it refuses."""

import jax
import numpy as np
import pytest
from flax import nnx

from opjax import nn, schwarz
from tests import refused


def build(shape=(24,), **options):
    options = {"num_boxes": 4, "rank": 3, "coarse_rank": 9} | options
    return nn.schwarz.box_attention(shape, rngs=nnx.Rngs(0), **options)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("coarse_space", "size"), [("interface", 9), ("uniform", 25), ("partition", 16)]
)
def test_two_levels_are_those_put_together_by_hand(coarse_space, size, rng):
    shape, boxes = (9, 8), (4, 4)
    model = build(shape, coarse_space=coarse_space, num_hats=5, overlap=1)
    cover = schwarz.box_cover(shape, boxes, overlap=1)
    space = {
        "interface": schwarz.interface_hats(shape, boxes),
        "uniform": schwarz.uniform_hats(shape, (5, 5)),
        "partition": cover,
    }[coarse_space]
    assert model.coarse.query.shape == (size, 9)
    f = rng.normal(size=(72, 2))
    factors = (model.query[...], model.key[...])
    expected = schwarz.two_level_attention(
        *factors, f, cover, coarse_space=space, coarse=model.coarse
    )
    np.testing.assert_allclose(model(f), expected, rtol=1e-6, atol=1e-12)


def test_coarser_grids_have_boxes_of_their_own():
    model = build((64,), num_boxes=16, levels=3, coarse_boxes=5, overlap=1)
    assert model.coarse.cover.num_points == 15
    assert model.coarse.cover.num_subdomains == 5
    assert isinstance(model.coarse.coarse, nn.schwarz.LowRankAttention)
    assert model.coarse.coarse.query.shape == (4, 4)
    alone = build(coarse_space="none")
    assert alone.coarse is None
    assert alone.coarse_space is None


def test_factors_start_as_asked_for():
    ones = jax.nn.initializers.ones
    model = build(factor_init=ones)
    assert all(np.isin(leaf, (0, 1)).all() for leaf in jax.tree.leaves(model))


test_sizes_that_do_not_fit_are_refused = refused.options(
    build,
    [
        ({"coarse_space": "hats"}, "coarse_space='hats'"),
        ({"num_boxes": 1}, "must be at least 2 per axis"),
        ({"overlap": 7}, "overlap=7 is larger than a neighbouring interval"),
        ({"levels": 3, "coarse_boxes": 9}, "between 1 and the number of points"),
    ],
)
