"""Pure functions beside a few lines of plain JAX, and tiles of pairwise attention."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import opjax
from benchmarks.device_cases import Numbers, Sizes
from opjax import schwarz
from opjax.attention import pairwise as tiles

RIDGE = 0.1
_RANK, _WIDTH, _OVERLAP = 16, 128, 4  # of subdomains
Arrays = tuple[Any, ...]
Function = Callable[..., jax.Array]


def features(sizes: Sizes, n: int, batch: tuple[int, ...]) -> Arrays:
    """Returns queries, keys, values and softmax bases of heads, `(..., n, d)`."""
    keys, shape = jax.random.split(jax.random.key(0), 4), (*batch, n, sizes.channels)
    *given, logits = (jax.random.normal(key, shape) for key in keys)
    return *given, jax.nn.softmax(2 * logits)


def _functional(query, key, value, basis):
    q, k, v = basis.T @ query, basis.T @ key, basis.T @ value
    system = k @ k.T + RIDGE * jnp.eye(len(k))
    return basis @ (q @ (k.T @ jnp.linalg.solve(system, v)))


def _physics(query, key, value, basis):
    tokens = [basis.T @ x / (basis.sum(0) + 1e-5)[:, None] for x in (query, key, value)]
    return basis @ _softmax(*tokens)


def _softmax(query, key, value):
    return jax.nn.softmax(query @ key.T / query.shape[1] ** 0.5) @ value


def _heads(function: Function) -> Function:
    return jax.vmap(jax.vmap(function))


LINEAR: dict[str, tuple[Function, Function]] = {
    "functional": (
        _heads(
            lambda q, k, v, p: opjax.functional_attention(q, k, v, p, p, ridge=RIDGE)
        ),
        _heads(_functional),
    ),
    "physics": (
        _heads(lambda q, k, v, p: opjax.physics_attention(q, k, v, p, p)),
        _heads(_physics),
    ),
    "galerkin": (
        _heads(lambda q, k, v, p: opjax.galerkin_attention(q, k, v)),
        _heads(lambda q, k, v, p: q @ (k.T @ v)),
    ),
    "schwarz": (
        lambda cover, values, *a: schwarz.additive(values, cover, _low_rank, *a),
        lambda *a: _gathered(*a),
    ),
}


def _low_rank(query, key, values):
    return query @ (key.T @ values)


def _subdomains(sizes: Sizes, n: int) -> tuple[Any, Arrays]:
    cover = schwarz.box_cover(n, max(n // _WIDTH, 2), overlap=_OVERLAP)
    shapes = [(n, 2 * sizes.channels)] + 2 * [(*np.shape(cover.indices), _RANK)]
    keys = jax.random.split(jax.random.key(0), 3)
    pairs = zip(keys, shapes, strict=True)
    return cover, tuple(jax.random.normal(key, shape) for key, shape in pairs)


def _gathered(cover, values, query, key):
    root = jnp.sqrt(jnp.asarray(cover.weights, jnp.float32))[..., None]
    local = root * values[cover.indices]
    images = root * (query @ (key.mT @ local))
    return jnp.zeros_like(values).at[cover.indices].add(images)


def compare(sizes: Sizes, name: str, n: int) -> Numbers:
    """Times a function and its plain version, forward and gradient in all arrays."""
    ours, plain = LINEAR[name]
    if name == "schwarz":
        cover, arrays = _subdomains(sizes, n)
        pair = [lambda *a, f=f: f(cover, *a) for f in (ours, plain)]
    else:
        arrays = features(sizes, n, (sizes.batch, sizes.heads))
        pair = [ours, plain]
    numbers: Numbers = {}
    values = [jax.jit(f)(*arrays) for f in pair]
    numbers["difference"] = relative(values[0], values[1])
    for function, side in zip(pair, ("opjax", "plain"), strict=True):
        numbers |= _passes(function, arrays, sizes, f"{side}_")
    for part in ("forward", "gradient"):
        both = [numbers[f"{side}_{part}_ms"] for side in ("opjax", "plain")]
        numbers[f"{part}_ratio"] = both[0] / both[1]
    if name == "functional":
        eager = sizes.milliseconds(lambda: ours(*arrays), jax.block_until_ready)
        numbers["eager_ms"] = eager["ms"]
    return numbers


def _passes(function: Function, arrays: Arrays, sizes: Sizes, key: str) -> Numbers:
    """Times the values of a function and the gradients of their sum of squares."""

    def squares(*arrays):
        return jnp.sum(function(*arrays).astype(jnp.float32) ** 2)

    gradient = jax.grad(squares, argnums=tuple(range(len(arrays))))
    numbers: Numbers = {}
    for name, call in (("forward", function), ("gradient", gradient)):
        compiled = jax.jit(call).lower(*arrays).compile()
        times = sizes.milliseconds(lambda c=compiled: c(*arrays), jax.block_until_ready)
        numbers[f"{key}{name}_ms"] = times["ms"]
        numbers[f"{key}{name}_waited_ms"] = times["ms_waited"]
        if memory := compiled.memory_analysis():
            numbers[f"{key}{name}_mib"] = memory.temp_size_in_bytes / 2**20
    return numbers


def pairwise(sizes: Sizes, n: int, tile: int | str) -> Numbers:
    """Times softmax attention of one sample, so many queries at a time.

    Args:
      sizes: of the heads.
      n: points.
      tile: queries, "plain" for three lines of JAX, "cudnn" for JAX's call of the fused
        kernel in 16 bits.
    """
    arrays = features(sizes, n, (1, sizes.heads))[:3]
    if tile == "plain":
        return _passes(_heads(_softmax), arrays, sizes, "")
    if tile == "cudnn":
        own = [jnp.swapaxes(x, 1, 2).astype(jnp.bfloat16) for x in arrays]
        name = "cudnn" if jax.default_backend() == "gpu" else "xla"

        def fused(*arrays):
            return jax.nn.dot_product_attention(*arrays, implementation=name)

        return _passes(fused, tuple(own), sizes, "")
    with mock.patch.multiple(tiles, _TILE=tile, _ENTRIES_AT_ONCE=tile * n):
        return _passes(_heads(opjax.softmax_attention), arrays, sizes, "")


def relative(found: Any, expected: Any) -> float:
    """Returns the norm of the difference of pytrees, relative to the second."""

    def flat(tree: Any) -> np.ndarray:
        leaves = jax.tree.leaves(tree)
        return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in leaves])

    known = flat(expected)
    return float(np.linalg.norm(flat(found) - known) / np.linalg.norm(known))
