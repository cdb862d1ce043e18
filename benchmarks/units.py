"""Do units matter? Training on `a f + b` in place of `f`, by every way in.

    python -m benchmarks.units > results/units.md

Twelve cases with a field of two channels and a pressure, two input fields, scalars and
scalars to predict, and twelve series. They come as arrays, as `.npz` or `.vtu` files,
or as series. In turn each kind of array is given in other units, with the factor `a`
and the offset `b`, in spreads of the array. Two numbers are shown of each: by how much
the error of a field changes, over that error, and how far the prediction is from `a`
times the other plus `b`, over the spread of the field; the largest of all fields.
"""

import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from opjax import files, learn
from opjax.learn.tables import table
from opjax.samples import Sample, Series

_EPOCHS = flags.DEFINE_integer("units_epochs", 5, "Epochs of a training")
CASES, POINTS, FRAMES = 12, 40, 6
WAYS = ("arrays", "npz", "vtu", "series")
# Factor, and offset in spreads.
CHANGES = ((1e-12, 0.0), (1e12, 0.0), (1.0, 1e3), (1e-12, 1e3), (1e12, -1e3))
ROLES = ("target", "features", "mesh_points", "scalars", "target_scalars")
SERIES_ROLES = ("target", "features", "mesh_points", "scalars", "times")
Data = dict[str, np.ndarray]


def data(seed: int = 0) -> Data:
    """Arrays of all cases by role, with samples along axis 0."""
    rng = np.random.default_rng(seed)
    points, numbers = rng.random((CASES, POINTS, 2)), rng.normal(size=(CASES, 2))
    x, y = points[..., 0], points[..., 1]
    k, m = (column[:, None] for column in numbers.T)
    features = np.stack([np.sin(3 * x + k), np.cos(2 * y) * m], axis=-1)
    target = np.stack([np.sin(3 * x + k) * y, x + m * y, m * np.cos(3 * y)], axis=-1)
    reads = np.stack([numbers.sum(axis=1), numbers[:, 0] ** 2], axis=-1)
    return {
        "mesh_points": points,
        "features": features,
        "target": target,
        "scalars": numbers,
        "target_scalars": reads,
        "times": np.arange(FRAMES) * 0.1,
    }


def changed(given: Data, role: str, factor: float, spreads: float) -> tuple[Data, Any]:
    """Gives one array in other units; returns its offset, too."""
    array = given[role]
    axes = (
        tuple(range(array.ndim - 1)) if role not in ("mesh_points", "times") else None
    )
    offset = factor * spreads * np.std(array, axis=axes)
    return {**given, role: factor * array + offset}, offset


def samples(given: Data) -> list[Sample]:
    """The cases."""
    cells = np.array([[i, i + 1, i + 2] for i in range(POINTS - 2)])
    roles = ("mesh_points", "features", "target", "scalars", "target_scalars")
    return [
        Sample(
            **{role: given[role][i] for role in roles}, cells=cells, name=f"case {i}"
        )
        for i in range(CASES)
    ]


def series(given: Data) -> list[Series]:
    """Series whose fields decay from the cases' targets."""
    rate = np.exp(-0.3 * np.arange(FRAMES))[:, None, None]
    middle = np.mean(given["target"], axis=(0, 1))
    return [
        Series(
            given["mesh_points"][i],
            given["times"],
            middle + rate * (given["target"][i] - middle),
            features=given["features"][i],
            scalars=dict(zip("km", given["scalars"][i].tolist(), strict=True)),
            name=f"series {i}",
        )
        for i in range(CASES)
    ]


def read(way: str, given: Data, folder: pathlib.Path) -> Any:
    """The cases as they come by a way in, for `learn.train`."""
    if way == "arrays":
        return {role: given[role] for role in ROLES}
    if way == "series":
        return series(given)
    rows = ["file,k,m,s,t"]
    for i, sample in enumerate(samples(given)):
        name = f"c{i:02}.{way}"
        bare = sample._replace(scalars=None, target_scalars=None, name="")
        files.write(folder / name, bare)
        assert sample.scalars is not None
        assert sample.target_scalars is not None
        numbers = [*sample.scalars.tolist(), *sample.target_scalars.tolist()]
        rows.append(",".join([name, *map(repr, numbers)]))
    (folder / "cases.csv").write_text("\n".join(rows) + "\n")
    return files.read(
        folder, files.ReadOptions(scalars="k,m", target_scalars="s,t", point_dim=2)
    )


