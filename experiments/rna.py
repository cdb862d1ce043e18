"""RNA surfaces: learns the class of every point from the shape of the surface.

    python -m experiments.rna --preset=quick --data_dir=...
    python -m experiments.rna --preset=paper --data_dir=... --orientation=principal

The published split holds the same molecules in the same poses, so the program says what
the nearest training point gives without any learning. Surfaces are seen as published,
in random rotations while training, as in the paper, or in their principal axes. Without
--data_dir only the smoke preset and tests run, on bumpy spheres, which say nothing
about RNA.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import learn, point_clouds, training
from opjax.datasets import rna, samples
from opjax.learn import SMOKE, BenchmarkOptions, operators, option, outcome
from opjax.learn.benchmark import load as load_splits
from opjax.quadrature import weighted_mean

# How surfaces are turned before the model sees their coordinates.
ORIENTATIONS = ("random", "published", "principal")
_AVAILABLE = 4096  # points of a surface to draw from in training


@dataclasses.dataclass(frozen=True)
class Config(BenchmarkOptions):
    """All that the numbers of a run depend on."""

    num_points: int = option(512, "Points drawn of a training surface", minimum=1)
    test_points: int = option(
        1024, "First points of other surfaces, spread over them", minimum=1
    )
    orientation: str = option(
        "published", "How surfaces are turned", choices=ORIENTATIONS
    )
    length: float = option(
        5.0, "Unit of coordinates in angstrom; 0: the largest radius", minimum=0
    )
    decoder_norm: bool = option(True, "Normalise features before the decoder")
    label_smoothing: float = option(
        0.0, "Weight of all classes alike in the target", minimum=0, below=1
    )


_ALL: dict[str, Any] = {"mlp_ratio": 2, "clip_norm": 1.0, "shared_basis": False}
_FEW: dict[str, Any] = {"num_train": 8, "num_validation": 4, "num_test": 4}
_MANY: dict[str, Any] = {"num_train": 507, "num_validation": 36, "num_test": 136}
_SHORT: dict[str, Any] = {"num_epochs": 12, "learning_rate": 2e-3}
_THREE = ("functional", "transolver", "softmax")
PRESETS = {
    "smoke": Config(
        **{**SMOKE, **_ALL, **_FEW, "learning_rate": 2e-3},
        num_points=48,
        test_points=64,
    ),
    "quick": Config(models=_THREE, **_ALL, **_MANY, **_SHORT),
    # The authors' program, but for its dropout behind the attention.
    "paper": Config(
        **{**_ALL, "clip_norm": 0.0, "weight_decay": 0.0, "final_div_factor": 1e3},
        preset="paper",
        models=("functional", "transolver"),
        equal_parameters=False,
        num_train=547,
        num_validation=0,
        num_test=136,
        num_points=4096,
        test_points=4096,
        orientation="random",
        length=0.0,
        decoder_norm=False,
        features=128,
        num_heads=8,
        num_basis=128,
        num_epochs=200,
        batch_size=1,
        checkpoint_every=20,
    ),
}


def load(config: Config, *, cache_dir: str | None = None) -> samples.Splits:
    """Reads the surfaces, centred, scaled and, if asked for, turned.

    Errors are those of `rna.splits`; ValueError if there are no data for the preset.
    """
    if not config.data_dir and config.preset != "smoke":
        raise ValueError(
            f"preset={config.preset!r} needs --data_dir, the folder of the RNA "
            "surfaces (see opjax.datasets.rna); without, only the smoke preset runs, "
            "on synthetic surfaces."
        )
    splits = partial(rna.splits, num_points=_AVAILABLE)
    found, count = load_splits(config, splits, cache_dir=cache_dir), config.test_points
    test = found.test
    if config.data_dir:
        test = rna.with_vertices(config.data_dir, test, num_points=count)
    return found._replace(
        train=[place(surface, config) for surface in found.train],
        validation=[place(surface, config, count) for surface in found.validation],
        test=[place(surface, config, count) for surface in test],
    )


def place(
    surface: samples.Sample, config: Config, num_points: int | None = None
) -> samples.Sample:
    """Centres, scales and turns a surface; keeps its first points."""
    points = point_clouds.centre_and_scale(
        surface.mesh_points, length=config.length or None
    )
    if config.orientation == "principal":
        points = points @ point_clouds.principal_axes(points)
    points = np.asarray(points, np.float32)[:num_points]
    target = np.asarray(surface.target)[:num_points]
    return surface._replace(mesh_points=points, target=target)


def make_task(config: Config, cache_dir: str | None = None) -> learn.Task:
    """Builds the segmentation.

        loss = -mean_b mean_i sum_c t_c log softmax(f(R_b x_b))_{i c},

    over points `i` drawn anew from every surface at every step, with random rotations
    `R_b` if the orientation is random, and `t = 1 - s + s / k` at the true class and
    `s / k` at others for the label smoothing `s`. The metric is the share of wrong
    points.
    """
    data = load(config, cache_dir=cache_dir)
    train, validation, test = (
        samples.stack(part, batch_size=size, num_buckets=config.num_buckets)
        for part, size in zip(data[:3], (config.batch_size, 1, 1), strict=True)
    )
    return learn.Task(
        train=train,
        validation=validation,
        test=test,
        build=build,
        loss=partial(loss, config),
        metric=wrong,
        evaluate=partial(
            evaluate, config, data.test, test, rna.untrained(data.train, data.test)
        ),
        source=data.source,
        needs_key=True,
        notes=f"Orientation: {config.orientation}.",
    )


def build(config: Config, rngs: nnx.Rngs) -> nnx.Module:
    """Builds a model."""
    sizes = operators.Sizes(3, 0, rna.NUM_CLASSES)
    layout = {"residual_encoder": True, "decoder_norm": config.decoder_norm}
    return operators.build(config, sizes, options=layout, rngs=rngs)


def loss(config: Config, model: Any, batch: Any, *, key: jax.Array) -> jax.Array:
    """Cross-entropy of points drawn from every surface, see `make_task`."""

    def one(sample: Any, key: jax.Array) -> jax.Array:
        draw_key, rotation_key = jax.random.split(key)
        sample = samples.draw_points(sample, draw_key, num_points=config.num_points)
        if config.orientation == "random":
            points = sample["mesh_points"]
            rotation = point_clouds.random_rotation(rotation_key, dtype=points.dtype)
            sample |= {"mesh_points": points @ rotation}
        scores = jax.nn.log_softmax(operators.call(model, sample))
        true = jnp.take_along_axis(scores, sample["target"][:, None], axis=1)[:, 0]
        smooth = config.label_smoothing
        values = (1 - smooth) * true + smooth * jnp.mean(scores, axis=1)
        return -weighted_mean(values, sample.get("quadrature_weights"))

    keys = jax.random.split(key, len(batch["target"]))
    # A sum over the parts of a batch that are differentiated one by one.
    return jnp.sum(jax.vmap(one)(batch, keys)) / config.batch_size


def classify(model: Any, sample: Any) -> jax.Array:
    """The likeliest class of every point, int32 of shape `(n,)`."""
    return jnp.argmax(operators.call(model, sample), axis=1).astype(jnp.int32)


def wrong(model: Any, sample: Any) -> jax.Array:
    """Share of the points of a surface with another class than the true one."""
    differs = classify(model, sample) != sample["target"]
    weights = sample.get("quadrature_weights")
    return weighted_mean(differs.astype(jnp.float32), weights)


def evaluate(
    config: Config,
    surfaces: Sequence[samples.Sample],
    test: tuple[Any, ...],
    comparison: dict[str, float],
    model: Any,
    folder: pathlib.Path,
) -> dict[str, float]:
    """Numbers of `Task.evaluate`, of the test surfaces and their buckets `test`."""

    def classes(bucket: Any) -> jax.Array:
        size = min(config.batch_size, len(bucket["target"]))
        return training.evaluate(classify, model, bucket, batch_size=size)

    predicted = samples.unstack(
        list(map(classes, test)),
        [surface.num_points for surface in surfaces],
        num_buckets=config.num_buckets,
    )
    true = [np.asarray(surface.target) for surface in surfaces]
    right = np.array([np.mean(p == t) for p, t in zip(predicted, true, strict=True)])
    rows = outcome.rows(1 - right)
    outcome.write(
        folder,
        errors=1 - right,
        rows=rows,
        samples=[surfaces[row] for row in rows],
        predicted=[predicted[row] for row in rows],
    )
    numbers = {
        "accuracy": np.mean(np.concatenate(predicted) == np.concatenate(true)),
        "accuracy_worst": right.min(),
    }
    if surfaces[0].details is not None:  # where there are meshes
        vertices = [surface.details for surface in surfaces]
        wanted = np.concatenate([v.target for v in vertices])
        for name, values in {"accuracy": predicted, "limit": true}.items():
            carried = [c[v.nearest] for c, v in zip(values, vertices, strict=True)]
            numbers[f"{name}_vertices"] = np.mean(np.concatenate(carried) == wanted)
    return {name: float(value) for name, value in numbers.items()} | comparison


PROGRAM = learn.Program("rna", PRESETS, make_task, title="RNA", grid_axes=0)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
