"""Burgers' equation: predicts the final from the initial state, also on finer grids.

    python -m experiments.burgers --preset=quick
    python -m experiments.burgers --models=functional,galerkin,fno --seeds=0,1,2

Models are trained on one grid and tested on several others without further training.
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

from opjax import grid_eigenfunctions, learn, metrics, nn, samples
from opjax.datasets import burgers
from opjax.learn import option, recipe
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Columns, Layer, Operator
from opjax.learn.report import members
from opjax.learn.tasks import latents
from opjax.learn.tasks.benchmark import request
from opjax.learn.tasks.evaluation import Evaluator, TestSet

MODELS = (*operators.ATTENTIONS, "fno")
_FINEST = 8192  # points of the data
# Of attention between points: all features of a point after every residual (004, Eq.
# 7), or keys and their partners within every head (004, Eq. 5 and 6).
NORMALIZATIONS = ("features", "keys")
# What is normalised within every head; `experiments.stability` has others.
_WITHIN_HEADS = {"keys": "layer", "instance": "instance"}


@dataclasses.dataclass(frozen=True)
class Config(
    learn.RunOptions, learn.DataOptions, learn.SizeOptions, learn.TrainingOptions
):
    """All that the numbers of a run depend on."""

    models: tuple[str, ...] = option(
        ("functional", "galerkin"), "Models to train", choices=MODELS, members=True
    )
    num_points: int = option(2048, "Number of points of the training grid", minimum=8)
    test_points: tuple[int, ...] = option(
        (2048, 8192), "Numbers of points of the test grids", minimum=8
    )
    num_basis: int = option(32, "Number of basis functions per head", minimum=1)
    feedforward: int = option(96, "Hidden width of the perceptrons", minimum=1)
    num_modes: int = option(
        16, "Number of Fourier modes of the spectral decoder", minimum=1
    )
    decoder_width: int = option(
        32, "Number of channels of the spectral decoder", minimum=1
    )
    normalization: str = option(
        "keys",
        "Where attention between points normalises: features (after each layer) or "
        "keys (within each head)",
        choices=NORMALIZATIONS,
    )
    init_scale: float = option(
        1e-2, "Initialisation scale of the query, key and value maps", above=0
    )
    init_diagonal: float = option(
        1e-2, "Multiple of the identity added to these maps at the start", minimum=0
    )
    dropout: float = option(
        0.0, "Dropout rate of the encoder. fno has none", minimum=0, below=1
    )
    gradient_weight: float = option(
        0.1, "Weight of the error of the derivative in the loss", minimum=0
    )

    def __post_init__(self):
        """Refuses what no run could use, before any work is done."""
        super().__post_init__()
        for points in (self.num_points, *self.test_points):
            if _FINEST % points:
                raise ValueError(
                    f"A grid of {points} points must divide the {_FINEST} points of "
                    "the data: take powers of two."
                )
            if self.num_modes > points // 2 + 1:
                raise ValueError(
                    f"num_modes={self.num_modes} is above Nyquist's wave number of a "
                    f"grid of {points} points, {points // 2}."
                )


_ALL = Config(
    weight_decay=0.0, clip_norm=0.999, div_factor=1e4, num_heads=1, batch_size=8
)
_FEW = recipe(Config, num_train=16, num_validation=8, num_test=8)
_SOME = recipe(Config, num_train=512, num_validation=50, num_test=100)
_MANY = recipe(Config, num_train=1024, num_validation=0, num_test=100)
_GRIDS = recipe(Config, num_points=128, test_points=(128, 512))
_TINY = recipe(
    Config,
    preset="smoke",
    width=16,
    num_layers=2,
    num_basis=8,
    feedforward=16,
    num_modes=8,
    decoder_width=8,
    num_epochs=2,
)
_LARGE = recipe(
    Config,
    preset="paper",
    models=("functional",),
    width=92,
    num_basis=64,
    feedforward=200,
    decoder_width=48,
    num_epochs=100,
)
_CAO = recipe(Config, width=96, feedforward=192)
_MORE_DROPOUT = _CAO | recipe(Config, dropout=0.1)
PRESETS = {
    "smoke": (_FEW | _GRIDS | _TINY)(_ALL),
    "quick": (_SOME | recipe(Config, width=48))(_ALL),
    # The authors' program; other sizes are those of Cao, 2021, Table 5.
    **learn.published(
        (_MANY | _LARGE)(_ALL),
        {
            "galerkin": _CAO,
            "fourier": _CAO | recipe(Config, dropout=0.05),
            "softmax": _MORE_DROPOUT,
            "linear": _MORE_DROPOUT,
            "fno": recipe(Config, width=64),
        },
    ),
}


def build(config: Config, rngs: nnx.Rngs) -> nnx.Module:
    """Builds a model, which acts on grids of any size."""
    if config.model == "fno":
        return nn.FourierNeuralOperator(
            grid_shape=(config.num_points,),
            feature_dim=1,
            out_features=1,
            features=config.width,
            num_layers=config.num_layers,
            modes=config.num_modes,
            rngs=rngs,
        )
    attention = attention_of(config)
    model = nn.SuperResolutionTransformer(
        features=config.width,
        num_layers=config.num_layers,
        attention=attention,
        hidden_features=config.feedforward,
        modes=config.num_modes,
        decoder_features=config.decoder_width,
        outer_norm=config.normalization == "features" and is_between_points(attention),
        rngs=rngs,
    )
    return nn.models.with_dropout(model, config.dropout)


def is_between_points(layer: Layer) -> bool:
    """Whether a constructor is that of an attention between points."""
    of = layer.func
    return isinstance(of, type) and issubclass(of, nn.attention.PointAttention)


def attention_of(config: Config) -> Any:
    """The constructor of a layer: that of the paper, or the registry's."""
    heads, functions = config.num_heads, config.num_basis
    if config.model == "functional":
        return nn.models.coordinate_attention(num_heads=heads, num_basis=functions)
    options = learn.ModelOptions(
        width=config.width, num_heads=heads, num_basis=functions
    )
    layer = operators.attention(config.model, operators.Sizes(1, 1, 1), options)
    if not is_between_points(layer):
        return layer
    return partial(
        layer,
        normalization=_WITHIN_HEADS.get(config.normalization),
        kernel_init=nn.layers.initializers.diagonal_xavier(
            scale=config.init_scale, diagonal=config.init_diagonal
        ),
    )


