"""Functions that process samples one by one on the CPU, even in a batch.

There are two reasons. First, jaxlib spreads batches of LAPACK calls over the threads of
the CPU and waits for them on one of these threads: two batches at once, forward and
backward, deadlock on two cores, from 64 systems of 16 unknowns on (jaxlib 0.10.2).
Second, arrays of one sample stay in cache, but those of a batch do not. Accelerators
need the batch.

The platform is decided when a program is lowered, not while it is traced, so that one
exported program is right for all platforms.
"""

# pyright: basic
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad, batching, mlir


def one_by_one(
    function: Callable,
    *,
    columns: int | None = None,
    elementary: Callable | None = None,
) -> Callable:
    """Makes `jax.vmap` process samples one by one on a CPU, and batched elsewhere.

    It supports nested `jax.vmap` and derivatives of any order, forward and reverse,
    which share the intermediate values of the function.

    Args:
      function: function from arrays, or pytrees of arrays, to the same; without side
        effects.
      columns: index of an argument whose columns are independent, as are those of all
        results: a batch of this argument alone becomes additional columns.
      elementary: the same function without LAPACK, which exports to ONNX use.

    Returns:
      A function with the same arguments and results.
    """

    @functools.wraps(function)
    def guarded(*arguments: Any) -> Any:
        jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        leaves = jax.tree.leaves(arguments)
        count = len(leaves)
        if jaxpr.consts:  # traced values, possibly: arguments like others
            leaves = [*jaxpr.consts, *leaves]
            jaxpr = _trace(_opened(jaxpr), leaves)
        wider = None if columns is None else (function, columns)
        other = None if elementary is None else (elementary, len(leaves) - count)
        results = _bind(jaxpr, leaves, 0, wider, other)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return guarded


def over_heads(function: Callable, *arguments: Any, sequential: bool) -> Any:
    """Applies a function to the slices of arguments along their first axes.

    Args:
      function: function of one slice of each argument.
      *arguments: arrays, or pytrees of them.
      sequential: whether to process the slices one by one on the CPU.

    Returns:
      The results, stacked along their first axes.
    """
    together = jax.vmap(function)
    if not sequential:
        return together(*arguments)

    def in_turn(*arguments):
        return lax.map(lambda slices: function(*slices), arguments)

    return lax.platform_dependent(*arguments, cpu=in_turn, default=together)


# A rule for batching alone, `jax.custom_batching.custom_vmap`, would hide the function
# from reverse mode; hence a primitive, whose derivatives are calls of itself. It keeps
# the program of one sample and counts the batch axes in front of all arguments. The
# elementary form takes the arguments after as many constants.

_one_by_one = jax.extend.core.Primitive("one_by_one")
_one_by_one.multiple_results = True


def _bind(
    jaxpr: jax.extend.core.ClosedJaxpr,
    arguments: Iterable,
    depth: int,
    wider: tuple[Callable, int] | None = None,
    elementary: tuple[Callable, int] | None = None,
) -> list:
    return _one_by_one.bind(
        *arguments, jaxpr=jaxpr, depth=depth, wider=wider, elementary=elementary
    )


def _evaluate(*arguments, jaxpr, depth, wider=None, elementary=None):
    del wider, elementary  # for batches, for exports
    function = jax.extend.core.jaxpr_as_fun(jaxpr)
    if depth == 0:
        return function(*arguments)

    def in_turn(*arguments):
        batch = arguments[0].shape[:depth]
        flat = [a.reshape(math.prod(batch), *a.shape[depth:]) for a in arguments]
        results = lax.map(lambda slices: function(*slices), flat)
        return [r.reshape(*batch, *r.shape[1:]) for r in results]

    together = function
    for _ in range(depth):
        together = jax.vmap(together)
    return lax.platform_dependent(*arguments, cpu=in_turn, default=together)


def _types(*arguments, jaxpr, depth, wider, elementary):
    batch = arguments[0].shape[:depth]
    return [aval.update(shape=(*batch, *aval.shape)) for aval in jaxpr.out_avals]


def _batch(arguments, axes, *, jaxpr, depth, wider, elementary):
    mapped = [i for i, axis in enumerate(axes) if axis is not None]
    if wider is not None and mapped == [wider[1]]:
        return _more_columns(
            arguments, axes, depth=depth, wider=wider, elementary=elementary
        )
    (size,) = {
        a.shape[i] for a, i in zip(arguments, axes, strict=True) if i is not None
    }
    arguments = [
        jnp.broadcast_to(a, (size, *a.shape))
        if axis is None
        else jnp.moveaxis(a, axis, 0)
        for a, axis in zip(arguments, axes, strict=True)
    ]
    results = _bind(jaxpr, arguments, depth + 1, wider, elementary)
    return results, [0] * len(results)


