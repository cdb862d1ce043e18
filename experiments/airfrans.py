"""AirfRANS: predicts the flow around airfoils, and from it their lift and drag.

    python -m experiments.airfrans --preset=quick
    python -m experiments.airfrans --preset=paper --data_dir=... --split=aoa

Without --data_dir, potential flows around Joukowski airfoils are generated. They show
that the program works but do not replace RANS simulations. The lift error is that of
the paper: the predicted fields are integrated over the airfoil.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import learn, metrics, normalize, samples, training
from opjax.datasets import airfrans
from opjax.learn import SMOKE, BenchmarkOptions, option, quick, recipe
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Columns, Operator
from opjax.learn.tasks import outcome
from opjax.learn.tasks.benchmark import request
from opjax.quadrature import weighted_mean
from opjax.samples.normalizers import fit_normalizers

# Where the reference points of the published model are, in chords.
_BOX = ((-2.0, -1.5), (4.0, 1.5))


@dataclasses.dataclass(frozen=True)
class Config(BenchmarkOptions):
    """All that the numbers of a run depend on."""

    split: str = option(
        "full",
        "Split of the published cases: full, scarce, or extrapolation in Reynolds "
        "number (reynolds) or angle of attack (aoa)",
        choices=tuple(airfrans.SPLITS),
    )
    num_points: int = option(
        512, "Number of points sampled from each training case", minimum=1
    )
    surface_weight: float = option(
        1.0, "Weight of the error on the airfoil surface in the loss", minimum=0
    )


_ALL = Config(mlp_ratio=2, weight_decay=0.0, shared_basis=False)
_CLIPPED = recipe(Config, clip_norm=1.0)
_FEW = recipe(Config, num_train=4, num_validation=2, num_test=3, num_points=128)
_SOME = recipe(Config, num_train=64, num_validation=8, num_test=32, num_epochs=40)
PRESETS = {
    "smoke": (SMOKE | _FEW | _CLIPPED)(_ALL),
    **quick((_SOME | _CLIPPED)(_ALL)),
    # Table 10 and, for reference points and the width of perceptrons, the published
    # code; 504 training cases, the last tenth of them for validation. The other split
    # of Table 3 is --split=aoa --num_train=723 --num_validation=81 --num_test=196.
    "paper": recipe(
        Config,
        preset="paper",
        models=("functional", "transolver"),
        equal_parameters=False,
        split="reynolds",
        num_train=453,
        num_validation=51,
        num_test=496,
        num_points=32000,
        reference_points=8,
        width=256,
        num_layers=8,
        num_heads=8,
        num_basis=32,
        num_epochs=400,
        batch_size=1,
        clip_norm=0.0,
        checkpoint_every=10,
    )(_ALL),
}


def load(config: Config, *, cache_dir: str | None = None) -> samples.Splits:
    """Reads the flows, or makes some; errors are those of `airfrans.splits`."""
    if not config.data_dir and config.preset == "paper":
        raise ValueError(
            "preset='paper' needs --data_dir, the folder of AirfRANS (see "
            "opjax.datasets.airfrans); the others run on potential flow."
        )
    return airfrans.splits(request(config, cache_dir), split=config.split)


def make_task(config: Config, cache_dir: str | None = None) -> learn.Task:
    """Builds the task to predict velocity, pressure and viscosity of turbulence.

        loss = mean_b (L_v + surface_weight L_s),

    the mean squared errors of the normalised fields at points drawn in the fluid and at
    the airfoil.
    """
    cases = load(config, cache_dir=cache_dir)
    normalizers = fit_normalizers(
        cases.train, points=False, features=True, target=True, published=True
    )
    train, validation, test = (
        _stack(part, normalizers, size, config.num_buckets or 4)
        for part, size in zip(cases[:3], (config.batch_size, 1, 1), strict=True)
    )
    return learn.Task(
        train=train,
        validation=validation,
        test=test,
        build=build,
        loss=partial(loss, config),
        mean=True,
        metric=partial(error, config),
        evaluate=partial(evaluate, config, cases.test, test, normalizers),
        extra=normalizers,
        source=cases.source,
        needs_key=True,
    )


def build(config: Config, rngs: nnx.Rngs) -> Operator:
    """Builds a model."""
    channels = len(airfrans.FEATURES), len(airfrans.TARGETS)
    return operators.build(config, operators.Sizes(2, *channels, box=_BOX), rngs=rngs)


def parts(model: Operator, sample: Columns) -> tuple[jax.Array, jax.Array]:
    """Mean squared errors in the fluid and at the airfoil, of normalised fields."""
    surface = sample["surface"]
    weights = sample.get("quadrature_weights", jnp.ones_like(surface))
    squares = (operators.call(model, sample) - sample["target"]) ** 2
    squares = jnp.mean(squares, axis=1)
    return (
        weighted_mean(squares, weights * (1 - surface)),
        weighted_mean(squares, weights * surface),
    )


def of_fields(model: Operator, sample: Columns) -> jax.Array:
    """Mean squared errors of each normalised field, in the fluid and at the airfoil."""
    surface = sample["surface"]
    weights = sample.get("quadrature_weights", jnp.ones_like(surface))
    squares = (operators.call(model, sample) - sample["target"]) ** 2
    shares = jnp.stack([weights * (1 - surface), weights * surface])
    mean = jax.vmap(jax.vmap(weighted_mean, in_axes=(1, None)), in_axes=(None, 0))
    return mean(squares, shares)


def error(config: Config, model: Operator, sample: Columns) -> jax.Array:
    """The loss of one sample at all its points."""
    volume, surface = parts(model, sample)
    return volume + config.surface_weight * surface


def loss(
    config: Config, model: Operator, batch: Columns, *, key: jax.Array
) -> jax.Array:
    """The loss at points drawn from every sample, see `make_task`."""

    def one(sample: Columns, key: jax.Array) -> jax.Array:
        drawn = samples.draw_points(sample, key, num_points=config.num_points)
        return error(config, model, drawn)

    keys = jax.random.split(key, len(batch["target"]))
    # A sum over the parts of a batch that are differentiated one by one.
    return jnp.sum(training.over_samples(one)(batch, keys)) / config.batch_size


def evaluate(
    config: Config,
    cases: Sequence[samples.Sample],
    test: Sequence[Mapping[str, np.ndarray]],
    normalizers: dict[str, normalize.Normalizer],
    model: Operator,
    folder: pathlib.Path,
) -> dict[str, float]:
    """Numbers of `Task.evaluate`, of the test cases and their buckets `test`."""

    def one(model: Operator, sample: Columns) -> tuple[Any, jax.Array, jax.Array]:
        predicted = operators.call(model, sample)
        decoded = normalize.decode(normalizers["target"], predicted)
        return parts(model, sample), decoded, of_fields(model, sample)

    looks = samples.unstack(
        [training.evaluate(one, model, bucket, batch_size=1) for bucket in test],
        [case.num_points for case in cases],
        num_buckets=config.num_buckets or 4,
    )
    errors = np.array([pair for pair, _, _ in looks], np.float64)
    fields = [field for _, field, _ in looks]
    of_each = np.asarray([one for _, _, one in looks], np.float64).mean(axis=0)
    total = errors[:, 0] + config.surface_weight * errors[:, 1]
    rows = outcome.rows(total)
    targets = [np.asarray(case.target) for case in cases]
    outcome.write(
        folder,
        errors=total,
        rows=rows,
        # Of the fields, the pressure is drawn.
        samples=[cases[row]._replace(target=targets[row][:, 2:3]) for row in rows],
        predicted=[fields[row][:, 2:3] for row in rows],
    )
    ours = np.array(list(map(airfrans.coefficients, cases, fields)))
    true = np.array(list(map(airfrans.coefficients, cases, targets)))
    numbers = {}
    # The drag of potential flow is zero.
    for column, name in ((1, "lift"), (0, "drag"))[: 2 if config.data_dir else 1]:
        pair = ours[:, column], true[:, column]
        numbers[f"{name}_error"] = float(np.mean(np.abs(pair[0] / pair[1] - 1)))
        numbers[f"{name}_spearman"] = float(metrics.rank_correlation(*pair))
    volume, surface = errors.mean(axis=0)
    numbers |= {"volume": float(volume), "surface": float(surface)}
    for part, values in zip(("volume", "surface"), of_each, strict=True):
        named = zip(airfrans.TARGETS, values, strict=True)
        numbers |= {f"{part}_{name}": float(value) for name, value in named}
    return numbers


def _stack(
    cases: Sequence[samples.Sample],
    normalizers: dict[str, normalize.Normalizer],
    batch_size: int,
    num_buckets: int,
) -> tuple[dict[str, np.ndarray], ...]:
    """Buckets of normalised features and targets, and of which points are `surface`."""

    def encoded(case: samples.Sample) -> samples.Sample:
        surface = np.zeros((case.num_points, 1), np.float32)
        surface[case.details.surface] = 1
        features, target = (
            np.asarray(normalize.encode(normalizers[name], jnp.asarray(array)))
            for name, array in (("features", case.features), ("target", case.target))
        )
        features = np.concatenate([features, surface], axis=1)
        return case._replace(features=features, target=target)

    buckets = samples.stack(
        list(map(encoded, cases)), batch_size=batch_size, num_buckets=num_buckets
    )
    for bucket in buckets:
        bucket["surface"] = bucket["features"][..., -1]
        bucket["features"] = bucket["features"][..., :-1]
    return buckets


PROGRAM = learn.Program("airfrans", PRESETS, make_task, title="AirfRANS", grid_axes=0)
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
