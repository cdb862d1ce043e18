"""Darcy flow in a notched triangle: learns the solution from the boundary values.

    python -m experiments.darcy_notch --preset=quick
    python -m experiments.darcy_notch --preset=paper --data_dir=...

The benchmark of the wavelet neural operator. Without --data_dir it takes samples of our
own solver. On a mesh the domain is that of the equation. On a grid of the square around
it, as in the papers, the solution is extended to the outside and that counts as well.
"""

import dataclasses

from opjax.datasets import darcy_notch
from opjax.learn import PAPER, SMOKE, FieldOptions, Program, benchmark, option, quick
from opjax.problems.darcy_notch import NOTCHES


@dataclasses.dataclass(frozen=True)
class Config(FieldOptions):
    """All that the numbers of a run depend on."""

    layout: str = option(
        "mesh", "Where the data are", choices=tuple(darcy_notch.LAYOUTS)
    )
    num_columns: int = option(
        30, "Elements of our own mesh on either side of the notch", minimum=2
    )
    num_points: int = option(51, "Points per side of our own grid", minimum=2)
    stride: int = option(
        2, "Keep every so many points of the published grid", minimum=1
    )
    notch: str = option("boundary", "Of our own solver", choices=tuple(NOTCHES))


PRESETS = {
    "smoke": Config(**SMOKE, num_train=8, num_validation=4, num_test=4, num_columns=6),
    **quick(Config(num_epochs=40)),
    # Table 10; the authors' program for this data set is not public.
    "paper": Config(
        **PAPER,
        layout="grid",
        num_train=1900,
        num_test=100,
        num_columns=46,
        batch_size=25,
    ),
}
PROGRAM = Program(
    "darcy_notch",
    PRESETS,
    benchmark(
        darcy_notch.splits,
        *("layout", "num_columns", "num_points", "stride", "notch"),
        notes="On a grid, points outside of the triangle count in the error.",
    ),
    title="Darcy flow in a notched triangle",
    grid_axes=lambda config: 2 if config.layout == "grid" else 0,
    over_points=True,
)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
