r"""Fine-tuning on few cases of another family of plates, beside training from scratch.

    python -m benchmarks.fine_tuning --tuning_rows=rows.jsonl --tuning_data=FOLDER \
      --tuning_bases=runs/plates,runs/plates_1,runs/plates_2
    python -m benchmarks.fine_tuning --tuning_rows=rows.jsonl --tuning_page

The bases are operators of 54 plates with a round hole, one for each seed, trained with
the command in `results/few_cases.md`. `FOLDER/square/train` has plates with a square
hole, `rubber` has another modulus and Poisson ratio, `dense` has meshes with half the
size of elements, and `two` has two round holes; `test` beside `train` has the test
cases. CalculiX solved all of them.

A way with `n` cases trains on the first of a family. With 16 or more, an eighth of them
selects the best epoch; with fewer, the last one counts. Every row is written when it
ends, and one that the file holds is not run again. Errors are mean relative L2 errors
of the test cases, in physical units.
"""

import contextlib
import dataclasses
import json
import pathlib
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks.provenance import provenance
from opjax import files, learn
from opjax.learn.baselines.fitted import NAMES as BASELINES
from opjax.learn.cli.study import build
from opjax.learn.cli.train import Config, task_of
from opjax.learn.config.reading import read_options
from opjax.learn.run.folder import RunDirectory, open_run
from opjax.learn.tables import median_and_range, table
from opjax.learn.tasks.task import Task
from opjax.samples import Sample, Splits
from opjax.training import tuning

_ROWS = flags.DEFINE_string("tuning_rows", None, "File of the rows", required=True)
_DATA = flags.DEFINE_string("tuning_data", "", "Folder of the families")
_BASES = flags.DEFINE_list("tuning_bases", [], "Runs to start from, one for a seed")
_PAGE = flags.DEFINE_bool("tuning_page", False, "Print the table, run nothing")
_WANTED = flags.DEFINE_list(
    "tuning_wanted",
    ["square:full:16"],
    "What to run, as family:way:cases or family:way@learning_rate:cases, in this order",
)
_SEEDS = flags.DEFINE_list("tuning_seeds", ["0", "1", "2"], "Seeds, in this order")

Row = dict[str, Any]
_ROUND = "(x-hx)^2 + (y-hy)^2 < (1.003*r)^2"
_SQUARE = "abs(x-qx) < 1.003*q and abs(y-qy) < 1.003*q"
HOLES = {  # the condition of the boundary `hole`, by family
    "square": _SQUARE,
    "rubber": _ROUND,
    "dense": _ROUND,
    "two": f"{_ROUND} or (x-kx)^2 + (y-ky)^2 < (1.003*k)^2",
}


class Way(NamedTuple):
    """A way to train, beside the recipe for few cases.

    Attributes:
      changes: options, by name.
      from_base: whether it starts from an operator.
      copies: how often each new case is in the training set.
      old: whether the training cases of the operator are in it, too.
    """

    changes: Mapping[str, Any]
    from_base: bool = True
    copies: int = 1
    old: bool = False


_PLAIN = Way({})
_FEW, _LONG = {"num_steps": 500}, {"num_steps": 1500}
_FULL = {"learning_rate": 1e-3}
WAYS = {
    "scratch": Way(_LONG, from_base=False),
    "full": Way(_FEW | _FULL),
    "blend": Way(_FEW | _FULL | {"init_normalizers": "blend"}),
    "long": Way(_LONG | _FULL),
    "old": Way(_LONG | _FULL, old=True),
    "old4": Way(_LONG | _FULL, old=True, copies=4),
    "rank8": Way({**_FEW, "learning_rate": 3e-3, "rank": 8}),
    "rank1": Way({**_FEW, "learning_rate": 3e-3, "rank": 1}),
    "head": Way({**_FEW, "learning_rate": 3e-3, "train_only": ("head",)}),
}
NAMES = {
    "none": "not trained further",
    "full": "fine-tuned, all parameters",
    "blend": "fine-tuned, all parameters, blended normalisers",
    "long": "fine-tuned, all parameters, 1,500 steps",
    "old": "fine-tuned, all parameters, old cases too, 1,500 steps",
    "old4": "fine-tuned, all parameters, old cases and four copies, 1,500 steps",
    "rank8": "fine-tuned, rank 8",
    "rank1": "fine-tuned, rank 1",
    "head": "fine-tuned, head",
    "scratch": "from scratch",
    **BASELINES,
}


def way_of(text: str) -> Way:
    """Returns a way, with another learning rate if the text has one."""
    name, _, rate = text.partition("@")
    way = WAYS[name]
    changes = {"learning_rate": float(rate)} if rate else {}
    return way._replace(changes={**way.changes, **changes})


class Family(NamedTuple):
    """The cases of a family.

    Attributes:
      train: cases to train on.
      test: test cases.
      old: cases of the base.
    """

    train: list[Sample]
    test: list[Sample]
    old: Sequence[Sample] = ()


def read(folder: pathlib.Path, hole: str, base: learn.Trained) -> Family:
    """Reads a family in the same way as the cases of the base."""
    config = base.description.config
    parts = [
        f"hole: {hole}" if part.strip().startswith("hole:") else part.strip()
        for part in config["boundary"].split(";")
    ]
    options = read_options({**config, "boundary": "; ".join(parts)})
    train, test = (files.read(str(folder / n), options) for n in ("train", "test"))
    return Family(train, test, files.read(config["train"], read_options(config)))


def divided(family: Family, count: int, way: Way = _PLAIN) -> Splits:
    """Splits the first cases of a family; with few of them, none are for validation."""
    some = family.train[:count]
    if len(some) < count:
        raise ValueError(f"There are {len(some)} cases, fewer than {count}.")
    held = count // 8 if count >= 16 else 0
    train = [*some[: count - held] * way.copies, *(family.old if way.old else ())]
    return Splits(train, some[count - held :], family.test, "plates")


