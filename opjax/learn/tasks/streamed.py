"""The ordinary task on meshes that are larger than memory, read in slices of points."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from opjax import normalize, streaming
from opjax.files import SlicedSplits
from opjax.learn.predict import trained
from opjax.learn.predict.learned import Learned
from opjax.learn.registry import operators
from opjax.learn.run.settings import Settings
from opjax.learn.tasks import outcome
from opjax.learn.tasks.start import build_from, check_sizes
from opjax.learn.tasks.supervised import builder, mean_and_worst
from opjax.learn.tasks.task import BaseTask, EpochOptions
from opjax.normalize import Normalizer
from opjax.samples import Sample, summaries
from opjax.samples.normalizers import fit_normalizers
from opjax.samples.sliced import Column, Sliced

_SHOWN = 2**14  # points of a figure


class Encoded:
    """An array of a file, encoded where it is sliced."""

    def __init__(self, column: Column, normalizer: Normalizer):
        self._column = column
        self._mean, self._std = (np.asarray(x, np.float32) for x in normalizer)

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return (self._column[rows] - self._mean) / self._std


Arrays = Mapping[str, Column | Encoded]


@dataclasses.dataclass(frozen=True)
class _Squares:
    """`RELATIVE_L2.sums` of values that are decoded first, `values * std + mean`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, values: jax.Array, target: jax.Array, weights: jax.Array) -> Any:
        mean, std = (jnp.asarray(x, values.dtype)[None] for x in (self.mean, self.std))
        return streaming.RELATIVE_L2.sums(values * std + mean, target, weights)


class Streaming(NamedTuple):
    """How a mesh is streamed.

    Attributes:
      chunk_size: points that are computed at once.
      memory_gib: memory of a step; what is kept of the mesh depends on it.
    """

    chunk_size: int
    memory_gib: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamedTask(BaseTask):
    """What is to be learned from meshes of which no one has to fit into memory.

    Attributes:
      train: the training samples, on disk.
      gradient: `gradient(model, arrays)`, loss and gradients of one sample.
      encode: `encode(arrays)`, the arrays of a sample as the model sees them.
    """

    train: Sliced
    gradient: Callable[[Any, Arrays], tuple[jax.Array, Any]]
    encode: Callable[[Mapping[str, Column]], Arrays]

    @property
    def known(self) -> tuple[Any, ...]:
        """None in memory."""
        return ()

    @property
    def num_train(self) -> int:
        """Training samples."""
        return len(self.train)

    @property
    def keeps_losses(self) -> bool:
        """No: rows of the history have their means."""
        return False

    def settings(
        self,
        config: EpochOptions,
        *,
        tensorboard: bool = False,
        mesh: Mesh | None = None,
    ) -> Settings:
        """Returns how a member is trained, see `BaseTask.settings`."""
        return Settings(
            num_epochs=config.num_epochs,
            batch_size=config.batch_size,
            seed=config.seed,
            optimizer=config.make_optimizer,
            eval_every=config.eval_every,
            checkpoint_every=config.checkpoint_every,
            tensorboard=tensorboard,
            mesh=mesh,
        )


