"""Whether the inf-sup constants of attention layers depend on the number of points.

    python -m experiments.stability --preset=quick
    python -m experiments.stability --models=galerkin,linear --seeds=0

Trains small models of Burgers' equation on one grid, and measures on finer grids how
well the functions that every head expands in are tested (004, Theorem 4.3), before and
after the training. Every variant and seed has its own folder.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments import burgers, stability_report, stability_spaces
from experiments.studies import Row, Rows, StudyOptions, one_of
from opjax import learn, samples
from opjax.datasets import burgers as data
from opjax.learn import SizeOptions, option
from opjax.learn.json_files import read_object, write_json
from opjax.learn.registry.entries import Operator
from opjax.learn.run.metrics_file import read_metrics
from opjax.learn.tasks.benchmark import request
from opjax.samples import Sample

MODELS = ("galerkin", "linear", "fourier", "softmax", "functional")
NORMALIZATIONS = ("keys", "instance", "none", "features")
_FINEST = 8192  # points of the data
_FLAT = 0.05  # slopes up to this count as none


@dataclasses.dataclass(frozen=True)
class Member(burgers.Config):
    """A model that is trained, and what is measured of it."""

    normalization: str = option("keys", "What is normalised", choices=NORMALIZATIONS)
    eval_points: tuple[int, ...] = option((512, 8192), "Points of the grids")
    num_samples: int = option(1, "Samples to evaluate")
    tolerance: float = option(1e-3, "Minimum norm of the functions")


@dataclasses.dataclass(frozen=True)
class Config(StudyOptions, SizeOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    models: tuple[str, ...] = option(
        MODELS, "Attentions to train", choices=MODELS, members=True
    )
    normalizations: tuple[str, ...] = option(
        NORMALIZATIONS,
        "What attention between points normalises: keys (of every head at every "
        "point), instance (of every channel over the points), none, or features (after "
        "each layer, of galerkin only)",
        choices=NORMALIZATIONS,
        members=True,
    )
    seeds: tuple[int, ...] = option(
        (0, 1, 2),
        "Seeds of the initial parameters and of the sample order",
        minimum=0,
        members=True,
    )
    num_points: int = option(512, "Number of points of the training grid", minimum=64)
    eval_points: tuple[int, ...] = option(
        (512, 1024, 2048, 4096, 8192),
        "Increasing numbers of points at which constants are measured",
        minimum=64,
    )
    num_samples: int = option(
        1, "Number of test samples for which constants are measured", minimum=1
    )
    tolerance: float = option(
        1e-3,
        "Minimum norm of the linear combinations of functions, relative to the largest",
        above=0,
        below=1,
    )
    num_train: int = option(128, "Number of training samples", minimum=8)
    num_test: int = option(40, "Number of test samples", minimum=1)
    num_epochs: int = option(
        15, "Number of passes over the training samples", minimum=1
    )
    learning_rate: float = option(
        1e-3, "Maximum of the one-cycle learning-rate schedule", above=0
    )
    width: int = option(32, "Width of the models, in channels", minimum=1)
    num_layers: int = option(2, "Number of layers", minimum=1)
    num_heads: int = option(
        2, "Number of attention heads. Must divide --width", minimum=1
    )
    num_basis: int = option(
        32, "Number of basis functions of functional attention", minimum=1
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if list(self.eval_points) != sorted(set(self.eval_points)):
            raise ValueError(
                f"eval_points={self.eval_points} must rise from few points to many."
            )
        if len(self.eval_points) < 2:
            raise ValueError(
                f"eval_points={self.eval_points} must be at least two, for a slope."
            )
        if outside := [n for n in self.eval_points if n < 1 or _FINEST % n]:
            raise ValueError(
                f"eval_points={outside} must divide the {_FINEST} points of the data: "
                "take powers of two."
            )
        if self.num_samples > self.num_test:
            raise ValueError(
                f"num_samples={self.num_samples} must be at most "
                f"num_test={self.num_test}."
            )
        if not self.members():
            raise ValueError(
                f"models={','.join(self.models)} have none of the normalizations="
                f"{','.join(self.normalizations)}: functional has none, and features "
                "is of galerkin only."
            )

    def members(self) -> dict[tuple[str, int], Member]:
        """Configurations of models by `<model>_<normalization>` and seed."""
        pairs = itertools.product(self.normalizations, self.models)
        return {
            (f"{model}_{kind}", seed): _member(self, model, kind, seed)
            for kind, model in pairs
            if _exists(model, kind)
            for seed in self.seeds
        }


def _exists(model: str, normalization: str) -> bool:
    """Whether a model has a normalisation; that of all features is of 004's own."""
    if model == "functional":
        return normalization == "none"
    return model == "galerkin" or normalization != "features"


