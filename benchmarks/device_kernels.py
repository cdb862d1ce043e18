"""Choices inside opjax that a processor has made, beside those of an accelerator."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device_cases import Numbers, Sizes
from opjax import linalg, schwarz

_RANK = 16


def _time(sizes: Sizes, calls: dict[str, Callable[..., Any]], *arrays: Any) -> Numbers:
    found: Numbers = {}
    for name, call in calls.items():
        compiled = jax.jit(call).lower(*arrays).compile()
        times = sizes.milliseconds(lambda c=compiled: c(*arrays), jax.block_until_ready)
        found[f"{name}_ms"] = times["ms"]
    return found


def _with_gradients(solve: Callable[..., Any]) -> Callable[..., Any]:
    def squares(system: jax.Array, rhs: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(solve)(system, rhs) ** 2)

    return jax.grad(squares, (0, 1))


def _cholesky(system: jax.Array, rhs: jax.Array) -> jax.Array:
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(system), rhs)


def solves(sizes: Sizes, k: int, count: int) -> Numbers:
    """Systems of `count` heads and samples, solved and differentiated."""
    k = 8 if sizes.small else k
    key = jax.random.key(0)
    factors = jax.random.normal(key, (count, k, 2 * k))
    system = factors @ factors.mT / k + jnp.eye(k)
    rhs = jax.random.normal(key, (count, k, 32))
    ways = {"opjax": linalg.solve, "numpy": jnp.linalg.solve, "cholesky": _cholesky}
    both: dict[str, Callable[..., Any]] = {}
    for name, solve in ways.items():
        both[name] = jax.vmap(solve)
        both[f"{name}_gradient"] = _with_gradients(solve)
    return _time(sizes, both, system, rhs)


def sums(sizes: Sizes) -> Numbers:
    """Local values summed to points: by scatters, and gathered by a table.

    `repeatable` says whether ten sums by scatters have the same bits.
    """
    side, boxes = (8, 2) if sizes.small else (256, 16)
    cover = schwarz.box_cover((side, side), (boxes, boxes), overlap=2)
    indices = np.asarray(cover.indices).reshape(-1)
    local = jax.random.normal(jax.random.key(0), (*np.shape(cover.indices), 64))
    local = local * jnp.asarray(cover.weights, jnp.float32)[..., None]
    table = _inverse(indices, cover.num_points)

    def gathered(local: jax.Array) -> jax.Array:
        flat = local.reshape(-1, local.shape[-1])
        return jnp.sum(jnp.take(flat, table, axis=0, fill_value=0, mode="fill"), axis=1)

    scattered = functools.partial(schwarz.prolong, cover=cover)
    numbers = _time(sizes, {"scatter": scattered, "table": gathered}, local)
    call = jax.jit(scattered)
    again = [np.asarray(call(local)) for _ in range(10)]
    error = np.max(np.abs(again[0] - np.asarray(jax.jit(gathered)(local))))
    same = all(np.array_equal(again[0], other) for other in again)
    return {**numbers, "repeatable": same, "difference": float(error)}


def _inverse(indices: np.ndarray, num_points: int) -> np.ndarray:
    """Returns the places of every point among `indices`, their number where none."""
    order = np.argsort(indices, kind="stable")
    counts = np.bincount(indices, minlength=num_points)
    table = np.full((num_points, counts.max()), len(indices))
    columns = np.arange(len(indices)) - np.repeat(np.cumsum(counts) - counts, counts)
    table[indices[order], columns] = order
    return table


def whitening(sizes: Sizes) -> Numbers:
    """`linalg.whiten` of heads, with the loop that repairs and without."""
    n = sizes.points[-1]
    values = jax.random.normal(jax.random.key(0), (sizes.heads, n, sizes.channels))
    covariance = values.mT @ values / n
    ways = {
        name: jax.vmap(functools.partial(linalg.whiten, repair=repair))
        for name, repair in (("repair", True), ("plain", False))
    }
    return _time(sizes, ways, values, covariance)


def copy(sizes: Sizes) -> Numbers:
    """Two ceilings: bytes that a copy moves, operations of a product in a second."""
    size = 2**10 if sizes.small else 2**28
    array = jnp.ones(size, jnp.float32)
    found = _time(sizes, {"copy": lambda x: x + 1}, array)
    side = 2**5 if sizes.small else 2**13
    square = jax.random.normal(jax.random.key(0), (side, side))
    for precision in ("default", "highest"):
        product = functools.partial(jnp.matmul, precision=precision)
        found |= _time(sizes, {precision: product}, square, square)
        rate = 2 * side**3 / found[f"{precision}_ms"] / 1e9
        found[f"{precision}_tflops"] = rate
    return found | {"copy_gb_s": 8 * size / found["copy_ms"] / 1e6}


KERNELS: dict[str, Callable[[Sizes], Numbers]] = {
    "ceilings": copy,
    "solve 32 of 64": functools.partial(solves, k=64, count=32),
    "solve 8 of 16": functools.partial(solves, k=16, count=8),
    "sum to points": sums,
    "whiten": whitening,
}
