"""Passes over all points of a mesh, and the forward ones of a model."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax.nn.models import chunks
from opjax.streaming import programs
from opjax.streaming.plan import Plan, sizes
from opjax.streaming.source import Chunk, Reader, Source, dtype_of
from opjax.streaming.storage import Storage


class Total:
    """A sum of arrays over chunks, in double precision on the host."""

    def __init__(self):
        self.tree: Any = None

    def add(self, tree: Any) -> None:
        """Adds arrays of a chunk."""
        new = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
        old = self.tree
        self.tree = new if old is None else jax.tree.map(np.add, old, new)

    def cast(self, dtype: Any) -> Any:
        """The sum in the type of a model."""
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self.tree)


@dataclasses.dataclass(frozen=True)
class Mesh:
    """A model and a mesh that is read in chunks, with what is kept of it.

    Attributes:
      model: the operator transformer.
      flat: the same for programs.
      reader: of the source.
      plan: which layers' inputs are kept.
      time: as for the model.
      storage: where they are.
    """

    model: Any
    flat: programs.Flat
    reader: Reader
    plan: Plan
    time: Any
    storage: Storage

    @property
    def dtype(self) -> np.dtype:
        """The type of all arrays of a chunk."""
        return dtype_of(self.model)

    @property
    def totals(self) -> tuple[jax.Array, jax.Array]:
        """Sum of the weights of attention, and how many are positive."""
        weight, count = self.scale * self.reader.weight, self.reader.num_active
        return jnp.asarray(weight, self.dtype), jnp.asarray(count, self.dtype)

    @property
    def scale(self) -> float:
        """Of the weights of a mesh that has none: 1 / n, unless they cancel."""
        attention, n = self.model.blocks.attention, self.reader.num_points
        basis = attention.choose_basis(self.model.basis)
        some = jnp.zeros((2, 1), self.dtype)
        cancel = attention.weights(basis, some, None) is None
        return 1.0 if self.reader.weighted or cancel else 1 / n

    def run(
        self, work: Callable[[Chunk], Any], take: Callable[[Chunk, Any], None]
    ) -> None:
        """Goes once over all chunks.

        While the device works on one, the host takes what it found of the last.
        """
        last: Any = None
        for chunk in self.reader:
            found = chunk, work(chunk)
            if last is not None:
                take(*last)
            last = found
        take(*last)

    def load(self, layer: int, chunk: Chunk) -> Any:
        """Features in front of a layer whose inputs are kept, or of the first."""
        if layer:
            return self.storage.get(self.plan.slot(layer), chunk.number)
        arrays = chunk.arrays
        features = arrays.get("features")
        return programs.encode(self.flat, arrays["mesh_points"], features, self.time)

    def keep(self, layer: int, chunk: Chunk, z: Any) -> None:
        """Keeps an array of a chunk where the inputs of a layer are kept."""
        if layer in self.plan.kept:
            self.storage.put(self.plan.slot(layer), chunk.number, np.asarray(z))

    def weights(self, chunk: Chunk) -> np.ndarray:
        """Weights of attention."""
        return chunk.weights * self.dtype.type(self.scale)


def open_mesh(
    model: Any,
    source: Source,
    names: Iterable[str],
    *,
    chunk_size: int,
    plan: Callable[[Reader], Plan],
    storage: Any,
    storage_dtype: str | None = None,
    time: Any = None,
) -> Mesh:
    """Checks a model and its mesh, and makes place for what is kept of it.

    Raises:
      OSError: if the folder of the storage cannot be written or is full.
      TypeError: if parameters or arrays have other types.
      ValueError: if the model has no chunks, or the source is not what it takes.
    """
    if not hasattr(model, "blocks") or not hasattr(model, "basis"):
        raise ValueError(f"{type(model).__name__} is no operator transformer.")
    if reason := chunks.obstacle(model):
        raise ValueError(f"A mesh cannot be streamed: {reason}.")
    wanted = ["mesh_points", *(["features"] if model.feature_dim else []), *names]
    basis = model.blocks.attention.choose_basis(model.basis)
    if getattr(basis, "of_points", basis) is None:
        wanted.append("basis_functions")
    dtype = dtype_of(model)
    reader = Reader(source, chunk_size=chunk_size, dtype=dtype, names=wanted)
    chosen = plan(reader)
    _, channels, _ = sizes(model)
    shape = (channels, reader.size)
    given = len(chosen.kept), reader.num_chunks, shape, dtype, storage
    kept = Storage(*given, storage_dtype)
    time = None if time is None else jnp.asarray(time, dtype)
    flat = programs.flatten(model)
    return Mesh(model, flat, reader, chosen, time, kept)


def forward(mesh: Mesh) -> tuple[np.ndarray, list[Any]]:
    """Makes the coefficients of all layers from the mesh, in a pass for each.

    Returns:
      The coefficients `(l, h, k, d)`, and the moments of every layer.
    """
    model, plan = mesh.model, mesh.plan
    attention = model.blocks.attention
    basis, heads = attention.choose_basis(model.basis), attention.num_heads
    shape = (
        plan.num_layers,
        heads,
        basis.num_basis,
        attention.out.in_features // heads,
    )
    mixed, moments = np.zeros(shape, mesh.dtype), []
    for layer in range(plan.num_layers):
        start, total = plan.start(max(layer - 1, 0)), Total()
        known = jnp.asarray(mixed)  # of the layers in front

        def work(chunk, start=start, layer=layer, known=known):
            z, weights = mesh.load(start, chunk), mesh.weights(chunk)
            places = start, layer
            return programs.accumulate(
                mesh.flat, known, z, chunk.given, weights, places
            )

        def take(chunk, found, layer=layer, total=total):
            mesh.keep(layer, chunk, found[0])
            total.add(found[1])

        mesh.run(work, take)
        moments.append(total.cast(mesh.dtype))
        mixed[layer] = programs.mix(mesh.flat, layer, moments[-1], mesh.totals)
    return mixed, moments
