"""How many functions a functional map needs, and penalties that choose their number.

    python -m experiments.num_functions --preset=quick
    python -m experiments.num_functions --methods=ranks --right_sides=white

Learns k functions of the coordinate for the inverse Laplacian in one dimension, with
functional attention between them, on grids of n points. The least error of every rank
is known, from singular values weighted by the distribution of the right-hand sides.
Penalties on gates or on the rows of the map choose the number of functions.
"""

import dataclasses
import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import num_functions_model as model
from experiments import num_functions_report
from experiments.studies import AtOnceOptions, Row, one_of
from experiments.warm_adam import warm_adam
from opjax import learn
from opjax.learn import FreshTask, Replicas, UpdateOptions, option
from opjax.learn.config.fields import only_with

CHOOSING = ("gates", "map", "singular")  # methods that choose the number of functions


@dataclasses.dataclass(frozen=True)
class Config(AtOnceOptions, UpdateOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    methods: tuple[str, ...] = option(
        ("ranks", *CHOOSING),
        "What to train: ranks (given numbers of functions), gates (a penalty on a gate "
        "of every function), map (a penalty on the rows of the map), singular (no "
        "penalty; the singular values of the trained map choose)",
        choices=("ranks", *CHOOSING),
        members=True,
    )
    right_sides: tuple[str, ...] = option(
        model.RIGHT_SIDES,
        "Right-hand sides: white (sines with equal variances), fourier (those of the "
        "paper)",
        choices=model.RIGHT_SIDES,
        members=True,
    )
    num_points: tuple[int, ...] = only_with(
        option(
            (128, 256, 512, 1024, 2048), "Numbers of points of the grids", minimum=2
        ),
        methods=["ranks"],
    )
    ranks: tuple[int, ...] = only_with(
        option(
            (2, 4, 8, 16, 32, 64),
            "Numbers of functions of the method ranks. With fourier, those up to "
            "--fourier_modes",
            minimum=1,
        ),
        methods=["ranks"],
    )
    gate_points: tuple[int, ...] = only_with(
        option(
            (128, 256),
            "Numbers of points of the grids of all methods but ranks",
            minimum=2,
            members=True,
        ),
        methods=CHOOSING,
    )
    max_functions: int = only_with(
        option(32, "Number of functions from which the methods choose", minimum=1),
        methods=CHOOSING,
    )
    thresholds: tuple[float, ...] = only_with(
        option(
            (1e-3, 1e-4, 1e-5),
            "Least squared singular values, relative to the sum of all, that are worth "
            "a function. Define the weights of the penalties",
            above=0,
            below=1,
        ),
        methods=CHOOSING,
    )
    white_modes: int = only_with(
        option(128, "Number of sines of white", minimum=1), right_sides=["white"]
    )
    fourier_modes: int = only_with(
        option(16, "Number of sines and number of cosines of fourier", minimum=1),
        right_sides=["fourier"],
    )
    num_waves: int = option(
        128, "Number of waves that the perceptron's inputs are", minimum=1
    )
    max_frequency: float = option(
        80.0, "Maximum initial frequency of the waves, in half periods", above=0
    )
    width: int = option(64, "Width of the perceptron", minimum=1)
    num_steps: int = option(400, "Number of optimizer steps of ranks", minimum=2)
    gate_steps: int = only_with(
        option(800, "Number of optimizer steps of the other methods", minimum=2),
        methods=CHOOSING,
    )
    learning_rate: float = option(1e-2, "Maximum learning rate", above=0)
    beta2: float = option(
        0.99, "Adam's decay of the mean square of the gradient", minimum=0, below=1
    )

    def __post_init__(self):
        """Refuses modes that a grid cannot resolve."""
        super().__post_init__()
        modes, coarsest = max(map(self.modes_of, self.right_sides)), self.coarsest
        if modes > coarsest:
            raise ValueError(
                f"{modes} modes are more than a grid of {coarsest} points resolves; "
                "use fewer modes or more points."
            )
        if "fourier" in self.right_sides and min(self.ranks) > self.fourier_modes:
            raise ValueError(
                f"ranks={','.join(map(str, self.ranks))} are all above "
                f"fourier_modes={self.fourier_modes}."
            )
        trained = "white" in self.right_sides and "ranks" in self.methods
        if trained and max(self.ranks) >= self.white_modes:
            raise ValueError(
                f"ranks={max(self.ranks)} must be less than white_modes="
                f"{self.white_modes}: so many functions have no error to compare with."
            )

    @property
    def coarsest(self) -> int:
        """Smallest number of points."""
        return min(*self.num_points, *self.gate_points)

    def modes_of(self, right_sides: str) -> int:
        """Number of modes of a distribution."""
        return self.white_modes if right_sides == "white" else self.fourier_modes

    def members(self) -> dict[tuple[str, None], "Member"]:
        """Trainings by `<right sides>_<method>_<points>_<functions>`."""
        members: dict[tuple[str, None], Member] = {}
        for right, method in itertools.product(self.right_sides, self.methods):
            of_ranks = method == "ranks"
            ranks = self.ranks if of_ranks else (self.max_functions,)
            if of_ranks and right == "fourier":
                ranks = [k for k in ranks if k <= self.fourier_modes]
            points = self.num_points if of_ranks else self.gate_points
            for n, k in itertools.product(points, ranks):
                one = _member(self, right, method, n, k)
                members[f"{right}_{method}_{n}_{k}", None] = one
        return members


@dataclasses.dataclass(frozen=True)
class Member(Config):
    """One training: all seeds, and all thresholds, at once."""

    right: str = option("white", "Right-hand sides")
    method: str = option("ranks", "Method")
    points: int = option(128, "Number of points")
    functions: int = option(2, "Number of functions")

    @property
    def batch_size(self) -> int:
        """All right-hand sides are one sample."""
        return 1


def _member(
    config: Config, right: str, method: str, points: int, functions: int
) -> Member:
    steps = config.num_steps if method == "ranks" else config.gate_steps
    shared: dict[str, Any] = vars(config) | {
        "num_steps": steps,
        "methods": (method,),
        "right_sides": (right,),
        "gate_points": (points,),
    }
    return Member(
        **shared, right=right, method=method, points=points, functions=functions
    )


def make_task(config: Member, cache_dir: str | None = None) -> FreshTask:
    """Functions of all seeds and thresholds, trained at once on the whole loss."""
    del cache_dir
    penalised = config.method in ("gates", "map")
    thresholds = config.thresholds if penalised else (0.0,)
    number = len(thresholds) * len(config.seeds)
    single = _single(_pairs(config, config.points))

    def start(threshold: float, seed: int) -> model.Functions:
        return model.Functions(
            config.functions,
            num_waves=config.num_waves,
            max_frequency=config.max_frequency,
            width=config.width,
            threshold=threshold,
            rngs=nnx.Rngs(seed),
        )

    def build(config: Member, rngs: nnx.Rngs) -> model.Functions:
        del rngs
        every = [start(t, seed) for t in thresholds for seed in config.seeds]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)

    return FreshTask(
        draw=lambda key, step: single,
        build=build,
        loss=partial(model.loss, method=config.method),
        evaluate=lambda functions, folder: evaluate(functions, config),
        optimizer=partial(warm_adam, b2=config.beta2),
        replicas=Replicas(
            config.seeds, np.full(number, config.learning_rate, np.float32)
        ),
        source="own solver: finite differences on a grid",
        over_batch=False,
    )


