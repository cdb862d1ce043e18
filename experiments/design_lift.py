"""Airfoils of larger lift, designed with a trained operator, with a guard and without.

    python -m experiments.design_lift --preset=fast
    python -m experiments.design_lift --preset=fast --seeds=0

Trains the operators of `experiments.lift` in the folder of the run, or reads them from
there. From test cases on, angle, Mach number and shape are changed for the largest lift
at the pitching moment of the start, with `opjax.design`. Every design is solved by our
Euler solver. Without a guard the bounds and the moment are the same, but neither the
band nor the unlikeness counts.

A design is confirmed if its flow is steady and the solved lift is larger than that of
the start, and at least the lower end of the conformal interval of the prediction.
"""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import lift, studies
from experiments.studies import Row, Rows, column, groups
from opjax import design, learn, uncertainty
from opjax.datasets import lift as flows
from opjax.learn import option
from opjax.learn.config import fields
from opjax.learn.config.quantities import parse
from opjax.learn.messages import say
from opjax.learn.predict.functions import Arguments
from opjax.learn.predict.quantities import measure
from opjax.learn.report import drawing
from opjax.learn.run.folder import RunDirectory
from opjax.learn.tables import table
from opjax.samples import Sample

LIFT = lift.QUANTITY.text
MOMENT = f"moment_z:pressure@{flows.WALL}:about=0.25,0"
GUARDS = {True: "with the guard", False: "without it"}
_COVERAGE = 0.9
_MOMENT_TOLERANCE = 2e-3
_RADIUS = 0.2  # of the displacements, in chords
# Two rows of handles, above and below the profile.
_HANDLES = np.array([(x, y) for y in (0.08, -0.08) for x in (0.15, 0.45, 0.75)])
_LEAST_CALIBRATION = 29  # a third of which fits the width of the bands


