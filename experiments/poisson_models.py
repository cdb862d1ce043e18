"""Models of the inverse Laplacian and how their training starts."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from opjax import nn, schwarz


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
      whitening: the smallest direction that coarse keys resolve; 1 for hardly any.
      calibrated: scale and rate of every level from a batch, see `nn.calibrate`; the
        learning rate is relative to them.
    """

    scale: float = 0.02
    learning_rate: float = 1e-2
    cosine: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    principal: bool = False
    whitening: float = 1e-2
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
class Setup:
    """A model and its domain.

    Attributes:
      grid_shape: interior points per axis.
      num_boxes: subdomains per axis; none for the global model.
      overlap: points by which they grow.
      local_rank: columns of local factors.
      coarse_rank: columns of coarse factors, cut to the coarse dimension.
      coarse_space: `"interface"`, `"uniform"`, `"partition"` or `"none"`.
      coarse_hats: uniform hats per axis.
      levels: two, or three with a two-level coarse block.
      global_rank: columns of the global model; 0 for the Schwarz model.
    """

    grid_shape: tuple[int, ...] = (256,)
    num_boxes: int = 8
    overlap: int = 2
    local_rank: int = 4
    coarse_rank: int = 8
    coarse_space: str = "interface"
    coarse_hats: int = 7
    levels: int = 2
    global_rank: int = 0

    @property
    def num_points(self) -> int:
        """Interior points of the domain."""
        return int(np.prod(self.grid_shape))


COARSE_SPACES = ("interface", "uniform", "partition", "none")


def domain(setup: Setup) -> tuple[schwarz.Cover, schwarz.Cover | None]:
    """Returns subdomains and coarse space of a setup."""
    boxes = (setup.num_boxes,) * len(setup.grid_shape)
    cover = schwarz.box_cover(setup.grid_shape, boxes, overlap=setup.overlap)
    if setup.coarse_space == "none":
        return cover, None
    if setup.coarse_space == "partition":
        return cover, cover
    if setup.coarse_space == "uniform":
        hats = (setup.coarse_hats,) * len(setup.grid_shape)
        return cover, schwarz.uniform_hats(setup.grid_shape, hats)
    return cover, schwarz.interface_hats(setup.grid_shape, boxes)


def build(setup: Setup, start: Start, key: jax.Array) -> Any:
    """Builds a model with random factors."""
    init = jax.nn.initializers.normal(start.scale)
    options: dict[str, Any] = {"factor_init": init, "rngs": nnx.Rngs(key)}
    if setup.global_rank:
        return nn.LowRankAttention(
            setup.num_points, rank=setup.global_rank, **options
        )
    cover, space = domain(setup)
    options |= {"rank": setup.local_rank, "coarse_space": space}
    if space is None or setup.levels == 2:
        # The local factors are drawn before the coarse ones, as in the paper's code.
        local = nn.SchwarzAttention(cover, rank=setup.local_rank, **_rest(options))
        if space is None:
            return local
        local._coarse_space = None
        return local
    raise NotImplementedError


def _rest(options):
    return options
