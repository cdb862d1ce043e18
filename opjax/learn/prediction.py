"""Evaluation of trained operators on meshes of any size, in bounded memory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import normalize
from opjax.datasets import samples
from opjax.datasets.normalizers import encode
from opjax.datasets.samples import Sample
from opjax.learn import operators
from opjax.nn.models import chunks, host_chunks
from opjax.normalize import Normalizer

if TYPE_CHECKING:
    from opjax.learn.trained import Trained

_ARRAYS = ("mesh_points", "features", "quadrature_weights")


def predict_sample(
    normalizers: Mapping[str, Normalizer], model: Any, sample: Any, **given: Any
) -> jax.Array:
    """Evaluates an operator on an encoded sample, in physical units, `(n, q)`."""
    return _decode(normalizers, operators.call(model, sample, **given))


def _decode(normalizers: Mapping[str, Normalizer], values: jax.Array) -> jax.Array:
    if "target" not in normalizers:
        return values
    return normalize.decode(normalizers["target"], values)


def predict(
    trained: "Trained",
    sample: Sample,
    *,
    time: float | None,
    chunk_size: int,
    memory_gib: float,
) -> np.ndarray:
    """Evaluates an operator on a mesh, see `Trained.__call__`.

    Meshes up to `chunk_size` points are padded to one of a few sizes, for each of which
    the operator is compiled once. Larger ones run chunk by chunk, where the operator
    can, see `nn.models.host_chunks`: a million points take 0.8 GiB with 64 channels, as
    a whole 2 GiB. Other operators are evaluated as a whole, where that fits.
    """
    _check(trained, sample)
    sample, n = sample._replace(target=None), sample.num_points
    when = {} if time is None else {"time": jnp.asarray(time, jnp.float32)}
    model, normalizers = trained.model, trained.normalizers
    if n > chunk_size and chunks.can_be_chunked(model):
        whole, parts = samples.pad(sample, n), []  # with the weights of all points
        for start in range(0, n, chunk_size):
            part: Any = {k: a[start : start + chunk_size] for k, a in whole.items()}
            arrays = encode(samples.pad(Sample(**part), chunk_size), normalizers)
            parts.append(tuple(map(arrays.get, _ARRAYS)))
        found = host_chunks.call_in_chunks(model, parts, **when)
        values = [np.asarray(_decode(normalizers, part)) for part in found]
        return np.concatenate(values)[:n]
    if trained.fixed_points or n > chunk_size:
        arrays = {k: getattr(sample, k) for k in _ARRAYS}
        arrays = {k: array for k, array in arrays.items() if array is not None}
    else:
        arrays = samples.pad(sample, padded_size(n))
    if n > chunk_size:
        _check_memory(trained, arrays, when, memory_gib)
    return np.asarray(_whole(model, normalizers, arrays, when))[:n]


def padded_size(num_points: int) -> int:
    """The size that a mesh is padded to: an eighth more points at most, or 64."""
    step = max(64, 2 ** max(num_points.bit_length() - 4, 0))
    return -(-num_points // step) * step


def _check(trained: "Trained", sample: Sample) -> None:
    """Raises ValueError unless a sample has what an operator takes."""
    description = trained.description
    operator = f"the operator in {trained.folder}"
    for name in ("mesh_points", "features"):
        array, expected = getattr(sample, name), description["channels"][name]
        count = 0 if array is None else array.shape[1]
        if count != expected:
            what = "coordinates" if name == "mesh_points" else "channels of features"
            names = description["names"].get(name)
            raise ValueError(
                f"{sample.name} has {count} {what}, but {operator} was trained with "
                f"{expected}"
                + (f" ({', '.join(names)})." if names else "; see --point_dim.")
            )
    weighted = sample.quadrature_weights is not None
    if weighted != description["weighted"]:
        has = ("without", "with")
        raise ValueError(
            f"{sample.name} comes {has[weighted]} quadrature_weights, but {operator} "
            f"was trained {has[not weighted]} them."
        )
    num_points = description["sizes"]["num_points"]
    if trained.fixed_points and sample.num_points != num_points:
        raise ValueError(
            f"{sample.name} has {sample.num_points} points, but {operator} is for "
            f"meshes of {num_points} only."
        )


@jax.jit
def _whole(model: Any, normalizers: Any, arrays: Any, when: Any) -> jax.Array:
    return predict_sample(normalizers, model, encode(arrays, normalizers), **when)


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
