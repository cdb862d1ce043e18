"""Models of the inverse Laplacian and how their training starts."""

import dataclasses
import math
from typing import Any

import jax
from flax import nnx

from opjax import nn
from opjax.learn import option
from opjax.nn.schwarz.boxes import COARSE_SPACES


@dataclasses.dataclass(frozen=True)
class Start:
    """Starting factors and optimizer.

    Attributes:
      scale: standard deviation of the factors.
      learning_rate: rate, the largest one with a cosine.
      cosine: 5 % warm-up and cosine decay to zero rather than a constant rate.
      beta1: decay of the optimizer's mean.
      beta2: decay of its mean square.
      principal: keys from principal components, see `nn.principal_keys`.
      whitening: of the coarse keys, see `nn.principal_keys`.
      calibrated: scale and rate of every level from a batch, see `nn.calibrate`; the
        learning rate is relative to them.
    """

    scale: float = 0.02
    learning_rate: float = 1e-2
    cosine: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    principal: bool = False
    whitening: float | None = 1e-2
    calibrated: bool = False


STARTS = {
    "paper": Start(),
    "small": Start(scale=2e-3, learning_rate=2e-3, cosine=True),
    # Our default, whatever the problem and its size.
    "whitened": Start(
        learning_rate=0.1,
        cosine=True,
        beta1=0.95,
        beta2=0.98,
        principal=True,
        calibrated=True,
    ),
}


@dataclasses.dataclass(frozen=True)
class Structure:
    """Model."""

    num_boxes: int = option(8, "Subdomains per axis", minimum=1)
    overlap: int = option(2, "Points by which subdomains grow", minimum=0)
    local_rank: int = option(4, "Columns of local factors", minimum=1)
    coarse_rank: int = option(8, "Columns of coarse factors", minimum=1)
    coarse_space: str = option("interface", "Coarse functions", choices=COARSE_SPACES)
    coarse_hats: int = option(7, "Hats per axis of the uniform space", minimum=1)
    levels: int = option(2, "Levels; more than two divide the coarse block", minimum=2)
    coarse_boxes: int = option(4, "Subdomains per axis of that", minimum=2)


@dataclasses.dataclass(frozen=True)
class Setup(Structure):
    """A domain and the structure of a model on it.

    Attributes:
      grid_shape: interior points per axis.
      global_rank: columns of a global model in place of the Schwarz model, if positive.
    """

    grid_shape: tuple[int, ...] = (256,)
    global_rank: int = 0

    @property
    def num_points(self) -> int:
        """Interior points of the domain."""
        return math.prod(self.grid_shape)


def build(setup: Setup, start: Start, key: jax.Array) -> Any:
    """Builds a model with random factors."""
    init, rngs = jax.nn.initializers.normal(start.scale), nnx.Rngs(key)
    if setup.global_rank:
        size, rank = setup.num_points, setup.global_rank
        return nn.LowRankAttention(size, rank=rank, factor_init=init, rngs=rngs)
    return nn.box_attention(
        setup.grid_shape,
        num_boxes=setup.num_boxes,
        rank=setup.local_rank,
        coarse_rank=setup.coarse_rank,
        overlap=setup.overlap,
        coarse_space=setup.coarse_space,
        num_hats=setup.coarse_hats,
        levels=setup.levels,
        coarse_boxes=setup.coarse_boxes,
        factor_init=init,
        rngs=rngs,
    )
