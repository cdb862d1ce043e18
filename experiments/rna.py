"""RNA surfaces: classifies every point from the shape of the surface.

    python -m experiments.rna --preset=quick --data_dir=...
    python -m experiments.rna --preset=quick --data_dir=... --orientation=random
    python -m experiments.rna --preset=quick --data_dir=... --inputs=hks

The published split has the same molecules in the same poses in training and test. The
program therefore also reports the accuracy of the nearest training point, which needs
no learning. Surfaces are oriented as published, by random rotations in training as in
the paper, or by their principal axes. Where the orientation matters, test surfaces are
also classified after random rotations. With --inputs=hks, models see heat kernel
signatures instead of coordinates.

Without --data_dir only the preset smoke and the tests run, on synthetic bumpy spheres.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import learn, point_clouds, samples, training
from opjax.datasets import rna
from opjax.learn import SMOKE, BenchmarkOptions, option, recipe
from opjax.learn.predict import trained
from opjax.learn.predict.description import Description, describe
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Columns, Operator
from opjax.learn.tasks import outcome
from opjax.learn.tasks.benchmark import request
from opjax.quadrature import weighted_mean

# How surfaces are turned before the model sees their coordinates.
ORIENTATIONS = ("random", "published", "principal")
# What the model sees of points: coordinates, or signatures of the surface around them.
INPUTS = ("xyz", "hks")
_AVAILABLE = 4096  # points of a surface to draw from in training
_SIGNED = (
    2048  # the same, of those that signatures are computed for, unless more needed
)
# Times of signatures in squares of the unit of length: for 5 angstrom, those at which
# heat has spread over 20 to 200.
_TIMES = tuple(np.geomspace(4, 400, 16).tolist())


@dataclasses.dataclass(frozen=True)
class Config(BenchmarkOptions):
    """All that the numbers of a run depend on."""

    num_points: int = option(
        512, "Number of points sampled from each training surface", minimum=1
    )
    test_points: int = option(
        1024,
        "Number of points per validation and test surface, spread over it",
        minimum=1,
    )
    orientation: str = option(
        "published",
        "Orientation of the surfaces: random rotations, as published, or principal "
        "axes",
        choices=ORIENTATIONS,
    )
    inputs: str = option(
        "xyz",
        "Input of the models: coordinates (xyz) or heat kernel signatures (hks)",
        choices=INPUTS,
    )
    length: float = option(
        5.0,
        "Unit of length in angstrom. Heat kernel signatures use its square as unit of "
        "time. 0 scales every surface by its largest radius",
        minimum=0,
    )
    decoder_norm: bool = option(True, "Normalise the features before the decoder")
    label_smoothing: float = option(
        0.0,
        "Label smoothing: fraction of the target that is distributed equally over "
        "all classes",
        minimum=0,
        below=1,
    )

    def __post_init__(self):
        """Refuses what signatures do not depend on, or cannot have."""
        super().__post_init__()
        if self.inputs == "hks" and self.orientation != "published":
            raise ValueError(
                f"orientation={self.orientation!r} has no meaning for inputs='hks', "
                "which do not change with it; give --orientation=published."
            )
        if self.inputs == "hks" and not self.length:
            raise ValueError(
                "length=0 gives every surface a unit of its own, inputs='hks' need one "
                "for the times of all; give --length=5."
            )


_ALL = Config(mlp_ratio=2, clip_norm=1.0, shared_basis=False)
_FEW = recipe(Config, num_train=8, num_validation=4, num_test=4)
_MANY = recipe(Config, num_train=507, num_validation=36, num_test=136, num_epochs=12)
_FAST = recipe(Config, learning_rate=2e-3)
_SMALL = recipe(Config, num_points=48, test_points=64)
_THREE = recipe(Config, models=("functional", "transolver", "softmax"))
PRESETS = {
    "smoke": (SMOKE | _FEW | _FAST | _SMALL)(_ALL),
    **learn.quick((_MANY | _FAST | _THREE)(_ALL)),
    # The authors' program, whose dropout of Transolver's attention weights is left out.
    "paper": recipe(
        Config,
        clip_norm=0.0,
        weight_decay=0.0,
        final_div_factor=1e3,
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
        dropout=0.1,
        width=128,
        num_heads=8,
        num_basis=128,
        num_epochs=200,
        batch_size=1,
        checkpoint_every=20,
    )(_ALL),
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
    signed, count = config.inputs == "hks", config.test_points
    enough = min(_AVAILABLE, max(_SIGNED, config.num_points, count))
    divided = rna.splits(
        request(config, cache_dir), num_points=enough if signed else _AVAILABLE
    )
    if signed:
        divided = _signed(config, divided, cache_dir)
    test = divided.test
    if config.data_dir:
        test = rna.with_vertices(config.data_dir, test, num_points=count)
    return divided._replace(
        train=[place(surface, config) for surface in divided.train],
        validation=[place(surface, config, count) for surface in divided.validation],
        test=[place(surface, config, count) for surface in test],
    )


def _signed(
    config: Config, found: samples.Splits, cache_dir: str | None
) -> samples.Splits:
    """The surfaces with normalised signatures as features."""
    times = [time * config.length**2 for time in _TIMES]
    signatures = partial(
        rna.with_signatures, times=times, data_dir=config.data_dir, cache_dir=cache_dir
    )
    signed = found.mapped(lambda part: signatures(part) if part else [])
    every = np.concatenate([np.asarray(surface.features) for surface in signed.train])
    mean, std = every.mean(axis=0), every.std(axis=0) + 1e-6

    def normalized(surface: samples.Sample) -> samples.Sample:
        return surface._replace(features=(surface.features - mean) / std)

    return signed.mapped(lambda part: list(map(normalized, part)))


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
    features = None if surface.features is None else surface.features[:num_points]
    return surface._replace(mesh_points=points, target=target, features=features)


def turned(surfaces: Sequence[samples.Sample]) -> list[samples.Sample]:
    """Turns every surface by a random rotation of its own, the same ones every time."""
    keys = jax.random.split(jax.random.key(0), len(surfaces))
    rotations = np.asarray(jax.vmap(point_clouds.random_rotation)(keys))
    pairs = zip(surfaces, rotations, strict=True)
    return [s._replace(mesh_points=s.mesh_points @ r) for s, r in pairs]


def make_task(config: Config, cache_dir: str | None = None) -> learn.Task:
    """Builds the segmentation.

        loss = -mean_b mean_i sum_c t_c log softmax(f(R_b x_b))_{i c},

    over points `i` drawn anew from every surface at every step, with random rotations
    `R_b` if the orientation is random, and `t = 1 - s + s / k` at the true class and
    `s / k` at others for the label smoothing `s`. The metric is the share of wrong
    points.
    """
    data = load(config, cache_dir=cache_dir)
    description = describe(data.train, sizes=_sizes(config), layout=_layout(config))
    train, validation, test = (
        samples.stack(part, batch_size=size, num_buckets=config.num_buckets or 4)
        for part, size in zip(data[:3], (config.batch_size, 1, 1), strict=True)
    )
    comparison = rna.untrained(seen(config, data.train), seen(config, data.test))
    return learn.Task(
        train=train,
        validation=validation,
        test=test,
        build=build,
        loss=partial(loss, config),
        mean=True,
        metric=wrong,
        evaluate=partial(evaluate, config, data.test, test, comparison, description),
        source=data.source,
        needs_key=True,
        notes=f"Inputs: {config.inputs}. Orientation: {config.orientation}.",
    )


def seen(config: Config, surfaces: Sequence[samples.Sample]) -> list[samples.Sample]:
    """The surfaces as the model sees them, with its inputs for coordinates."""
    if config.inputs == "xyz":
        return list(surfaces)
    return [surface._replace(mesh_points=surface.features) for surface in surfaces]


class OnFeatures(nnx.Module):
    """A model of points that sees their features in place of their coordinates."""

    def __init__(self, inner: Operator):
        self.inner = inner

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array,
        *,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the model; coordinates are for figures only."""
        del mesh_points
        return self.inner(features, quadrature_weights=quadrature_weights)


