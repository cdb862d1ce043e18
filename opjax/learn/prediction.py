"""Evaluation of trained operators on meshes of any size, in bounded memory."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import metrics, normalize
from opjax.datasets import samples
from opjax.datasets.samples import Sample
from opjax.learn import operators
from opjax.learn.trained import Trained

# Their attention sees points through sums over all points only.
IN_CHUNKS = ("functional", "transolver")
_PAIRWISE = ("fourier", "softmax")


def predict(
    trained: Trained,
    sample: Sample,
    *,
    chunk_size: int = 2**16,
    memory_gib: float = 8.0,
) -> np.ndarray:
    """Evaluates an operator on a mesh, in physical units.

    Meshes up to `chunk_size` points are padded to one of a few sizes, for each of which
    the operator is compiled once. On larger ones functional attention and Transolver
    run chunk by chunk, with the same result: coefficients are sums over the points,
    and all else acts on every point alone. Only the features of all points are kept: a
    million points take 0.8 GiB with 64 channels, as a whole 2 GiB. Other operators are
    evaluated as a whole, where that fits.

    Args:
      trained: the operator.
      sample: a mesh, with features if the operator takes any.
      chunk_size: points of a chunk.
      memory_gib: largest memory of an evaluation as a whole, in GiB.

    Returns:
      Values of the output function, float32 of shape `(n, q)`.

    Raises:
      ValueError: if the sample does not fit the operator, or the mesh the memory.
    """
    check(trained, sample)
    name = trained.description["config"]["models"]
    in_chunks = name in IN_CHUNKS and trained.description["grid_shape"] is None
    n = sample.num_points
    if n > chunk_size and in_chunks:
        return _in_chunks(trained, sample, chunk_size)
    on_grid = trained.description["grid_shape"] is not None
    size = n if on_grid or n > chunk_size else padded_size(n)
    sample_arrays = _arrays(sample) if size == n else samples.pad(sample, size)
    if n > chunk_size:
        _check_memory(trained, sample_arrays, memory_gib)
    return np.asarray(_whole(trained.model, trained.normalizers, sample_arrays))[:n]


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


def check(trained: Trained, sample: Sample) -> None:
    """Raises ValueError unless a sample has the channels that an operator takes."""
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
def _whole(model: Any, normalizers: Any, arrays: dict[str, Any]) -> jax.Array:
    return _decode(normalizers, operators.call(model, _encode(normalizers, arrays)))


def _check_memory(trained: Trained, arrays: Any, memory_gib: float) -> None:
    """Asks the compiler for the memory of an evaluation before there is one."""
    n = len(arrays["mesh_points"])
    name = trained.description["config"]["models"]
    needed = 8 * n**2 if name in _PAIRWISE else 0  # scores of one head, and softmax
    if needed <= memory_gib * 2**30:
        compiled = _whole.lower(trained.model, trained.normalizers, arrays).compile()
        analysis = compiled.memory_analysis()
        needed = max(needed, getattr(analysis, "temp_size_in_bytes", 0))
    if needed > memory_gib * 2**30:
        raise ValueError(
            f"{name} needs about {needed / 2**30:.1f} GiB for a mesh of {n} points, "
            f"above {memory_gib=:g}. Raise --memory_gib if the machine has more, take "
            f"a coarser mesh, or train {' or '.join(IN_CHUNKS)}, which are evaluated "
            "in chunks."
        )


def _in_chunks(trained: Trained, sample: Sample, size: int) -> np.ndarray:
    """Evaluates an operator whose attention is in a basis, chunk by chunk."""
    model = trained.model
    chunks = []
    for start in range(0, sample.num_points, size):
        rows = slice(start, start + size)
        arrays = {name: array[rows] for name, array in _arrays(sample).items()}
        count = len(arrays["mesh_points"])
        weights = arrays.pop("quadrature_weights", np.ones(count, np.float32))
        arrays = {k: np.pad(v, [(0, size - count), (0, 0)]) for k, v in arrays.items()}
        z = _encoder(model, _encode(trained.normalizers, arrays))
        chunks.append((z, jnp.asarray(np.pad(weights, (0, size - count)))))
    num_layers = jax.tree.leaves(model.blocks)[0].shape[0]
    for number in range(num_layers):
        block = jax.tree.map(lambda leaf, number=number: leaf[number], model.blocks)
        sums: Any = None
        for z, weights in chunks:
            part = _moments(block, model.basis, z, weights)
            sums = part if sums is None else sums + part
        moved = _mix(block, model.basis, sums)
        for index, (z, weights) in enumerate(chunks):
            chunks[index] = _advance(block, model.basis, z, moved), weights
    values = [np.asarray(_decoder(model, trained.normalizers, z)) for z, _ in chunks]
    return np.concatenate(values)[: sample.num_points]


@jax.jit
def _encoder(model: Any, arrays: dict[str, jax.Array]) -> jax.Array:
    return model.encode(arrays["mesh_points"], arrays.get("features"))


@jax.jit
def _moments(block: Any, basis: Any, z: jax.Array, weights: jax.Array) -> Any:
    """Moments of a chunk, of every head."""
    return block.attention.moments(
        block.attention_norm(z), basis=basis, quadrature_weights=weights
    )


@jax.jit
def _mix(block: Any, basis: Any, moments: Any) -> jax.Array:
    """Coefficients `(h, k, d)` that attention makes of the moments of all points."""
    return block.attention.mix(moments, basis=basis)


@partial(jax.jit, donate_argnums=2)
def _advance(block: Any, basis: Any, z: jax.Array, mixed: jax.Array) -> jax.Array:
    """Features of a chunk after a block."""
    x = block.attention_norm(z)
    return block.add(z, block.attention.expand(mixed, x, basis=basis))


@jax.jit
def _decoder(model: Any, normalizers: Any, z: jax.Array) -> jax.Array:
    return _decode(normalizers, model.decode(z))
