"""Trains and publishes the operators that ship with opjax, in `opjax/operators`.

    python -m experiments.operators_that_ship --ships=darcy,heat
    python -m experiments.operators_that_ship --ships=darcy --notrain  # publish again

The model card of each has the command, commit and errors of its training. The plates
and the cylinders need the results of solvers, in `--solved`: folders `plate` and
`cylinder` with `train` and `test`, see results/few_cases.md.
"""

import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from absl import app, flags

from experiments import darcy, lift
from opjax.datasets import heat
from opjax.learn.cli.publish import PublishOptions
from opjax.learn.cli.publish import run as publish
from opjax.samples import Sample

_ROOT = pathlib.Path(__file__).parents[1]
_SHIPS = flags.DEFINE_list("ships", ["darcy"], "Operators to make")
_RUNS = flags.DEFINE_string("runs", "runs/ships", "Folder of the training runs")
_SOLVED = flags.DEFINE_string("solved", "solved", "Folder of the results of solvers")
_TRAIN = flags.DEFINE_bool("train", True, "Train, or publish runs that are there")

_OWN_FILES = (
    "opjax.learn.cli.train --seeds=0,1,2 --train={data}/train --test={data}/test"
)
_FEATURES = "--geometry=normals,distance,layers"


class Ship(NamedTuple):
    """How an operator is made.

    Attributes:
      command: module and flags of the training.
      summary: sentence of the model card.
      not_for: sentence of the model card.
      cases: test cases, if they are not files in the folder `test`.
    """

    command: str
    summary: str
    not_for: str = ""
    cases: Callable[[], Sequence[Sample]] | None = None


SHIPS = {
    "darcy": Ship(
        "experiments.darcy --preset=fast --seeds=0,1,2",
        "Darcy flow on the unit square: predicts the pressure from a permeability that "
        "is 12 or 3, on a grid of 29 x 29 points.",
        cases=lambda: darcy.splits(darcy.PRESETS["fast"]).test,
    ),
    "heat": Ship(
        f"{_OWN_FILES} --preset=fast --num_epochs=20",
        "Heat conduction in the plane: predicts the temperature at time 0.02 from that "
        "at time 0, at 120 to 200 scattered points in any shape. Data: "
        "opjax.datasets.heat, a closed formula.",
        "Anything that needs less than 15 % error, the mean error on new cases. Walls: "
        "heat spreads in the whole plane, also where there are no points.",
    ),
    "lift": Ship(
        "experiments.lift --preset=fast --num_epochs=20 --num_train=200 "
        "--num_validation=20 --num_test=70 --num_airfoil=40 --num_wake=10 "
        "--num_radial=14 --tolerance=0.001 --seeds=0,1,2",
        "Compressible flow past an airfoil: predicts pressure coefficient and lift "
        "from the shape, the angle of attack and the Mach number.",
        "Flows like those of the training cases if the error matters: POD with radial "
        "basis functions is better there (pressure 0.0442, R2 of the lift 0.997). "
        "Drag, stall and shocks at higher Mach numbers: the flows are inviscid. Meshes "
        "with another number or order of points than those of opjax.datasets.lift.",
        cases=lambda: lift.splits(lift.FEW(lift.PRESETS["fast"])).test,
    ),
    "plate": Ship(
        f"{_OWN_FILES} --preset=small --target_names=U,S --scalar_names=angle "
        "--angles=angle --mirror=y "
        "--scales='U: load/(modulus*t), S: load/(t*(40-2*r))' "
        "--boundary='clamp: x < 1e-6; hole: (x-hx)^2 + (y-hy)^2 < (1.003*r)^2; "
        "end: x > 99.999; sides: y < 1e-6 or y > 39.999' "
        f"{_FEATURES} --quantities=max:S:mises",
        "A clamped plate with a hole under a load at any angle (linear elasticity): "
        "predicts displacement and stress on a mesh of tetrahedra. Data: CalculiX.",
        "Plates of another length or height than 100 x 40, several holes, plastic "
        "materials.",
    ),
    "cylinder": Ship(
        f"{_OWN_FILES} --preset=small --location=cells --target_names=p,U "
        "--scalar_names=Uin --scales='p: Uin^2, U: Uin' --mirror=y "
        f"--boundary_names=cylinder,inlet,outlet,walls {_FEATURES} "
        "--quantities=force_x:p@cylinder,shear_x:U@cylinder:viscosity=0.06",
        "Steady laminar flow past a cylinder in a channel: predicts pressure and "
        "velocity in the cells of a mesh with the patches cylinder, inlet, outlet and "
        "walls. Data: OpenFOAM.",
        "Vortex shedding, turbulence, several cylinders.",
    ),
}


def make(name: str, runs: pathlib.Path, solved: pathlib.Path) -> None:
    """Trains one operator, if asked for, and publishes it."""
    ship, data = SHIPS[name], solved / name
    if name == "heat":
        data = runs / "data-heat"
    if _TRAIN.value:
        if name == "heat":
            heat.write(data / "train", 880, seed=0)
            heat.write(data / "test", 100, seed=1)
        words = shlex.split(ship.command.format(data=data))
        command = [sys.executable, "-m", *words, f"--workdir={runs / name}"]
        subprocess.run(command, cwd=_ROOT, check=True)
    output = _ROOT / "opjax" / "operators" / name
    shutil.rmtree(output, ignore_errors=True)
    options = PublishOptions(
        runs / name,
        output,
        input=None if ship.cases else str(data / "test"),
        summary=ship.summary,
        licence="mit",
        not_for=ship.not_for,
    )
    print(publish(options, ship.cases() if ship.cases else None))


def main(argv: Sequence[str]) -> None:
    """Makes the operators of --ships."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    for name in _SHIPS.value:
        runs, solved = (
            pathlib.Path(path).absolute() for path in (_RUNS.value, _SOLVED.value)
        )
        make(name, runs, solved)


if __name__ == "__main__":
    app.run(main)