def _sizes(config: Config) -> operators.Sizes:
    channels = len(_TIMES) if config.inputs == "hks" else 3
    return operators.Sizes(channels, 0, rna.NUM_CLASSES)


def _layout(config: Config) -> operators.Layout:
    return operators.Layout(residual_encoder=True, decoder_norm=config.decoder_norm)


def build(config: Config, rngs: nnx.Rngs) -> Operator | OnFeatures:
    """Builds a model."""
    sizes, layout = _sizes(config), _layout(config)
    model = operators.build(config, sizes, layout=layout, rngs=rngs)
    return OnFeatures(model) if config.inputs == "hks" else model


def loss(
    config: Config, model: Operator, batch: Columns, *, key: jax.Array
) -> jax.Array:
    """Cross-entropy of points drawn from every surface, see `make_task`."""

    def one(sample: Columns, key: jax.Array) -> jax.Array:
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
    return jnp.sum(training.over_samples(one)(batch, keys)) / config.batch_size


def classify(model: Operator, sample: Columns) -> jax.Array:
    """The likeliest class of every point, int32 of shape `(n,)`."""
    return jnp.argmax(operators.call(model, sample), axis=1).astype(jnp.int32)


def wrong(model: Operator, sample: Columns) -> jax.Array:
    """Share of the points of a surface with another class than the true one."""
    differs = classify(model, sample) != sample["target"]
    weights = sample.get("quadrature_weights")
    return weighted_mean(differs.astype(jnp.float32), weights)


