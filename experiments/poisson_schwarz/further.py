"""Studies of what the paper leaves open: scaling, coarse spaces, coefficients, mesh."""

import math
from dataclasses import replace

from experiments.poisson_schwarz.studies import (
    DEFAULT,
    PAPER,
    RATES,
    SCALINGS,
    MeshSetup,
    Setup,
    Study,
)

CONTRAST = 1e3
# Equations of their table, and whether they have all rows: further draws of a random
# coefficient have those of our initialisation only.
EQUATIONS = {
    ("channels", 0): True,
    ("random", 0): True,
    ("random", 1): False,
    ("random", 2): False,
}
STARTS = {"the paper's initialisation": PAPER, "our initialisation": DEFAULT}


def scaling(base: Study) -> dict[str, Study]:
    """The paper's initialisation, products divided by `sqrt(n d_k)` (section 7)."""
    studies = {}
    for size in (256, 512, 1024):
        setup = Setup(size // 32, coarse_rank=size // 32, grid_shape=(size,))
        rates = RATES if size == 256 else (1e-2,)  # that of its section 7
        for kind in SCALINGS:
            start = replace(PAPER, scaling=kind)
            label = f"{kind}_{size}"
            one = base.variant(f"scaling/{label}", setup, start)
            studies[label] = replace(one, rates=rates)
    return studies


def coarse_spaces(base: Study) -> dict[str, Study]:
    """Hats on interfaces and on uniform grids, as many columns as functions."""
    spaces = {
        "none": Setup(coarse_space="none"),
        "7 interface hats": Setup(coarse_rank=7),
        "8 subdomains, their partition of unity": Setup(coarse_space="partition"),
    }
    for count in (3, 7, 15, 31):
        spaces[f"{count} uniform hats"] = Setup(
            coarse_space="uniform", coarse_hats=count, coarse_rank=count
        )
    return {
        f"{space}, {label}": base.variant(f"coarse/{i}_{j}", setup, start)
        for j, (label, start) in enumerate(STARTS.items())
        for i, (space, setup) in enumerate(spaces.items())
    }


def coefficients(base: Study) -> dict[str, Study]:
    """`-(a u')' = f`, hats linear in the distance and hats that know the equation."""
    studies = {}
    for (kind, seed), complete in EQUATIONS.items():
        setup = Setup(coefficient=kind, contrast=CONTRAST, coefficient_seed=seed)
        rows = {
            f"Schwarz, {space} hats, {label}": (
                replace(setup, coarse_space=space),
                start,
            )
            for space in ("interface", "harmonic")
            for label, start in STARTS.items()
            if complete or start is DEFAULT
        }
        if complete:
            for rank in (5, 40):
                one = replace(setup, global_rank=rank), DEFAULT
                rows[f"global, rank {rank}, our initialisation"] = one
        for i, (label, one) in enumerate(rows.items()):
            name = f"{kind} {seed}: {label}"
            studies[name] = base.variant(f"coefficients/{kind}_{seed}_{i}", *one)
    return studies


def mesh(base: Study) -> dict[str, Study]:
    """Linear finite elements on an L-shaped domain, against global factors."""
    base, setup = replace(base, num_modes=4), MeshSetup()
    size = 2 * setup.domain.num_points
    smoothed = base.variant("mesh/smoothed", setup, DEFAULT)
    rank = math.ceil(smoothed.num_parameters() / size)
    rows = {
        "Schwarz, 49 smoothed aggregates, the paper's initialisation": (setup, PAPER),
        "Schwarz, 49 smoothed aggregates, our initialisation": (setup, DEFAULT),
        "Schwarz, partition of unity of 16, our initialisation": (
            replace(setup, coarse_space="partition"),
            DEFAULT,
        ),
        "Schwarz, one level, our initialisation": (
            replace(setup, coarse_space="none"),
            DEFAULT,
        ),
        f"global, rank {rank}, our initialisation": (
            replace(setup, global_rank=rank),
            DEFAULT,
        ),
        "global, rank 64, our initialisation": (
            replace(setup, global_rank=64),
            DEFAULT,
        ),
    }
    return {
        label: base.variant(f"mesh/{i}", *one)
        for i, (label, one) in enumerate(rows.items())
    }


SECTIONS = {f.__name__: f for f in (scaling, coarse_spaces, coefficients, mesh)}
