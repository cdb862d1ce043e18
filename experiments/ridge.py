"""What the linear solve of functional attention adds to Galerkin attention.

    python -m experiments.ridge --preset=quick
    python -m experiments.ridge --problems=darcy --maps=galerkin,functional

In units of the mean eigenvalue `u` of `K K^T`, the functional map

    C = (1 + r) Q K^T (K K^T + r u I)^{-1}

is a least-squares fit for a small ridge `r`, and tends to `Q K^T / u` as `r` grows:
Galerkin attention between coefficients, with a normalised key. Models that differ only
in this ridge, and softmax maps with scaled logits, are trained at once.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from experiments import darcy, elasticity, ridge_report
from experiments.studies import AtOnceOptions, baseline_errors, start_of
from opjax import learn, metrics, nn, normalize, samples
from opjax.learn import (
    FreshTask,
    Replicas,
    SizeOptions,
    StepOptions,
    option,
)
from opjax.learn.config.fields import only_with
from opjax.nn import mixers

Batch = dict[str, jax.Array]


class RidgeMap(mixers.FunctionalMap):
    """The functional map with a constant ridge in units of the mean eigenvalue.

    An infinite ridge is Galerkin attention with a normalised key.
    """

    def __init__(
        self, width: int, *, num_heads: int, setting: jax.Array, rngs: nnx.Rngs
    ):
        super().__init__(width, num_heads=num_heads, ridge_unit="mean", rngs=rngs)
        self.weight = nnx.Param(1 / (1 + 1 / setting))

    @property
    def ridge(self) -> jax.Array:
        """The weight `a = r / (1 + r)` of the convex regularisation."""
        return lax.stop_gradient(self.weight[...])


class ScaledSoftmaxMap(mixers.SoftmaxMap):
    """Softmax attention between coefficients, its logits times a constant."""

    def __init__(
        self, width: int, *, num_heads: int, setting: jax.Array, rngs: nnx.Rngs
    ):
        super().__init__(width, num_heads=num_heads, rngs=rngs)
        self.setting = nnx.Param(setting)

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, own: object = None
    ) -> jax.Array:
        """Returns averages of `value`."""
        return super().attend(lax.stop_gradient(self.setting[...]) * query, key, value)


class GalerkinMap(mixers.GalerkinMap):
    """Galerkin attention between coefficients, which has no setting."""

    def __init__(
        self, width: int, *, num_heads: int, setting: jax.Array, rngs: nnx.Rngs
    ):
        del setting
        super().__init__(width, num_heads=num_heads, rngs=rngs)


MAPS = {
    "functional": RidgeMap,
    "galerkin": GalerkinMap,
    "softmax": ScaledSoftmaxMap,
}
PROBLEMS = {"elasticity": elasticity, "darcy": darcy}


@dataclasses.dataclass(frozen=True)
class Config(AtOnceOptions, SizeOptions, StepOptions):
    """All that the numbers of a run depend on; the defaults are the quick preset."""

    problems: tuple[str, ...] = option(
        tuple(PROBLEMS), "Problems to train on", choices=PROBLEMS, members=True
    )
    maps: tuple[str, ...] = option(
        tuple(MAPS), "Maps between coefficients", choices=MAPS, members=True
    )
    ridges: tuple[float, ...] = only_with(
        option(
            tuple(10.0**k for k in range(-4, 5)),
            "Ridges in units of the mean eigenvalue. The limit of large ones is added",
            above=0,
        ),
        maps=["functional"],
    )
    scales: tuple[float, ...] = only_with(
        option((0.1, 1.0, 10.0, 100.0), "Factors of the softmax logits", above=0),
        maps=["softmax"],
    )
    width: int = option(32, "Width of the models, in channels", minimum=1)
    num_layers: int = option(2, "Number of layers", minimum=1)
    num_basis: int = option(16, "Number of basis functions", minimum=1)
    num_train: int = option(200, "Number of training samples", minimum=1)
    num_test: int = option(100, "Number of test samples", minimum=1)
    num_around: int = only_with(
        option(20, "Elasticity: number of elements around the void", minimum=4),
        problems=["elasticity"],
    )
    num_across: int = only_with(
        option(2, "Elasticity: number of elements between void and sides", minimum=1),
        problems=["elasticity"],
    )
    num_points: int = only_with(
        option(61, "Darcy: number of grid points per side of the solver", minimum=4),
        problems=["darcy"],
    )
    stride: int = only_with(
        option(4, "Darcy: subsampling factor", minimum=1), problems=["darcy"]
    )
    num_steps: int = option(1600, "Number of optimizer steps", minimum=2)
    batch_size: int = option(4, "Number of samples in a step", minimum=1)
    learning_rate: float = option(3e-3, "Maximum learning rate", above=0)
    clip_norm: float = option(
        0.1, "Maximum norm of the gradient. 0 turns clipping off", minimum=0
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        if self.batch_size > self.num_train:
            raise ValueError(
                f"batch_size={self.batch_size} must be at most "
                f"num_train={self.num_train}."
            )
        for problem in self.problems:
            self.benchmark(problem)

    def members(self) -> dict[tuple[str, None], "Config"]:
        """Problems and maps; settings and seeds are trained at once."""
        return {
            (f"{problem}_{name}", None): replace(
                self, problems=(problem,), maps=(name,)
            )
            for problem in self.problems
            for name in self.maps
        }

    def benchmark(self, problem: str) -> Any:
        """Returns the configuration of the problem's own program, by `fast`."""
        base = PROBLEMS[problem].PRESETS["fast"]
        shared = {f.name for f in dataclasses.fields(base)} & _DATA
        return replace(
            base,
            num_validation=0,
            weight_decay=0.0,
            learning_rate=self.learning_rate,
            clip_norm=self.clip_norm,
            average_decay=self.average_decay,
            **{name: getattr(self, name) for name in shared},
        )

    @property
    def settings(self) -> tuple[float, ...]:
        """The ridges or scales of a member."""
        ridges = *self.ridges, math.inf
        choices = {"functional": ridges, "softmax": self.scales}
        return choices.get(self.maps[0], (1.0,))


