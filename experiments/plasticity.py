"""Forming by a die: from the profile of the die to the motion of the block.

    python -m experiments.plasticity --preset=quick
    python -m experiments.plasticity --preset=paper --data_dir=<folder>

Operators take the profile and a time, between 0 for the first frame and 1 for the last,
and give coordinates and displacements of all nodes at that time. A training sample is
a die with a time: an epoch visits all pairs, in random order, so the times of a die
come in random order, each once.

The published code visits the same pairs, with as many steps of the optimizer, but the
dies of a batch stay together for 20 steps, each with a time of its own, and only then
the schedule of the learning rate moves on. Here it moves with every step.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import plasticity_figures
from opjax import metrics, normalize, training
from opjax.datasets import plasticity as dataset
from opjax.datasets import samples
from opjax.datasets.samples import Sample
from opjax.learn import (
    DataOptions,
    ModelOptions,
    Program,
    RunOptions,
    Splits,
    Task,
    TrainingOptions,
    operators,
    options,
    outcome,
)
from opjax.learn import supervised as regression
from opjax.learn.options import option

_CHANNELS = dataset.NUM_CHANNELS


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, ModelOptions, TrainingOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    # Data.
    num_train: int = option(64, "Training dies", minimum=1)
    num_validation: int = option(8, "Validation dies", minimum=1)
    num_test: int = option(16, "Test dies", minimum=1)
    nodes_along: int = option(
        41, "Nodes along our own solver's block; 101 were published", minimum=2
    )
    nodes_across: int = option(13, "Nodes across it; 31 were published", minimum=2)
    coordinates: str = option("nodes", f"One of {', '.join(dataset.COORDINATES)}")
    normalize_target: bool = option(
        True, "Let operators predict normalised values; published: no"
    )
    # Model.
    features: int = option(32, "Channels of functional attention", minimum=1)
    num_layers: int = option(3, "Blocks", minimum=1)
    # Training.
    num_epochs: int = option(15, "Passes over all dies and times", minimum=1)
    batch_size: int = option(8, "Pairs of die and time in a batch", minimum=1)

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        options.check_choice("coordinates", self.coordinates, dataset.COORDINATES)
        # All models take time, by an embedding of half sines and half cosines; those
        # of equal parameters get a multiple of the heads as channels.
        for name in ("features", "num_heads"):
            if getattr(self, name) % 2:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be even, since the embedding "
                    "of time has pairs of channels."
                )


PRESETS = {
    "smoke": Config(
        preset="smoke",
        models=("functional",),
        num_train=4,
        num_validation=2,
        num_test=2,
        nodes_along=13,
        nodes_across=5,
        features=8,
        num_layers=2,
        num_heads=2,
        num_basis=8,
        num_modes=3,
        num_epochs=1,
        batch_size=4,
    ),
    # A coarser mesh than the published one: stiffer, another operator.
    "quick": Config(),
    # Table 10 of the paper, with our own solver's data unless --data_dir is given.
    "paper": Config(
        preset="paper",
        models=("functional",),
        num_train=880,
        num_validation=20,
        num_test=80,
        nodes_along=101,
        nodes_across=31,
        normalize_target=False,
        features=128,
        num_layers=8,
        num_heads=8,
        num_basis=64,
        num_epochs=500,
        checkpoint_every=1,
    ),
}


def load(config: Config, *, cache_dir: str | None = None) -> Splits:
    """Generates or reads the samples; the sets have none in common."""
    return dataset.splits(
        num_train=config.num_train,
        num_validation=config.num_validation,
        num_test=config.num_test,
        data_dir=config.data_dir,
        seed=config.data_seed,
        num_points=(config.nodes_along, config.nodes_across),
        coordinates=config.coordinates,
        cache_dir=cache_dir,
    )


def by_time(sample: Sample) -> np.ndarray:
    """The target of a sample, time first, shape `(frames, n, 4)`."""
    assert sample.target is not None
    fields = sample.target.reshape(sample.num_points, -1, _CHANNELS)
    return np.ascontiguousarray(np.moveaxis(fields, 1, 0))


def frame_times(num_frames: int) -> np.ndarray:
    """Times of the frames, from 0 to 1, float32."""
    return np.linspace(0, 1, num_frames, dtype=np.float32)


def pairs(dies: list[Sample]) -> dict[str, np.ndarray]:
    """All pairs of die and time: `features`, `time` and `target`, pairs along axis 0.

    The mesh points, which all pairs share, are left out.
    """
    targets = np.concatenate([by_time(sample) for sample in dies])
    num_frames = len(targets) // len(dies)
    features = np.stack([np.asarray(sample.features) for sample in dies])
    return {
        "features": np.repeat(features, num_frames, axis=0),
        "time": np.tile(frame_times(num_frames), len(dies)),
        "target": targets,
    }


def make_task(config: Config, cache_dir: str | None = None) -> Task:
    """Builds the task.

    loss = sum over the pairs of a batch of |p - t| / |t|, over nodes and channels;
    metric = |p - t| / |t| over nodes, channels and all times of a die together.
    """
    splits = load(config, cache_dir=cache_dir)
    regression.check(splits)
    first, shown = splits.train[0], splits.test[0]
    found = regression.all_samples(splits)
    sizes = operators.sizes(found, out_features=_CHANNELS, time_embedding=True)
    if sizes.grid_shape is None:
        raise ValueError("The samples are on different grids; they must share one.")
    points, num_frames = jnp.asarray(first.mesh_points), len(by_time(first))
    normalizers = _normalizers(splits, config)
    predict = partial(predict_at, normalizers, points)
    train = pairs(list(splits.train))
    validation, test = (
        (_whole(getattr(splits, name), normalizers),) for name in ("validation", "test")
    )
    train["features"] = _encoded(normalizers, train["features"])
    times = jnp.asarray(frame_times(num_frames))

    def loss(model: Any, batch: Any) -> jax.Array:
        def error(pair: Any) -> jax.Array:
            prediction = predict(model, pair["features"], pair["time"])
            return metrics.relative_l2(prediction, pair["target"])

        return jnp.sum(jax.vmap(error)(batch))

    def motion(model: Any, sample: Any) -> jax.Array:
        return jax.lax.map(partial(predict, model, sample["features"]), times)

    def metric(model: Any, sample: Any) -> jax.Array:
        return _joint_error(motion(model, sample), sample["target"])

    return Task(
        train=(train,),
        validation=validation,
        test=test,
        build=regression.builder(sizes),
        loss=loss,
        metric=metric,
        evaluate=_evaluator(config, splits, test[0], motion),
        extra=normalizers,
        source=splits.source,
        draw=partial(plasticity_figures.draw, shown, by_time(shown)),
        notes=f"Training samples are pairs of {len(splits.train)} dies with "
        f"{num_frames} times. Errors are over all times; `displacement` is that of the "
        "displacements alone, which the coordinates outweigh in `relative l2`.",
    )


def predict_at(
    normalizers: Any,
    points: jax.Array,
    model: Any,
    features: jax.Array,
    time: jax.Array,
) -> jax.Array:
    """Evaluates an operator on encoded features at a time, in mm, `(n, 4)`."""
    values = operators.call(
        model, {"mesh_points": points, "features": features}, time=time
    )
    if "target" not in normalizers:
        return values
    return normalize.decode(normalizers["target"], values)


def _normalizers(splits: Splits, config: Config) -> dict[str, Any]:
    """Of the profile, and of the four channels over all nodes and times."""
    flat = [
        sample._replace(target=by_time(sample).reshape(-1, _CHANNELS))
        for sample in splits.train
    ]
    return regression.fit_normalizers(
        flat, points=False, features=True, target=config.normalize_target
    )


def _encoded(normalizers: dict[str, Any], features: np.ndarray) -> np.ndarray:
    encoded = normalize.encode(normalizers["features"], jnp.asarray(features))
    return np.asarray(encoded)


def _whole(dies: Any, normalizers: dict[str, Any]) -> dict[str, np.ndarray]:
    """Dies with their targets at all times, for validation and test."""
    (stacked,) = samples.stack(dies)
    return {
        "features": _encoded(normalizers, stacked["features"]),
        "target": np.stack([by_time(sample) for sample in dies]),
    }


def _joint_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Relative L2 error over times, nodes and channels, `(frames, n, channels)`."""
    return metrics.relative_l2(prediction.reshape(-1), target.reshape(-1))