def _member(config: Config, model: str, normalization: str, seed: int) -> Member:
    base = vars(burgers.PRESETS["quick"]) | {
        name: value for name, value in vars(config).items() if name in _SHARED
    }
    finer = min(4 * config.num_points, _FINEST)
    own: dict[str, Any] = {
        "models": (model,),
        "normalization": normalization,
        "seeds": (seed,),
        "num_validation": max(config.num_train // 8, 2),
        "test_points": (config.num_points, finer),
        "feedforward": 2 * config.width,
        "decoder_width": config.width // 2,
    }
    return Member(**(base | own))


_SHARED = {field.name for field in dataclasses.fields(Member)} & {
    field.name for field in dataclasses.fields(Config)
}
PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("galerkin", "linear", "functional"),
        normalizations=("keys", "none"),
        seeds=(0,),
        num_points=64,
        eval_points=(64, 128),
        num_train=16,
        num_test=4,
        num_epochs=2,
        width=8,
        num_layers=1,
        num_basis=8,
    ),
    "quick": Config(),
    # The sizes of 004, Table 5, on the grid that this study is about.
    "paper": Config(
        preset="paper",
        num_train=1024,
        num_test=100,
        num_epochs=100,
        width=96,
        num_layers=4,
        num_heads=1,
        num_basis=64,
    ),
}


def make_task(config: Member, cache_dir: str | None) -> learn.Task:
    """The task of `experiments.burgers`, with what is measured beside the errors."""
    task = burgers.make_task(config, cache_dir)
    look = task.evaluate
    assert look is not None
    finest = data.splits(request(config, cache_dir)).test
    trained_on = samples.coarsen(finest, _FINEST // config.num_points)

    def evaluate(model: Operator, folder: pathlib.Path) -> dict[str, float]:
        stored = read_object(folder / "config.json")  # tasks are of many seeds
        member = replace(config, models=tuple(stored["models"]))
        start = burgers.build(member, nnx.Rngs(*stored["seeds"]))
        shown = finest[: config.num_samples]
        rows = [
            {"state": state, **row}
            for state, one in (("before", start), ("after", model))
            for row in measure(one, shown, config)
        ]
        write_json(folder / "constants.json", {"rows": rows})
        return {
            **look(model, folder),
            "energy": energy_error(model, trained_on),
            "rise": largest_rise(folder),
            **slopes(rows),
        }

    return dataclasses.replace(task, evaluate=evaluate, diverge=True)


def measure(model: Any, shown: Sequence[Sample], config: Member) -> Iterator[Row]:
    """Yields the constants of every layer, head and sample on all grids.

    Rows have layer, head, sample, the ranks of the spaces, and for every form a list of
    constants, one for each of `config.eval_points`.
    """
    for number, sample in enumerate(shown):
        grids = [
            jax.device_get(
                stability_spaces.of_layers(model, one.mesh_points, one.features)
            )
            for points in config.eval_points
            for one in samples.coarsen([sample], _FINEST // points)
        ]
        for layer, of_grids in enumerate(zip(*grids, strict=True)):
            for head in range(config.num_heads):
                own = [one_of(grid, head) for grid in of_grids]
                constants, ranks = stability_spaces.constants(
                    own, tolerance=config.tolerance
                )
                yield {
                    "layer": layer,
                    "head": head,
                    "sample": number,
                    "points": list(config.eval_points),
                    "ranks": ranks,
                    **{name: [one[name] for one in constants] for name in constants[0]},
                }


def slopes(rows: Rows) -> dict[str, float]:
    """Returns medians of constants, of their slopes, and shares of slopes near zero.

    Slopes are those of `log c` against `log n`. The median constant is of the finest
    grid.
    """
    numbers: dict[str, float] = {}
    for state, form in itertools.product(("before", "after"), stability_spaces.FORMS):
        mine = [row for row in rows if row["state"] == state and form in row]
        if not mine:
            continue
        values = np.array([row[form] for row in mine])
        sizes = np.log(np.array(mine[0]["points"]))
        logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
        fitted = np.polyfit(sizes, logs.T, 1)[0]
        numbers |= {
            f"slope_{form}_{state}": float(np.median(fitted)),
            f"flat_{form}_{state}": float(np.mean(np.abs(fitted) <= _FLAT)),
            f"constant_{form}_{state}": float(np.median(values[:, -1])),
        }
    return numbers


def energy_error(model: Operator, test: Sequence[Sample]) -> float:
    """Returns the median error of the energy that is lost, relative to that energy.

    |E(prediction) - E(target)| / (E(input) - E(target)),    E(u) = mean u^2.
    """
    errors = []
    for sample in test:
        assert sample.target is not None
        assert sample.features is not None
        prediction = np.asarray(_predict(model, sample.mesh_points, sample.features))
        arrays = prediction, sample.target, sample.features
        predicted, target, first = (np.mean(np.square(a, dtype=float)) for a in arrays)
        errors.append(abs(predicted - target) / (first - target))
    return float(np.median(errors))


@jax.jit
def _predict(model: Operator, mesh_points: jax.Array, features: jax.Array) -> jax.Array:
    return model(mesh_points, features)


def largest_rise(folder: pathlib.Path) -> float:
    """Returns the largest factor by which an epoch raised the validation error."""
    errors = np.array([row["validation"] for row in read_metrics(folder)], float)
    return float(np.max(errors[1:] / errors[:-1], initial=0.0))


_TITLE = "Inf-sup constants against the number of points"
PROGRAM = learn.Program(
    "stability", PRESETS, make_task, title=_TITLE, report=stability_report.report
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