_DATA = {"num_train", "num_test", "num_around", "num_across", "num_points", "stride"}


def make_task(config: Config, cache_dir: str | None = None) -> FreshTask:
    """Models of all settings and seeds of a member."""
    (problem,) = config.problems
    base = config.benchmark(problem)
    splits = PROBLEMS[problem].splits(base, cache_dir)
    (train,), (test,) = map(samples.stack, (splits.train, splits.test))
    target = normalize.fit(train["target"])
    if "features" in train:
        normalizer = normalize.fit(train["features"])
        for part in (train, test):
            part["features"] = normalize.encode_host(normalizer, part["features"])
    seeds, settings = (
        leaf.reshape(-1)
        for leaf in np.meshgrid(config.seeds, np.array(config.settings, np.float32))
    )
    feature_dim = train["features"].shape[-1] if "features" in train else 0
    on_cpu = jax.default_backend() == "cpu"
    start = jax.jit(  # runs once: the compiler need not optimise it
        jax.vmap(partial(build, config, feature_dim)),
        compiler_options={"xla_backend_optimization_level": 0} if on_cpu else None,
    )
    return FreshTask(
        draw=partial(draw, train, config.batch_size),
        build=lambda config, rngs: start(seeds, settings),
        loss=lambda model, batch: jnp.mean(errors(model, batch, target)),
        evaluate=lambda models, folder: {
            **evaluate(models, config, train, test, target),
            "baselines": baseline_errors(splits.train, splits.test),
        },
        # That of the problem's own program: Muon, and one cycle of the rate.
        optimizer=lambda config, total, setting: base.make_optimizer(total),
        replicas=Replicas(config.seeds, settings),
        source=splits.source,
        over_batch=False,
    )


def draw(
    data: dict[str, np.ndarray], batch_size: int, key: jax.Array, step: jax.Array
) -> Batch:
    """Returns the batch of a step; every epoch has its own order of the samples."""
    count = len(data["target"])
    epoch, number = jnp.divmod(step, count // batch_size)
    order = jax.random.permutation(jax.random.fold_in(key, epoch), count)
    rows = lax.dynamic_slice(order, (number * batch_size,), (batch_size,))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], data)


def build(
    config: Config, feature_dim: int, seed: jax.Array, setting: jax.Array
) -> nn.OperatorTransformer:
    """Makes a model; kernels keep the variance of the features, as in `fast`."""
    layer = partial(
        nn.BasisAttention,
        num_heads=config.num_heads,
        basis=partial(nn.bases.SoftmaxBasis, num_basis=config.num_basis),
        mixer=partial(MAPS[config.maps[0]], setting=setting),
    )
    model = nn.OperatorTransformer(
        position=nn.Coordinates(2),
        feature_dim=feature_dim,
        out_features=1,
        attention=layer,
        features=config.width,
        num_layers=config.num_layers,
        rngs=start_of(seed),
    )
    return nn.unit_variance(model)


def errors(
    model: Callable[..., jax.Array], batch: Batch, target: normalize.Normalizer
) -> jax.Array:
    """Returns the relative L2 error of every sample."""

    def one(sample: Batch) -> jax.Array:
        prediction = model(sample["mesh_points"], sample.get("features"))
        prediction = normalize.decode(target, prediction)
        return metrics.relative_l2(prediction, sample["target"], rescale=False)

    return jax.vmap(one)(batch)


def evaluate(
    models: nnx.Module,
    config: Config,
    train: dict[str, np.ndarray],
    test: dict[str, np.ndarray],
    target: normalize.Normalizer,
) -> dict[str, Any]:
    """Measures the mean errors of all models on the training and test samples."""

    @jax.jit
    def measure(data: Batch) -> jax.Array:
        return lax.map(lambda model: errors(model, data, target), models)

    both = jax.tree.map(lambda *parts: np.concatenate(parts), train, test)
    values = np.asarray(measure(both), float)
    count = len(train["target"])
    of_train, of_test = values[:, :count].mean(axis=1), values[:, count:].mean(axis=1)
    models_of = itertools.product(map(str, config.settings), config.seeds)
    rows = [
        {"setting": setting, "seed": seed, "error": error, "train_error": train_error}
        for (setting, seed), error, train_error in zip(
            models_of, of_test.tolist(), of_train.tolist(), strict=True
        )
    ]
    return {"error": float(np.median(of_test)), "rows": rows}


PRESETS = {
    "smoke": Config(
        preset="smoke",
        problems=("elasticity",),
        ridges=(0.1, 10.0),
        scales=(1.0,),
        seeds=(0, 1),
        width=8,
        num_heads=2,
        num_layers=1,
        num_basis=6,
        num_train=8,
        num_test=4,
        num_around=8,
        num_across=1,
        num_steps=4,
    ),
    "quick": Config(),
}
PROGRAM = learn.Program(
    "ridge",
    PRESETS,
    make_task,
    title="The ridge of functional attention",
    report=ridge_report.report,
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
