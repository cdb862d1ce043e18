"""AirfRANS: learns the flow around airfoils, and with it their lift and drag.

    python -m experiments.airfrans --preset=quick
    python -m experiments.airfrans --preset=paper --data_dir=... --split=aoa

Without --data_dir the flows are potential flows around Joukowski airfoils, which are no
substitute for RANS simulations: they show that the program works. The errors of lift
are those of the paper, integrated over the airfoil from the predicted fields.
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

from experiments import point_subsets
from opjax import normalize, training
from opjax.datasets import airfrans, samples
from opjax.learn import (
    SMOKE,
    BenchmarkOptions,
    Program,
    Task,
    operators,
    option,
    outcome,
    supervised,
)
from opjax.learn.benchmark import load as load_splits
from opjax.problems import airfoil_forces

# Where the reference points of the published model are, in chords.
_BOX = ((-2.0, -1.5), (4.0, 1.5))


@dataclasses.dataclass(frozen=True)
class Config(BenchmarkOptions):
    """All that the numbers of a run depend on."""

    split: str = option(
        "full", "Of the published cases", choices=tuple(airfrans.SPLITS)
    )
    num_points: int = option(512, "Points drawn of a training case", minimum=1)
    surface_weight: float = option(1.0, "Weight of the error at the airfoil", minimum=0)


_COMMON: dict[str, Any] = {"mlp_ratio": 2, "weight_decay": 0.0}
PRESETS = {
    "smoke": Config(
        **SMOKE,
        **_COMMON,
        num_train=4,
        num_validation=2,
        num_test=3,
        num_points=128,
        clip_norm=1.0,
    ),
    "quick": Config(
        **_COMMON,
        num_train=64,
        num_validation=8,
        num_test=32,
        num_epochs=40,
        clip_norm=1.0,
    ),
    # Table 10 and, for reference points and the width of perceptrons, the published
    # code; 504 training cases, the last tenth of them for validation. The other split
    # of Table 3 is --split=aoa --num_train=723 --num_validation=81 --num_test=196.
    "paper": Config(
        **_COMMON,
        preset="paper",
        models=("functional", "transolver"),
        split="reynolds",
        num_train=453,
        num_validation=51,
        num_test=496,
        num_points=32000,
        reference_points=8,
        features=256,
        num_layers=8,
        num_heads=8,
        num_basis=32,
        num_epochs=400,
        batch_size=1,
        clip_norm=0.0,
        checkpoint_every=10,
    ),
}


def load(config: Config, *, cache_dir: str | None = None) -> samples.Splits:
    """Reads the flows, or makes some; validation cases are the last of the first ones.

    Args:
      config: all that the numbers depend on.
      cache_dir: folder of generated data.

    Raises:
      ImportError: if pyvista is needed and missing.
      OSError: if files are missing or cannot be read.
      ValueError: if they are damaged or there are too few, or the paper preset has no
        data_dir.
    """
    if not config.data_dir and config.preset == "paper":
        raise ValueError(
            "preset='paper' needs --data_dir, the folder of AirfRANS (see "
            "opjax.datasets.airfrans); the others run on potential flow."
        )
    return load_splits(config, airfrans.splits, "split", cache_dir=cache_dir)


def make_task(config: Config, cache_dir: str | None = None) -> Task:
    """Builds the task to predict velocity, pressure and viscosity of turbulence.

        loss = mean_b (L_v + surface_weight L_s),

    the mean squared errors of the normalised fields at points drawn in the fluid and at
    the airfoil.

    Args:
      config: all that the numbers depend on.
      cache_dir: folder of generated data.
    """
    cases = load(config, cache_dir=cache_dir)
    normalizers = supervised.fit_normalizers(
        cases.train, points=False, features=True, target=True
    )
    train, validation, test = (
        _stack(found, normalizers, size, config.num_buckets)
        for found, size in (
            (cases.train, config.batch_size),
            (cases.validation, 1),
            (cases.test, 1),
        )
    )
    return Task(
        train=train,
        validation=validation,
        test=test,
        build=build,
        loss=partial(loss, config),
        metric=partial(error, config),
        evaluate=partial(evaluate, config, cases, test, normalizers),
        extra=normalizers,
        source=cases.source,
        needs_key=True,
    )


def build(config: Config, rngs: nnx.Rngs) -> nnx.Module:
    """Builds a model: every layer has its own basis, as in the published code."""
    channels = len(airfrans.FEATURES), len(airfrans.TARGETS)
    sizes = operators.Sizes(2, *channels, box=_BOX)
    own = dataclasses.replace(config, shared_basis=False)
    return operators.build(own, sizes, rngs=rngs)


def parts(model: Any, sample: Any) -> tuple[jax.Array, jax.Array]:
    """Mean squared errors in the fluid and at the airfoil, of normalised fields."""
    weights, surface = sample.get("quadrature_weights"), sample["surface"]
    squares = (operators.call(model, sample) - sample["target"]) ** 2
    squares = jnp.mean(squares, axis=1)
    given = jnp.ones_like(surface) if weights is None else weights
    return (
        point_subsets.mean(squares, given * (1 - surface)),
        point_subsets.mean(squares, given * surface),
    )


def error(config: Config, model: Any, sample: Any) -> jax.Array:
    """The loss of one sample at all its points."""
    volume, surface = parts(model, sample)
    return volume + config.surface_weight * surface


def loss(config: Config, model: Any, batch: Any, *, key: jax.Array) -> jax.Array:
    """The loss at points drawn from every sample, see `make_task`."""

    def one(sample: Any, key: jax.Array) -> jax.Array:
        drawn = point_subsets.draw(sample, key, config.num_points)
        return error(config, model, drawn)

    size = batch["target"].shape[0]
    values = jax.vmap(one)(batch, jax.random.split(key, size))
    # A sum over the parts of a batch that are differentiated one by one.
    return jnp.sum(values) / config.batch_size


def evaluate(
    config: Config,
    cases: samples.Splits,
    test: tuple[Any, ...],
    normalizers: dict[str, normalize.Normalizer],
    model: Any,
    folder: pathlib.Path,
) -> dict[str, float]:
    """Makes the numbers of `Task.evaluate`, see `run`, and a file of some predictions.

    Args:
      config: all that the numbers depend on.
      cases: the flows.
      test: buckets of the test cases.
      normalizers: of features and target.
      model: a trained model.
      folder: where to write `predictions.npz`.
    """

    def both(model: Any, sample: Any) -> tuple[Any, jax.Array]:
        predicted = normalize.decode(
            normalizers["target"], operators.call(model, sample)
        )
        return parts(model, sample), predicted

    counts = [case.num_points for case in cases.test]
    errors = np.zeros((len(counts), 2))
    fields: dict[int, np.ndarray] = {}
    rows = samples.bucket_rows(counts, num_buckets=config.num_buckets)
    for bucket, (_, indices) in zip(test, rows, strict=True):
        found, predicted = training.evaluate(both, model, bucket, batch_size=1)
        errors[indices] = np.stack(found, axis=1)
        for index, field in zip(indices, np.asarray(predicted), strict=True):
            fields[int(index)] = field[: counts[index]]
    total = errors[:, 0] + config.surface_weight * errors[:, 1]
    shown = outcome.rows(total)
    outcome.write(
        folder,
        errors=total,
        rows=shown,
        samples=[_pressure(cases.test[row]) for row in shown],
        predicted=[fields[row][:, 2:3] for row in shown],
    )
    ours = np.array([coefficients(c, fields[i]) for i, c in enumerate(cases.test)])
    true = np.array([coefficients(c, _target(c)) for c in cases.test])
    volume, surface = errors.mean(axis=0)
    numbers = {"volume": float(volume), "surface": float(surface)}
    # The drag of potential flow is zero.
    names = ("drag", "lift") if config.data_dir else ("lift",)
    forces = {}
    for name in reversed(names):
        column = ("drag", "lift").index(name)
        relative = np.abs(ours[:, column] / true[:, column] - 1)
        forces[f"{name}_error"] = float(relative.mean())
        forces[f"{name}_spearman"] = spearman(ours[:, column], true[:, column])
    return forces | numbers


def coefficients(case: samples.Sample, fields: np.ndarray) -> np.ndarray:
    """Drag and lift coefficient of fields on the mesh of a case.

    Velocity at the airfoil is set to zero, as in the published evaluation.

    Args:
      case: the flow.
      fields: velocity, pressure and viscosity of turbulence, shape `(n, 4)`.
    """
    assert case.cells is not None
    assert case.features is not None
    velocity = np.array(fields[:, :2], np.float32)
    velocity[case.details.surface] = 0
    stencil = airfoil_forces.wall_stencil(
        case.details.points, case.cells, case.details.surface
    )
    normals = case.features[case.details.surface, 5:]
    shear = airfoil_forces.wall_shear(velocity, normals, stencil)
    found = airfoil_forces.force_coefficients(
        case.details.points[case.details.surface].astype(np.float32),
        fields[case.details.surface, 2],
        speed=case.details.speed,
        angle=case.details.angle,
        shear=shear,
    )
    return np.asarray(found, np.float64)


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation; NaN where all values of one array are equal."""
    from scipy.stats import rankdata

    if len(first) < 2:
        return float("nan")
    with np.errstate(invalid="ignore"):
        return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def _stack(
    cases: Sequence[samples.Sample],
    normalizers: dict[str, normalize.Normalizer],
    batch_size: int,
    num_buckets: int,
) -> tuple[dict[str, np.ndarray], ...]:
    """Buckets of normalised features and targets, and of which points are `surface`."""

    def marked(case: samples.Sample) -> samples.Sample:
        features = case.features
        assert features is not None
        surface = np.zeros((len(features), 1), np.float32)
        surface[case.details.surface] = 1
        return case._replace(features=np.concatenate([features, surface], 1))

    buckets = samples.stack(
        [marked(case) for case in cases], batch_size=batch_size, num_buckets=num_buckets
    )
    for bucket in buckets:
        bucket["surface"] = bucket["features"][..., -1]
        bucket["features"] = bucket["features"][..., :-1]
        for name in ("features", "target"):
            encoded = normalize.encode(normalizers[name], jnp.asarray(bucket[name]))
            bucket[name] = np.asarray(encoded)
    return buckets


def _target(case: samples.Sample) -> np.ndarray:
    assert case.target is not None
    return case.target


def _pressure(case: samples.Sample) -> samples.Sample:
    """A case with its pressure, to be drawn."""
    return case._replace(target=_target(case)[:, 2:3])


PROGRAM = Program("airfrans", PRESETS, make_task, title="AirfRANS")
run = PROGRAM.run


if __name__ == "__main__":
    PROGRAM.launch()