class Outcome(NamedTuple):
    """Predictions of all cases, by role, and what is true, in the units of training."""

    predicted: Data
    true: Data


def outcome(way: str, given: Data, num_epochs: int) -> Outcome:
    """Trains and predicts on all cases."""
    how: Any = {"time": "one_step"} if way == "series" else {}
    with tempfile.TemporaryDirectory() as folder:
        found = read(way, given, pathlib.Path(folder))
    trained = learn.train(found, preset="smoke", num_epochs=num_epochs, **how)
    if way == "series":
        cases = series(given)
        rolled = [np.stack(list(trained.rollout(one, FRAMES - 1))) for one in cases]
        true = [np.asarray(one.values)[1:] for one in cases]
        return Outcome({"target": np.stack(rolled)}, {"target": np.stack(true)})
    both = [trained.both(one) for one in samples(given)]
    values = np.stack([one.values for one in both])
    read_off = np.stack([one.scalars for one in both])
    roles = ("target", "target_scalars")
    return Outcome(
        {"target": values, "target_scalars": read_off}, {r: given[r] for r in roles}
    )


def compare(
    before: Outcome, after: Outcome, role: str, factor: float, offset: Any
) -> tuple[float, float]:
    """Largest change of an error, and distance of predictions over the spread."""
    changes: list[float] = []
    distances: list[float] = []
    for name, known in before.true.items():
        a, b = (factor, offset) if name == role else (1.0, 0.0)
        axes = tuple(range(known.ndim - 1))
        spread = known.std(axis=axes)

        def error(found: Outcome, unit: Any, name: str = name, axes: Any = axes) -> Any:
            apart = (np.float64(found.predicted[name]) - found.true[name]) / unit
            return np.sqrt(np.mean(apart**2, axis=axes))

        own, other = error(before, spread), error(after, a * spread)
        changes.append(float(np.max(np.abs(other / own - 1))))
        expected = a * np.float64(before.predicted[name]) + b
        apart = np.abs(np.float64(after.predicted[name]) - expected) / (a * spread)
        distances.append(float(np.max(apart)))
    return max(changes), max(distances)


def rows(
    way: str, roles: Sequence[str], num_epochs: int, say: Callable[..., None] = print
) -> Iterator[list[str]]:
    """One row of the table for each array and change."""
    given = data()
    before = outcome(way, given, num_epochs)
    for role in roles:
        for factor, spreads in CHANGES:
            other, offset = changed(given, role, factor, spreads)
            after = outcome(way, other, num_epochs)
            change, distance = compare(before, after, role, factor, offset)
            row = [way, role, f"{factor:g}", f"{spreads:g}"]
            say(*row, change, distance)
            yield [*row, f"{100 * change:.2g} %", f"{distance:.1e}"]


def main(argv: Sequence[str]) -> None:
    """Prints the page."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    found = [
        row
        for way in WAYS
        for row in rows(
            way,
            SERIES_ROLES if way == "series" else ROLES,
            _EPOCHS.value,
            say=lambda *words: None,
        )
    ]
    head = [
        "input format",
        "array",
        "a",
        "b / spread",
        "change of an error",
        "distance",
    ]
    print("# Units\n")
    print(
        "Every row compares two training runs, one on the array `f` and one on "
        f"`a f + b`,\nwith `--preset=smoke`, {_EPOCHS.value} epochs and seed 0.\n\n"
        "- Change of an error: the largest relative change of an error; "
        "the error of a field is\n  divided by its spread.\n"
        "- Distance: the largest difference between the prediction and `a p + b`, "
        "divided by\n  the spread of the field; `p` is the prediction of the run on "
        "`f`.\n"
    )
    print(table(head, found))
    print("\nMade by `python -m benchmarks.units > results/units.md`.")


if __name__ == "__main__":
    app.run(main)