def _pairs(config: Member, points: int) -> model.Pairs:
    return model.pairs(config.right, points, config.modes_of(config.right))


def _single(pairs: model.Pairs) -> model.Pairs:
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), pairs)


def evaluate(functions: model.Functions, config: Member) -> dict[str, Any]:
    """Errors of all replicas beside the least errors of their ranks."""
    if config.method == "ranks":
        rows = _errors(functions, config)
        ratio = [row["error"] / row["width"] for row in rows]
    else:
        rows = _choices(functions, config)
        ratio = [row["chosen"] / max(row["least"], 1) for row in rows]
    where = {name: getattr(config, name) for name in _WHERE}
    return {"ratio": float(np.median(ratio)), "rows": [where | row for row in rows]}


_WHERE = ("right", "method", "points", "functions")


def _errors(functions: model.Functions, config: Member) -> list[Row]:
    """Errors on the own grid, and of functions of the coarsest grid on the finest."""
    grids = {"": config.points}
    if config.points == min(config.num_points):
        grids["_finest"] = max(config.num_points)
    rows: list[Row] = [{"seed": seed} for seed in config.seeds]
    for suffix, points in grids.items():
        pairs = _pairs(config, points)
        width = float(model.widths(pairs)[config.functions])
        errors = np.asarray(_error_of(functions, _single(pairs)))
        for row, error in zip(rows, errors, strict=True):
            row |= {"error" + suffix: float(error), "width" + suffix: width}
    return rows


