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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import learn, metrics, samples, training
from opjax.datasets import plasticity as dataset
from opjax.learn import GNOT_RECIPE, PAPER, SMOKE, option
from opjax.learn.predict import trained
from opjax.learn.predict.prediction import predict_sample
from opjax.learn.tasks import outcome, supervised
from opjax.learn.tasks.benchmark import load as load_splits
from opjax.samples import Sample
from opjax.samples.normalizers import encode, fit_normalizers

_CHANNELS = dataset.NUM_CHANNELS
_TIMELESS = {"galerkin2d", "linear2d", "fourier2d", "softmax2d", "orthogonal_network"}


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
        for name in _TIMELESS & {*self.models}:
            raise ValueError(f"models={name!r} has no time; take another model.")
        # The others take time, by an embedding of half sines and half cosines; those
        # of equal parameters get a multiple of the heads as channels.
        for name in ("width", "num_heads"):
            if getattr(self, name) % 2:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be even, since the embedding "
                    "of time has pairs of channels."
                )


_FEW: dict[str, Any] = {"num_train": 4, "num_validation": 2, "num_test": 2}
_FEW |= {"nodes_along": 13, "nodes_across": 5, "batch_size": 4}
_SOME: dict[str, Any] = {"num_train": 64, "num_validation": 8, "num_test": 16}
_MANY: dict[str, Any] = {"num_train": 900, "num_test": 80}
_MANY |= {"nodes_along": 101, "nodes_across": 31, "batch_size": 8}
# Table 10, and the authors' program for what it leaves open.
_OWN: dict[str, Any] = {"shared_basis": False, "normalize_target": False}
_OWN |= {"final_div_factor": 1e3, "checkpoint_every": 1}
_PAPER = Config(**PAPER, **_MANY, **_OWN)
# Its points do not belong to the values.
_CODE = dataclasses.replace(_PAPER, preset="code", coordinates="published")
_LOWER: dict[str, Any] = {"final_div_factor": 1e4}
_GNOT = {**GNOT_RECIPE, **_LOWER, "batch_size": 8}
_ONO = {**_LOWER, "num_basis": 8, "ono_attention": "efficient"}
PRESETS = {
    "smoke": Config(**{**SMOKE, **_FEW, "width": 8, "num_epochs": 1}, num_modes=3),
    # A coarser mesh than the published one: stiffer, another operator.
    **learn.quick(Config(width=32, num_layers=3, num_epochs=15, batch_size=8, **_SOME)),
    **learn.published(_PAPER, transolver=_LOWER, gnot=_GNOT, ono_original=_ONO),
    **learn.published(_CODE, transolver=_LOWER),
}


def load(config: Config, *, cache_dir: str | None = None) -> learn.Splits:
    """Generates or reads the samples; the sets have none in common."""
    shape = config.nodes_along, config.nodes_across
    splits = partial(dataset.splits, num_points=shape)
    return load_splits(config, splits, "coordinates", cache_dir=cache_dir)


def motions(dies: Sequence[Sample]) -> dict[str, np.ndarray]:
    """Stacks dies: `features (dies, n, 1)` and `target (dies, frames, n, 4)`.

    The mesh points, which all dies share, are left out.
    """
    (found,) = samples.stack(dies)
    shape = *found["features"].shape[:2], -1, _CHANNELS
    target = np.moveaxis(found["target"].reshape(shape), 2, 1)
    return {"features": found["features"], "target": np.ascontiguousarray(target)}


def frame_times(num_frames: int) -> np.ndarray:
    """Times of the frames, from 0 to 1, float32."""
    return np.linspace(0, 1, num_frames, dtype=np.float32)


