"""Transonic flow around airfoils: learns the Mach number from the mesh around them.

    python -m experiments.airfoil --preset=quick
    python -m experiments.airfoil --preset=paper --data_dir=...

The benchmark of Geo-FNO. Without --data_dir it takes samples of our own solver: the
quick preset on a mesh of 111 x 26 points.

Shapes differ by a twentieth of a chord on meshes of forty chords. From the coordinates
alone, as published, models take long to see that; quick gives them the deviations from
the mean mesh of the training samples besides.
"""

import dataclasses

from opjax.datasets import airfoil
from opjax.learn import (
    FLARE,
    GNOT,
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

    num_airfoil: int = option(60, "Cells around the airfoil, own solver", minimum=6)
    num_wake: int = option(25, "Cells along a side of the wake, own solver", minimum=1)
    num_radial: int = option(25, "Cells outwards, own solver", minimum=2)
    tolerance: float = option(1e-4, "Residual of our own solver", minimum=1e-5, below=1)
    deviations: bool = option(
        True, "Give models how far points lie from those of the mean mesh"
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.num_airfoil % 2:
            raise ValueError(f"num_airfoil={self.num_airfoil} must be even.")


PRESETS = {
    "smoke": Config(
        **SMOKE,
        num_train=8,
        num_validation=4,
        num_test=4,
        num_airfoil=24,
        num_wake=6,
        num_radial=10,
        tolerance=1e-2,
    ),
    # Smaller and shorter than of other programs: there are 2886 points.
    **quick(Config(features=32, num_epochs=16)),
    # Table 10, and the authors' program for what it leaves open.
    **published(
        Config(
            **PAPER,
            deviations=False,
            num_train=1000,
            num_test=200,
            num_airfoil=120,
            num_wake=50,
            num_radial=50,
            batch_size=4,
        ),
        transolver={"normalize_target": False},
        flare={**FLARE, "num_basis": 256},
        gnot={**GNOT, "normalize_target": False},
        ono_original={"num_layers": 6, "num_basis": 8, "num_landmarks": 256},
    ),
}
PROGRAM = Program(
    "airfoil",
    PRESETS,
    benchmark(
        airfoil.splits,
        *("num_airfoil", "num_wake", "num_radial", "tolerance", "deviations"),
        notes="The target is the Mach number.",
        # Of a mesh with a radius of 40 chords, what is near the airfoil.
        window=(-0.5, 1.5, -0.8, 0.8),
    ),
    grid_axes=2,
    over_points=True,
)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
