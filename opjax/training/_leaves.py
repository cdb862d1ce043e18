"""Conversion between the leaves of a pytree and named NumPy arrays."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax._trees import PyTree


def arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Returns all leaves as NumPy arrays, by their path in the tree.

    Args:
      tree: pytree of arrays, numbers and PRNG keys.

    Raises:
      TypeError: if a leaf is anything else.
    """
    return {
        name: np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for name, leaf in _named(tree)
    }


def shapes(tree: PyTree) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns shape and dtype of the arrays that `arrays` returns for a tree.

    Args:
      tree: pytree as for `arrays`; leaves may also be `jax.ShapeDtypeStruct`.

    Raises:
      TypeError: if a leaf is anything else.
    """
    shapes: dict[str, jax.ShapeDtypeStruct] = {}
    for name, leaf in _named(tree, abstract=True):
        leaf = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        shapes[name] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return shapes


def compared(
    stored: Mapping[str, np.ndarray], like: PyTree
) -> tuple[dict[str, jax.ShapeDtypeStruct], list[str], list[str]]:
    """Compares the names of stored arrays with those of a template.

    Returns:
      The leaves that are stored, which are not empty; names of missing arrays; and
      names of arrays that do not belong to the template.
    """
    leaves = {name: leaf for name, leaf in shapes(like).items() if leaf.size}
    missing, extra = leaves.keys() - stored.keys(), stored.keys() - leaves.keys()
    return leaves, sorted(missing), sorted(extra)


def rebuild(stored: Mapping[str, np.ndarray], like: PyTree) -> Any:
    """Builds a tree from arrays.

    Args:
      stored: arrays by name, from `arrays`; empty ones may be missing.
      like: template, which provides the structure, types and devices of the tree.
    """
    leaves, structure = jax.tree.flatten(like)
    empty = {
        k: np.empty(x.shape, x.dtype) for k, x in shapes(like).items() if not x.size
    }
    every = {**empty, **stored}
    values = (every[name] for name, _ in _named(like, abstract=True))
    return structure.unflatten(map(_convert, values, leaves))


def _named(tree: PyTree, *, abstract: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields name and leaf; numbers become NumPy arrays."""
    kinds = (jax.Array, np.ndarray, np.generic, int, float)
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path).replace("/", "|") or "value"
        if not isinstance(leaf, (*kinds, jax.ShapeDtypeStruct) if abstract else kinds):
            raise TypeError(
                f"Leaf {name} is a {type(leaf).__name__}, but checkpoints can only "
                "contain arrays and numbers; store anything else in `metadata`."
            )
        whole = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
        yield name, leaf if whole else np.asarray(leaf)


def _convert(value: np.ndarray, leaf: PyTree) -> Any:
    """Returns a value as the type of a template's leaf, on its devices."""
    if isinstance(leaf, np.generic):  # first: np.float64 is a float
        return value[()]
    if isinstance(leaf, np.ndarray):
        return value
    if isinstance(leaf, bool | int | float):
        return type(leaf)(value)
    if _is_key(leaf):
        converted: list[Any] = []  # traced, because the template may be abstract
        jax.eval_shape(lambda key: converted.append(jax.random.key_impl(key)), leaf)
        return jax.random.wrap_key_data(jnp.asarray(value), impl=converted[0])
    sharding = getattr(leaf, "sharding", None)
    # Copied: device_put may alias a NumPy buffer, and donated buffers must be ours.
    if sharding is not None and not sharding.is_fully_addressable:
        data = np.array(value)
        return jax.make_array_from_process_local_data(sharding, data, data.shape)
    return jax.device_put(jnp.array(value), sharding)


def _is_key(leaf: PyTree) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
