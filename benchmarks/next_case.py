r"""Cases that a ranking chooses, beside random ones: error against their number.

    python -m benchmarks.next_case --next_rows=next.jsonl --next_seeds=0,1,2,3,4
    python -m benchmarks.next_case --next_rows=next.jsonl --next_by=operator
    python -m benchmarks.next_case --next_rows=next.jsonl --next_by=operator \
      --next_plates=FOLDER
    python -m benchmarks.next_case --next_rows=next.jsonl --next_page=FIGURE.png

Airfoils of Joukowski have a random thickness and camber and a random angle of attack,
in potential flow, which is known in closed form (`opjax.problems.joukowski`). From
points of the wall and the angle a predictor learns the pressure coefficient at these
points and the lift. Plates with holes are those of a solver, which is not part of this
project: the folders `train` and `calib` are the pool, `test` are the new cases; from
mesh and load a predictor learns displacement and stress.

A predictor begins with 16 random cases, the same for all strategies of a seed, and is
fitted anew with 24, 36 and (POD) 54 of a pool:

- random: the next ones of the pool;
- distance: those far from solved and chosen ones, as where nothing tells a width;
- rank: those with the largest width times distance, as `opjax-predict --rank` does.

The predictor is POD with radial basis functions, which is fitted in a second, and whose
width is the deviation between fits that each leave out a fifth of the cases; or our
operator with `learn.rank`, whose width is the difference between two seeds.

Every row is written when it ends, and one that the file holds is not run again. A row
has the mean relative L2 error of each field and the largest one of the last field, and
mean absolute errors of scalars over new cases.
"""

import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from absl import app, flags

from benchmarks.provenance import provenance
from opjax import learn, uncertainty
from opjax.learn.baselines.fitted import POD, Baselines
from opjax.learn.cli import compiled
from opjax.learn.cli.train import load
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.problems import joukowski
from opjax.samples import Sample, Splits

_ROWS = flags.DEFINE_string("next_rows", None, "File of the rows", required=True)
_PAGE = flags.DEFINE_string("next_page", None, "File of the figure; prints the table")
_SMOKE = flags.DEFINE_bool("next_smoke", False, "Run very few steps on few cases")
_BY = flags.DEFINE_enum("next_by", "pod", ["pod", "operator"], "What predicts")
_SEEDS = flags.DEFINE_list("next_seeds", ["0", "1", "2"], "Seeds, in this order")
_PLATES = flags.DEFINE_string(
    "next_plates", None, "Folder of plates, which replace the airfoils"
)
_ANGLES, _THICKNESS, _CAMBER = (-2.0, 14.0), (0.06, 0.24), (0.0, 0.12)
STRATEGIES = ("random", "distance", "rank")
AIRFOILS, PLATES = "airfoils", "plates"
ERRORS = {
    AIRFOILS: {
        "pressure": "mean error of the pressure",
        "worst": "worst error of the pressure",
        "lift": "mean error of the lift",
    },
    PLATES: {
        "U": "mean error of the displacement",
        "S_Mises": "mean error of the stress",
        "worst": "worst error of the stress",
    },
}
NAMES = {"pod": "POD with RBF", "operator": "operator"}

Row = dict[str, Any]
Values = tuple[np.ndarray, Any]  # fields `(n, q)` and scalars `(t,)`, if any


@dataclasses.dataclass(frozen=True)
class Study:
    """How large the study is.

    Attributes:
      sizes: numbers of training cases.
      pool: number of airfoils to choose from.
      test: number of new airfoils.
      steps: of the training of an operator.
    """

    sizes: tuple[int, ...] = (16, 24, 36, 54)
    pool: int = 200
    test: int = 100
    steps: int = 800


SMOKE = Study((8, 9), 12, 3, 2)
# Of trainings that take half a minute to a minute each.
OF_OPERATORS = {
    AIRFOILS: Study((16, 24, 36)),
    PLATES: Study((16, 24, 36), steps=500),
}


class Problem(NamedTuple):
    """What is learned.

    Attributes:
      name: of the problem.
      pool: cases to choose from.
      test: new cases.
      config: of the training of an operator.
      channels: names of the channels, by array.
    """

    name: str
    pool: Sequence[Sample]
    test: Sequence[Sample]
    config: learn.TrainConfig
    channels: Mapping[str, tuple[str, ...]]


