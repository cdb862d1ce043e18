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

from opjax import metrics, normalize, training
from opjax.datasets import plasticity as dataset
from opjax.datasets import samples
from opjax.datasets.samples import Sample
from opjax.learn import (
    GNOT,
    PAPER,
    SMOKE,
    BenchmarkOptions,
    Program,
    Splits,
    Task,
    operators,
    option,
    outcome,
    published,
    supervised,
    trained,
)
from opjax.learn.benchmark import load as load_splits

_CHANNELS = dataset.NUM_CHANNELS


@dataclasses.dataclass(frozen=True)
class Config(BenchmarkOptions):
    """All that the numbers of a run depend on."""

    nodes_along: int = option(
        41, "Nodes along our own solver's block; 101 were published", minimum=2
    )
    nodes_across: int = option(13, "Nodes across it; 31 were published", minimum=2)
    coordinates: str = option(
        "nodes", "Where points lie", choices=tuple(dataset.COORDINATES)
    )
    normalize_target: bool = option(
        True, "Let operators predict normalised values; published: no"
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        for name in {"galerkin2d", "orthogonal_network"} & {*self.models}:
            raise ValueError(f"models={name!r} has no time; take another model.")
        # The others take time, by an embedding of half sines and half cosines; those
        # of equal parameters get a multiple of the heads as channels.
        for name in ("features", "num_heads"):
            if getattr(self, name) % 2:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be even, since the embedding "
                    "of time has pairs of channels."
                )


# Table 10, and the authors' program for what it leaves open.
_PAPER = Config(
    **PAPER,
    shared_basis=False,
    num_train=900,
    num_test=80,
    nodes_along=101,
    nodes_across=31,
    normalize_target=False,
    batch_size=8,
    final_div_factor=1e3,
    checkpoint_every=1,
)
_LOWER: dict[str, Any] = {"final_div_factor": 1e4}
_GNOT = {**GNOT, **_LOWER, "batch_size": 8}
_ONO = {**_LOWER, "num_basis": 8, "ono_attention": "efficient"}
# Its points do not belong to the values.
_CODE = dataclasses.replace(_PAPER, preset="code", coordinates="published")
PRESETS = {
    "smoke": Config(
        **{**SMOKE, "features": 8, "num_epochs": 1},
        num_train=4,
        num_validation=2,
        num_test=2,
        nodes_along=13,
        nodes_across=5,
        num_modes=3,
        batch_size=4,
    ),
    # A coarser mesh than the published one: stiffer, another operator.
    "quick": Config(
        num_train=64,
        num_validation=8,
        num_test=16,
        features=32,
        num_layers=3,
        num_epochs=15,
        batch_size=8,
    ),
    **published(_PAPER, transolver=_LOWER, gnot=_GNOT, ono_original=_ONO),
    **published(_CODE, transolver=_LOWER),
}


def load(config: Config, *, cache_dir: str | None = None) -> Splits:
    """Generates or reads the samples; the sets have none in common."""
    shape = config.nodes_along, config.nodes_across
    splits = partial(dataset.splits, num_points=shape)
    return load_splits(config, splits, "coordinates", cache_dir=cache_dir)


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
    supervised.check(splits)
    first = splits.train[0]
    sizes = operators.sizes(
        supervised.all_samples(splits), out_features=_CHANNELS, time_embedding=True
    )
    if sizes.grid_shape is None:
        raise ValueError("The samples are on different grids; they must share one.")
    points, times = jnp.asarray(first.mesh_points), frame_times(len(by_time(first)))
    normalizers = _normalizers(splits, config)
    predict = partial(predict_at, normalizers, points)
    train = pairs(list(splits.train))
    train["features"] = _encoded(normalizers, train["features"])
    validation, test = (
        _whole(found, normalizers) for found in (splits.validation, splits.test)
    )

    def loss(model: Any, batch: Any) -> jax.Array:
        def error(pair: Any) -> jax.Array:
            prediction = predict(model, pair["features"], pair["time"])
            return metrics.relative_l2(prediction, pair["target"])

        return jnp.sum(jax.vmap(error)(batch))

    def motion(model: Any, sample: Any) -> jax.Array:
        at_time = partial(predict, model, sample["features"])
        return jax.lax.map(at_time, jnp.asarray(times))

    def metric(model: Any, sample: Any) -> jax.Array:
        return _joint_error(motion(model, sample), sample["target"])

    return Task(
        train=(train,),
        validation=validation,
        test=test,
        build=supervised.builder(sizes),
        loss=loss,
        metric=metric,
        evaluate=_evaluator(config, splits, sizes, normalizers, test[0], motion),
        extra=normalizers,
        source=splits.source,
        notes=f"Training samples are pairs of {len(splits.train)} dies with "
        f"{len(times)} times. Errors are over all times; `displacement` is that of the "
        "displacements alone, which the coordinates outweigh in `relative l2`.",
    )


def _evaluator(
    config: Config,
    splits: Splits,
    sizes: operators.Sizes,
    normalizers: dict[str, Any],
    test: Any,
    motion: Callable[[Any, Any], jax.Array],
) -> Callable[[Any, pathlib.Path], dict[str, float]]:
    """Makes `Task.evaluate`: errors over all times, and of every frame."""
    description = trained.describe(splits.train, sizes=sizes)

    def look(model: Any, sample: Any) -> tuple[jax.Array, ...]:
        found, target = motion(model, sample), sample["target"]
        moved, truth = found[..., 2:], target[..., 2:]
        by_frame = jnp.sqrt(jnp.sum((moved - truth) ** 2, axis=(1, 2)))
        size = jnp.sqrt(jnp.max(jnp.sum(truth**2, axis=(1, 2))))
        errors = _joint_error(found, target), _joint_error(moved, truth)
        return *errors, by_frame / size, moved[-1]

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        trained.save(folder, model, normalizers, description)
        batch = min(config.batch_size, config.num_test)
        joint, moved, by_frame, last = (
            np.asarray(part, np.float64)
            for part in training.evaluate(look, model, test, batch_size=batch)
        )
        rows = outcome.rows(joint)
        outcome.write(
            folder,
            errors=joint,
            rows=rows,
            samples=[_last(splits.test[row]) for row in rows],
            predicted=[last[row] for row in rows],
            extra={"series": by_frame, "series_name": "frame"},
        )
        return {
            "relative_l2": float(joint.mean()),
            "displacement": float(moved.mean()),
            "relative_l2_worst": float(joint.max()),
        }

    return evaluate


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
    return supervised.fit_normalizers(
        flat, points=False, features=True, target=config.normalize_target
    )


def _encoded(normalizers: dict[str, Any], features: np.ndarray) -> np.ndarray:
    encoded = normalize.encode(normalizers["features"], jnp.asarray(features))
    return np.asarray(encoded)


def _whole(dies: Any, normalizers: dict[str, Any]) -> tuple[Any, ...]:
    """Dies with their targets at all times, for validation, if any, and test."""
    return tuple(
        {
            "features": _encoded(normalizers, bucket["features"]),
            "target": np.stack([by_time(sample) for sample in dies]),
        }
        for bucket in samples.stack(dies)
    )


def _joint_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Relative L2 error over times, nodes and channels, `(frames, n, channels)`."""
    return metrics.relative_l2(prediction.reshape(-1), target.reshape(-1))


def _last(die: Sample) -> Sample:
    """A die with its last displacements as target."""
    return die._replace(target=by_time(die)[-1, :, 2:])


PROGRAM = Program("plasticity", PRESETS, make_task, grid_axes=2)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
