"""Models of the inverse Laplacian, how they start, and what is compared with what."""

import dataclasses
import math
from dataclasses import replace
from typing import Any

import jax
from flax import nnx

from opjax import nn
from opjax.learn import UpdateOptions, option
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


# Table 1 of the paper.
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)

# A global model starts best from factors a hundred times smaller than the paper's.
GLOBAL_START = Start(scale=2e-4, learning_rate=5e-4, cosine=True)

_PAPER, _SMALL, _DEFAULT = STARTS["paper"], STARTS["small"], STARTS["whitened"]


@dataclasses.dataclass(frozen=True)
class Training:
    """Right-hand sides and training."""

    num_modes: int = option(16, "Sine and cosine modes per axis", minimum=1)
    decay: float = option(1.5, "Damping exponent of combinations", minimum=0)
    num_steps: int = option(2000, "Optimizer steps", minimum=1)
    batch_size: int = option(256, "Right-hand sides of a step", minimum=2)


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
    setup: Setup
    start: Start
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    rate: float
    updates: UpdateOptions = UpdateOptions()

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]

    def num_parameters(self) -> int:
        """Trainable numbers of one model, without padding."""
        key = jax.random.key(0)
        model: Any = jax.eval_shape(lambda: build(self.setup, self.start, key))
        return model.num_parameters

    def variant(self, name: str, setup: Setup, start: Start) -> "Study":
        """Another model or start, at the rate of that start."""
        rate = start.learning_rate
        changes: dict[str, Any] = {"rates": (rate,), "rate": rate}
        return replace(self, name=name, setup=setup, start=start, **changes)


def common(config: Any, cls: type) -> dict[str, Any]:
    """Values of the fields that a configuration has of a group."""
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(cls)}


def setup_of(config: Any) -> Setup:
    """Domain and Schwarz model of a configuration."""
    shape = (config.num_points,) * config.dim
    return Setup(**common(config, Structure), grid_shape=shape)


def main(config: Any) -> dict[str, Study]:
    """The configured Schwarz model, beside global baselines; the first one is main."""
    base = Study(
        name="schwarz",
        setup=setup_of(config),
        start=STARTS[config.init],
        rates=(config.rate,),
        seeds=config.seeds,
        rate=config.rate,
        updates=config.updates,
        **common(config, Training),
    )
    setup, rates = base.setup, {config.rate, *(RATES if config.sweep else ())}
    swept = replace(base, rates=tuple(sorted(rates)))
    # At least as many parameters: 2560 for 2370, as in the paper.
    matched = -(-base.num_parameters() // (2 * setup.num_points))
    globally = replace(setup, global_rank=config.global_rank)
    small = replace(setup, global_rank=matched)
    studies = [
        swept,
        replace(swept, name="global", setup=globally),
        replace(base, name="global_matched", setup=small),
        base.variant("global_small", globally, GLOBAL_START),
        base.variant("global_whitened", globally, _DEFAULT),
        base.variant("schwarz_default", setup, _DEFAULT),
    ]
    if config.init == "whitened":  # the first two already are
        studies = studies[:4]
    return {study.name: study for study in studies}


def growth(base: Study) -> dict[str, Study]:
    """More points, with 32 in a subdomain, from the paper's start and from ours."""
    studies = {}

    def add(label: str, size: int, start: Start, levels: int = 2) -> None:
        boxes = size // 32
        setup = Setup(boxes, coarse_rank=boxes, levels=levels, grid_shape=(size,))
        name = f"{label}_{size}"
        studies[name] = base.variant(f"{size}/{name}", setup, start)

    for size in (512, 1024, 2048, 4096):
        if size <= 1024:  # section 7 of the paper
            add("paper", size, _PAPER)
        add("default", size, _DEFAULT)
    add("three_levels", 1024, _DEFAULT, levels=3)
    return studies


# What training gains from where, at the paper's size; ours is the last one.
ABLATION = {
    "the paper's start and constant rate": _PAPER,
    "+ warm-up and cosine": replace(_PAPER, cosine=True),
    "small start, warm-up and cosine": _SMALL,
    "levels scaled, random keys": replace(_DEFAULT, scale=0.1, principal=False),
    "principal keys": replace(_DEFAULT, whitening=None),
    "default without warm-up and cosine": replace(_DEFAULT, cosine=False),
    "default with Adam's usual decays": replace(_DEFAULT, beta1=0.9, beta2=0.999),
    "default with local rank 3": _DEFAULT,
    "default": _DEFAULT,
}


def ablation(base: Study) -> dict[str, Study]:
    """The default start taken apart, at n = 256."""
    studies = {}
    for number, (label, start) in enumerate(ABLATION.items()):
        setup = Setup(local_rank=3 if "rank 3" in label else 4)
        studies[label] = base.variant(f"ablation/{number}", setup, start)
    return studies


def two_dimensions(base: Study) -> dict[str, Study]:
    """The square with 32 x 32 points."""
    base = replace(base, num_modes=4)
    uniform: Any = {"coarse_space": "uniform", "coarse_rank": 49}
    setup = Setup(4, local_rank=8, grid_shape=(32, 32), **uniform)
    wide = replace(setup, coarse_hats=9, coarse_rank=30)
    low, high = (replace(setup, global_rank=r) for r in (17, 73))
    rows: dict[str, Any] = {
        "Schwarz, 7 x 7 hats, small start": ("small", setup, _SMALL),
        "Schwarz, 7 x 7 hats": ("schwarz", setup, _DEFAULT),
        "Schwarz, 9 x 9 hats, coarse rank 30": ("wide", wide, _DEFAULT),
        "global, rank 17": ("global_17", low, _DEFAULT),
        "global, rank 73, small start": ("global_small", high, GLOBAL_START),
        "global, rank 73": ("global", high, _DEFAULT),
    }
    return {
        label: base.variant(f"square/{name}", *given)
        for label, (name, *given) in rows.items()
    }
