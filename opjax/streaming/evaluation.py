"""Evaluation of an operator at any points: first coefficients, then values."""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax.nn import OperatorTransformer
from opjax.streaming import programs
from opjax.streaming.passes import Mesh, forward, open_mesh
from opjax.streaming.plan import Chunks, Plan, sizes
from opjax.streaming.source import Chunk, Reader, Source


@dataclasses.dataclass(frozen=True)
class _Rolling(Plan):
    """Inputs of the last layer that was reached, in one slot."""

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(range(1, self.num_layers)) if self.store_every else ()

    def slot(self, layer: int) -> int:
        return 0


def coefficients(
    model: OperatorTransformer,
    source: Source,
    chunks: Chunks,
    *,
    time: ArrayLike | None = None,
) -> np.ndarray:
    """Returns the coefficients of all layers, the only coupling between points.

    Args:
      model: an operator transformer that supports chunks.
      source: the mesh, as for `value_and_grad`, without `target`.
      chunks: chunk size and storage. Features of all points are stored, `n c` numbers;
        with `store_every=0` they are recomputed for every layer, with `l (l + 1) / 2`
        layer evaluations instead of `l`.
      time: time, if the model has a time embedding.

    Returns:
      Coefficients after the mixer, shape `(l, h, k, d)`.

    Raises:
      OSError: if the folder cannot be written or is full.
      TypeError: if an array is not real-valued.
      ValueError: as from `value_and_grad`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> source = {"mesh_points": np.random.default_rng(0).uniform(size=(9, 2))}
      >>> streaming.coefficients(model, source, streaming.Chunks(4)).shape
      (2, 2, 4, 4)
    """
    mesh = _open(model, source, chunks, time)
    with mesh.storage:
        return forward(mesh)[0]


def evaluate(
    model: OperatorTransformer,
    coefficients: ArrayLike,
    source: Source,
    *,
    chunk_size: int,
    time: ArrayLike | None = None,
) -> Iterator[np.ndarray]:
    """Evaluates an operator at points from the coefficients of a mesh.

    Args:
      model: an operator transformer that supports chunks.
      coefficients: coefficients of the mesh, from the function `coefficients`.
      source: evaluation points, in the form of `coefficients`, with features at these
        points if the model has input features. Weights have no effect.
      chunk_size: number of points that are computed at once.
      time: time, the same as for the coefficients.

    Yields:
      Values of the output function, `(m, q)`, chunk by chunk.

    Raises:
      TypeError: if an array is not real-valued.
      ValueError: as from `value_and_grad`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> source = {"mesh_points": np.random.default_rng(0).uniform(size=(9, 2))}
      >>> found = streaming.coefficients(model, source, streaming.Chunks(4))
      >>> probes = {"mesh_points": np.array([[0.5, 0.5]])}
      >>> [values] = streaming.evaluate(model, found, probes, chunk_size=4)
      >>> values.shape
      (1, 1)
    """
    mesh = _open(model, source, Chunks(chunk_size, 0), time)
    return _values(mesh, jnp.asarray(coefficients, mesh.dtype))


def predict(
    model: OperatorTransformer,
    source: Source,
    chunks: Chunks,
    *,
    time: ArrayLike | None = None,
) -> Iterator[np.ndarray]:
    """Evaluates an operator on a mesh of any size.

    Args:
      model: see `coefficients`, also for the other arguments.
      source: the mesh.
      chunks: chunk size and storage.
      time: time, if the model has a time embedding.

    Yields:
      Values of the output function, `(m, q)`, chunk by chunk.

    Raises:
      OSError: if the folder cannot be written or is full.
      TypeError: if an array is not real-valued.
      ValueError: as from `value_and_grad`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> source = {"mesh_points": np.random.default_rng(0).uniform(size=(9, 2))}
      >>> parts = streaming.predict(model, source, streaming.Chunks(4))
      >>> np.concatenate(list(parts)).shape
      (9, 1)
    """
    mesh = _open(model, source, chunks, time)
    with mesh.storage:
        yield from _values(mesh, jnp.asarray(forward(mesh)[0]))


def _open(
    model: OperatorTransformer, source: Source, chunks: Chunks, time: ArrayLike | None
) -> Mesh:
    def plan(_: Reader) -> Plan:
        return _Rolling(sizes(model)[0], int(chunks.store_every != 0))

    return open_mesh(model, source, chunks, time, plan=plan)


def _values(mesh: Mesh, mixed: jax.Array) -> Iterator[np.ndarray]:
    start = mesh.plan.start(mesh.plan.num_layers - 1)

    def finished(chunk: Chunk) -> tuple[jax.Array, jax.Array]:
        return programs.finish(mesh.flat, mixed, mesh.inputs(start, chunk), start)

    for chunk, (_, values) in mesh.results(finished):
        yield np.asarray(values)[: chunk.size]