def _more_columns(arguments, axes, *, depth, wider, elementary):
    function, index = wider
    narrow = jnp.moveaxis(arguments[index], axes[index], -2)
    wide = narrow.reshape(*narrow.shape[:-2], math.prod(narrow.shape[-2:]))
    arguments = [*arguments[:index], wide, *arguments[index + 1 :]]
    one = [jax.ShapeDtypeStruct(a.shape[depth:], a.dtype) for a in arguments]
    results = _bind(_trace(function, one), arguments, depth, wider, elementary)
    results = [r.reshape(*r.shape[:-1], *narrow.shape[-2:]) for r in results]
    return results, [r.ndim - 2 for r in results]


def _jvp(primals, tangents, *, jaxpr, depth, wider, elementary):
    del wider, elementary
    moving = tuple(type(tangent) is not ad.Zero for tangent in tangents)
    first, second = _linearized(jaxpr, moving)
    computed = _bind(first, primals, depth)
    count = len(jaxpr.out_avals)
    tangents, _ = _split(moving, tangents)
    pushed = _bind(second, [*computed[count:], *tangents], depth)
    results = computed[:count]
    real = _real(jaxpr)
    constant = [
        ad.Zero(jax.core.ShapedArray(r.shape, jax.dtypes.float0))
        for r in _split(real, results)[1]
    ]
    return results, _merge(real, pushed, constant)


def _transpose(cotangents, *arguments, jaxpr, depth, wider, elementary):
    del wider, elementary
    linear = tuple(map(ad.is_undefined_primal, arguments))
    _, others = _split(linear, arguments)
    cotangents = map(ad.instantiate_zeros, cotangents)
    pulled = _bind(_transposed(jaxpr, linear), [*others, *cotangents], depth)
    return _merge(linear, pulled, [None] * len(others))


_one_by_one.def_impl(
    jax.jit(_evaluate, static_argnames=("jaxpr", "depth", "wider", "elementary"))
)
_one_by_one.def_abstract_eval(_types)
mlir.register_lowering(_one_by_one, mlir.lower_fun(_evaluate, multiple_results=True))
batching.primitive_batchers[_one_by_one] = _batch
ad.primitive_jvps[_one_by_one] = _jvp
ad.primitive_transposes[_one_by_one] = _transpose


# Programs are made once from a program, so that functions called eagerly are not traced
# and compiled again.


@functools.lru_cache
def _linearized(jaxpr, moving: tuple[bool, ...]):
    """Returns programs for the results with what their derivative needs, and for it.

    The second one takes what is needed and the tangents of the moving arguments.
    """
    structure = None

    def with_residuals(*arguments):
        nonlocal structure
        chosen, fixed = _split(moving, arguments)
        results, pushforward = jax.linearize(
            lambda *chosen: function(*_merge(moving, chosen, fixed)), *chosen
        )
        residuals, structure = jax.tree.flatten(pushforward)
        return [*results, *residuals]

    function = jax.extend.core.jaxpr_as_fun(jaxpr)
    first = _trace(with_residuals, jaxpr.in_avals)
    tangents, _ = _split(moving, jaxpr.in_avals)
    residuals = first.out_avals[len(jaxpr.out_avals) :]

    def derivative(residuals, tangents):
        pushed = jax.tree.unflatten(structure, residuals)(*tangents)
        return _split(_real(jaxpr), pushed)[0]

    return first, _trace(derivative, (residuals, tangents))


@functools.lru_cache
def _transposed(jaxpr, linear: tuple[bool, ...]):
    """Returns the adjoint program, of other arguments and cotangents of the results."""
    function = jax.extend.core.jaxpr_as_fun(jaxpr)
    inputs, others = _split(linear, jaxpr.in_avals)

    def pullback(others, cotangents):
        def forward(*inputs):
            return function(*_merge(linear, inputs, others))

        return jax.linear_transpose(forward, *inputs)(cotangents)

    return _trace(pullback, (others, jaxpr.out_avals))


def _real(jaxpr: jax.extend.core.ClosedJaxpr) -> list[bool]:
    """Which results have derivatives: not permutations, for example."""
    return [jnp.issubdtype(aval.dtype, jnp.inexact) for aval in jaxpr.out_avals]


def _trace(function: Callable, arguments: Iterable) -> jax.extend.core.ClosedJaxpr:
    return jax.make_jaxpr(function)(*arguments)


def _opened(jaxpr: jax.extend.core.ClosedJaxpr) -> Callable:
    """Returns the function of a program with its constants as first arguments."""
    count = len(jaxpr.consts)
    return lambda *values: jax.core.eval_jaxpr(
        jaxpr.jaxpr, values[:count], *values[count:]
    )


def _split(mask: Iterable[bool], values: Iterable) -> tuple[list, list]:
    """Returns the values where the mask is true, and the others."""
    pairs = list(zip(mask, values, strict=True))
    return [v for chosen, v in pairs if chosen], [
        v for chosen, v in pairs if not chosen
    ]


def _merge(mask: Iterable[bool], chosen: Iterable, others: Iterable) -> list:
    """Undoes `_split`."""
    chosen, others = iter(chosen), iter(others)
    return [next(chosen) if here else next(others) for here in mask]