@jax.jit
def _error_of(functions: model.Functions, pairs: model.Pairs) -> jax.Array:
    def one(functions: model.Functions) -> jax.Array:
        return jnp.sqrt(model.squared_error(*model.expand(functions, pairs), pairs))

    return jax.lax.map(one, functions)


def _choices(functions: model.Functions, config: Member) -> list[Row]:
    """Chosen numbers of functions beside the least ranks with the same errors."""
    pairs = _pairs(config, config.points)
    widths, single, rows = model.widths(pairs), _single(pairs), []
    values = widths[:-1] ** 2 - widths[1:] ** 2  # squared singular values
    number = len(config.seeds)
    for i, threshold in enumerate(config.thresholds):
        for j, seed in enumerate(config.seeds):
            place = j if config.method == "singular" else i * number + j
            one = one_of(functions, place)
            choose = _truncated if config.method == "singular" else _opened
            chosen, error, refit = map(float, choose(one, single, threshold))
            row = {"seed": seed, "threshold": threshold, "chosen": int(chosen)}
            row |= {"expected": int(np.sum(values > threshold)), "error": error}
            row |= {"least": least_rank(widths, error), "refit": refit}
            rows.append(row | {"least_refit": least_rank(widths, refit)})
    return rows


@jax.jit
def _opened(
    functions: model.Functions, pairs: model.Pairs, threshold: float
) -> tuple[jax.Array, ...]:
    coefficients, basis = model.expand(functions, pairs)
    kept = model.open_rows(coefficients, threshold)
    error = model.squared_error(coefficients, basis, pairs)
    again = model.expand(functions, pairs, kept=kept.astype(basis.dtype))
    refit = model.squared_error(*again, pairs)
    return jnp.sum(kept), jnp.sqrt(error), jnp.sqrt(refit)


@jax.jit
def _truncated(
    functions: model.Functions, pairs: model.Pairs, threshold: float
) -> tuple[jax.Array, ...]:
    coefficients, basis = model.expand(functions, pairs)
    parts, number = model.truncate(coefficients, threshold)
    error = jnp.sqrt(model.squared_error(parts, basis, pairs))
    return number, error, error


def least_rank(widths: np.ndarray, error: float) -> int:
    """Returns the least rank with at most this error; one per mille is rounding."""
    return int(np.argmax(widths <= 1.001 * error))


PRESETS = {
    "smoke": Config(
        preset="smoke",
        right_sides=("white",),
        num_points=(16, 32),
        ranks=(2,),
        gate_points=(16,),
        max_functions=6,
        thresholds=(1e-2, 1e-3),
        white_modes=16,
        fourier_modes=4,
        num_waves=16,
        max_frequency=8.0,
        width=8,
        num_steps=20,
        gate_steps=20,
        seeds=(0, 1),
    ),
    "quick": Config(),
}
PROGRAM = learn.Program(
    "num_functions",
    PRESETS,
    make_task,
    title="How many functions",
    report=num_functions_report.report,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
