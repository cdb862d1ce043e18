"""Passes over all points of a mesh, and the forward passes of a model."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax._trees import Model
from opjax.nn import OperatorTransformer, division
from opjax.nn.attention.sums import Sums
from opjax.streaming import programs
from opjax.streaming.plan import Chunks, Plan, attention_of, sizes
from opjax.streaming.source import Chunk, Reader, Source, dtype_of
from opjax.streaming.storage import Storage

_Result = TypeVar("_Result")
_Tree = TypeVar("_Tree")
_OfChunk = tuple[Chunk, _Result]


class Total(Generic[_Tree]):
    """A sum over chunks of pytrees of arrays, in double precision on the host."""

    def __init__(self) -> None:
        self._tree: _Tree | None = None

    @property
    def tree(self) -> _Tree:
        """The sum; at least one chunk must have been added."""
        assert self._tree is not None
        return self._tree

    def add(self, tree: _Tree) -> None:
        """Adds the arrays of a chunk."""
        new = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
        self._tree = new if self._tree is None else self._plus(self._tree, new)

    def cast(self, dtype: np.dtype) -> _Tree:
        """The sum in the data type of a model."""
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self.tree)

    def _plus(self, one: _Tree, other: _Tree) -> _Tree:
        return jax.tree.map(np.add, one, other)


class TotalSums(Total[Sums]):
    """The sums over all points that an attention layer uses."""

    def _plus(self, one: Sums, other: Sums) -> Sums:
        return one + other


@dataclasses.dataclass(frozen=True)
class Mesh:
    """A model and a mesh that is read in chunks, with the stored arrays.

    Attributes:
      model: the operator transformer.
      flat: the model in the form of the compiled programs.
      reader: reader of the source.
      plan: the layers whose inputs are stored.
      time: time, if the model has a time embedding.
      storage: the stored arrays.
    """

    model: OperatorTransformer
    flat: programs.Flat
    reader: Reader
    plan: Plan
    time: jax.Array | None
    storage: Storage

    @property
    def dtype(self) -> np.dtype:
        """The dtype of all arrays of a chunk."""
        return dtype_of(self.model)

    @property
    def totals(self) -> tuple[jax.Array, jax.Array]:
        """Sum of the attention weights, and number of positive weights."""
        weight, count = self.scale * self.reader.weight, self.reader.num_active
        return jnp.asarray(weight, self.dtype), jnp.asarray(count, self.dtype)

    @property
    def scale(self) -> float:
        """Scale of the weights of a mesh without weights: 1 / n, or 1."""
        cancel = attention_of(self.model).equal_weights_cancel(self.model.basis)
        return 1.0 if self.reader.weighted or cancel else 1 / self.reader.num_points

    def results(self, work: Callable[[Chunk], _Result]) -> Iterator[_OfChunk[_Result]]:
        """Passes once over all chunks, and yields each one with the result of `work`.

        While the device works on a chunk, the host processes the result of the
        previous one.
        """
        last: list[_OfChunk[_Result]] = []
        for chunk in self.reader:
            result = chunk, work(chunk)
            yield from last
            last = [result]
        yield from last

    def load(self, layer: int, chunk: Chunk) -> ArrayLike:
        """Inputs of a layer whose inputs are stored, or of the first layer."""
        if layer:
            return self.storage.get(self.plan.slot(layer), chunk.number)
        arrays = chunk.arrays
        features = arrays.get("features")
        return programs.encode(self.flat, arrays["mesh_points"], features, self.time)

    def inputs(self, layer: int, chunk: Chunk) -> programs.Inputs:
        """Features from `load`, and the arguments of the attention."""
        return programs.Inputs(self.load(layer, chunk), chunk.given)

    def keep(self, layer: int, chunk: Chunk, z: jax.Array) -> None:
        """Stores an array of a chunk as input of a layer."""
        if layer in self.plan.kept:
            self.storage.put(self.plan.slot(layer), chunk.number, np.asarray(z))

    def weights(self, chunk: Chunk) -> Any:
        """The weights for the attention."""
        return chunk.weights * self.dtype.type(self.scale)


def check_model(model: Model) -> None:
    """Raises ValueError if a model does not support streaming of a mesh."""
    if reason := division.obstacle(model, "stream"):
        raise ValueError(f"A mesh cannot be streamed: {reason}.")


def open_mesh(
    model: OperatorTransformer,
    source: Source,
    chunks: Chunks,
    time: ArrayLike | None,
    *,
    plan: Callable[[Reader], Plan],
    names: Iterable[str] = (),
) -> Mesh:
    """Checks a model and its mesh, and allocates storage.

    Args:
      model: the operator transformer.
      source: the mesh.
      chunks: chunk size and storage.
      time: time, if the model has a time embedding.
      plan: function that returns the storage plan of a mesh.
      names: required arrays in addition to those of the model.

    Raises:
      OSError: if the folder of the storage cannot be written or is full.
      TypeError: if the dtypes of parameters or arrays are not supported.
      ValueError: if the model does not support chunks, or the source does not fit it.
    """
    check_model(model)
    arrays = ["mesh_points", *(["features"] if model.feature_dim else []), *names]
    arrays.extend(attention_of(model).arrays(model.basis))
    dtype = dtype_of(model)
    reader = Reader(source, chunk_size=chunks.size, dtype=dtype, names=arrays)
    chosen = plan(reader)
    _, channels, _ = sizes(model)
    kept = Storage(
        len(chosen.kept),
        reader.num_chunks,
        (channels, reader.size),
        dtype,
        chunks.storage,
        chunks.storage_dtype,
    )
    when = None if time is None else jnp.asarray(time, dtype)
    return Mesh(model, programs.flatten(model), reader, chosen, when, kept)


def _accumulated(
    mesh: Mesh, known: jax.Array, layer: int, chunk: Chunk
) -> tuple[jax.Array, Sums]:
    """Inputs of a layer, and its sums over a chunk.

    Args:
      mesh: that is gone over.
      known: coefficients of the layers in front.
      layer: whose sums are returned.
      chunk: of the mesh.
    """
    start = mesh.plan.start(max(layer - 1, 0))
    here, weights = mesh.inputs(start, chunk), mesh.weights(chunk)
    return programs.accumulate(mesh.flat, known, here, weights, start, layer)


def forward(mesh: Mesh) -> tuple[np.ndarray, list[Sums]]:
    """Computes the coefficients of all layers, with one pass over the mesh per layer.

    Returns:
      The coefficients `(l, h, k, d)`, and the sums of every layer.
    """
    layers = mesh.plan.num_layers
    shape = attention_of(mesh.model).coefficient_shape(mesh.model.basis)
    mixed = np.zeros((layers, *shape), mesh.dtype)
    kept: list[Sums] = []
    for layer in range(layers):
        total = TotalSums()
        work = partial(_accumulated, mesh, jnp.asarray(mixed), layer)
        for chunk, (z, sums) in mesh.results(work):
            mesh.keep(layer, chunk, z)
            total.add(sums)
        kept.append(total.cast(mesh.dtype))
        mixed[layer] = programs.combine(mesh.flat, layer, kept[-1].added, mesh.totals)
    return mixed, kept
