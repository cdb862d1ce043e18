"""Storage of a mesh's data between passes, and its memory."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np

from opjax import _checks, precision
from opjax.nn import OperatorTransformer
from opjax.nn.attention import PointSums

# The folder of a file, or None for memory.
Folder = str | os.PathLike[str] | None


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Chunk size of the passes over a mesh, and storage between passes.

    Attributes:
      size: number of points computed at once; 512 to 4096 are fast on a core.
      store_every: the inputs of every `store_every`-th layer are stored, one by
        default. Zero stores nothing, so memory does not depend on the number of points.
      memory_limit: memory limit in bytes, from which the fastest `store_every` for
        gradients is chosen.
      storage: folder for a temporary file with the stored data; None for memory.
      storage_dtype: "bfloat16" or "float16", which halves the stored data; None for the
        dtype of the parameters.

    Raises:
      ValueError: if these are inconsistent.

    Examples:
      >>> from opjax import streaming
      >>> streaming.Chunks(1024).size  # points computed at once
      1024
      >>> streaming.Chunks(1024, store_every=2, memory_limit=1e9)
      Traceback (most recent call last):
          ...
      ValueError: memory_limit determines what is stored in memory; omit ...
    """

    size: int
    store_every: int | None = None
    memory_limit: float | None = None
    storage: Folder = None
    storage_dtype: str | None = None

    def __post_init__(self) -> None:
        store_every, storage = self.store_every, self.storage
        precision.check_stored(storage_dtype=self.storage_dtype)
        _checks.positive(chunk_size=self.size)
        if store_every is not None:
            _checks.non_negative(store_every=store_every)
        if self.memory_limit is not None:
            _checks.positive(memory_limit=self.memory_limit)
        if self.memory_limit is not None and (
            store_every is not None or storage is not None
        ):
            raise ValueError(
                "memory_limit determines what is stored in memory; omit "
                "memory_limit, or store_every and storage."
            )
        for name in ("storage", "storage_dtype"):
            if store_every == 0 and getattr(self, name) is not None:
                raise ValueError(f"Nothing is stored with {store_every=}; omit {name}.")

    def plan(self, model: OperatorTransformer, num_points: int, size: int) -> "Plan":
        """Returns the storage plan of a mesh for gradients.

        Args:
          model: the operator transformer.
          num_points: number of points of the mesh.
          size: chunk size.

        Raises:
          MemoryError: if the memory limit is too small.
          ValueError: if `store_every` is out of range.
        """
        layers, _, _ = sizes(model)
        store_every = 1 if self.store_every is None else self.store_every
        if not 0 <= store_every <= layers:
            raise ValueError(
                f"{store_every=} must lie between 0 and {layers}, the number of layers."
            )
        if self.memory_limit is not None:
            store_every = choose_store_every(
                model,
                num_points,
                chunk_size=size,
                memory_limit=self.memory_limit,
                storage_dtype=self.storage_dtype,
            )
        return Plan(layers, store_every)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The layers whose inputs are stored.

    Attributes:
      num_layers: number of layers of the model.
      store_every: if positive, the inputs of every `store_every`-th layer and the
        output of the last layer are stored; zero stores none.
    """

    num_layers: int
    store_every: int

    @property
    def kept(self) -> tuple[int, ...]:
        """Layers whose inputs are stored; the first layer's inputs are recomputed."""
        if not self.store_every:
            return ()
        inner = range(self.store_every, self.num_layers, self.store_every)
        return (*inner, self.num_layers)

    def start(self, layer: int) -> int:
        """The last layer up to this one whose input is stored, or zero."""
        return max((kept for kept in self.kept if kept <= layer), default=0)

    def end(self, layer: int) -> int:
        """The first layer after this one whose input is stored, or the last layer."""
        return min((k for k in self.kept if k > layer), default=self.num_layers)

    def slot(self, layer: int) -> int:
        """Storage slot of the input of a layer."""
        return self.kept.index(layer)

    @property
    def depth(self) -> int:
        """Maximum distance between stored layers."""
        return min(self.store_every or self.num_layers, self.num_layers)


def sizes(model: OperatorTransformer) -> tuple[int, int, int]:
    """Returns number of layers, channels, and bytes per number of a model."""
    scale = model.blocks.attention_norm.scale[...]
    layers, channels = scale.shape
    return layers, channels, scale.dtype.itemsize


