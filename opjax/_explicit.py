"""Arrays with explicit sharding types: arrays on axes of `jax.make_mesh`.

JAX does not support such types in sums over devices, and in loops along a split axis.
Therefore functions leave the sharding inside to the compiler, as on axes of
`AxisType.Auto`, and only define the sharding of their results.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

P = ParamSpec("P")
R = TypeVar("R")


def split_by_compiler(function: Callable[P, R]) -> Callable[P, R]:
    """Lets the compiler decide how a function is sharded over an explicit mesh.

    Axes with the same letter in the signature are split in the same way, in arguments
    and results. Results are replicated along all other axes.

    Args:
      function: function of arrays, pytrees of arrays and constants.

    Returns:
      The wrapped function.
    """
    signature = inspect.signature(function)
    call: Callable[..., R] = function

    @functools.wraps(function)
    def split(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
        mesh = _explicit_mesh(arrays)
        if mesh is None:
            return function(*args, **kwargs)

        def inside(arrays: list[jax.Array]) -> R:
            remaining = iter(arrays)
            merged = [
                next(remaining) if isinstance(x, jax.Array) else x for x in leaves
            ]
            positional, named = jax.tree.unflatten(structure, merged)
            return call(*positional, **named)

        axes = _axes_of_letters(signature, signature.bind(*args, **kwargs).arguments)
        shared = jax.sharding.auto_axes(
            inside,
            axes=mesh.explicit_axes,
            out_sharding=_shardings(signature.return_annotation, axes, mesh),
        )
        return jax.jit(shared, inline=True)(arrays)

    return split


def _explicit_mesh(arrays: Iterable[jax.Array]) -> AbstractMesh | None:
    """Returns the mesh of arrays, or else of the context, if it has explicit axes.

    Not within `jax.shard_map` over some of the axes, where JAX cannot differentiate
    what leaves others to the compiler (0.10).
    """
    meshes = [jax.typeof(array).sharding.mesh for array in arrays]
    meshes.append(jax.sharding.get_abstract_mesh())
    explicit = (m for m in meshes if m.explicit_axes and not m.manual_axes)
    return next(explicit, None)


def _axes_of_letters(
    signature: inspect.Signature, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the axes of the mesh over which letters of the signature are split."""
    axes = {}
    for name, argument in arguments.items():
        letters = _letters(signature.parameters[name].annotation)
        if isinstance(argument, jax.Array) and len(letters) == argument.ndim:
            spec = jax.typeof(argument).sharding.spec
            named = zip(letters, spec, strict=True)
            axes |= {letter: axis for letter, axis in named if axis is not None}
    return axes


def _letters(annotation: Any) -> list[str]:
    """Returns the letters of the axes of an array; none if it is no array."""
    alternatives = (annotation, *typing.get_args(annotation))
    strings = [a.dim_str for a in alternatives if hasattr(a, "dim_str")]
    return strings[0].split() if strings else []


def _shardings(annotation: Any, axes: Mapping[str, Any], mesh: AbstractMesh) -> Any:
    """Returns how results are split: one sharding for each array of a tuple, or one."""
    if isinstance(annotation, type) and hasattr(annotation, "_fields"):
        fields = typing.get_type_hints(annotation).values()
        return annotation(*(_shardings(field, axes, mesh) for field in fields))
    if typing.get_origin(annotation) is tuple:
        parts = typing.get_args(annotation)
        return tuple(_shardings(part, axes, mesh) for part in parts)
    spec = [axes.get(letter) for letter in _letters(annotation)]
    # One axis of the mesh splits one axis of an array: the first of a `(k, k)`.
    once = [axis if axis not in spec[:i] else None for i, axis in enumerate(spec)]
    return NamedSharding(mesh, PartitionSpec(*once))
