"""Forming by a die: predicts the motion of the block from the profile of the die.

    python -m experiments.plasticity --preset=quick
    python -m experiments.plasticity --preset=paper --data_dir=<folder>

The input is the profile and a time between 0 (first frame) and 1 (last frame). The
output is the coordinates and displacements of all nodes at that time. A training sample
is a pair of die and time. An epoch visits every pair once, in random order.

The published code visits the same pairs with as many optimizer steps. There, the dies
of a batch stay together for 20 steps, each with its own time, and the learning-rate
schedule advances once per 20 steps. Here it advances with every step.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from opjax import learn, metrics, training
from opjax.datasets import plasticity as dataset
from opjax.learn import GNOT_RECIPE, PAPER, SMOKE, option, recipe
from opjax.learn.predict import trained
from opjax.learn.predict.description import Stepping, describe
from opjax.learn.predict.stepping import Step
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Columns, Operator
from opjax.learn.run import buckets
from opjax.learn.tasks import model_data, outcome, supervised, time_data
from opjax.learn.tasks.benchmark import request
from opjax.learn.tasks.time_data import rolled
from opjax.learn.tasks.time_evaluation import frame_errors, targets
from opjax.normalize import Normalizer
from opjax.samples import Sample, Series
from opjax.samples.normalizers import fit_normalizers
from opjax.samples.series import Windows, places

# The state at any time from the profile alone: no frame is known. 20 were published.
HOW = Stepping(
    "one_shot",
    history=0,
    channels=dataset.NUM_CHANNELS,
    increments=False,
    interval=1 / 19,
    longest=1.0,
)


@dataclasses.dataclass(frozen=True)
class Config(learn.BenchmarkOptions):
    """All that the numbers of a run depend on."""

    nodes_along: int = option(
        41,
        "Number of nodes along the block, in our own solver. The published data have "
        "101",
        minimum=2,
    )
    nodes_across: int = option(
        13,
        "Number of nodes across the block, in our own solver. The published data have "
        "31",
        minimum=2,
    )
    coordinates: str = option(
        "nodes",
        "Coordinates of the points: nodes (their positions) or published (as in the "
        "authors' code)",
        choices=tuple(dataset.COORDINATES),
    )
    normalize_target: bool = option(
        True, "Train models to predict normalised values. The authors do not"
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        operators.check_time(self.models)
        # The others take time, by an embedding of half sines and half cosines; those
        # of equal parameters get a multiple of the heads as channels.
        for name in ("width", "num_heads"):
            if getattr(self, name) % 2:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be even, since the embedding "
                    "of time has pairs of channels."
                )


_FEW = recipe(Config, num_train=4, num_validation=2, num_test=2, batch_size=4)
_TINY = recipe(Config, nodes_along=13, nodes_across=5, width=8, num_epochs=1)
_SOME = recipe(Config, num_train=64, num_validation=8, num_test=16, batch_size=8)
_MANY = recipe(
    Config, num_train=900, num_test=80, nodes_along=101, nodes_across=31, batch_size=8
)
# Table 10, and the authors' program for what it leaves open.
_OWN = recipe(
    Config,
    shared_basis=False,
    normalize_target=False,
    final_div_factor=1e3,
    checkpoint_every=1,
)
_PAPER = (PAPER | _MANY | _OWN)(Config())
# Its points do not belong to the values.
_CODE = dataclasses.replace(_PAPER, preset="code", coordinates="published")
_LOWER = recipe(Config, final_div_factor=1e4)
_GNOT = GNOT_RECIPE | _LOWER | recipe(Config, batch_size=8)
_ONO = _LOWER | recipe(Config, num_basis=8, ono_attention="efficient")
PRESETS = {
    "smoke": (SMOKE | _FEW | _TINY | recipe(Config, num_modes=3))(Config()),
    # A coarser mesh than the published one: stiffer, another operator.
    **learn.quick(_SOME(Config(width=32, num_layers=3, num_epochs=15))),
    **learn.published(
        _PAPER, {"transolver": _LOWER, "gnot": _GNOT, "ono_original": _ONO}
    ),
    **learn.published(_CODE, {"transolver": _LOWER}),
}


def load(config: Config, *, cache_dir: str | None = None) -> learn.Splits:
    """Generates or reads the samples; the sets have none in common."""
    return dataset.splits(
        request(config, cache_dir),
        num_points=(config.nodes_along, config.nodes_across),
        coordinates=config.coordinates,
    )


def as_series(dies: Sequence[Sample]) -> list[Series]:
    """The motions of dies, at times from 0 to 1; the profile is constant in time."""
    several: list[Series] = []
    for die in dies:
        assert die.target is not None, "checked by grid_sizes"
        frames = die.target.reshape(die.num_points, -1, dataset.NUM_CHANNELS)
        times = np.linspace(0, 1, frames.shape[1], dtype=np.float32)
        motion = np.moveaxis(frames, 1, 0)
        several.append(Series(die.mesh_points, times, motion, die.features))
    return several


def make_task(config: Config, cache_dir: str | None = None) -> learn.Task:
    """Builds the task.

    loss = sum over the pairs of a batch of |p - t| / |t|, over nodes and channels;
    metric = |p - t| / |t| over nodes, channels and all times of a die together.
    """
    splits = load(config, cache_dir=cache_dir)
    sizes = supervised.grid_sizes(
        splits, out_features=HOW.channels, time_embedding=True
    )
    sets = splits.train, splits.validation, splits.test
    train, validation, test = map(as_series, sets)
    pairs = list(places(train, HOW.mode, history=HOW.history, unroll=1))
    windows = Windows(train, pairs, history=HOW.history)
    # Of the profile, encoded before the step, and of the channels over all nodes and
    # times, decoded by it.
    fit = partial(fit_normalizers, points=False, published=True)
    encoding = fit(splits.train, features=True, target=False)
    decoding = fit(windows, features=False, target=config.normalize_target)
    normalizers = encoding | decoding
    bucketed = partial(
        time_data.bucketed,
        encode=model_data.encoder(encoding),
        batch_size=config.batch_size,
    )
    whole = [rolled(part, history=HOW.history) for part in (validation, test)]
    (motions,) = tests = bucketed(whole[1])
    description = describe(splits.train, sizes=sizes)
    # The last displacements are drawn.
    both = zip(splits.test, test, strict=True)
    last = [die._replace(target=part.values[-1][:, 2:]) for die, part in both]

    def evaluate(model: Operator, folder: pathlib.Path) -> dict[str, float]:
        trained.save(folder, model, normalizers, description)
        errors, _, displacement = outcome.evaluate_steps(
            partial(_look, decoding),
            model,
            folder,
            samples=last,
            arrays=buckets.rows(motions, range(len(test))),
            batch_size=config.batch_size,
            name="frame",
        )
        return {
            "relative_l2": float(errors.mean()),
            "displacement": float(displacement.mean()),
            "relative_l2_worst": float(errors.max()),
        }

    return learn.Task(
        train=bucketed(windows),
        validation=bucketed(whole[0]),
        test=tests,
        build=supervised.builder(sizes),
        loss=partial(_loss, decoding),
        metric=partial(_metric, decoding),
        evaluate=evaluate,
        extra=normalizers,
        source=splits.source,
        notes=f"Training samples are pairs of {len(train)} dies with "
        f"{train[0].num_frames} times. Errors are over all times; `displacement` is "
        "that of the displacements alone, which the coordinates outweigh in "
        "`relative l2`.",
    )


# Normalisers of the output, by the names of arrays.
Decoding = Mapping[str, Normalizer]


def _loss(decoding: Decoding, model: Operator, batch: Columns) -> jax.Array:
    """Sum of the relative errors of the pairs of a batch."""
    errors = partial(frame_errors, Step(HOW, decoding), model)
    return jnp.sum(training.over_samples(errors)(batch))


def _motion(decoding: Decoding, model: Operator, die: Columns) -> jax.Array:
    """Predicted coordinates and displacements, `(frames, n, channels)`."""
    return Step(HOW, decoding).frames(model, die, die["lags"])


def _metric(decoding: Decoding, model: Operator, die: Columns) -> jax.Array:
    """Relative error of the motion of a die."""
    return _joint_error(_motion(decoding, model, die), targets(HOW, die))


def _look(decoding: Decoding, model: Operator, die: Columns) -> tuple[jax.Array, ...]:
    """Error, errors by frame, last displacements, and error of displacements."""
    predicted, target = _motion(decoding, model, die), targets(HOW, die)
    moved, truth = predicted[..., 2:], target[..., 2:]
    norms = jax.vmap(jnp.linalg.norm)
    by_frame = norms(moved - truth) / jnp.max(norms(truth))
    error, of_moves = _joint_error(predicted, target), _joint_error(moved, truth)
    return error, by_frame, moved[-1], of_moves


def _joint_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Relative L2 error over times, nodes and channels, `(frames, n, channels)`."""
    pair = prediction.reshape(-1), target.reshape(-1)
    return metrics.relative_l2(*pair, rescale=False)


PROGRAM = learn.Program("plasticity", PRESETS, make_task, grid_axes=2)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