def pairs(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All pairs of die and time of `motions`: `features`, `time` and `target`."""
    num_dies, num_frames, *shape = found["target"].shape
    return {
        "features": np.repeat(found["features"], num_frames, axis=0),
        "time": np.tile(frame_times(num_frames), num_dies),
        "target": found["target"].reshape(-1, *shape),
    }


def make_task(config: Config, cache_dir: str | None = None) -> learn.Task:
    """Builds the task.

    loss = sum over the pairs of a batch of |p - t| / |t|, over nodes and channels;
    metric = |p - t| / |t| over nodes, channels and all times of a die together.
    """
    splits = load(config, cache_dir=cache_dir)
    sizes = supervised.grid_sizes(splits, out_features=_CHANNELS, time_embedding=True)
    normalizers = _normalizers(splits, config)
    sets = splits.train, splits.validation, splits.test
    train, validation, test = (_encoded(normalizers, dies) for dies in sets)
    points = jnp.asarray(splits.train[0].mesh_points)
    times = jnp.asarray(frame_times(train[0]["target"].shape[1]))
    description = trained.describe(splits.train, sizes=sizes)

    def predict(model: Any, features: jax.Array, time: jax.Array) -> jax.Array:
        sample = {"mesh_points": points, "features": features}
        return predict_sample(normalizers, model, sample, time=time)

    def loss(model: Any, batch: Any) -> jax.Array:
        def error(pair: Any) -> jax.Array:
            prediction = predict(model, pair["features"], pair["time"])
            return metrics.relative_l2(prediction, pair["target"])

        return jnp.sum(training.over_samples(error)(batch))

    def motion(model: Any, sample: Any) -> jax.Array:
        return jax.lax.map(partial(predict, model, sample["features"]), times)

    def metric(model: Any, sample: Any) -> jax.Array:
        return _joint_error(motion(model, sample), sample["target"])

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        trained.save(folder, model, normalizers, description)
        return _evaluate(config, motion, model, folder, splits.test, test[0])

    return learn.Task(
        train=tuple(map(pairs, train)),
        validation=validation,
        test=test,
        build=supervised.builder(sizes),
        loss=loss,
        metric=metric,
        evaluate=evaluate,
        extra=normalizers,
        source=splits.source,
        notes=f"Training samples are pairs of {len(splits.train)} dies with "
        f"{len(times)} times. Errors are over all times; `displacement` is that of the "
        "displacements alone, which the coordinates outweigh in `relative l2`.",
    )


def _normalizers(splits: learn.Splits, config: Config) -> dict[str, Any]:
    """Of the profile, and of the four channels over all nodes and times."""
    found = motions(splits.train)
    flat = {name: array.reshape(-1, array.shape[-1]) for name, array in found.items()}
    joined, target = splits.train[0]._replace(**flat), config.normalize_target
    return fit_normalizers([joined], points=False, features=True, target=target)


def _encoded(normalizers: Any, dies: Sequence[Sample]) -> tuple[dict[str, Any], ...]:
    """Encoded `motions` of dies, if there are any."""
    if not dies:
        return ()
    arrays = encode(motions(dies), normalizers)
    return ({name: np.asarray(array) for name, array in arrays.items()},)


def _evaluate(
    config: Config,
    motion: Callable[[Any, Any], jax.Array],
    model: Any,
    folder: pathlib.Path,
    dies: Sequence[Sample],
    arrays: Any,
) -> dict[str, float]:
    """Errors over all times, and of every frame; the last displacements are shown."""

    def look(model: Any, sample: Any) -> tuple[jax.Array, ...]:
        found, target = motion(model, sample), sample["target"]
        moved, truth = found[..., 2:], target[..., 2:]
        norms = jax.vmap(jnp.linalg.norm)
        by_frame = norms(moved - truth) / jnp.max(norms(truth))
        error, of_moves = _joint_error(found, target), _joint_error(moved, truth)
        return error, by_frame, moved[-1], of_moves

    ends = arrays["target"][:, -1, :, 2:]
    last = [die._replace(target=end) for die, end in zip(dies, ends, strict=True)]
    errors, _, displacement = outcome.evaluate_steps(
        look,
        model,
        folder,
        samples=last,
        arrays=arrays,
        batch_size=config.batch_size,
        name="frame",
    )
    return {
        "relative_l2": float(errors.mean()),
        "displacement": float(displacement.mean()),
        "relative_l2_worst": float(errors.max()),
    }


def _joint_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Relative L2 error over times, nodes and channels, `(frames, n, channels)`."""
    return metrics.relative_l2(prediction.reshape(-1), target.reshape(-1))


PROGRAM = learn.Program("plasticity", PRESETS, make_task, grid_axes=2)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