def make_task(config: Config, cache_dir: str | None) -> learn.Task:
    """The task of a run.

        loss = mean_b |p - t| / |t| + sqrt(gradient_weight / n) |D p - D t| / |D t|

    with the periodic central difference `D`. The published loss takes `D t` from the
    finest grid and no difference across the ends, and does not vanish at `p = t`.
    """
    finest = burgers.splits(request(config, cache_dir))

    def on(points: int, part: Sequence[samples.Sample]) -> list[samples.Sample]:
        return samples.coarsen(part, _FINEST // points)

    def loss(prediction: jax.Array, sample: Columns) -> jax.Array:
        target = sample["target"]
        weight = (config.gradient_weight / target.shape[0]) ** 0.5
        error = partial(metrics.relative_l2, rescale=False)
        slopes = error(_differences(prediction), _differences(target))
        return error(prediction, target) + weight * slopes

    task = learn.regression(
        config,
        finest._replace(
            train=on(config.num_points, finest.train),
            validation=on(config.num_points, finest.validation),
            test=on(config.test_points[0], finest.test),
        ),
        encoding=learn.Encoding(features=False, target=False),
        build=build,
        loss=learn.Loss(own=loss, mean=True),
    )
    assert task.metric is not None
    looks = {}
    for points in config.test_points:
        test = on(points, finest.test)
        stacked = TestSet(test, samples.stack(test), config.batch_size)
        looks[f"error_{points}"] = Evaluator(test=stacked, error=task.metric)

    def evaluate(model: Operator, folder: pathlib.Path) -> dict[str, float]:
        """The errors on all grids; the predictions of the last one remain."""
        of_both = {name: look(model, folder) for name, look in looks.items()}
        errors = {name: numbers["relative_l2"] for name, numbers in of_both.items()}
        values = list(errors.values())
        return {**errors, "ratio": values[-1] / values[0]}

    task = dataclasses.replace(task, evaluate=evaluate, scan=True)
    return latents.beside(task, _waves)


def _waves(model: Operator, sample: Columns) -> tuple[tuple[int, ...], Any]:
    """Eigenfunctions of the periodic Laplacian, the viscous part of the equation."""
    del model
    shape = (len(sample["mesh_points"]),)
    functions, *_ = grid_eigenfunctions(
        np.ones(shape), num_functions=latents.NUM_FUNCTIONS, boundary="periodic"
    )
    return shape, functions


def _differences(values: jax.Array) -> jax.Array:
    return jnp.roll(values, -1, axis=0) - jnp.roll(values, 1, axis=0)


def report(finished: learn.Finished) -> learn.Report:
    """Errors on all grids, and the best model on the last one."""
    errors = [f"error_{points}" for points in finished.config.test_points]
    columns = {name: (f"error on {name[6:]}, x 1000", 1e3) for name in errors}
    columns |= {"ratio": ("last over first", 1.0), "seconds": ("seconds", 1.0)}
    medians = members.summary(finished.results, errors)
    best = min(finished.results, key=lambda name: medians[f"{errors[-1]}_{name}"])
    table = members.comparison(finished.results, columns)
    return learn.Report(text=table, result={"best": best})


PROGRAM = learn.Program(
    "burgers", PRESETS, make_task, title="Burgers' equation", report=report
)
run = PROGRAM.run

if __name__ == "__main__":
    PROGRAM.launch()
