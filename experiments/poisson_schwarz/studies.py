"""Models of the inverse Laplacian, their initialisation and the studies."""

import dataclasses
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx

from experiments.poisson_schwarz.domains import Grid, LShape
from opjax import nn, schwarz
from opjax.learn import UpdateOptions, option
from opjax.learn.config import fields
from opjax.nn.layers import Initializer
from opjax.nn.schwarz import boxes
from opjax.problems import poisson_coefficients

if TYPE_CHECKING:
    from experiments.poisson_schwarz import Config

COARSE_SPACES = (*boxes.COARSE_SPACES, "harmonic")
SCALINGS = ("none", "points", "blocks", "start")


@dataclasses.dataclass(frozen=True)
class Start:
    """Starting factors and optimizer.

    Attributes:
      scale: standard deviation of the factors.
      learning_rate: rate, the largest one with a cosine.
      cosine: 5 % warm-up and cosine decay to zero rather than a constant rate.
      beta1: decay of the optimizer's mean.
      beta2: decay of its mean square.
      principal: keys from principal components, see `nn.schwarz.principal_keys`.
      whitening: of the coarse keys, see `nn.schwarz.principal_keys`.
      calibrated: scale and rate of every level from a batch, see
        `nn.schwarz.calibrate`; the learning rate is relative to them.
      scaling: of all products by `1 / sqrt(n d_k)`, see `nn.schwarz.scale_products`:
        "points", with all points, "blocks", with those of each block, "start", as
        "points" but of the starting factors only; "none" as in the paper.
    """

    scale: float = 0.02
    learning_rate: float = 1e-2
    cosine: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    principal: bool = False
    whitening: float | None = 1e-2
    calibrated: bool = False
    scaling: str = "none"


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

    num_boxes: int = option(8, "Number of subdomains per axis", minimum=1)
    overlap: int = option(
        2,
        "Overlap of the subdomains: number of points that each one is extended by",
        minimum=0,
    )
    local_rank: int = option(4, "Rank of the local factors", minimum=1)
    coarse_rank: int = fields.only_with(
        option(8, "Rank of the coarse factors", minimum=1),
        coarse_space=[space for space in COARSE_SPACES if space != "none"],
    )
    coarse_space: str = option(
        "interface", "Functions of the coarse space", choices=COARSE_SPACES
    )
    coarse_hats: int = fields.only_with(
        option(
            7, "Number of hat functions per axis in the uniform coarse space", minimum=1
        ),
        coarse_space=["uniform"],
    )
    levels: int = option(
        2,
        "Number of levels. With more than two, the coarse block is decomposed again",
        minimum=2,
    )
    coarse_boxes: int = option(
        4,
        "Number of subdomains per axis of the coarse block, with more than two levels",
        minimum=2,
    )


@dataclasses.dataclass(frozen=True)
class Equation:
    """Equation."""

    coefficient: str = option(
        "constant",
        "Coefficient a of the equation -(a u')' = f",
        choices=poisson_coefficients.KINDS,
    )
    contrast: float = fields.only_with(
        option(
            1.0, "Largest value of the coefficient divided by the smallest", minimum=1
        ),
        coefficient=poisson_coefficients.KINDS[1:],  # those that vary
    )
    coefficient_seed: int = fields.only_with(
        option(0, "Seed of the random coefficient", minimum=0), coefficient=["random"]
    )


@dataclasses.dataclass(frozen=True)
class Setup(Equation, Structure):
    """A grid, an equation and the structure of a model on it.

    Attributes:
      grid_shape: interior points per axis.
      global_rank: columns of a global model in place of the Schwarz model, if positive.
    """

    grid_shape: tuple[int, ...] = (256,)
    global_rank: int = 0

    @property
    def domain(self) -> Grid:
        """Points, right-hand sides and exact inverse."""
        return fields.part(Grid, self, shape=self.grid_shape)

    def schwarz(self, factor_init: Initializer, rngs: nnx.Rngs) -> nn.SchwarzAttention:
        """The Schwarz model, with the initialiser and the source of its factors."""
        if self.coarse_space == "harmonic":
            coefficient = self.domain.values
            assert coefficient is not None
            cover = schwarz.box_cover(
                self.grid_shape, self.num_boxes, overlap=self.overlap
            )
            space = schwarz.harmonic_hats(coefficient, self.num_boxes)
            return _two_levels(self, cover, space, factor_init, rngs)
        return nn.schwarz.box_attention(
            self.grid_shape,
            num_boxes=self.num_boxes,
            rank=self.local_rank,
            coarse_rank=self.coarse_rank,
            overlap=self.overlap,
            coarse_space=self.coarse_space,
            num_hats=self.coarse_hats,
            levels=self.levels,
            coarse_boxes=self.coarse_boxes,
            factor_init=factor_init,
            rngs=rngs,
        )