def attention_of(model: OperatorTransformer) -> PointSums:
    """Returns the attention of the blocks of a model that supports streaming."""
    attention = model.blocks.attention
    assert isinstance(attention, PointSums)
    return attention


def needed_bytes(
    model: OperatorTransformer,
    num_points: int,
    *,
    chunk_size: int,
    store_every: int,
    storage_dtype: str | None = None,
    backward: bool = True,
) -> int:
    """Estimates the memory of `value_and_grad`, without that of its programs.

    Args:
      model: the operator transformer.
      num_points: number of points of the mesh.
      chunk_size: number of points that are computed at once.
      store_every: as for `value_and_grad`; zero if nothing is stored, or on disk.
      storage_dtype: dtype in which features are stored.
      backward: whether gradients are computed.

    Returns:
      Bytes of the stored data, of the arrays of a chunk and of the parameters.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> need = partial(streaming.needed_bytes, model, chunk_size=1024)
      >>> need(10**6, store_every=1) > need(10**6, store_every=0)
      True
    """
    layers, channels, width = sizes(model)
    plan = Plan(layers, store_every)
    kept = len(plan.kept) * num_points * channels
    kept *= jnp.dtype(storage_dtype).itemsize if storage_dtype else width
    heads, count, _ = attention_of(model).coefficient_shape(model.basis)
    functions = heads * count
    # Features of the layers of a group, and of one layer what its backward pass keeps.
    chunk = min(chunk_size, num_points) * width
    chunk *= (
        (2 * plan.depth + 16) * channels + 6 * functions
        if backward
        else 8 * channels + 3 * functions
    )
    # Parameters, their gradients in double precision, and those of one layer.
    parameters = (48 if backward else 8) * sum(
        int(np.size(leaf)) for leaf in jax.tree.leaves(model)
    )
    return kept + chunk + parameters


def choose_store_every(
    model: OperatorTransformer,
    num_points: int,
    *,
    chunk_size: int,
    memory_limit: float,
    storage_dtype: str | None = None,
) -> int:
    """Returns the smallest distance between stored layers that fits into memory."""
    layers, _, _ = sizes(model)
    for store_every in (*range(1, layers + 1), 0):
        needed = needed_bytes(
            model,
            num_points,
            chunk_size=chunk_size,
            store_every=store_every,
            storage_dtype=storage_dtype,
        )
        if needed <= memory_limit:
            return store_every
    raise MemoryError(
        f"{memory_limit=:g} bytes are too few: "
        + advice(model, num_points, chunk_size=chunk_size, memory_limit=memory_limit)
    )


def advice(
    model: OperatorTransformer,
    num_points: int,
    *,
    chunk_size: int,
    memory_limit: float,
    backward: bool = True,
) -> str:
    """Describes the memory that a mesh needs and a chunk size that fits.

    Args:
      model: the operator transformer.
      num_points: number of points of the mesh.
      chunk_size: number of points that are computed at once.
      memory_limit: available bytes.
      backward: whether gradients are computed.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import numpy as np
      >>> from opjax import nn, streaming
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> sizes = {"feature_dim": 0, "out_features": 1, "features": 8, "num_layers": 2}
      >>> build = partial(nn.OperatorTransformer, attention=attention, **sizes)
      >>> model = build(position=nn.Coordinates(2), rngs=nnx.Rngs(0))
      >>> given = {"chunk_size": 1024, "memory_limit": 2e9}
      >>> "chunk_size=1024 fits" in streaming.advice(model, 10**6, **given)
      False
    """
    _checks.positive(chunk_size=chunk_size, num_points=num_points)

    def needed(size: int) -> int:
        return needed_bytes(
            model, num_points, chunk_size=size, store_every=0, backward=backward
        )

    chunk_size = min(chunk_size, num_points)
    text = (
        f"{num_points} points in chunks of {chunk_size} need about "
        f"{needed(chunk_size) / 2**20:.0f} MiB with nothing stored"
    )
    fits = [size for size in (2**i for i in range(30)) if needed(size) <= memory_limit]
    if not fits:
        return f"{text}; no size of chunks fits, take a smaller model."
    return f"{text}; chunk_size={min(max(fits), num_points)} fits."