def streamed_regression(
    splits: SlicedSplits,
    how: Streaming,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    start: Learned | None = None,
) -> StreamedTask:
    """Builds the task of `regression` for samples that are read in slices.

    Loss, metric and normalisers are those of `regression` with normalised points: the
    relative L2 error in physical units, summed over the samples of a batch. Sums over
    points are rounded differently.

    Args:
      splits: the samples.
      how: points at once, and memory.
      names: of the channels of `features` and `target`, to be saved.
      start: as for `regression`.

    Returns:
      The task. The folder of every member gets the operator and `predictions.npz`, with
      one point of many of the first test sample.
    """
    train = splits.train
    normalizers = fit_normalizers(train, points=True, features=True, target=True)
    sizes = _sizes(splits, normalizers)
    if start is not None:
        sizes = check_sizes(start, sizes, names or {})
        normalizers = {name: start.normalizers[name] for name in normalizers}
    loss = streaming.SumLoss(
        _Squares(*(tuple(np.asarray(x).tolist()) for x in normalizers["target"])),
        streaming.RELATIVE_L2.value,
    )

    def encode(arrays: Mapping[str, Column]) -> Arrays:
        return {
            name: Encoded(column, normalizers[name])
            if name in normalizers and name != "target"
            else column
            for name, column in arrays.items()
        }

    def gradient(model: Any, arrays: Arrays) -> tuple[jax.Array, Any]:
        return streaming.value_and_grad(
            model,
            arrays,
            chunk_size=how.chunk_size,
            loss=loss,
            memory_limit=how.memory_gib * 2**30,
        )

    def look(model: Any, arrays: Arrays) -> tuple[float, np.ndarray]:
        return _look(normalizers["target"], how, model, arrays)

    def metric(model: Any, arrays: Mapping[str, Column]) -> float:
        return look(model, encode(arrays))[0]

    build = builder(sizes)
    description = trained.describe(train, sizes=sizes, names=names)

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        trained.save(folder, model, normalizers, description)
        errors, shown = np.zeros(len(splits.test)), np.zeros((0, 1))
        for row in reversed(range(len(splits.test))):
            with splits.test.open(row) as arrays:
                errors[row], shown = look(model, encode(arrays))
        with splits.test.open(0) as arrays:
            sample = _every(arrays, _stride(len(arrays["mesh_points"])))
        outcome.write(
            folder, errors=errors, rows=[0], samples=[sample], predicted=[shown]
        )
        return mean_and_worst(errors)

    return StreamedTask(
        train=train,
        gradient=gradient,
        encode=encode,
        loss=gradient,
        metric=metric if len(splits.validation) else None,
        validation=(splits.validation,) if len(splits.validation) else (),
        test=(splits.test,),
        build=build if start is None else build_from(start, build),
        evaluate=evaluate,
        extra=normalizers,
        source=splits.source,
        over_batch=False,
    )


def _sizes(
    splits: SlicedSplits, normalizers: Mapping[str, Normalizer]
) -> operators.Sizes:
    """Sizes of all samples, in normalised coordinates."""
    parts = splits.train, splits.validation, splits.test
    known = [summary for part in parts for summary in part.summaries]
    channels = known[0].channels
    low, high = summaries.limits(known, "mesh_points")
    corners = normalize.encode(normalizers["mesh_points"], np.stack([low, high]))
    lower, upper = (tuple(map(float, corner)) for corner in corners)
    return operators.Sizes(
        point_dim=channels["mesh_points"],
        feature_dim=channels.get("features", 0),
        out_features=channels["target"],
        box=(lower, upper),
    )


def _look(
    target: Normalizer, how: Streaming, model: Any, arrays: Arrays
) -> tuple[float, np.ndarray]:
    """The error of a sample, and the prediction at one point of many."""
    mean, std = (np.asarray(x, np.float32) for x in target)
    squares, shown, start = np.zeros(2), [], 0
    n = len(arrays["mesh_points"])
    given = {name: array for name, array in arrays.items() if name != "target"}
    for part in streaming.predict(model, given, chunk_size=how.chunk_size):
        values = part * std + mean
        rows = slice(start, start + len(values))
        wanted = arrays["target"][rows]
        weights = np.ones(len(values))
        if "quadrature_weights" in arrays:
            weights = np.asarray(arrays["quadrature_weights"][rows], np.float64)
        for place, field in enumerate((values - wanted, wanted)):
            square = np.where(weights[:, None] > 0, field.astype(np.float64), 0) ** 2
            squares[place] += np.sum(weights[:, None] * square)
        shown.append(values[-start % _stride(n) :: _stride(n)])
        start += len(values)
    return math.sqrt(squares[0] / squares[1]), np.concatenate(shown)


def _stride(num_points: int) -> int:
    """Every so many-th point is shown."""
    return -(-num_points // _SHOWN)


def _every(arrays: Mapping[str, Column], stride: int) -> Sample:
    """A sample of every so many-th point."""
    n, step = len(arrays["mesh_points"]), 2**16 // stride * stride or stride

    def chosen(name: str) -> np.ndarray:
        column = arrays[name]
        parts = [column[i : min(i + step, n)][::stride] for i in range(0, n, step)]
        return np.concatenate(parts)

    features = chosen("features") if "features" in arrays else None
    return Sample(chosen("mesh_points"), chosen("target"), features)