@dataclasses.dataclass(frozen=True)
class Config(lift.Config):
    """All that the numbers of a run depend on."""

    num_designs: int = option(
        10, "Number of designs per seed, each from a test case", minimum=1
    )
    num_steps: int = option(40, "Maximum number of steps of a design", minimum=1)
    shape_limit: float = option(
        0.02, "Largest displacement of a handle, in chords", above=0
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        left = self.num_test - self.num_designs
        if left < _LEAST_CALIBRATION:
            raise ValueError(
                f"num_test={self.num_test} leaves {left} cases for the calibration "
                f"beside num_designs={self.num_designs}: at least "
                f"{_LEAST_CALIBRATION} are needed."
            )
        if not self.scalars or self.point_features != "deviations":
            raise ValueError(
                f"scalars={self.scalars} and point_features={self.point_features!r}: "
                "designs need scalars, and features that are functions of the points, "
                "deviations."
            )

    def operators(self) -> lift.Config:
        """The configuration of the operators."""
        return fields.part(lift.Config, self)


_SMOKE = lift.PRESETS["smoke"]
PRESETS = {
    "smoke": fields.part(Config, _SMOKE, num_test=30, num_designs=1, num_steps=2),
    **{
        name: fields.part(Config, lift.FEW(lift.PRESETS[name]), seeds=(0, 1, 2))
        for name in ("quick", "fast")
    },
}


class Solved(NamedTuple):
    """Lift and moment of a case by the Euler solver; NaN where it is not steady."""

    lift: float
    moment: float


class Designer:
    """Designs from test cases with one operator.

    Args:
      trained: the operator.
      cases: test cases with corresponding points, not among the starts.
      config: of the run.
    """

    def __init__(self, trained: learn.Trained, cases: Sequence[Sample], config: Config):
        self._trained, self._config = trained, config
        calibrated = learn.calibrate(
            trained, cases, coverage=_COVERAGE, width="residual"
        )
        self.half_width = _half_width(trained, cases)
        parameters, first = trained.parameters, cases[0]
        lift_of, moment_of = (trained.quantity(q, first) for q in (LIFT, MOMENT))
        interval = calibrated.quantity(LIFT, first)

        def half_interval(case: Arguments) -> jax.Array:
            lower, upper = interval(parameters, *case)
            return (upper - lower) / 2

        self._objective = lambda case: -lift_of(parameters, *case)
        self._moment = lambda case: moment_of(parameters, *case)
        self._band = half_interval
        self._unlikeness = lambda case: calibrated.unlikeness(parameters, *case)
        cells = first.cells
        assert cells is not None
        self._volumes = lambda case: design.signed_volumes(case.points, cells, "quad")

    def design(self, start: Sample, *, guarded: bool) -> Row:
        """Returns what is predicted and solved for the design from a case."""
        low, high = self._trained.description.ranges["scalars"]
        # A start just outside the training ranges begins at their edge.
        scalars = np.clip(np.asarray(start.scalars), low, high)
        start = start._replace(scalars=scalars)
        arguments = self._trained.arguments(start)
        modes = design.gaussian_modes(
            start.mesh_points, _HANDLES, np.array([0.0, 1.0]), radius=_RADIUS
        )
        limit = self._config.shape_limit
        guard = None
        if guarded:
            # The interval of the band for whole fields is that of the worst field: it
            # is scaled to the conformal interval of the lift.
            weight = self.half_width / float(jax.jit(self._band)(arguments))
            guard = design.Guard(self._band, weight, self._unlikeness)
        moment = float(jax.jit(self._moment)(arguments))
        row: Row = {"name": start.name, "guarded": guarded}
        before = self._solve(start, start.mesh_points, scalars)
        row |= {"start": _number(before.lift), "start_moment": _number(before.moment)}
        try:
            designed = design.minimise(
                self._objective,
                {"shape": np.zeros(len(_HANDLES)), "scalars": scalars},
                {"shape": (-limit, limit), "scalars": (low, high)},
                case=case_of,
                constants=(arguments, modes),
                guard=guard,
                reach=[design.Reach(self._moment, moment, _MOMENT_TOLERANCE)],
                volumes=self._volumes,
                num_steps=self._config.num_steps,
                on_step=lambda step: say(f"{start.name}, {GUARDS[guarded]}: {step}"),
            )
        except ValueError as error:
            return row | {"failed": str(error), "confirmed": False}
        best = designed.best
        case = case_of(best.variables, (arguments, modes))
        after = self._solve(start, np.asarray(case.points), np.asarray(case.scalars))
        predicted = -best.value
        confirmed = after.lift > before.lift and (
            after.lift >= predicted - self.half_width
        )
        return row | {
            "predicted_start": -designed.steps[0].value,
            "predicted": predicted,
            "solved": _number(after.lift),
            "moment": _number(after.moment),
            "half_width": self.half_width,
            "unlikeness": float(self._unlikeness(case)),
            "confirmed": bool(confirmed),
            "steps": len(designed.steps) - 1,
            "scalars": np.asarray(case.scalars).tolist(),
            "shape": np.asarray(best.variables["shape"]).tolist(),
        }

    def _solve(self, start: Sample, points: np.ndarray, scalars: np.ndarray) -> Solved:
        config = self._config
        around = config.num_airfoil + 2 * config.num_wake + 1
        flow = flows.solve(
            points.reshape(around, config.num_radial + 1, 2),
            num_wake=config.num_wake,
            angle=float(scalars[0]),
            mach=float(scalars[1]),
            tolerance=config.tolerance,
        )
        if not flow.residual <= config.tolerance:
            return Solved(float("nan"), float("nan"))
        case = start._replace(mesh_points=points, scalars=scalars)
        names, pressure = self._trained.description.names, flow.pressure.reshape(-1, 1)
        (row,) = measure(parse(f"{LIFT},{MOMENT}"), case, [pressure], names)
        return Solved(row[LIFT], row[MOMENT])


def case_of(variables: Any, constants: tuple[Arguments, Any]) -> Arguments:
    """The arguments of an operator for a shape and scalars; features follow points."""
    start, modes = constants
    shift = design.moved(jnp.zeros_like(start.points), modes, variables["shape"])
    # Of every point its shift from the mean mesh, and where it is in that.
    features = start.features + jnp.pad(shift, ((0, 0), (0, 2)))
    scalars = jnp.asarray(variables["scalars"], start.points.dtype)
    return start._replace(
        points=start.points + shift, features=features, scalars=scalars
    )


def _half_width(trained: learn.Trained, cases: Sequence[Sample]) -> float:
    """Half the width of the conformal interval of the lift."""
    errors: list[float] = []
    for one in cases:
        assert one.target is not None
        names = trained.description.names
        both = measure((lift.QUANTITY,), one, [trained(one), one.target], names)
        predicted, true = (row[LIFT] for row in both)
        errors.append(abs(predicted - true))
    quantile = uncertainty.conformal_quantile(
        np.asarray(errors, np.float32), coverage=_COVERAGE
    )
    return float(quantile)


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def work(
    config: Config, directory: RunDirectory, cache_dir: str | None
) -> learn.Report:
    """Trains operators, designs, solves; continues from what the folder holds."""
    folder = directory.path
    lift.run(config.operators(), workdir=folder / "operators", cache_dir=cache_dir)
    test = lift.splits(config.operators(), cache_dir).test
    starts, others = test[: config.num_designs], test[config.num_designs :]

    @functools.lru_cache(maxsize=1)  # of one seed, where its designs are missing
    def designer(seed: int) -> Designer:
        place = folder / "operators" / f"{config.models[0]}-{seed}"
        return Designer(learn.load(place), others, config)

    def designed(seed: int, number: int, guarded: bool) -> Row:
        row = designer(seed).design(starts[number], guarded=guarded)
        return {"seed": seed, **row}

    rows: list[Row] = []
    for one in itertools.product(config.seeds, range(len(starts)), GUARDS):
        name = "_".join(map(str, map(int, one)))
        path = folder / f"design_{name}.json"
        rows.append(studies.stored(path, functools.partial(designed, *one)))
    draw(rows, folder / "designs.png")
    return report(rows, config)


def report(rows: Rows, config: Config) -> learn.Report:
    """Confirmed designs by seed, and every design."""
    result: dict[str, Any] = {}
    lines: list[list[str]] = []
    for (seed, guarded), mine in groups(rows, "seed", "guarded").items():
        key = f"confirmed_{'guard' if guarded else 'alone'}_{seed}"
        result[key] = sum(row["confirmed"] for row in mine)
        steady = [row for row in mine if None not in (row["start"], row.get("solved"))]
        solved = column(steady, "solved")
        gains = solved - column(steady, "start")
        over = column(steady, "predicted") - solved
        numbers = (
            [np.median(gains), np.median(over), over.max()] if steady else [None] * 3
        )
        lines.append(
            [str(seed), GUARDS[guarded], f"{result[key]} of {len(mine)}"]
            + [str(len(steady)), *map(_written, numbers)]
        )
    columns = ["seed", "design", "confirmed", "steady", "solved gain, median"]
    columns += ["predicted minus solved, median", "largest"]
    text = table(columns, lines) + "\n" + _each(rows)
    head = (
        "Lift at the moment of the start. Confirmed: the flow is steady, the lift is "
        "larger than that of the start and at least the lower end of the "
        f"{100 * _COVERAGE:.0f} % interval of the prediction. {config.num_train} "
        f"training cases, {config.num_test - config.num_designs} for the calibration."
    )
    return learn.Report(text=text, result=result, head=head)


def _written(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _each(rows: Rows) -> str:
    keys = ["start", "predicted", "half_width", "solved", "start_moment", "moment"]
    lines = [
        [f"{row['seed']}: {row['name']}", GUARDS[row["guarded"]]]
        + [_written(row.get(key)) for key in keys]
        + [row.get("failed", "yes" if row["confirmed"] else "no")[:80]]
        for row in rows
    ]
    columns = ["start", "design", "lift, start", "predicted", "+-", "solved"]
    return table([*columns, "moment, start", "moment, solved", "confirmed"], lines)


def draw(rows: Rows, path: pathlib.Path) -> None:
    """Draws predicted against solved lift."""
    figure = drawing.new_figure(4.2, 3.4)
    axis = figure.subplots()
    drawing.plain(axis)
    for (guarded, words), colour in zip(GUARDS.items(), ("C0", "C3"), strict=True):
        mine = [r for r in rows if r["guarded"] == guarded and r.get("solved")]
        pair = column(mine, "solved"), column(mine, "predicted")
        axis.plot(*pair, "o" if guarded else "x", color=colour, ms=5, label=words)
    ends = axis.get_xlim()
    axis.plot(ends, ends, color="0.5", lw=1)
    axis.set(xlabel="lift, solved", ylabel="lift, predicted")
    drawing.legend(axis)
    drawing.save_lines(figure, path)


def describe(config: Config) -> dict[str, Any]:
    """Says what a run does."""
    return {"designs": 2 * len(config.seeds) * config.num_designs}


PROGRAM = learn.Program(
    "design_lift",
    PRESETS,
    title="Airfoils designed for lift",
    work=work,
    describe_work=describe,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
