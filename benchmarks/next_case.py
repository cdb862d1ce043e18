r"""Cases that `learn.rank` chooses, beside random ones: error against their number.

    python -m benchmarks.next_case --next_rows=next_case.jsonl
    python -m benchmarks.next_case --next_rows=next_case.jsonl --next_page=FIGURE.png

Airfoils of Joukowski have a random thickness and camber and a random angle of attack,
in potential flow, which is known in closed form (`opjax.problems.joukowski`). From
points of the wall and the angle an operator learns the pressure coefficient at these
points and the lift. It begins with 16 random cases, the same for all strategies of a
seed, and is trained anew with 24, 36 and 54 of a pool of 400:

- random: the next ones of the pool;
- distance: `learn.rank` without other seeds, as where nothing tells a width;
- rank: `learn.rank` with the difference between two seeds as the width.

Every row is written when it ends, and one that the file holds is not run again. A row
has the mean errors of the two seeds that are trained, over 300 new cases: the mean
relative L2 error of the pressure and the mean absolute error of the lift coefficient.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.provenance import provenance
from opjax import learn
from opjax.learn.predict.trained import Trained
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.problems import joukowski
from opjax.samples import Sample, Splits

_ROWS = flags.DEFINE_string("next_rows", None, "File of the rows", required=True)
_PAGE = flags.DEFINE_string("next_page", None, "File of the figure; prints the table")
_SMOKE = flags.DEFINE_bool("next_smoke", False, "Run very few steps on few cases")
_SEEDS = flags.DEFINE_list("next_seeds", ["0", "1", "2"], "Seeds, in this order")
_ANGLES, _THICKNESS, _CAMBER = (-2.0, 14.0), (0.06, 0.24), (0.0, 0.12)
_CHANNELS = {
    "features": (),
    "target": ("pressure",),
    "scalars": ("angle",),
    "target_scalars": ("lift",),
}
STRATEGIES = ("random", "distance", "rank")
ERRORS = {"pressure": "relative L2 error of the pressure", "lift": "error of the lift"}

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Study:
    """How large the study is.

    Attributes:
      sizes: numbers of training cases.
      pool: number of cases to choose from.
      test: number of new cases.
      steps: of a training.
      members: seeds that are trained with the same cases.
    """

    sizes: tuple[int, ...] = (16, 24, 36, 54)
    pool: int = 400
    test: int = 300
    steps: int = 800
    members: int = 2


SMOKE = Study((8, 9), 12, 3, 2)


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


def trained(study: Study, train: Sequence[Sample], seed: int) -> Trained:
    """Trains an operator of a seed."""
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["small"],
        target_names="pressure",
        width=16,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        batch_size=8,
        num_steps=study.steps,
        seeds=(seed,),
    )
    # All training cases are learned from; a run wants a test case, which is not used.
    splits = Splits(list(train), [], cases(1, 0), "Joukowski", channels=_CHANNELS)
    return learn.train(splits, config=config)


def errors(operators: Sequence[Trained], test: Sequence[Sample]) -> dict[str, float]:
    """Returns mean errors over operators and new cases, by `ERRORS`."""
    found: dict[str, list[float]] = {name: [] for name in ERRORS}
    for operator in operators:
        for case in test:
            values, lift = operator.both(case)
            assert lift is not None
            off = np.linalg.norm(values - case.target) / np.linalg.norm(case.target)
            found["pressure"].append(float(off))
            found["lift"].append(float(np.abs(lift - case.target_scalars)[0]))
    return {name: float(np.mean(each)) for name, each in found.items()}


def chosen(
    strategy: str,
    operators: Sequence[Trained],
    pool: Sequence[Sample],
    places: Sequence[int],
    count: int,
) -> list[int]:
    """Returns places of cases in the pool, those that are solved and new ones."""
    free = [place for place in range(len(pool)) if place not in set(places)]
    new = count - len(places)
    if strategy == "random":
        return [*places, *free[:new]]
    ranked = learn.rank(
        operators[0],
        [pool[place]._replace(target=None, target_scalars=None) for place in free],
        new,
        solved=[pool[place] for place in places],
        members=operators[1:] if strategy == "rank" else (),
    )
    return [*places, *(free[one.place] for one in ranked)]


def run(study: Study, seed: int, done: Sequence[Row]) -> Any:
    """Yields the rows of a seed that are not done yet."""
    known = {(row["strategy"], row["size"]): row for row in done if row["seed"] == seed}
    pool, test = cases(study.pool, 100 + seed), cases(study.test, 200 + seed)
    for strategy in STRATEGIES:
        places = list(range(study.sizes[0]))
        operators: list[Trained] = []
        for number, size in enumerate(study.sizes):
            label = STRATEGIES[0] if number == 0 else strategy  # the same cases
            if (label, size) in known:
                places = known[label, size]["places"]
                operators = []
                continue
            start = time.process_time()
            if number > 0:
                operators = operators or _members(study, pool, places, seed)
                places = chosen(strategy, operators, pool, places, size)
            operators = _members(study, pool, places, seed)
            row = {"strategy": label, "size": size, "seed": seed, "places": places}
            row |= errors(operators, test)
            known[label, size] = row | {"seconds": time.process_time() - start}
            yield known[label, size]


def _members(
    study: Study, pool: Sequence[Sample], places: Sequence[int], seed: int
) -> list[Trained]:
    some = [pool[place] for place in places]
    return [trained(study, some, 10 * seed + i) for i in range(study.members)]


def by_size(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    """Returns rows by strategy and number of cases; the first size is of all."""
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
    """Returns the table: a row for each strategy and number of cases."""
    lines = [
        [
            strategy,
            str(size),
            str(len(some)),
            *(median_and_range([r[name] for r in some], digits=3) for name in ERRORS),
        ]
        for (strategy, size), some in by_size(rows).items()
    ]
    return table(["strategy", "cases", "seeds", *ERRORS.values()], lines)


def draw(rows: Sequence[Row]) -> Any:
    """Returns the figure: errors over the number of cases."""
    grouped: Mapping[tuple[str, int], list[Row]] = by_size(rows)
    figure = drawing.new_figure(8.0, 3.2)
    axes = figure.subplots(1, 2)
    for axis, (name, label) in zip(axes, ERRORS.items(), strict=True):
        for strategy, mark in zip(STRATEGIES, "s^o", strict=True):
            sizes = [size for one, size in grouped if one == strategy]
            each = [[r[name] for r in grouped[strategy, size]] for size in sizes]
            middle = np.array([np.median(values) for values in each])
            ends = np.array([[min(values), max(values)] for values in each]).T
            bars = np.abs(ends - middle)
            axis.errorbar(sizes, middle, bars, marker=mark, ms=4, label=strategy)
        axis.set(xlabel="training cases", ylabel=label, xscale="log", yscale="log")
        axis.set_xticks(sizes, map(str, sizes))
        axis.set_xticks([], minor=True)
        drawing.plain(axis)
    drawing.legend(axes[0])
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
    for seed in map(int, _SEEDS.value):
        for row in run(study, seed, rows):
            with place.open("a") as file:
                file.write(json.dumps(row | origin) + "\n")


if __name__ == "__main__":
    app.run(main)
