"""A rubber cell with a random void: learns the stress from the shape.

    python -m experiments.elasticity --preset=quick
    python -m experiments.elasticity --preset=paper --data_dir=...

The benchmark of Geo-FNO, a cloud of 972 points for every cell. Without --data_dir it
takes samples of our own solver, of the same law on a mesh of our own.
"""

import dataclasses

from opjax.datasets import elasticity
from opjax.learn import (
    FLARE,
    GNOT,
    LNO,
    PAPER,
    SMOKE,
    FieldOptions,
    Program,
    benchmark,
    option,
    published,
    quick,
)


@dataclasses.dataclass(frozen=True)
class Config(FieldOptions):
    """All that the numbers of a run depend on."""

    num_around: int = option(
        36, "Elements around the void in our own mesh, a multiple of 4", minimum=4
    )
    num_across: int = option(3, "Elements between void and sides", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.num_around % 4:
            raise ValueError(f"num_around={self.num_around} must be a multiple of 4.")


PRESETS = {
    "smoke": Config(
        **SMOKE, num_train=8, num_validation=4, num_test=4, num_around=12, num_across=1
    ),
    **quick(Config(num_epochs=30)),
    # Table 10, and the authors' program for what it leaves open.
    **published(
        Config(
            **PAPER,
            num_train=1000,
            num_test=200,
            batch_size=1,
            mlp_ratio=2,
            clip_norm=0.0,
            pct_start=0.1,
            ridge_logit=1e-3,
            min_temperature=0.0,
        ),
        transolver={"mlp_ratio": 1, "clip_norm": 0.1, "pct_start": 0.3},
        flare=FLARE,
        # A cosine from the first step on.
        gnot={**GNOT, "batch_size": 1, "pct_start": 0.0, "cycle_momentum": False},
        lno={**LNO, "features": 192, "num_layers": 4, "mlp_layers": 3}
        | {"num_test": 1000},
    ),
}
PROGRAM = Program(
    "elasticity",
    PRESETS,
    benchmark(
        elasticity.splits,
        "num_around",
        "num_across",
        notes="The target is the von Mises stress.",
    ),
    grid_axes=0,
    over_points=True,
)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