@dataclasses.dataclass(frozen=True)
class MeshSetup:
    """A mesh and the structure of a model on it.

    Attributes:
      num_columns: spacings along the longest side of the L.
      num_subdomains: parts of the graph of the mesh.
      overlap: layers of neighbours by which they grow.
      local_rank: columns of local factors.
      coarse_space: "smoothed", aggregates of a finer partition of the graph, smoothed;
        "partition", the partition of unity of the subdomains; "none", one level.
      num_aggregates: parts of that partition, and columns of the coarse factors.
      num_smoothing: Jacobi steps.
      global_rank: columns of a global model in place of the Schwarz model, if positive.
    """

    num_columns: int = 22
    num_subdomains: int = 16
    overlap: int = 2
    local_rank: int = 8
    coarse_space: str = "smoothed"
    num_aggregates: int = 49
    num_smoothing: int = 6
    global_rank: int = 0

    levels = 2

    @property
    def domain(self) -> LShape:
        """Points, right-hand sides and exact inverse."""
        return LShape(self.num_columns)

    @property
    def coarse_rank(self) -> int:
        """Columns of the coarse factors."""
        return self.num_aggregates

    def schwarz(self, factor_init: Initializer, rngs: nnx.Rngs) -> nn.SchwarzAttention:
        """The Schwarz model, with the initialiser and the source of its factors."""
        domain = self.domain
        edges, size = domain.elements.edges, domain.num_points

        def parts(count: int) -> np.ndarray:
            return schwarz.partition_graph(edges, num_points=size, num_subdomains=count)

        labels = parts(self.num_subdomains)
        cover = schwarz.partition_cover(labels, overlap=self.overlap, edges=edges)
        if self.coarse_space == "none":
            return nn.SchwarzAttention(
                cover, rank=self.local_rank, factor_init=factor_init, rngs=rngs
            )
        space = cover
        if self.coarse_space == "smoothed":
            space = schwarz.smoothed_aggregates(
                parts(self.num_aggregates),
                domain.elements.stiffness,
                num_steps=self.num_smoothing,
            )
        # In the coordinates of the problem, values times roots of masses.
        roots = domain.root_masses[np.asarray(space.indices)]
        space = dataclasses.replace(space, weights=roots * np.asarray(space.weights))
        return _two_levels(self, cover, space, factor_init, rngs)


def _two_levels(
    setup: Setup | MeshSetup,
    cover: schwarz.Cover,
    space: schwarz.Cover,
    factor_init: Initializer,
    rngs: nnx.Rngs,
) -> nn.SchwarzAttention:
    coarse = nn.schwarz.LowRankAttention(
        space.num_subdomains,
        rank=setup.coarse_rank,
        factor_init=factor_init,
        rngs=rngs,
    )
    return nn.SchwarzAttention(
        cover,
        rank=setup.local_rank,
        coarse_space=space,
        coarse=coarse,
        factor_init=factor_init,
        rngs=rngs,
    )


def build(setup: Setup | MeshSetup, start: Start, key: jax.Array) -> Any:
    """Builds a model with random factors."""
    init, rngs = jax.nn.initializers.normal(start.scale), nnx.Rngs(key)
    if setup.global_rank:
        size, rank = setup.domain.num_points, setup.global_rank
        return nn.schwarz.LowRankAttention(size, rank=rank, factor_init=init, rngs=rngs)
    return setup.schwarz(init, rngs)


# Table 1 of the paper.
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)

# A global model starts best from factors a hundred times smaller than the paper's.
GLOBAL_START = Start(scale=2e-4, learning_rate=5e-4, cosine=True)

PAPER, SMALL, DEFAULT = STARTS["paper"], STARTS["small"], STARTS["whitened"]


@dataclasses.dataclass(frozen=True)
class Training:
    """Right-hand sides and training."""

    num_modes: int = option(
        16,
        "Number of sine and cosine modes per axis in the right-hand sides",
        minimum=1,
    )
    decay: float = option(1.5, "Exponent with which higher modes are damped", minimum=0)
    num_steps: int = option(2000, "Number of optimizer steps", minimum=1)
    batch_size: int = option(256, "Number of right-hand sides in a step", minimum=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(Training):
    """One model trained for all rates and seeds.

    Attributes:
      name: of the study, and of its folder.
      setup: domain and model.
      start: starting factors and optimizer.
      rates: learning rates.
      seeds: seeds of factors and right-hand sides.
      rate: the one of them that is shown.
      updates: what the optimizer has around it.
    """

    name: str
    setup: Setup | MeshSetup
    start: Start
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    rate: float
    updates: UpdateOptions = UpdateOptions()

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]

    @property
    def num_columns(self) -> int:
        """Columns of the widest factor of the model."""
        setup = self.setup
        coarse = 0 if setup.coarse_space == "none" else setup.coarse_rank
        return setup.global_rank or max(setup.local_rank, coarse)

    def num_parameters(self) -> int:
        """Trainable numbers of one model, without padding."""
        key = jax.random.key(0)
        model: Any = jax.eval_shape(lambda: build(self.setup, self.start, key))
        return model.num_parameters

    def variant(self, name: str, setup: Setup | MeshSetup, start: Start) -> "Study":
        """Another model or start, at the rate of that start."""
        rate = start.learning_rate
        return replace(
            self, name=name, setup=setup, start=start, rates=(rate,), rate=rate
        )


def setup_of(config: "Config") -> Setup:
    """Domain and Schwarz model of a configuration."""
    shape = (config.num_points,) * config.dim
    return fields.part(Setup, config, grid_shape=shape, global_rank=0)
