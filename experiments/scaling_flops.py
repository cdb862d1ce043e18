"""Counts the operations of a program: products, convolutions, transforms and solves.

The compiler's cost analysis counts the body of a loop once. Here a loop counts as often
as it runs. Operations that the compiler merges or removes are not counted twice or at
all.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend import core

Atom = core.Var | core.Literal


def count(function: Callable, *given: Any) -> float:
    """Returns the floating point operations of a function of arrays or their shapes.

    Two for every multiplication of matrix products and convolutions, with the addition
    after it, and four times as many for complex numbers; `5 n log2 n` for a Fourier
    transform, `2 n^3 / 3` and the like for factorisations. Sums, exponentials and all
    else that acts entry by entry is left out.
    """
    return _total(jax.make_jaxpr(function)(*given).jaxpr)


def _total(jaxpr: core.Jaxpr) -> float:
    """Sums over the equations that results need, each kind of them once."""
    names: dict[Any, Any] = {}  # of variables: that of what they are computed from
    counted: dict[Any, int] = {}
    total = 0.0
    for eqn in _needed(jaxpr):
        sources = tuple(names.get(v, v) for v in map(_identity, eqn.invars))
        # Programs inside are long, and never the same twice.
        params = id(eqn) if [*_inner(eqn.params)] else str(eqn.params)
        key = eqn.primitive.name, sources, params
        total += 0 if key in counted else _of(eqn)
        number = counted.setdefault(key, len(counted))
        for index, variable in enumerate(eqn.outvars):
            names[_identity(variable)] = "result", number, index
    return total


def _identity(variable: Atom) -> object:
    """A name of a variable; literals are known by their values."""
    value = getattr(variable, "val", None)
    return id(variable) if value is None else ("literal", str(value))


def _needed(jaxpr: core.Jaxpr) -> list[core.JaxprEqn]:
    """Returns the equations that the results depend on, in order."""
    needed, kept = set(map(_identity, jaxpr.outvars)), []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or needed & set(map(_identity, eqn.outvars)):
            kept.append(eqn)
            needed |= set(map(_identity, eqn.invars))
    return kept[::-1]


def _of(eqn: core.JaxprEqn) -> float:
    name, params = eqn.primitive.name, eqn.params
    if name in _RULES:
        return _RULES[name](eqn)
    if name == "cond":  # branches for several platforms do the same
        return max(map(_total, _inner(params)))
    if name == "one_by_one":
        batch = math.prod(_shape(eqn.invars[0])[: params["depth"]])
        return batch * _total(params["jaxpr"].jaxpr)
    if name == "custom_linear_solve":
        return _total(params["jaxprs"].solve.jaxpr)
    times = params.get("length", 1) if name == "scan" else 1
    return times * sum(map(_total, _inner(params)))


def _inner(params: Mapping[str, Any]) -> Iterator[Any]:
    """Programs among the parameters of an equation."""
    for name in ("jaxpr", "call_jaxpr", "body_jaxpr", "fun_jaxpr"):
        inner = params.get(name)
        if inner is not None:
            yield getattr(inner, "jaxpr", inner)
    yield from (branch.jaxpr for branch in params.get("branches", ()))


def _shape(variable: Atom) -> tuple[int, ...]:
    assert isinstance(variable.aval, ShapedArray)
    return variable.aval.shape


def _size(variable: Atom) -> int:
    return math.prod(_shape(variable))


def _factor(eqn: core.JaxprEqn) -> int:
    """Operations for each multiplication with its addition."""
    return 8 if jnp.iscomplexobj(eqn.outvars[0].aval) else 2


def _product(eqn: core.JaxprEqn) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    shape = _shape(eqn.invars[0])
    inner = math.prod(shape[axis] for axis in contracted)
    return _factor(eqn) * inner * _size(eqn.outvars[0])


def _convolution(eqn: core.JaxprEqn) -> float:
    kernel = eqn.invars[1]
    out_axis = eqn.params["dimension_numbers"].rhs_spec[0]
    per_output = _size(kernel) // _shape(kernel)[out_axis]
    return _factor(eqn) * per_output * _size(eqn.outvars[0])


def _fourier(eqn: core.JaxprEqn) -> float:
    lengths = eqn.params["fft_lengths"]
    n = math.prod(lengths)
    wider = max(eqn.invars[0], eqn.outvars[0], key=_size)
    both_complex = all(map(jnp.iscomplexobj, (eqn.invars[0].aval, eqn.outvars[0].aval)))
    each = 5.0 if both_complex else 2.5
    return each * _size(wider) * math.log2(max(n, 2))


def _square(scale: float) -> Callable[[core.JaxprEqn], float]:
    """A factorisation of `(m, n)` matrices, `scale m n min(m, n)`."""

    def rule(eqn: core.JaxprEqn) -> float:
        *batch, m, n = _shape(eqn.invars[0])
        return scale * math.prod(batch) * m * n * min(m, n)

    return rule


def _triangular(eqn: core.JaxprEqn) -> float:
    return _shape(eqn.invars[0])[-1] * _size(eqn.invars[1])


_RULES: dict[str, Callable[[core.JaxprEqn], float]] = {
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "fft": _fourier,
    "lu": _square(2 / 3),
    "cholesky": _square(1 / 3),
    "geqrf": _square(4 / 3),
    "householder_product": _square(4 / 3),
    "svd": _square(4.0),
    "eigh": _square(9.0),
    "triangular_solve": _triangular,
}