def _evaluator(
    config: Config, splits: Splits, test: Any, motion: Callable[[Any, Any], jax.Array]
) -> Callable[[Any, pathlib.Path], dict[str, float]]:
    def look(model: Any, sample: Any) -> tuple[jax.Array, ...]:
        found, target = motion(model, sample), sample["target"]
        moved, truth = found[..., 2:], target[..., 2:]
        by_frame = jnp.sqrt(jnp.sum((moved - truth) ** 2, axis=(1, 2)))
        size = jnp.sqrt(jnp.max(jnp.sum(truth**2, axis=(1, 2))))
        errors = _joint_error(found, target), _joint_error(moved, truth)
        return *errors, by_frame / size, found

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        batch = min(config.batch_size, config.num_test)
        joint, moved, by_frame, found = training.evaluate(
            look, model, test, batch_size=batch
        )
        rows, found = outcome.rows(joint), np.asarray(found)
        outcome.write(
            folder,
            errors=joint,
            rows=rows,
            samples=[_last(splits.test[row]) for row in rows],
            predicted=[found[row, -1, :, 2:] for row in rows],
            extra={"frame_errors": np.asarray(by_frame), "motion": found[0]},
        )
        joint, moved = (np.asarray(e, np.float64) for e in (joint, moved))
        return {
            "relative_l2": float(joint.mean()),
            "displacement": float(moved.mean()),
            "relative_l2_worst": float(joint.max()),
        }

    return evaluate


def _last(die: Sample) -> Sample:
    """A die with its last displacements as target."""
    return die._replace(target=by_time(die)[-1, :, 2:])


PROGRAM = Program("plasticity", PRESETS, make_task)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
