"""Darcy flow: learns the operator from permeability to pressure.

    python -m experiments.darcy --preset=quick
    python -m experiments.darcy --preset=paper --data_dir=...

The benchmark of the Fourier neural operator. Without --data_dir it takes samples of our
own solver. The loss has the errors of the differences between neighbours besides.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from opjax import learn, metrics
from opjax.datasets import darcy
from opjax.learn import PAPER, SMOKE, BenchmarkOptions, option
from opjax.learn.benchmark import load
from opjax.problems import grids


@dataclasses.dataclass(frozen=True)
class Config(BenchmarkOptions):
    """All that the numbers of a run depend on."""

    num_points: int = option(141, "Points per side, solved or in the files", minimum=4)
    stride: int = option(5, "Keep every so many points of a side", minimum=1)
    tolerance: float = option(1e-9, "Relative residual of our own solver", above=0)
    gradient_weight: float = option(0.1, "Weight of the gradient's error", minimum=0)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        grids.check_stride(self.num_points, self.stride, periodic=False)


_ALL: dict[str, Any] = {
    "equal_parameters": False,
    "reference_points": 8,
    "batch_size": 4,
}
_FEW: dict[str, Any] = {
    "num_train": 32,
    "num_validation": 8,
    "num_test": 8,
    "num_points": 61,
}
_SOME: dict[str, Any] = {"num_train": 900, "num_validation": 100, "num_test": 200}
# 24 samples validate, so that 1024, the length of the published files, serve for
# training and validation, and --data_dir changes the source only.
_MANY: dict[str, Any] = {
    "num_train": 1000,
    "num_validation": 24,
    "num_test": 200,
    "num_points": 421,
}
PRESETS = {
    "smoke": Config(**{**SMOKE, **_ALL, **_FEW, "num_epochs": 6}, checkpoint_every=2),
    "quick": Config(models=("functional",), num_epochs=12, **_ALL, **_SOME),
    "paper": Config(**PAPER, **_ALL, **_MANY),
}


def make_task(config: Config, cache_dir: str | None) -> learn.Task:
    """The task of a run: loss = sum_b |p - t| / |t| + w (relative gradient error)."""
    own = ("num_points", "stride", "tolerance")
    splits = load(config, darcy.splits, *own, cache_dir=cache_dir)
    grid = splits.train[0].grid_shape
    assert grid is not None

    def loss(prediction: jax.Array, sample: Any) -> jax.Array:
        pair = prediction, sample["target"]
        slopes = metrics.relative_gradient_error(*pair, grid_shape=grid)
        return metrics.relative_l2(*pair) + config.gradient_weight * slopes

    task = learn.regression(
        config,
        splits,
        loss=loss,
        numbers=lambda e: {"relative_l2": e.mean(), "relative_l2_std": e.std()},
    )
    first = {name: jnp.asarray(a[0]) for name, a in task.validation[0].items()}

    def condition(model: Any) -> dict[str, jax.Array]:
        """The mean condition number of a model's small systems, if it solves any."""
        try:
            found = model.condition_numbers(first["mesh_points"], first["features"])
        except (AttributeError, ValueError):
            return {}
        return {"condition": jnp.mean(found)}

    return task._replace(probe=condition, scan=True)


def report(finished: learn.Finished) -> learn.Report:
    """The last line of one model with one seed; several have the standard one."""
    config, result = finished.config, {"epochs": finished.config.num_epochs}
    if len(config.members()) > 1:
        return learn.Report(result=result)
    ((row,),) = finished.results.values()
    result |= {"condition": None, **row, "data_seconds": finished.data_seconds}
    result |= {"seconds": row["seconds"] + finished.data_seconds}
    result |= {"model": config.model, "seed": config.seed, "data": finished.source}
    return learn.Report(result=result, alone=True)


PROGRAM = learn.Program("darcy", PRESETS, make_task, title="Darcy flow", report=report)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