def evaluate(
    config: Config,
    surfaces: Sequence[samples.Sample],
    test: Sequence[Mapping[str, np.ndarray]],
    comparison: dict[str, float],
    description: Description,
    model: Operator,
    folder: pathlib.Path,
) -> dict[str, float]:
    """Numbers of `Task.evaluate`, of the test surfaces and their buckets `test`.

    Of coordinates, the operator is saved: `learn.load(folder)` returns scores of the
    classes of a surface that `place` has placed.
    """
    if config.inputs == "xyz":
        trained.save(folder, model, {}, description)

    def classes(bucket: Mapping[str, np.ndarray]) -> jax.Array:
        size = min(config.batch_size, len(bucket["target"]))
        return training.evaluate(classify, model, bucket, batch_size=size)

    counts = [surface.num_points for surface in surfaces]

    def predict(buckets: Sequence[Mapping[str, np.ndarray]]) -> list[np.ndarray]:
        each = list(map(classes, buckets))
        return samples.unstack(each, counts, num_buckets=config.num_buckets or 4)

    predicted = predict(test)
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
    if config.inputs == "xyz" and config.orientation != "principal":
        again = samples.stack(turned(surfaces), num_buckets=config.num_buckets or 4)
        found = np.concatenate(predict(again))
        numbers["accuracy_turned"] = np.mean(found == np.concatenate(true))
    if surfaces[0].details is not None:  # where there are meshes
        vertices = [surface.details for surface in surfaces]
        truth = np.concatenate([v.target for v in vertices])
        for name, values in {"accuracy": predicted, "limit": true}.items():
            carried = [c[v.nearest] for c, v in zip(values, vertices, strict=True)]
            numbers[f"{name}_vertices"] = np.mean(np.concatenate(carried) == truth)
    return {name: float(value) for name, value in numbers.items()} | comparison


PROGRAM = learn.Program("rna", PRESETS, make_task, title="RNA", grid_axes=0)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