class Predictor(Protocol):
    """What is fitted to cases."""

    def predict(self, case: Sample) -> Values:
        """Returns the fields and the scalars of a case."""
        ...

    def rank(
        self,
        pool: Sequence[Sample],
        count: int,
        solved: Sequence[Sample],
        *,
        widths: bool,
    ) -> list[int]:
        """Returns places of cases to solve next; without widths, by distance alone."""
        ...


def cases(count: int, seed: int, *, num_points: int = 48) -> list[Sample]:
    """Returns random airfoils with their pressure and lift."""
    rng = np.random.default_rng(seed)
    found: list[Sample] = []
    for number in range(count):
        angle = rng.uniform(*_ANGLES)
        centre = -0.77 * rng.uniform(*_THICKNESS), rng.uniform(*_CAMBER) / 2
        flow = joukowski.flow(
            1.0, np.deg2rad(angle), centre, num_radii=2, num_angles=num_points
        )
        found.append(
            Sample(
                np.asarray(flow.points[0], np.float32),
                target=np.asarray(2 * flow.pressure[0], np.float32)[:, None],
                scalars=np.asarray([angle], np.float32),
                target_scalars=np.asarray([flow.lift], np.float32),
                name=f"airfoil {seed} {number}",
            )
        )
    return found


def airfoils(study: Study, seed: int) -> Problem:
    """Returns airfoils, which change with the seed."""
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["small"],
        target_names="pressure",
        width=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        batch_size=8,
        num_steps=study.steps,
    )
    channels = {
        "features": (),
        "target": ("pressure",),
        "scalars": ("angle",),
        "target_scalars": ("lift",),
    }
    pool, test = cases(study.pool, 100 + seed), cases(study.test, 200 + seed)
    return Problem(AIRFOILS, pool, test, config, channels)


def plates(study: Study, seed: int, folder: str) -> Problem:
    """Returns plates of a solver; the seed changes the order of the pool."""
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["small"],
        train=f"{folder}/train,{folder}/calib",
        test=f"{folder}/test",
        target_names="U,S_Mises",
        scalar_names="angle",
        angles="angle",
        scales="U: load/(modulus*t), S_Mises: load/t",
        boundary="hole: (x-hx)^2 + (y-hy)^2 < (1.003*r)^2",
        geometry="normals,distance",
        width=32,
        num_layers=2,
        num_heads=4,
        num_basis=16,
        num_steps=study.steps,
    )
    found, channels = load(config)
    both = [*found.train, *found.validation]
    order = np.random.default_rng(seed).permutation(len(both))
    pool = [both[place] for place in order]
    named = {role: tuple(names) for role, names in channels.items()}
    return Problem(PLATES, pool, list(found.test), config, named)


class Pod:
    """Proper orthogonal decomposition with radial basis functions.

    Args:
      problem: what is learned.
      train: the cases.
      seed: of the cases that each further fit leaves out.
    """

    def __init__(self, problem: Problem, train: Sequence[Sample], seed: int):
        del problem
        order = np.random.default_rng(seed).permutation(len(train))
        parts = [set(order[part::5].tolist()) for part in range(5)]
        kept = [[i for i in range(len(train)) if i not in part] for part in parts]
        self._fit = Baselines.fit(train)
        self._others = [Baselines.fit([train[i] for i in rows]) for rows in kept]

    def predict(self, case: Sample) -> Values:
        """Returns the pressure and the lift of a case."""
        return _by(self._fit, case)

    def rank(
        self,
        pool: Sequence[Sample],
        count: int,
        solved: Sequence[Sample],
        *,
        widths: bool,
    ) -> list[int]:
        """Chooses as `learn.rank` does."""
        weights = [self._width(case) for case in pool] if widths else None
        with jax.enable_x64(True):
            chosen = uncertainty.greedy_choice(
                np.stack([self._features(case) for case in pool]),
                count,
                weights=None if weights is None else np.asarray(weights),
                known=np.stack([self._features(case) for case in solved]),
            )
        return [int(place) for place in chosen.order]

    def _width(self, case: Sample) -> float:
        each = [_by(other, case)[0] for other in self._others]
        return float(np.sqrt(np.var(each, axis=0).mean()))

    def _features(self, case: Sample) -> np.ndarray:
        assert case.scalars is not None
        fields = np.hstack([case.mesh_points, self.predict(case)[0]])
        moments = uncertainty.field_moments(fields.astype(np.float64))
        return np.concatenate([moments, case.scalars]).astype(np.float64)


