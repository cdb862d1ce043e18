"""Turbulent flow: predicts ten frames of vorticity from the ten frames before.

    python -m experiments.navier_stokes --preset=quick
    python -m experiments.navier_stokes --preset=paper --data_dir=<folder>

Models learn one step, from ten frames to the next. In training all inputs are true
frames (teacher forcing). In validation and test the model is applied ten times to its
own predictions, so errors accumulate. The error of every step is reported.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from opjax import learn, metrics, metrics_time, samples, training
from opjax.datasets import navier_stokes as dataset
from opjax.learn import option, recipe
from opjax.learn.predict import trained
from opjax.learn.predict.description import Stepping, describe
from opjax.learn.predict.stepping import Step
from opjax.learn.registry.entries import Columns, Operator
from opjax.learn.tasks import outcome, supervised, time_evaluation
from opjax.learn.tasks.benchmark import request
from opjax.problems import grids

_STEPS = 10  # predicted frames, and frames of every input
HOW = Stepping(
    "one_step", _STEPS, channels=1, increments=False, interval=1.0, longest=1.0
)
_STEP = Step(HOW, {})


@dataclasses.dataclass(frozen=True)
class Config(learn.BenchmarkOptions):
    """All that the numbers of a run depend on."""

    solver_points: int = option(
        128,
        "Number of grid points per side of our own solver. The published data used 256",
        minimum=8,
    )
    stride: int = option(4, "Subsampling factor of our own solver's grid", minimum=1)
    file_stride: int = option(1, "Subsampling factor of the published grid", minimum=1)
    coordinates: str = option(
        "nodes",
        "Coordinates of the points: nodes (their positions) or published (as in the "
        "authors' code)",
        choices=tuple(dataset.COORDINATES),
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        grids.check_stride(self.solver_points, self.stride, periodic=True)


_TINY = recipe(Config, width=8, num_epochs=1, num_modes=3, solver_points=32)
_FEW = recipe(Config, num_train=4, num_validation=2, num_test=2)
_SOME = recipe(Config, num_train=96, num_validation=16, num_test=32)
_MANY = recipe(Config, num_train=1000, num_test=200, solver_points=256)
# Table 10, and the authors' program for what it leaves open.
_OWN = recipe(
    Config,
    width=256,
    num_basis=32,
    shared_basis=False,
    reference_points=8,
    coordinates="published",
    final_div_factor=1e3,
    checkpoint_every=1,
)
_LOWER = recipe(Config, final_div_factor=1e4)
_DISTANT = learn.GNOT_RECIPE | _LOWER | recipe(Config, reference_points=0)
_GNOT = recipe(Config, num_layers=3, mlp_ratio=2, weight_decay=5e-5)
_ONO = recipe(
    Config, num_basis=16, ono_attention="efficient", batch_size=8, clip_norm=0.1
)
PRESETS = {
    "smoke": (learn.SMOKE | _FEW | _TINY)(Config()),
    # A fine enough solver would take an hour: these flows are another operator.
    **learn.quick(_SOME(Config(width=32, num_layers=3, num_epochs=10))),
    **learn.published(
        (learn.PAPER | _MANY | _OWN)(Config()),
        {
            "transolver": _LOWER | recipe(Config, clip_norm=0.0),
            "lno": learn.LNO_RECIPE | _LOWER,
            "gnot": _DISTANT | _GNOT,
            "ono_original": _DISTANT | _ONO,
        },
    ),
}


def load(config: Config, *, cache_dir: str | None = None) -> learn.Splits:
    """Generates or reads the flows; the sets have none in common."""
    return dataset.splits(
        request(config, cache_dir),
        num_points=config.solver_points,
        stride=config.stride,
        file_stride=config.file_stride,
        coordinates=config.coordinates,
    )


def step_errors(
    model: Operator, sample: Columns, *, axis_name: str | None = None
) -> jax.Array:
    """Relative L2 errors of single steps from true frames, shape `(10,)`.

    Args:
      model: operator from ten frames, `(n, 10)`, to the next one, `(n, 1)`.
      sample: `mesh_points (n, 2)`, `features (n, 10)`, `target (n, 10)`.
      axis_name: axis of the devices which have the other rows, if any.
    """
    return time_evaluation.step_errors(_STEP, model, sample, axis_name=axis_name)


def rollout(
    model: Operator, sample: Columns, *, axis_name: str | None = None
) -> jax.Array:
    """Predicts ten frames, each from the ten before it, true or predicted, `(n, 10)`.

    Args:
      model: as for `step_errors`.
      sample: `mesh_points (n, 2)` and `features (n, 10)`.
      axis_name: as for `step_errors`.
    """
    times = jnp.arange(1.0, _STEPS + 1, dtype=jnp.float32)
    frames = _STEP.frames(model, sample, times, axis_name=axis_name)
    return frames[..., 0].T


def loss(model: Operator, batch: Columns, *, axis_name: str | None = None) -> jax.Array:
    """Sum of `step_errors` over all steps and flows of a batch."""
    errors = partial(step_errors, model, axis_name=axis_name)
    return jnp.sum(training.over_samples(errors)(batch))


def error(
    model: Operator, sample: Columns, *, axis_name: str | None = None
) -> jax.Array:
    """Relative L2 error of a rollout, over all its frames together."""
    return metrics.relative_l2(
        rollout(model, sample, axis_name=axis_name),
        sample["target"],
        quadrature_weights=sample.get("quadrature_weights"),
        axis_name=axis_name,
        rescale=False,
    )


def make_task(config: Config, cache_dir: str | None = None) -> learn.Task:
    """Builds the task; fields are not normalised, as in the published runs."""
    splits = load(config, cache_dir=cache_dir)
    box = (0.0, 0.0), (1.0, 1.0)
    sizes = supervised.grid_sizes(splits, out_features=1, box=box)
    sets = splits.train, splits.validation, splits.test
    train, validation, test = map(samples.stack, sets)
    description = describe(splits.train, sizes=sizes)
    (flows,) = test
    # Last frames of input and target are drawn.
    both = zip(splits.test, flows["features"], flows["target"], strict=True)
    last = [s._replace(features=x[:, -1:], target=y[:, -1:]) for s, x, y in both]

    def look(
        model: Operator, sample: Columns
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        frames = rollout(model, sample)
        by_step = metrics_time.errors_of_frames(frames.T, sample["target"].T)
        together = metrics.relative_l2(frames, sample["target"])
        return together, by_step, frames[:, -1:]

    def evaluate(model: Operator, folder: pathlib.Path) -> dict[str, float]:
        trained.save(folder, model, {}, description)
        errors, by_step = outcome.evaluate_steps(
            look,
            model,
            folder,
            samples=last,
            arrays=flows,
            batch_size=config.batch_size,
            name="predicted frame",
            inspected=outcome.inspect(model, {k: a[0] for k, a in flows.items()}),
            extra={"series_baseline": _persistence(flows)},
        )
        steps = {f"step_{t}": float(e) for t, e in enumerate(by_step.mean(axis=0), 1)}
        return {"relative_l2": float(errors.mean()), **steps}

    shape = " x ".join(map(str, sizes.grid_shape or ()))
    return learn.Task(
        train=train,
        validation=validation,
        test=test,
        build=supervised.builder(sizes),
        loss=loss,
        metric=error,
        evaluate=evaluate,
        extra={},
        source=splits.source,
        over_points=True,
        row=math.prod((sizes.grid_shape or (1,))[1:]),
        notes=f"Fields of {shape} points. Errors are of rollouts from ten true frames, "
        "over all ten predicted ones, and of each.",
    )


def _persistence(flows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Mean errors of the prediction that nothing moves any more."""

    def errors(features: jax.Array, target: jax.Array) -> jax.Array:
        still = metrics_time.persistence(features[:, -1], _STEPS)
        return metrics_time.errors_of_frames(still, target.T)

    still_errors = jax.vmap(errors)(
        *map(jnp.asarray, (flows["features"], flows["target"]))
    )
    return np.asarray(jnp.mean(still_errors, axis=0))


PROGRAM = learn.Program(
    "navier_stokes",
    PRESETS,
    make_task,
    title="Navier-Stokes",
    grid_axes=2,
)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