def configuration(base: learn.Trained, way: Way, seed: int) -> Config:
    """The recipe for few cases with the data options of the base."""
    preset, stored = learn.TRAIN_PRESETS["small"], base.description.config
    names = ("scales", "angles", "mirror", "geometry", "target_names", "scalar_names")
    changes = {**{name: stored[name] for name in names}, **way.changes}
    changes |= {"full_points": 0.0, "seeds": (seed,)}
    if way.from_base:
        changes["init_from"] = str(base.folder)
    return dataclasses.replace(preset, **changes)


def trained(base: learn.Trained, splits: Splits, way: Way, seed: int) -> Row:
    """Trains once; returns the errors and the seconds of the processor."""
    config, start = configuration(base, way, seed), time.process_time()
    task = _task(base, splits, config)
    model = build(config, task)
    assert task.evaluate is not None
    with _folder(config) as run:
        fitted = learn.fit(task, model, task.settings(config), folder=run)
        found = _errors(task.evaluate(fitted.best_model, run.path))
    if isinstance(model, tuning.Tuned):
        found["trained"] = tuning.num_trained(model)
    else:
        found["trained"] = tuning.num_parameters(model)
    return found | {"seconds": time.process_time() - start}


def untrained(base: learn.Trained, splits: Splits) -> Row:
    """The errors of the base itself."""
    config = configuration(base, _PLAIN, 0)
    task = _task(base, splits, config)
    assert task.evaluate is not None
    with _folder(config) as run:
        return _errors(task.evaluate(base.model, run.path))


@contextlib.contextmanager
def _folder(config: Config) -> Generator[RunDirectory]:
    """The folder of a run that nobody needs afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_run(pathlib.Path(folder, "run"), config) as run,
    ):
        yield run


def baselines(base: learn.Trained, splits: Splits) -> dict[str, Row]:
    """The errors of what needs no training, by name."""
    task = _task(base, splits, configuration(base, Way({}, from_base=False), 0))
    assert task.baselines is not None
    found = task.baselines().numbers
    return {name: _errors(numbers) for name, numbers in found.items()}


def _task(base: learn.Trained, splits: Splits, config: Config) -> Task:
    names = base.description.names
    return task_of(config, splits, names, base if config.init_from else None)


def _errors(numbers: Mapping[str, Any]) -> Row:
    """The mean relative L2 error of each field."""
    start = "relative_l2_"
    return {
        key.removeprefix(start): value
        for key, value in numbers.items()
        if key.startswith(start) and "worst" not in key
    }


def _label(way: str) -> str:
    """A way in words; `way@rate` is one with another learning rate."""
    name, _, rate = way.partition("@")
    return NAMES[name] + (f", learning rate {rate}" if rate else "")


def page(rows: Sequence[Row]) -> str:
    """Returns the table: a row for each family, number of cases and way."""
    lines: list[list[str]] = []
    keys = dict.fromkeys((r["family"], r["cases"], r["way"]) for r in rows)
    order = list(NAMES)
    for family, cases, way in sorted(
        keys,
        key=lambda k: (
            list(HOLES).index(k[0]),
            k[1],
            order.index(k[2].partition("@")[0]),
        ),
    ):
        key = {"family": family, "cases": cases, "way": way}
        some = [row for row in rows if key.items() <= row.items()]
        numbers = [_cell(some, name) for name in ("U", "S_Mises", "seconds")]
        trained = f"{some[0]['trained']:,}" if "trained" in some[0] else "–"
        seeds = "–" if way in BASELINES else str(len(some))
        lines.append([family, str(cases), _label(way), trained, seeds, *numbers])
    heads = ["family", "cases", "way", "trained parameters", "seeds", "U", "S_Mises"]
    return table([*heads, "CPU seconds"], lines)


def _cell(rows: Sequence[Row], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    return median_and_range(values, digits=3) if values else "–"


def main(argv: Sequence[str]) -> None:
    """Runs what the file lacks, or prints its table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    file = pathlib.Path(_ROWS.value)
    text = file.read_text() if file.exists() else ""
    rows: list[Row] = [json.loads(line) for line in text.splitlines()]
    if _PAGE.value:
        print(page(rows))
        return
    seeds = map(int, _SEEDS.value)
    bases = {s: learn.load(run) for s, run in zip(seeds, _BASES.value, strict=True)}
    read_already: dict[str, Family] = {}
    origin = {k: provenance(["jax"])[k] for k in ("commit", "hardware", "date")}

    def keep(row: Row) -> None:
        rows.append(row)
        with file.open("a") as stream:
            stream.write(json.dumps(row | origin) + "\n")

    for wanted in _WANTED.value:
        family, way, count = wanted.split(":")
        for seed, base in bases.items():
            key = {"family": family, "way": way, "cases": int(count), "seed": seed}
            if way == "none":
                key["cases"] = 0
            if way == "baselines":
                key |= {"way": "mean_field", "seed": 0}
            if any(key.items() <= row.items() for row in rows):
                continue
            if family not in read_already:
                folder = pathlib.Path(_DATA.value, family)
                read_already[family] = read(folder, HOLES[family], base)
            data = read_already[family]
            if way == "baselines":
                for name, found in baselines(base, divided(data, int(count))).items():
                    keep(key | {"way": name} | found)
            elif way == "none":
                keep(key | untrained(base, divided(data, 16)))
            else:
                splits = divided(data, int(count), way_of(way))
                keep(key | trained(base, splits, way_of(way), seed))


if __name__ == "__main__":
    app.run(main)
