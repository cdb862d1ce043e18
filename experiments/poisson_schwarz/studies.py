"""Which models the Poisson program trains, and what is compared with what."""

import dataclasses
from typing import Any

from experiments.poisson_schwarz.models import STARTS, Setup, Start, Study

# Table 1 of the paper.
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)

# A global model starts best from factors a hundred times smaller than the paper's.
GLOBAL_START = Start(scale=2e-4, learning_rate=5e-4, cosine=True)

_PAPER, _DEFAULT = STARTS["paper"], STARTS["whitened"]


def main(config: Any) -> dict[str, Study]:
    """The configured Schwarz model, beside global baselines; the first one is main."""
    setup, start = config.setup, STARTS[config.init]
    base = Study(
        "schwarz",
        setup,
        start,
        (config.rate,),
        config.seeds,
        config.rate,
        config.num_modes,
        config.decay,
        config.num_steps,
        config.batch_size,
    )
    rates = tuple(sorted({config.rate, *(RATES if config.sweep else ())}))
    # At least as many parameters: 2560 for 2370, as in the paper.
    matched = -(-base.num_parameters() // (2 * setup.num_points))
    globally = dataclasses.replace(setup, global_rank=config.global_rank)
    small = dataclasses.replace(setup, global_rank=matched)
    studies = [
        dataclasses.replace(base, rates=rates),
        dataclasses.replace(base, name="global", setup=globally, rates=rates),
        dataclasses.replace(base, name="global_matched", setup=small),
        _variant(base, "global_small", globally, GLOBAL_START),
        _variant(base, "global_whitened", globally, _DEFAULT),
        _variant(base, "schwarz_default", setup, _DEFAULT),
    ]
    if config.init == "whitened":  # the first two already are
        studies = studies[:4]
    return {study.name: study for study in studies}


def growth(config: Any) -> dict[str, Study]:
    """More points, with 32 in a subdomain, from the paper's start and from ours."""
    base = main(config)["schwarz"]
    studies = []
    for size in (512, 1024, 2048, 4096):
        setup = Setup((size,), size // 32, coarse_rank=size // 32)
        if size <= 1024:  # section 7 of the paper
            studies.append(_variant(base, f"{size}/paper_{size}", setup, _PAPER))
        studies.append(_variant(base, f"{size}/default_{size}", setup, _DEFAULT))
    setup = Setup((1024,), 32, coarse_rank=32, levels=3)
    studies.append(_variant(base, "1024/three_levels_1024", setup, _DEFAULT))
    return {study.name.split("/")[1]: study for study in studies}


# What training gains from where, at the paper's size; ours is the last one.
ABLATION = {
    "the paper's start and constant rate": _PAPER,
    "+ warm-up and cosine": dataclasses.replace(_PAPER, cosine=True),
    "small start, warm-up and cosine": STARTS["small"],
    "levels scaled, random keys": dataclasses.replace(
        _DEFAULT, scale=0.1, principal=False
    ),
    "principal keys": dataclasses.replace(_DEFAULT, whitening=None),
    "default without warm-up and cosine": dataclasses.replace(_DEFAULT, cosine=False),
    "default with Adam's usual decays": dataclasses.replace(
        _DEFAULT, beta1=0.9, beta2=0.999
    ),
    "default with local rank 3": _DEFAULT,
    "default": _DEFAULT,
}


def ablation(config: Any) -> dict[str, Study]:
    """The default start taken apart, at n = 256."""
    base, studies = main(config)["schwarz"], {}
    for number, (label, start) in enumerate(ABLATION.items()):
        setup = Setup(local_rank=3 if "rank 3" in label else 4)
        studies[label] = _variant(base, f"ablation/{number}", setup, start)
    return studies


def two_dimensions(config: Any) -> dict[str, Study]:
    """The square with 32 x 32 points."""
    base = dataclasses.replace(main(config)["schwarz"], num_modes=4)
    setup = Setup(
        (32, 32), 4, local_rank=8, coarse_rank=49, coarse_space="uniform", coarse_hats=7
    )
    wide = dataclasses.replace(setup, coarse_hats=9, coarse_rank=30)
    low, high = (dataclasses.replace(setup, global_rank=r) for r in (17, 73))
    return {
        "Schwarz, 7 x 7 hats, small start": _variant(
            base, "square/small", setup, STARTS["small"]
        ),
        "Schwarz, 7 x 7 hats": _variant(base, "square/schwarz", setup, _DEFAULT),
        "Schwarz, 9 x 9 hats, coarse rank 30": _variant(
            base, "square/wide", wide, _DEFAULT
        ),
        "global, rank 17": _variant(base, "square/global_17", low, _DEFAULT),
        "global, rank 73, small start": _variant(
            base, "square/global_small", high, GLOBAL_START
        ),
        "global, rank 73": _variant(base, "square/global", high, _DEFAULT),
    }


def _variant(base: Study, name: str, setup: Setup, start: Start) -> Study:
    rate = start.learning_rate
    return dataclasses.replace(
        base, name=name, setup=setup, start=start, rates=(rate,), rate=rate
    )