def _by(fitted: Baselines, case: Sample) -> Values:
    name = POD if POD in fitted.names else fitted.names[0]
    return fitted.predict(name, case), fitted.predict_scalars(name, case)


class Operators:
    """Our operator, trained with two seeds, the second where widths are needed.

    Args:
      problem: what is learned.
      train: the cases.
      seed: of the trainings.
    """

    def __init__(self, problem: Problem, train: Sequence[Sample], seed: int):
        # All cases are learned from; a run wants a test case, which is not used.
        self._splits = Splits(
            list(train), [], problem.test[:1], problem.name, channels=problem.channels
        )
        self._config, self._seed = problem.config, seed
        self._members: list[learn.Trained] = []

    def predict(self, case: Sample) -> Values:
        """Returns the fields and the scalars of a case, by the first seed."""
        return self._trained(1)[0].both(case)

    def _trained(self, count: int) -> list[learn.Trained]:
        for number in range(len(self._members), count):
            seed = 10 * self._seed + number
            found = learn.train(self._splits, config=self._config, seed=seed)
            self._members.append(found)
        return self._members[:count]

    def rank(
        self,
        pool: Sequence[Sample],
        count: int,
        solved: Sequence[Sample],
        *,
        widths: bool,
    ) -> list[int]:
        """Chooses by `learn.rank`."""
        first, *members = self._trained(1 + widths)
        ranked = learn.rank(first, pool, count, solved=solved, members=members)
        return [one.place for one in ranked]


MADE: dict[str, type[Pod] | type[Operators]] = {"pod": Pod, "operator": Operators}


def errors(predictor: Predictor, problem: Problem) -> dict[str, float]:
    """Returns mean errors over new cases, by `ERRORS`."""
    names = list(problem.channels["target"])
    fields: list[list[float]] = []
    scalars: list[np.ndarray] = []
    for case in problem.test:
        values, found = predictor.predict(case)
        assert case.target is not None
        off, size = values - case.target, case.target
        columns = [[n == name for n in names] for name in dict.fromkeys(names)]
        fields.append(
            [
                float(np.linalg.norm(off[:, some]) / np.linalg.norm(size[:, some]))
                for some in map(np.asarray, columns)
            ]
        )
        if found is not None:
            scalars.append(np.abs(found - case.target_scalars))
    row = dict(zip(dict.fromkeys(names), np.mean(fields, axis=0), strict=True))
    row["worst"] = np.max(fields, axis=0)[-1]
    if scalars:
        of_scalars = problem.channels["target_scalars"]
        row |= dict(zip(of_scalars, np.mean(scalars, axis=0), strict=True))
    return {name: float(error) for name, error in row.items()}


def chosen(
    strategy: str,
    predictor: Predictor,
    pool: Sequence[Sample],
    places: Sequence[int],
    count: int,
) -> list[int]:
    """Returns places of cases in the pool, those that are solved and new ones."""
    free = [place for place in range(len(pool)) if place not in set(places)]
    ranked = predictor.rank(
        [pool[place]._replace(target=None, target_scalars=None) for place in free],
        count - len(places),
        [pool[place] for place in places],
        widths=strategy == "rank",
    )
    return [*places, *(free[place] for place in ranked)]


def run(
    study: Study, problem: Problem, by: str, seed: int, done: Sequence[Row]
) -> Iterator[Row]:
    """Yields the rows of a predictor and seed that are not done yet."""
    known = {
        (row["strategy"], row["size"]): row
        for row in done
        if (_problem(row), row["by"], row["seed"]) == (problem.name, by, seed)
    }
    pool = problem.pool

    @functools.cache
    def fitted(*places: int) -> Predictor:
        return MADE[by](problem, [pool[place] for place in places], seed)

    for strategy in STRATEGIES:
        places = list(range(study.sizes[0]))
        for number, size in enumerate(study.sizes):
            # All strategies begin with the same cases.
            label = strategy if number else STRATEGIES[0]
            if (label, size) in known:
                places = known[label, size]["places"]
                continue
            start = time.process_time()
            if strategy == STRATEGIES[0]:
                places = list(range(size))
            else:
                places = chosen(strategy, fitted(*places), pool, places, size)
            row = {"problem": problem.name, "by": by, "strategy": label}
            row |= {"size": size, "seed": seed, "places": places}
            row |= errors(fitted(*places), problem)
            known[label, size] = row | {"seconds": time.process_time() - start}
            yield known[label, size]


