"""What studies share: options, rows of numbers, and the end of their reports."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from opjax import metrics
from opjax.learn import Finished, Options, Report, option
from opjax.learn.baselines.fitted import NAMES, Baselines
from opjax.learn.json_files import read_object, write_json
from opjax.learn.report.drawing import Axes
from opjax.learn.tables import median_and_range
from opjax.samples import Sample

Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
_Row = TypeVar("_Row", bound=Mapping[str, Any])
_Tree = TypeVar("_Tree")
TEST_SEED = 4712  # of samples that no training draws


@dataclasses.dataclass(frozen=True)
class StudyOptions(Options):
    """What to run."""

    preset: str = option(
        "quick", "Named set of values for all flags that are not given"
    )


@dataclasses.dataclass(frozen=True)
class AtOnceOptions(StudyOptions):
    """What to run."""

    seeds: tuple[int, ...] = option(
        (0, 1, 2),
        "Seeds of the initial parameters and of all that is drawn, trained at once",
        minimum=0,
        below=2**31,
    )

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.seeds[0]


def start_of(seed: ArrayLike) -> nnx.Rngs:
    """Returns the source of the initial parameters of a seed."""
    return nnx.Rngs(jax.random.fold_in(jax.random.key(seed), 0))


def one_of(stacked: _Tree, place: int) -> _Tree:
    """Returns one of the trees that are stacked along axis 0."""
    return jax.tree.map(lambda leaf: leaf[place], stacked)


def groups(rows: Sequence[_Row], *names: str) -> dict[Any, list[_Row]]:
    """Returns the rows by their values of a column, or by tuples of several."""
    grouped: dict[Any, list[_Row]] = {}
    for row in rows:
        first, *others = (row[name] for name in names)
        grouped.setdefault((first, *others) if others else first, []).append(row)
    return grouped


def select(rows: Sequence[_Row], **values: object) -> list[_Row]:
    """Returns the rows with these values."""
    return [row for row in rows if all(row[k] == v for k, v in values.items())]


def column(rows: Rows, name: str, scale: float = 1) -> np.ndarray:
    """Returns the numbers of a column, times a factor."""
    return scale * np.array([row[name] for row in rows], float)


def spread(rows: Rows, name: str, scale: float = 1, *, digits: int = 4) -> str:
    """Returns median and range of a column, for a table."""
    return median_and_range(column(rows, name, scale), digits=digits)


def across(rows: Sequence[_Row], name: str, values: Iterable[Any]) -> list[list[_Row]]:
    """Returns the rows of each of some values of a column, as in a line of a table."""
    grouped = groups(rows, name)
    return [grouped[value] for value in values]


def stored(path: pathlib.Path, make: Callable[[], Row]) -> Row:
    """Returns the values of a file, which are made and timed if there is none."""
    if not path.exists():
        begin = time.process_time()
        values = make()
        path.parent.mkdir(exist_ok=True)
        write_json(path, values | {"seconds": time.process_time() - begin})
    return read_object(path)


def baseline_errors(
    train: Sequence[Sample], test: Sequence[Sample]
) -> dict[str, float]:
    """Returns mean relative L2 errors of the mean field, the nearest case and POD."""
    baselines = Baselines.fit(train)
    return {
        NAMES[name]: float(
            np.mean(
                [
                    metrics.relative_l2(baselines.predict(name, x), x.target)
                    for x in test
                ]
            )
        )
        for name in baselines.names
    }


def ticks(axis: Axes, places: Sequence[float]) -> None:
    """Labels an axis with logarithms at places alone."""
    axis.set_xticks(places, list(map(str, places)))
    axis.minorticks_off()


def report(finished: Finished, parts: Sequence[str], result: Row, head: str) -> Report:
    """Returns the report, whose last line ends with seconds, seeds and data."""
    result |= {
        "seconds": finished.seconds,
        "seeds": list(finished.config.seeds),
        "data": finished.source,
    }
    return Report("\n".join(parts), result, head, alone=True)
