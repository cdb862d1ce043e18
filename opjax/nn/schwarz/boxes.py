"""Schwarz attention on the boxes of a grid, with any number of levels."""

from collections.abc import Sequence

from flax import nnx

from opjax import _checks, schwarz
from opjax.nn.layers import Initializer, trunk_init
from opjax.nn.schwarz.factors import LowRankAttention, SchwarzAttention

COARSE_SPACES = ("interface", "uniform", "partition", "none")


def box_attention(
    grid_shape: Sequence[int],
    *,
    num_boxes: int,
    rank: int,
    coarse_rank: int,
    overlap: int = 2,
    coarse_space: str = "interface",
    num_hats: int = 7,
    levels: int = 2,
    coarse_boxes: int = 4,
    factor_init: Initializer = trunk_init,
    rngs: nnx.Rngs,
) -> SchwarzAttention:
    """Builds Schwarz attention on the `schwarz.box_cover` of a grid.

    With more than two levels, the coarse functions are points of a coarser grid, which
    is divided into boxes with hats on their interfaces, and so on.

    Args:
      grid_shape: points per axis.
      num_boxes: number of subdomains per axis.
      rank: number of columns of the factors of subdomains.
      coarse_rank: number of columns of the coarsest factors, limited by the number of
        functions.
      overlap: number of points by which subdomains are extended, on all levels.
      coarse_space: `"interface"`, hats between the boxes; `"uniform"`, hats on a
        separate uniform grid; `"partition"`, the partition of unity; `"none"`, one
        level.
      num_hats: number of uniform hats per axis.
      levels: number of levels, at least two.
      coarse_boxes: number of subdomains per axis of coarser grids.
      factor_init: initialiser of all factors.
      rngs: source of the initial factors, coarsest first.

    Returns:
      The module.

    Raises:
      ValueError: if sizes are inconsistent, or the coarse space is unknown.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import schwarz
      >>> build = {"num_boxes": 2, "rank": 2, "coarse_rank": 1, "overlap": 1}
      >>> model = schwarz.box_attention((8,), **build, rngs=nnx.Rngs(0))
      >>> model(jnp.ones((8, 3))).shape  # three functions at once
      (8, 3)

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      section 4.
    """
    _checks.option("coarse_space", coarse_space, COARSE_SPACES)
    shape, axes = tuple(grid_shape), len(grid_shape)
    boxes, hats = (num_boxes,) * axes, (num_hats,) * axes
    cover = schwarz.box_cover(shape, boxes, overlap=overlap)
    if coarse_space == "none":
        return SchwarzAttention(cover, rank=rank, factor_init=factor_init, rngs=rngs)
    if coarse_space == "interface":
        space, length = schwarz.interface_hats(shape, boxes), num_boxes - 1
    elif coarse_space == "uniform":
        space, length = schwarz.uniform_hats(shape, hats), num_hats
    else:
        space, length = cover, num_boxes
    if levels > 2:
        coarse = box_attention(
            (length,) * axes,
            num_boxes=coarse_boxes,
            rank=rank,
            coarse_rank=coarse_rank,
            overlap=overlap,
            levels=levels - 1,
            coarse_boxes=coarse_boxes,
            factor_init=factor_init,
            rngs=rngs,
        )
    else:
        coarse = LowRankAttention(
            space.num_subdomains, rank=coarse_rank, factor_init=factor_init, rngs=rngs
        )
    return SchwarzAttention(
        cover,
        rank=rank,
        coarse_space=space,
        coarse=coarse,
        factor_init=factor_init,
        rngs=rngs,
    )