def by_size(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    """Returns rows of a predictor by strategy and size; the first size is of all."""
    first = min(row["size"] for row in rows)
    sizes = sorted({row["size"] for row in rows})
    found: dict[tuple[str, int], list[Row]] = {}
    for strategy in STRATEGIES:
        for size in sizes:
            label = STRATEGIES[0] if size == first else strategy
            some = [r for r in rows if (r["strategy"], r["size"]) == (label, size)]
            if some:
                found[strategy, size] = some
    return found


def page(rows: Sequence[Row]) -> str:
    """Returns a table of each problem: predictors, strategies and numbers of cases."""
    tables: list[str] = []
    for problem, names in ERRORS.items():
        lines = [
            [NAMES[by], strategy, str(size), str(len(some))]
            + [median_and_range([r[name] for r in some], digits=3) for name in names]
            for (one, by), own in _groups(rows).items()
            if one == problem
            for (strategy, size), some in by_size(own).items()
        ]
        head = ["predictor", "strategy", "cases", "seeds", *names.values()]
        tables += [table(head, lines)] if lines else []
    return "\n".join(tables)


def _problem(row: Row) -> str:
    return row.get("problem", AIRFOILS)  # which the first rows do not name


def _groups(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by problem and predictor."""
    found: dict[tuple[str, str], list[Row]] = {}
    for problem in ERRORS:
        for by in NAMES:
            own = [r for r in rows if (_problem(r), r["by"]) == (problem, by)]
            found |= {(problem, by): own} if own else {}
    return found


def draw(rows: Sequence[Row]) -> Any:
    """Returns the figure: errors over the number of cases, a row for each predictor."""
    groups = _groups(rows)
    figure = drawing.new_figure(9.0, 2.8 * len(groups))
    axes = figure.subplots(len(groups), 3, squeeze=False)
    for ((problem, by), own), both in zip(groups.items(), axes, strict=True):
        grouped: Mapping[tuple[str, int], list[Row]] = by_size(own)
        for axis, (name, label) in zip(both, ERRORS[problem].items(), strict=True):
            for strategy, mark in zip(STRATEGIES, "s^o", strict=True):
                sizes = [size for one, size in grouped if one == strategy]
                each = [[r[name] for r in grouped[strategy, size]] for size in sizes]
                middle = np.array([np.median(values) for values in each])
                ends = np.array([[min(values), max(values)] for values in each]).T
                bars = np.abs(ends - middle)
                axis.errorbar(sizes, middle, bars, marker=mark, ms=4, label=strategy)
            axis.set(xlabel="training cases", ylabel=label, xscale="log", yscale="log")
            sizes = sorted({size for _, size in grouped})
            axis.set_xticks(sizes, map(str, sizes))
            axis.set_xticks([], minor=True)
            drawing.plain(axis)
        both[0].set_title(f"{problem}, {NAMES[by]}")
    drawing.legend(axes[0, 0])
    return figure


def main(argv: Sequence[str]) -> None:
    """Runs what the file lacks, or draws the figure and prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    place = pathlib.Path(_ROWS.value)
    text = place.read_text() if place.exists() else ""
    rows: list[Row] = [json.loads(line) for line in text.splitlines()]
    if _PAGE.value:
        drawing.save_lines(draw(rows), _PAGE.value)
        print(page(rows))
        return
    origin = {k: provenance(["jax"])[k] for k in ("commit", "hardware", "date")}
    name = PLATES if _PLATES.value else AIRFOILS
    study = OF_OPERATORS[name] if _BY.value == "operator" else Study()
    study = SMOKE if _SMOKE.value else study
    compiled.keep()  # the same training is compiled once
    for seed in map(int, _SEEDS.value):
        if _PLATES.value:
            problem = plates(study, seed, _PLATES.value)
        else:
            problem = airfoils(study, seed)
        for row in run(study, problem, _BY.value, seed, rows):
            with place.open("a") as file:
                file.write(json.dumps(row | origin) + "\n")


if __name__ == "__main__":
    app.run(main)
