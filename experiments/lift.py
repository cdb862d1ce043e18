"""Airfoils at random angles and Mach numbers: predicts pressure and lift.

    python -m experiments.lift --preset=fast
    python -m experiments.lift --preset=fast --noscalars
    python -m experiments.lift --preset=fast --point_features=geometry

The angle of attack and the Mach number are scalars of a case. The lift coefficient is a
scalar to be predicted, and it is also integrated from the predicted pressure. Flows are
those of our own Euler solver. The table has POD with radial basis functions and linear
regression of the lift beside the models, see `experiments.lift_baselines`.
"""

import dataclasses
import pathlib

from experiments import lift_baselines
from experiments.airfoil import COARSE, FlowOptions
from opjax.datasets import lift
from opjax.learn import SMOKE, option, quick, recipe
from opjax.learn.cli.program import Program
from opjax.learn.config.quantities import parse
from opjax.learn.registry.entries import Operator
from opjax.learn.report.members import Finished, Report, comparison
from opjax.learn.tasks.benchmark import request
from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.evaluation import Evaluation
from opjax.learn.tasks.model_data import Encoding
from opjax.learn.tasks.supervised import regression
from opjax.learn.tasks.task import Task
from opjax.samples import Splits

(QUANTITY,) = parse(f"lift:pressure@{lift.WALL}:angle_deg=angle")
COLUMNS = {
    "relative_l2": ("pressure, relative L2", 1.0),
    f"r2_{QUANTITY.key}": ("R2 of the lift from the pressure", 1.0),
    "lift_r2": ("R2 of the lift as a scalar", 1.0),
    "lift_error": ("mean error of that lift", 1.0),
    "seconds": ("seconds", 1.0),
}
BASELINES = {"pod_rbf": "POD + RBF", "linear": "linear regression"}


@dataclasses.dataclass(frozen=True)
class Config(FlowOptions):
    """All that the numbers of a run depend on."""

    num_wake: int = option(16, "Number of cells along each side of the wake", minimum=1)
    num_radial: int = option(20, "Number of cells from the airfoil outwards", minimum=2)
    scalars: bool = option(True, "Use the angle and the Mach number as input scalars")
    point_features: str = option(
        "deviations",
        "Features of every point in addition to its coordinates: deviations from the "
        "mean training mesh (needs corresponding points), geometry (available for "
        "any mesh), or none",
        choices=lift.POINT_FEATURES,
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.num_train < 12:
            raise ValueError(
                f"num_train={self.num_train} must be at least 12: cases have nine "
                "parameters, between which radial basis functions interpolate."
            )
        if self.data_dir:
            raise ValueError(
                f"data_dir={self.data_dir!r}: there are no published files of these "
                "flows; leave it out."
            )


_SOME = recipe(Config, num_train=400, num_validation=50, num_test=100)
PRESETS = {
    "smoke": (SMOKE | COARSE)(Config(num_train=12, num_validation=2, num_test=4)),
    **quick(_SOME(Config(models=("functional",), width=32, num_epochs=14))),
}

# Of the operator that ships, and of `experiments.design_lift`.
FEW = recipe(
    Config,
    num_train=200,
    num_validation=20,
    num_test=70,
    num_airfoil=40,
    num_wake=10,
    num_radial=14,
    tolerance=1e-3,
    num_epochs=20,
)


def splits(config: Config, cache_dir: str | None = None) -> Splits:
    """Solves for the flows."""
    return lift.splits(
        request(config, cache_dir),
        solver=config.solver,
        point_features=config.point_features,
    )


def make_task(config: Config, cache_dir: str | None) -> Task:
    """The task of a run.

    Without scalars the angle is not known, so no lift is integrated.
    """
    physical = splits(config, cache_dir)
    given = physical
    if not config.scalars:
        given = physical.mapped(
            lambda part: [sample._replace(scalars=None) for sample in part]
        )
    task = regression(
        config,
        given,
        encoding=Encoding(target=config.normalize_target),
        loss=Loss(mean=config.mean_loss),
        evaluation=Evaluation(
            quantities=(QUANTITY,) if config.scalars else (),
            window=(-0.5, 1.5, -0.8, 0.8),
        ),
        names=physical.channels,
        notes="The target is the coefficient of the pressure.",
    )
    evaluate = task.evaluate
    assert evaluate is not None

    def also(model: Operator, folder: pathlib.Path) -> dict[str, float]:
        others = lift_baselines.numbers(physical.train, physical.test, QUANTITY)
        return evaluate(model, folder) | others

    return dataclasses.replace(task, evaluate=also)


def report(finished: Finished) -> Report:
    """A table with the baselines below the models."""
    first, *_ = next(iter(finished.results.values()))
    rows = dict(finished.results)
    for name, label in BASELINES.items():
        numbers = {
            k.removeprefix(f"{name}_"): v
            for k, v in first.items()
            if k.startswith(f"{name}_")
        }
        rows[label] = [{"parameters": 0, **numbers}]
    return Report(text=comparison(rows, COLUMNS))


PROGRAM = Program("lift", PRESETS, make_task, report=report, grid_axes=2)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
