"""Complex arrays as pairs of real ones, and Fourier transforms as matrix products."""

# pyright: basic
import math
from functools import partial
from typing import Any

import jax
import numpy as np
import onnx  # pyright: ignore[reportMissingImports]

from opjax._onnx.graph import Array, Equation, Graph, Pair, Value
from opjax._onnx.rules import RULES, Rule, elementwise

_LINEAR = {"add", "add_any", "broadcast_in_dim", "concatenate", "neg", "pad"}
_LINEAR |= {"reduce_sum", "reshape", "rev", "slice", "squeeze", "sub", "transpose"}
_BILINEAR = {"dot_general", "mul"}
_ZERO = np.zeros((), np.float32)


def is_complex(eqn: Equation) -> bool:
    """Whether an operation takes or returns complex arrays."""
    avals = [var.aval for var in (*eqn.invars, *eqn.outvars)]
    return any(jax.numpy.issubdtype(aval.dtype, np.complexfloating) for aval in avals)


def apply(graph: Graph, eqn: Equation, arguments: list[Any]) -> Any:
    """The result of an operation on complex arrays."""
    name = eqn.primitive.name
    if name == "complex":
        return Pair(*arguments)
    pairs = [_pair(each) for each in arguments]
    if name in ("real", "imag"):
        return getattr(pairs[0], name)
    if name == "convert_element_type":
        return Pair(graph.cast(pairs[0].real, np.float32), pairs[0].imag)
    if name == "fft":
        return _transform(graph, eqn, pairs[0])
    if name in _BILINEAR:
        return _product(graph, partial(RULES[name], graph, eqn), *pairs)
    if name in _LINEAR:
        parts = zip(*pairs, strict=True)
        rule = partial(RULES[name], graph, eqn)
        return Pair(
            *(_ZERO if all(map(_is_zero, part)) else rule(*part) for part in parts)
        )
    raise NotImplementedError(f"{name} of complex numbers")


def _pair(array: Array | Pair) -> Pair:
    if isinstance(array, np.ndarray):
        return Pair(np.real(array), np.imag(array))
    return array if isinstance(array, Pair) else Pair(array, _ZERO)


def _product(graph: Graph, multiply: Rule, x: Pair, y: Pair) -> Pair:
    def part(kind: str, *factors: tuple[Array, Array]) -> Array:
        terms = [multiply(*two) for two in factors if not any(map(_is_zero, two))]
        if not terms:
            return _ZERO
        return elementwise(graph, kind, *terms) if len(terms) == 2 else terms[0]

    return Pair(
        part("Sub", (x.real, y.real), (x.imag, y.imag)),
        part("Add", (x.real, y.imag), (x.imag, y.real)),
    )


def _is_zero(array: Array) -> bool:
    return isinstance(array, np.ndarray) and not array.any()


def _transform(graph: Graph, eqn: Equation, x: Pair) -> Array | Pair:
    kind, lengths = eqn.params["fft_type"].name, eqn.params["fft_lengths"]
    shape = eqn.invars[0].aval.shape
    x = Pair(*(part if _is_zero(part) else graph.full(part, shape) for part in x))
    axes = list(enumerate(lengths, len(shape) - len(lengths)))
    for axis, n in axes[::-1] if kind == "RFFT" else axes:
        if jax.export.is_symbolic_dim(n):
            raise NotImplementedError("fft of an axis of any size")
        halved = kind in ("RFFT", "IRFFT") and axis == len(shape) - 1
        x = _along(graph, x, axis, n, inverse=kind[0] == "I", halved=halved)
    return x.real if kind == "IRFFT" else x


def _along(
    graph: Graph, x: Pair, axis: int, n: int, *, inverse: bool, halved: bool
) -> Pair:
    """Transforms one axis by cosines and sines, which the file computes: it is small.

    Of real values, `halved`, there are only the first frequencies.
    """
    rows = columns = n
    weights = np.full(n, 1 / n if inverse else 1, np.float32)
    if halved and inverse:
        rows = n // 2 + 1
        weights = weights[:rows]
        weights[1 : (n + 1) // 2] *= 2
    elif halved:
        columns = n // 2 + 1
    turns = graph.op("Mul", np.arange(rows)[:, None], np.arange(columns))
    turns = graph.op("Cast", graph.op("Mod", turns, [n]), to=onnx.TensorProto.FLOAT)
    step = np.float32((2 if inverse else -2) * math.pi / n)
    angles = graph.op("Mul", turns, step)
    cosines, sines = (
        Value(
            graph.op("Mul", graph.op(wave, angles), weights[:, None]), (rows, columns)
        )
        for wave in ("Cos", "Sin")
    )

    def multiply(values: Array, wave: Value) -> Array:
        order = [i for i in range(len(values.shape)) if i != axis] + [axis]
        last = graph.transpose(values, order)
        product = Value(graph.op("MatMul", last, wave), (*last.shape[:-1], columns))
        return graph.transpose(product, np.argsort(order).tolist())

    return _product(graph, multiply, x, Pair(cosines, sines))
