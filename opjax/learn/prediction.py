"""Evaluation of trained operators on meshes of any size, in bounded memory."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import metrics, nn, normalize
from opjax.datasets import samples
from opjax.datasets.samples import Sample
from opjax.learn import operators

if TYPE_CHECKING:
    from opjax.learn.trained import Trained


def predict(
    trained: "Trained",
    sample: Sample,
    *,
    time: float | None = None,
    chunk_size: int = 2**16,
    memory_gib: float = 8.0,
) -> np.ndarray:
    """Evaluates an operator on a mesh, in physical units.

    Meshes up to `chunk_size` points are padded to one of a few sizes, for each of which
    the operator is compiled once. On larger ones attention in a basis whose functions
    depend on their point alone runs chunk by chunk, with the same result: all it knows
    of the points are moments, which add up, and all else acts on every point alone.
    Only the features of all points are kept: a million points take 0.8 GiB with 64
    channels, as a whole 2 GiB. Other operators are evaluated as a whole, where that
    fits.

    Args:
      trained: the operator.
      sample: a mesh, with features if the operator takes any.
      time: of an operator with a time embedding.
      chunk_size: points of a chunk.
      memory_gib: largest memory of an evaluation as a whole, in GiB.

    Returns:
      Values of the output function, float32 of shape `(n, q)`.

    Raises:
      ValueError: if the sample does not fit the operator, or the mesh the memory.
    """
    check(trained, sample)
    n = sample.num_points
    when = {} if time is None else {"time": jnp.asarray(time, jnp.float32)}
    if n > chunk_size and in_chunks(trained.model):
        return _in_chunks(trained, sample, when, chunk_size)
    size = n if trained.fixed_points or n > chunk_size else padded_size(n)
    arrays = _arrays(sample) if size == n else samples.pad(sample, size)
    if n > chunk_size:
        _check_memory(trained, arrays, when, memory_gib)
    return np.asarray(_whole(trained.model, trained.normalizers, arrays, when))[:n]


def in_chunks(model: Any) -> bool:
    """Whether a model can be evaluated chunk by chunk.

    Args:
      model: any.
    """
    if not isinstance(model, nn.OperatorTransformer):
        return False
    attention = model.blocks.attention
    # A subclass may do more with the points than their moments say.
    if type(attention) is not nn.BasisAttention:
        return False
    return attention.choose_basis(model.basis).pointwise


def relative_l2(sample: Sample, prediction: np.ndarray) -> float:
    """Relative L2 error of a prediction, as in training."""
    assert sample.target is not None
    return float(
        metrics.relative_l2(
            jnp.asarray(prediction),
            jnp.asarray(sample.target),
            quadrature_weights=sample.quadrature_weights,  # pyright: ignore
        )
    )


def check(trained: "Trained", sample: Sample) -> None:
    """Raises ValueError unless a sample has what an operator takes."""
    expected = trained.description["channels"]
    for name in ("mesh_points", "features"):
        array = getattr(sample, name)
        count = 0 if array is None else array.shape[1]
        if count != expected[name]:
            what = "coordinates" if name == "mesh_points" else "channels of features"
            names = trained.description["names"].get(name)
            raise ValueError(
                f"{sample.name} has {count} {what}, but the operator in "
                f"{trained.folder} was trained with {expected[name]}"
                + (f" ({', '.join(names)})." if names else "; see --point_dim.")
            )
    weighted = sample.quadrature_weights is not None
    if weighted != trained.description["weighted"]:
        has = ("without", "with")
        raise ValueError(
            f"{sample.name} comes {has[weighted]} quadrature_weights, but the operator "
            f"in {trained.folder} was trained {has[not weighted]} them."
        )
    num_points = trained.description["sizes"]["num_points"]
    if trained.fixed_points and sample.num_points != num_points:
        raise ValueError(
            f"{sample.name} has {sample.num_points} points, but the operator in "
            f"{trained.folder} is for meshes of {num_points} only."
        )


def padded_size(num_points: int) -> int:
    """The size that a mesh is padded to: an eighth more points at most, or 64."""
    step = max(64, 2 ** max(num_points.bit_length() - 4, 0))
    return -(-num_points // step) * step


def _arrays(sample: Sample) -> dict[str, np.ndarray]:
    names = ("mesh_points", "features", "quadrature_weights")
    arrays = {name: getattr(sample, name) for name in names}
    return {name: array for name, array in arrays.items() if array is not None}


def _encode(normalizers: Any, arrays: dict[str, Any]) -> dict[str, jax.Array]:
    return {
        name: normalize.encode(normalizers[name], jnp.asarray(array))
        if name in normalizers
        else jnp.asarray(array)
        for name, array in arrays.items()
        if name != "target"
    }


def _decode(normalizers: Any, values: jax.Array) -> jax.Array:
    if "target" not in normalizers:
        return values
    return normalize.decode(normalizers["target"], values)


@jax.jit
def _whole(model: Any, normalizers: Any, arrays: Any, when: Any) -> jax.Array:
    encoded = _encode(normalizers, arrays)
    return _decode(normalizers, operators.call(model, encoded, **when))


def _check_memory(
    trained: "Trained", arrays: Any, when: Any, memory_gib: float
) -> None:
    """Asks the compiler for the memory of an evaluation before there is one."""
    n = len(arrays["mesh_points"])
    # Scores of one head, and their softmax.
    needed = 8 * n**2 if operators.entry(trained.name).quadratic else 0
    if needed <= memory_gib * 2**30:
        lowered = _whole.lower(trained.model, trained.normalizers, arrays, when)
        analysis = lowered.compile().memory_analysis()
        needed = max(needed, getattr(analysis, "temp_size_in_bytes", 0))
    if needed > memory_gib * 2**30:
        raise ValueError(
            f"{trained.name} needs about {needed / 2**30:.1f} GiB for a mesh of {n} "
            f"points, above {memory_gib=:g}. Raise --memory_gib if the machine has "
            "more, take a coarser mesh, or train functional or transolver without "
            "convolutions, which are evaluated in chunks."
        )


def _in_chunks(
    trained: "Trained", sample: Sample, when: dict[str, Any], size: int
) -> np.ndarray:
    """Evaluates an operator whose attention is in a basis, chunk by chunk."""
    model, normalizers = trained.model, trained.normalizers
    n = sample.num_points
    weights = sample.quadrature_weights
    # As `samples.pad` does: padded points of the last chunk have none.
    weights = np.full(n, 1 / n, np.float32) if weights is None else weights
    chunks = []
    for start in range(0, n, size):
        rows = slice(start, start + size)
        arrays = {name: array[rows] for name, array in _arrays(sample).items()}
        arrays["quadrature_weights"] = weights[rows]
        missing = size - len(arrays["mesh_points"])
        arrays = {
            name: np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            for name, array in arrays.items()
        }
        encoded = _encode(normalizers, arrays)
        points = encoded["mesh_points"]
        z = _encoder(model, points, encoded.get("features"), when)
        chunks.append((z, points, encoded["quadrature_weights"]))
    num_layers = jax.tree.leaves(model.blocks)[0].shape[0]
    for number in range(num_layers):
        block = jax.tree.map(lambda leaf, number=number: leaf[number], model.blocks)
        total = None
        for z, points, weights in chunks:
            part = _moments(block, model.basis, z, points, weights)
            total = part if total is None else total + part
        mixed = _mix(block, model.basis, total)
        chunks = [
            (_advance(block, model.basis, mixed, z, points), points, weights)
            for z, points, weights in chunks
        ]
    values = [np.asarray(_decoder(model, normalizers, z)) for z, _, _ in chunks]
    return np.concatenate(values)[:n]


@jax.jit
def _encoder(model: Any, points: Any, features: Any, when: Any) -> jax.Array:
    return model.encode(points, features, **when)


@jax.jit
def _moments(block: Any, basis: Any, z: Any, points: Any, weights: Any) -> Any:
    x = block.attention_norm(z)
    return block.attention.moments(
        x, basis=basis, mesh_points=points, quadrature_weights=weights
    )


@jax.jit
def _mix(block: Any, basis: Any, moments: Any) -> jax.Array:
    return block.attention.mix(moments, basis=basis)


@jax.jit
def _advance(block: Any, basis: Any, mixed: Any, z: Any, points: Any) -> jax.Array:
    """Features of a chunk after a block."""
    x = block.attention_norm(z)
    attended = block.attention.expand(mixed, x, basis=basis, mesh_points=points)
    return block.add(z, attended)


@jax.jit
def _decoder(model: Any, normalizers: Any, z: jax.Array) -> jax.Array:
    return _decode(normalizers, model.decode(z))
