r"""Cases that a ranking chooses, beside random ones: error against their number.

    python -m benchmarks.next_case --next_rows=next.jsonl --next_seeds=0,1,2,3,4
    python -m benchmarks.next_case --next_rows=next.jsonl --next_by=operator
    python -m benchmarks.next_case --next_rows=next.jsonl --next_page=FIGURE.png

Airfoils of Joukowski have a random thickness and camber and a random angle of attack,
in potential flow, which is known in closed form (`opjax.problems.joukowski`). From
points of the wall and the angle a predictor learns the pressure coefficient at these
points and the lift. It begins with 16 random cases, the same for all strategies of a
seed, and is fitted anew with 24, 36 and 54 of a pool:

- random: the next ones of the pool;
- distance: those far from solved and chosen ones, as where nothing tells a width;
- rank: those with the largest width times distance, as `opjax-predict --rank` does.

The predictor is POD with radial basis functions, which is fitted in a second, and whose
width is the deviation between fits that each leave out a fifth of the cases; or our
operator with `learn.rank`, whose width is the difference between two seeds.

Every row is written when it ends, and one that the file holds is not run again. A row
has the mean and the largest relative L2 error of the pressure and the mean absolute
error of the lift coefficient over new cases.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from absl import app, flags

from benchmarks.provenance import provenance
from opjax import learn, uncertainty
from opjax.learn.baselines.fitted import POD, Baselines
from opjax.learn.cli import compiled
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.problems import joukowski
from opjax.samples import Sample, Splits

_ROWS = flags.DEFINE_string("next_rows", None, "File of the rows", required=True)
_PAGE = flags.DEFINE_string("next_page", None, "File of the figure; prints the table")
_SMOKE = flags.DEFINE_bool("next_smoke", False, "Run very few steps on few cases")
_BY = flags.DEFINE_enum("next_by", "pod", ["pod", "operator"], "What predicts")
_SEEDS = flags.DEFINE_list("next_seeds", ["0", "1", "2"], "Seeds, in this order")
_ANGLES, _THICKNESS, _CAMBER = (-2.0, 14.0), (0.06, 0.24), (0.0, 0.12)
_CHANNELS = {
    "features": (),
    "target": ("pressure",),
    "scalars": ("angle",),
    "target_scalars": ("lift",),
}
STRATEGIES = ("random", "distance", "rank")
ERRORS = {
    "pressure": "mean error of the pressure",
    "worst": "worst error of the pressure",
    "lift": "mean error of the lift",
}
NAMES = {"pod": "POD with RBF", "operator": "operator"}

Row = dict[str, Any]
Values = tuple[np.ndarray, np.ndarray]  # pressure `(n, 1)` and lift `(1,)`


@dataclasses.dataclass(frozen=True)
class Study:
    """How large the study is.

    Attributes:
      sizes: numbers of training cases.
      pool: number of cases to choose from.
      test: number of new cases.
      steps: of the training of an operator.
    """

    sizes: tuple[int, ...] = (16, 24, 36, 54)
    pool: int = 200
    test: int = 100
    steps: int = 800


SMOKE = Study((8, 9), 12, 3, 2)


class Predictor(Protocol):
    """What is fitted to cases."""

    def predict(self, case: Sample) -> Values:
        """Returns the pressure and the lift of a case."""
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


class Pod:
    """Proper orthogonal decomposition with radial basis functions.

    Args:
      study: sizes.
      train: the cases.
      seed: of the cases that each further fit leaves out.
    """

    def __init__(self, study: Study, train: Sequence[Sample], seed: int):
        del study
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
    """Our operator, trained with two seeds.

    Args:
      study: sizes.
      train: the cases.
      seed: of the trainings.
    """

    def __init__(self, study: Study, train: Sequence[Sample], seed: int):
        # All cases are learned from; a run wants a test case, which is not used.
        splits = Splits(list(train), [], cases(1, 0), "Joukowski", channels=_CHANNELS)
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
        self._members = [
            learn.train(splits, config=config, seed=10 * seed + i) for i in range(2)
        ]

    def predict(self, case: Sample) -> Values:
        """Returns the pressure and the lift of a case, by the first seed."""
        values, lift = self._members[0].both(case)
        assert lift is not None
        return values, lift

    def rank(
        self,
        pool: Sequence[Sample],
        count: int,
        solved: Sequence[Sample],
        *,
        widths: bool,
    ) -> list[int]:
        """Chooses by `learn.rank`."""
        first, *others = self._members
        members = others if widths else ()
        ranked = learn.rank(first, pool, count, solved=solved, members=members)
        return [one.place for one in ranked]


MADE: dict[str, type[Pod] | type[Operators]] = {"pod": Pod, "operator": Operators}


def errors(predictor: Predictor, test: Sequence[Sample]) -> dict[str, float]:
    """Returns mean errors over new cases, by `ERRORS`."""
    pressure: list[float] = []
    lift: list[float] = []
    for case in test:
        values, found = predictor.predict(case)
        assert case.target is not None
        off = np.linalg.norm(values - case.target) / np.linalg.norm(case.target)
        pressure.append(float(off))
        lift.append(float(np.abs(found - case.target_scalars)[0]))
    return {
        "pressure": float(np.mean(pressure)),
        "worst": float(np.max(pressure)),
        "lift": float(np.mean(lift)),
    }


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


def run(study: Study, by: str, seed: int, done: Sequence[Row]) -> Iterator[Row]:
    """Yields the rows of a predictor and seed that are not done yet."""
    known = {
        (row["strategy"], row["size"]): row
        for row in done
        if (row["by"], row["seed"]) == (by, seed)
    }
    pool, test = cases(study.pool, 100 + seed), cases(study.test, 200 + seed)

    def fitted(places: Sequence[int]) -> Predictor:
        return MADE[by](study, [pool[place] for place in places], seed)

    for strategy in STRATEGIES:
        places, predictor = list(range(study.sizes[0])), None
        for number, size in enumerate(study.sizes):
            label = (
                strategy if number else STRATEGIES[0]
            )  # the first cases are the same
            if (label, size) in known:
                places, predictor = known[label, size]["places"], None
                continue
            start = time.process_time()
            if strategy == STRATEGIES[0]:
                places = list(range(size))
            else:
                before = predictor or fitted(places)
                places = chosen(strategy, before, pool, places, size)
            predictor = fitted(places)
            row = {"by": by, "strategy": label, "size": size, "seed": seed}
            row |= {"places": places, **errors(predictor, test)}
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
    """Returns the table: a row for each predictor, strategy and number of cases."""
    lines = [
        [
            NAMES[by],
            strategy,
            str(size),
            str(len(some)),
            *(median_and_range([r[name] for r in some], digits=3) for name in ERRORS),
        ]
        for by, own in _by_predictor(rows).items()
        for (strategy, size), some in by_size(own).items()
    ]
    head = ["predictor", "strategy", "cases", "seeds", *ERRORS.values()]
    return table(head, lines)


def _by_predictor(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found = {by: [row for row in rows if row["by"] == by] for by in NAMES}
    return {by: own for by, own in found.items() if own}


def draw(rows: Sequence[Row]) -> Any:
    """Returns the figure: errors over the number of cases, a row for each predictor."""
    predictors = _by_predictor(rows)
    figure = drawing.new_figure(9.0, 2.8 * len(predictors))
    axes = figure.subplots(len(predictors), len(ERRORS), squeeze=False)
    for (by, own), both in zip(predictors.items(), axes, strict=True):
        grouped: Mapping[tuple[str, int], list[Row]] = by_size(own)
        for axis, (name, label) in zip(both, ERRORS.items(), strict=True):
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
        both[0].set_title(NAMES[by])
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
    study = SMOKE if _SMOKE.value else Study()
    compiled.keep()  # the same training is compiled once
    for seed in map(int, _SEEDS.value):
        for row in run(study, _BY.value, seed, rows):
            with place.open("a") as file:
                file.write(json.dumps(row | origin) + "\n")


if __name__ == "__main__":
    app.run(main)
