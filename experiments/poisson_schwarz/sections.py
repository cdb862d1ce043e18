"""Sections of the report: the models that are compared in each."""

from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.poisson_schwarz.studies import (
    DEFAULT,
    GLOBAL_START,
    PAPER,
    RATES,
    SMALL,
    STARTS,
    Setup,
    Start,
    Study,
    setup_of,
)
from opjax.learn.config import fields

if TYPE_CHECKING:
    from experiments.poisson_schwarz import Config


def main(config: "Config") -> dict[str, Study]:
    """The configured Schwarz model, beside global baselines; the first one is main."""
    base = fields.part(
        Study,
        config,
        name="schwarz",
        setup=setup_of(config),
        start=replace(STARTS[config.init], scaling=config.scaling),
        rates=(config.rate,),
        rate=config.rate,
        updates=config.updates,
    )
    setup, rates = base.setup, {config.rate, *(RATES if config.sweep else ())}
    swept = replace(base, rates=tuple(sorted(rates)))
    # At least as many parameters: 2560 for 2370, as in the paper.
    matched = -(-base.num_parameters() // (2 * setup.domain.num_points))
    globally = replace(setup, global_rank=config.global_rank)
    small = replace(setup, global_rank=matched)
    studies = [
        swept,
        replace(swept, name="global", setup=globally),
        replace(base, name="global_matched", setup=small),
        base.variant("global_small", globally, GLOBAL_START),
        base.variant("global_whitened", globally, DEFAULT),
        base.variant("schwarz_default", setup, DEFAULT),
    ]
    if config.init == "whitened":  # the first two already are
        studies = studies[:4]
    if not config.baselines:
        studies = studies[:1]
    return {study.name: study for study in studies}


def growth(base: Study) -> dict[str, Study]:
    """More points, 32 per subdomain, with the paper's initialisation and ours."""
    studies = {}

    def add(label: str, size: int, start: Start, levels: int = 2) -> None:
        boxes = size // 32
        setup = Setup(boxes, coarse_rank=boxes, levels=levels, grid_shape=(size,))
        name = f"{label}_{size}"
        studies[name] = base.variant(f"{size}/{name}", setup, start)

    for size in (512, 1024, 2048, 4096):
        if size <= 1024:  # section 7 of the paper
            add("paper", size, PAPER)
        add("default", size, DEFAULT)
    add("three_levels", 1024, DEFAULT, levels=3)
    return studies


# What training gains from where, at the paper's size; ours is the last one.
ABLATION = {
    "the paper's initialisation and constant rate": PAPER,
    "+ warm-up and cosine": replace(PAPER, cosine=True),
    "small start, warm-up and cosine": SMALL,
    "levels scaled, random keys": replace(DEFAULT, scale=0.1, principal=False),
    "principal keys": replace(DEFAULT, whitening=None),
    "default without warm-up and cosine": replace(DEFAULT, cosine=False),
    "default with Adam's usual decays": replace(DEFAULT, beta1=0.9, beta2=0.999),
    "default with local rank 3": DEFAULT,
    "default": DEFAULT,
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
    setup = Setup(
        4, local_rank=8, coarse_rank=49, coarse_space="uniform", grid_shape=(32, 32)
    )
    wide = replace(setup, coarse_hats=9, coarse_rank=30)
    low, high = (replace(setup, global_rank=r) for r in (17, 73))
    return {
        "Schwarz, 7 x 7 hats, small start": base.variant("square/small", setup, SMALL),
        "Schwarz, 7 x 7 hats": base.variant("square/schwarz", setup, DEFAULT),
        "Schwarz, 9 x 9 hats, coarse rank 30": base.variant(
            "square/wide", wide, DEFAULT
        ),
        "global, rank 17": base.variant("square/global_17", low, DEFAULT),
        "global, rank 73, small start": base.variant(
            "square/global_small", high, GLOBAL_START
        ),
        "global, rank 73": base.variant("square/global", high, DEFAULT),
    }


BEYOND = {f.__name__: f for f in (growth, ablation, two_dimensions)}
