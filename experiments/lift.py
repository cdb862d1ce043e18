"""Airfoils at random angles and Mach numbers: predicts pressure and lift.

    python -m experiments.lift --preset=fast

The angle of attack and the Mach number are scalars of a case, the lift coefficient is
one to be predicted, and it is also integrated from the predicted pressure. Flows are
those of our own Euler solver.
"""

import dataclasses
from typing import Any

from opjax.datasets import lift
from opjax.learn import SMOKE, FieldOptions, Program, Task, option, quick, regression
from opjax.learn.config.quantities import parse
from opjax.learn.tasks.benchmark import load

QUANTITY = "lift:pressure@wall:angle_deg=angle"


@dataclasses.dataclass(frozen=True)
class Config(FieldOptions):
    """All that the numbers of a run depend on."""

    num_airfoil: int = option(
        60, "Number of cells around the airfoil. Must be even", minimum=6
    )
    num_wake: int = option(16, "Number of cells along each side of the wake", minimum=1)
    num_radial: int = option(20, "Number of cells from the airfoil outwards", minimum=2)
    tolerance: float = option(
        1e-4, "Residual at which the solver stops", minimum=1e-5, below=1
    )
    scalars: bool = option(True, "Give models the angle and the Mach number")

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.num_airfoil % 2:
            raise ValueError(f"num_airfoil={self.num_airfoil} must be even.")
        if self.data_dir:
            raise ValueError(
                f"data_dir={self.data_dir!r}: there are no published files of these "
                "flows; leave it out."
            )


_SOME: dict[str, Any] = {"num_train": 400, "num_validation": 50, "num_test": 100}
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
    **quick(Config(models=("functional",), **_SOME, num_epochs=40)),
}


def make_task(config: Config, cache_dir: str | None) -> Task:
    """The task of a run."""
    own = ("num_airfoil", "num_wake", "num_radial", "tolerance")
    found = load(config, lift.splits, *own, cache_dir=cache_dir)
    return regression(
        config,
        found,
        encode_target=config.normalize_target,
        mean=config.mean_loss,
        names=found.channels,
        quantities=parse(QUANTITY),
        notes="The target is the coefficient of the pressure; lift_r2 is that of the "
        "predicted lift, the other that of the predicted pressure's.",
        window=(-0.5, 1.5, -0.8, 0.8),
    )


PROGRAM = Program("lift", PRESETS, make_task, grid_axes=2)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
