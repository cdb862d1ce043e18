"""ONNX nodes for the primitives of JAX that compute with arrays."""

# pyright: basic
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from opjax._onnx.graph import END, Array, Dim, Equation, Graph, Operand, Value, results

Rule = Callable[..., Any]  # of a graph, an equation and its arguments

UNARY = {
    "abs": "Abs",
    "ceil": "Ceil",
    "cos": "Cos",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "logistic": "Sigmoid",
    "neg": "Neg",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
BINARY = {
    "add": "Add",
    "add_any": "Add",
    "eq": "Equal",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "pow": "Pow",
    "sub": "Sub",
}
IDENTITIES = {"copy", "copy_p", "name", "optimization_barrier", "stop_gradient"}
_REDUCED = {
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_sum": "ReduceSum",
}


def elementwise(graph: Graph, kind: str, *arrays: Operand, **attributes: Any) -> Value:
    shape = _common([a.shape for a in arrays if isinstance(a, Value | np.ndarray)])
    return Value(graph.op(kind, *arrays, **attributes), shape)


def _common(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """The shape to which shapes broadcast."""
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True)
    return tuple(
        next((dim for dim in column if not (isinstance(dim, int) and dim == 1)), 1)
        for column in columns
    )


def _of_full(rule: Rule) -> Rule:
    """A rule whose arrays have their shapes; those of other rules may be broadcast."""

    def full(graph: Graph, eqn: Equation, *arrays: Array) -> Any:
        shapes = [var.aval.shape for var in eqn.invars]
        return rule(graph, eqn, *map(graph.full, arrays, shapes))

    return full


def _result(eqn: Equation, name: str) -> Value:
    return Value(name, eqn.outvars[0].aval.shape)


def _one(eqn: Equation) -> np.ndarray:
    return np.ones((), eqn.invars[0].aval.dtype)


def _unary(kind: str) -> Rule:
    return lambda graph, eqn, x: elementwise(graph, kind, x)


def _binary(kind: str) -> Rule:
    return lambda graph, eqn, x, y: elementwise(graph, kind, x, y)


def _divide(graph: Graph, eqn: Equation, x: Array, y: Array) -> Array:
    if isinstance(y, np.ndarray) and y.size == 1 and y.item() == 1:
        return x
    return elementwise(graph, "Div", x, y)


def _logical(kind: str, bitwise: str) -> Rule:
    def rule(graph: Graph, eqn: Equation, *arrays: Array) -> Value:
        logical = eqn.invars[0].aval.dtype == bool
        return elementwise(graph, kind if logical else bitwise, *arrays)

    return rule


def _not_equal(graph: Graph, eqn: Equation, x: Array, y: Array) -> Value:
    return elementwise(graph, "Not", elementwise(graph, "Equal", x, y))


def _reciprocal_root(graph: Graph, eqn: Equation, x: Array) -> Value:
    return elementwise(graph, "Reciprocal", elementwise(graph, "Sqrt", x))


def _integer_power(graph: Graph, eqn: Equation, x: Array) -> Array:
    power = eqn.params.get("y", 2)
    result, square, rest = None, x, abs(power)
    while rest:
        if rest % 2:
            result = square if result is None else _times(graph, result, square)
        rest //= 2
        square = _times(graph, square, square) if rest else square
    if result is None:
        return _one(eqn)
    return elementwise(graph, "Reciprocal", result) if power < 0 else result


def _times(graph: Graph, x: Array, y: Array) -> Value:
    return elementwise(graph, "Mul", x, y)


def _log1p(graph: Graph, eqn: Equation, x: Array) -> Value:
    """`x log(y) / (y - 1)` of the rounded `y = 1 + x`, exact for small x."""
    one = _one(eqn)
    above = elementwise(graph, "Add", x, one)
    rest = elementwise(graph, "Sub", above, one)
    log = elementwise(graph, "Log", above)
    ratio = elementwise(graph, "Div", log, rest)
    small = elementwise(graph, "Less", elementwise(graph, "Abs", rest), one)
    plain = elementwise(graph, "Where", small, _times(graph, x, ratio), log)
    same = elementwise(graph, "Equal", above, one)
    return elementwise(graph, "Where", same, x, plain)


def _expm1(graph: Graph, eqn: Equation, x: Array) -> Value:
    """`tanh(x / 2) (exp(x) + 1)`, exact for small x."""
    half = _times(graph, x, np.asarray(0.5, eqn.invars[0].aval.dtype))
    above = elementwise(graph, "Add", elementwise(graph, "Exp", x), _one(eqn))
    return _times(graph, elementwise(graph, "Tanh", half), above)


def _erfc(graph: Graph, eqn: Equation, x: Array) -> Value:
    return elementwise(graph, "Sub", _one(eqn), elementwise(graph, "Erf", x))


def _square(graph: Graph, eqn: Equation, x: Array) -> Value:
    return _times(graph, x, x)


def _finite(graph: Graph, eqn: Equation, x: Array) -> Value:
    bad = [elementwise(graph, kind, x) for kind in ("IsNaN", "IsInf")]
    return elementwise(graph, "Not", elementwise(graph, "Or", *bad))


def _remainder(graph: Graph, eqn: Equation, x: Array, y: Array) -> Value:
    return elementwise(graph, "Mod", x, y, fmod=1)


def _clamp(graph: Graph, eqn: Equation, low: Array, x: Array, high: Array) -> Value:
    return elementwise(graph, "Min", elementwise(graph, "Max", x, low), high)


def _select(graph: Graph, eqn: Equation, which: Array, *cases: Array) -> Array:
    if len(cases) == 1:
        return cases[0]
    if eqn.invars[0].aval.dtype == bool:
        return elementwise(graph, "Where", which, cases[1], cases[0])
    result = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        number = np.asarray(i, eqn.invars[0].aval.dtype)
        here = elementwise(graph, "Equal", which, number)
        result = elementwise(graph, "Where", here, cases[i], result)
    return result


def _convert(graph: Graph, eqn: Equation, x: Array) -> Array:
    return graph.cast(x, eqn.params["new_dtype"])


def _rounded(graph: Graph, eqn: Equation, x: Array) -> Array:
    bits = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    if bits == (8, 23):
        return x
    raise NotImplementedError(f"reduce_precision to {bits}")


# Shapes.


def _broadcast(graph: Graph, eqn: Equation, x: Array, *dynamic: Array) -> Array:
    """Adds axes; operations repeat the values where they need that."""
    kept = eqn.params["broadcast_dimensions"]
    rank = len(eqn.params["shape"])
    return graph.unsqueeze(x, [axis for axis in range(rank) if axis not in kept])


@_of_full
def _reshape(graph: Graph, eqn: Equation, x: Array, *dynamic: Array) -> Array:
    return graph.reshape(x, eqn.outvars[0].aval.shape)


def _transpose(graph: Graph, eqn: Equation, x: Array) -> Array:
    return graph.transpose(x, eqn.params["permutation"])


def _squeeze(graph: Graph, eqn: Equation, x: Array) -> Array:
    return graph.squeeze(x, eqn.params["dimensions"])


@_of_full
def _concatenate(graph: Graph, eqn: Equation, *arrays: Array) -> Value:
    return _result(eqn, graph.op("Concat", *arrays, axis=eqn.params["dimension"]))


def stacked(graph: Graph, parts: Sequence[Array], axis: int) -> str:
    """Joins arrays of one shape along a new axis."""
    raised = [graph.unsqueeze(part, [axis]) for part in parts]
    return graph.op("Concat", *raised, axis=axis)


@_of_full
def _stack(graph: Graph, eqn: Equation, *arrays: Array) -> Value:
    return _result(eqn, stacked(graph, arrays, eqn.params["axis"]))


def _slice(graph: Graph, eqn: Equation, x: Array) -> Array:
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or (1,) * len(before)
    fixed = not any(map(jax.export.is_symbolic_dim, (*before, *starts, *limits)))
    if isinstance(x, np.ndarray) and fixed:
        cuts = zip(starts, limits, strides, strict=True)
        return np.broadcast_to(x, before)[tuple(slice(*cut) for cut in cuts)]
    cut = [
        axis
        for axis, all_of_it in enumerate(
            s == 0 and limit is not None and limit == size and step == 1
            for s, limit, size, step in zip(
                starts, limits, before, strides, strict=True
            )
        )
        if not all_of_it
    ]
    if not cut:
        return x
    x = graph.full(x, before)
    ends = [
        np.asarray([END]) if limits[i] == before[i] else graph.sizes_of([limits[i]])
        for i in cut
    ]
    end = _together(graph, ends)
    start = graph.sizes_of([starts[i] for i in cut])
    name = graph.op("Slice", x, start, end, cut, [strides[i] for i in cut])
    return Value(name, after)


def _together(graph: Graph, parts: list[Any]) -> Any:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=0)


@_of_full
def _dynamic_slice(graph: Graph, eqn: Equation, x: Array, *starts: Array) -> Value:
    before, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    cut = [i for i, (b, s) in enumerate(zip(before, sizes, strict=True)) if b != s]
    return _window(graph, x, {i: starts[i] for i in cut}, sizes)


def _window(graph: Graph, x: Array, starts: dict[int, Array], sizes: Any) -> Value:
    """A part of an array, of given sizes, from starts along some axes on."""
    for axis, number in starts.items():
        start = _start(graph, number, x.shape[axis] - sizes[axis])
        if sizes[axis] == 1:
            x = Value(graph.op("Gather", x, start, axis=axis), x.shape)
        else:
            end = graph.op("Add", start, graph.sizes_of([sizes[axis]]))
            x = Value(graph.op("Slice", x, start, end, [axis]), x.shape)
    return Value(graph.name(x), tuple(sizes))


def _start(graph: Graph, number: Array, last: Dim) -> str:
    """The first index of a part, clamped as JAX does."""
    start = graph.name(graph.cast(graph.reshape(number, (1,)), np.int64))
    return graph.op("Max", graph.op("Min", start, graph.sizes_of([last])), [0])


@_of_full
def _dynamic_update_slice(
    graph: Graph, eqn: Equation, x: Array, update: Array, *starts: Array
) -> Array:
    """Writes at starts along one axis."""
    shape, small = (var.aval.shape for var in eqn.invars[:2])
    cut = [i for i, (a, b) in enumerate(zip(shape, small, strict=True)) if a != b]
    if not cut:
        return update
    if len(cut) != 1:
        raise NotImplementedError("dynamic_update_slice along several axes")
    (axis,) = cut
    order = [axis, *(i for i in range(len(shape)) if i != axis)]
    start = _start(graph, starts[axis], shape[axis] - small[axis])
    rows = graph.op("Add", start, np.arange(small[axis]))
    rows = graph.op("Unsqueeze", rows, [1])
    moved = [graph.transpose(each, order) for each in (x, update)]
    written = graph.op("ScatterND", moved[0], rows, moved[1])
    return Value(graph.name(graph.restored(written, shape, order)), shape)


@_of_full
def _pad(graph: Graph, eqn: Equation, x: Array, value: Array) -> Array:
    config, after = eqn.params["padding_config"], eqn.outvars[0].aval.shape
    if any(interior for *_, interior in config):
        raise NotImplementedError("pad between entries")
    if all(low == 0 and high == 0 for low, high, _ in config):
        return x
    counts = [low for low, *_ in config] + [high for _, high, _ in config]
    return Value(graph.op("Pad", x, graph.sizes_of(counts), value), after)


@_of_full
def _reverse(graph: Graph, eqn: Equation, x: Array) -> Value:
    axes = list(eqn.params["dimensions"])
    ends = [-END] * len(axes)
    name = graph.op("Slice", x, [-1] * len(axes), ends, axes, [-1] * len(axes))
    return _result(eqn, name)


@_of_full
def _split(graph: Graph, eqn: Equation, x: Array) -> list[Array]:
    sizes, axis = eqn.params["sizes"], eqn.params["axis"]
    counts = graph.sizes_of(sizes)
    names = graph.node("Split", x, counts, outputs=len(sizes), axis=axis)
    return results(eqn, names)


def _iota(graph: Graph, eqn: Equation, *dynamic: Array) -> Array:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    dtype, others = eqn.params["dtype"], [i for i in range(len(shape)) if i != axis]
    size = graph.size(shape[axis])
    if isinstance(size, int):
        return np.expand_dims(np.arange(size, dtype=dtype), tuple(others))
    ends = [np.asarray(0), graph.op("Squeeze", size, [0]), np.asarray(1)]
    numbers = Value(graph.op("Range", *ends), (shape[axis],))
    return graph.unsqueeze(graph.cast(numbers, dtype), others)


def _dim_as_value(graph: Graph, eqn: Equation) -> Array:
    size, dtype = graph.size(eqn.params["dim"]), eqn.outvars[0].aval.dtype
    if isinstance(size, int):
        return np.asarray(size, dtype)
    return graph.cast(Value(graph.op("Squeeze", size, [0]), ()), dtype)


# Reductions and products.


@_of_full
def _reduced(graph: Graph, eqn: Equation, x: Array) -> Array:
    axes = list(eqn.params["axes"])
    if not axes:
        return x
    kind = _REDUCED[eqn.primitive.name]
    name = graph.op(kind, x, axes, keepdims=0)
    return _result(eqn, name)


def _of_truths(kind: str) -> Rule:
    @_of_full
    def rule(graph: Graph, eqn: Equation, x: Array) -> Array:
        numbers = graph.cast(x, np.int32)
        name = graph.op(kind, numbers, list(eqn.params["axes"]), keepdims=0)
        return graph.cast(_result(eqn, name), bool)

    return rule


def _place_of(kind: str) -> Rule:
    @_of_full
    def rule(graph: Graph, eqn: Equation, x: Array) -> Array:
        (axis,) = eqn.params["axes"]
        name = graph.op(kind, x, axis=axis, keepdims=0)
        return graph.cast(_result(eqn, name), eqn.params["index_dtype"])

    return rule


@_of_full
def _cumulative_sum(graph: Graph, eqn: Equation, x: Array) -> Value:
    axis, reverse = np.asarray(eqn.params["axis"]), int(eqn.params["reverse"])
    return Value(graph.op("CumSum", x, axis, reverse=reverse), x.shape)


@_of_full
def _product(graph: Graph, eqn: Equation, x: Array, y: Array) -> Array:
    (cx, cy), (bx, by) = eqn.params["dimension_numbers"]
    fx, fy = ([i for i in range(len(a.shape)) if i not in (*c, *b)]
              for a, c, b in ((x, cx, bx), (y, cy, by)))  # fmt: skip
    x, y = graph.transpose(x, (*bx, *fx, *cx)), graph.transpose(y, (*by, *cy, *fy))
    batch, contracted = x.shape[: len(bx)], y.shape[len(by) : len(by) + len(cy)]
    rows = x.shape[len(bx) : len(bx) + len(fx)]
    columns = y.shape[len(by) + len(cy) :]
    if bx or len(cx) != 1:
        x = graph.reshape(x, (*batch, math.prod(rows), math.prod(contracted)))
    y = graph.reshape(y, (*batch, math.prod(contracted), math.prod(columns)))
    if not x.shape[:-1] and not bx:
        x = graph.reshape(x, (1, *x.shape))
    product = Value(graph.op("MatMul", x, y), (*x.shape[:-1], y.shape[-1]))
    result = graph.reshape(product, (*batch, *rows, *columns))
    dtype = eqn.outvars[0].aval.dtype
    return result if dtype == eqn.invars[0].aval.dtype else graph.cast(result, dtype)


@_of_full
def _convolution(graph: Graph, eqn: Equation, x: Array, kernel: Array) -> Array:
    p = eqn.params
    if set(p["lhs_dilation"]) != {1} or p["batch_group_count"] != 1:
        raise NotImplementedError("transposed convolution")
    numbers = p["dimension_numbers"]
    x = graph.transpose(x, numbers.lhs_spec)
    kernel = graph.transpose(kernel, numbers.rhs_spec)
    pads = [low for low, _ in p["padding"]] + [high for _, high in p["padding"]]
    name = graph.op(
        "Conv",
        x,
        kernel,
        strides=list(p["window_strides"]),
        pads=pads,
        dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )
    return graph.restored(name, eqn.outvars[0].aval.shape, numbers.out_spec)


# Places.


@_of_full
def _gather(graph: Graph, eqn: Equation, x: Array, indices: Array) -> Array:
    numbers = eqn.params["dimension_numbers"]
    after = eqn.outvars[0].aval.shape
    axes, sizes = numbers.start_index_map, eqn.params["slice_sizes"]
    places = graph.cast(indices, np.int64)
    if numbers.operand_batching_dims:
        if len(axes) != 1 or set(sizes) != {1}:
            raise NotImplementedError("gather of slices in a batch")
        places = graph.squeeze(places, [len(places.shape) - 1])
        name = graph.op("GatherElements", x, places, axis=axes[0])
        return Value(name, after)
    if len(indices.shape) == 1:
        places = graph.reshape(places, (len(axes),))
        numbered = {axis: _entry(graph, places, i) for i, axis in enumerate(axes)}
        window = _window(graph, x, numbered, sizes)
        return graph.squeeze(window, numbers.collapsed_slice_dims)
    whole = {i for i, size in enumerate(sizes) if size == x.shape[i]}
    whole -= set(numbers.collapsed_slice_dims)
    cut = [i for i, axis in enumerate(axes) if axis not in whole]
    if len(cut) < len(axes):  # the start along a whole axis is zero
        columns = graph.op("Gather", places, np.asarray(cut), axis=-1)
        places = Value(columns, (*places.shape[:-1], len(cut)))
        axes = [axes[i] for i in cut]
    rest = [i for i in range(len(x.shape)) if i not in axes]
    if not axes or not whole.issuperset(rest) or any(sizes[i] != 1 for i in axes):
        raise NotImplementedError(f"gather with {numbers} of {sizes} from {x.shape}")
    x = graph.transpose(x, (*axes, *rest))
    if len(axes) == 1:
        places = graph.squeeze(places, [len(places.shape) - 1])
        name = graph.op("Gather", x, places, axis=0)
    else:
        name = graph.op("GatherND", x, places)
    # First the axes of the indices, then those of the slices, without axes of size one.
    kept = [i for i in range(len(x.shape)) if i not in numbers.collapsed_slice_dims]
    ones = [o for o, i in zip(numbers.offset_dims, kept, strict=True) if i in axes]
    first = [i for i in range(len(after)) if i not in numbers.offset_dims]
    order = (*first, *(o for o in numbers.offset_dims if o not in ones))
    return graph.unsqueeze(graph.restored(name, after, order), ones)


def _entry(graph: Graph, x: Array, i: int) -> Array:
    if isinstance(x, np.ndarray):
        return np.asarray(x[i])
    return Value(graph.op("Gather", x, np.asarray(i), axis=0), ())


def _scatter(reduction: str) -> Rule:
    @_of_full
    def rule(
        graph: Graph, eqn: Equation, x: Array, indices: Array, updates: Array
    ) -> Array:
        numbers, after = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
        windows = list(numbers.update_window_dims)
        places = graph.cast(indices, np.int64)
        batch = list(numbers.operand_batching_dims)
        for axis in reversed(numbers.scatter_indices_batching_dims):
            places = _numbered(graph, places, axis)
        axes = batch + list(numbers.scatter_dims_to_operand_dims)
        if sorted((*numbers.inserted_window_dims, *batch)) != sorted(axes):
            raise NotImplementedError("scatter of windows")
        order = axes + [i for i in range(len(after)) if i not in axes]
        first = [i for i in range(len(updates.shape)) if i not in windows]
        updates = graph.transpose(updates, (*first, *windows))
        x = graph.transpose(x, order)
        name = graph.op("ScatterND", x, places, updates, reduction=reduction)
        return graph.restored(name, after, order)

    return rule


def _numbered(graph: Graph, places: Array, axis: int) -> Array:
    """Writes the number of a batch in front of its indices."""
    shape = (*places.shape[:-1], 1)
    others = [i for i in range(len(shape)) if i != axis]
    if jax.export.is_symbolic_dim(shape[axis]):
        raise NotImplementedError("scatter in a batch of any size")
    numbers = np.expand_dims(np.arange(shape[axis]), tuple(others))
    joined = graph.op("Concat", graph.full(numbers, shape), places, axis=-1)
    return Value(joined, (*places.shape[:-1], places.shape[-1] + 1))


@_of_full
def _sort(graph: Graph, eqn: Equation, *arrays: Array) -> list[Array]:
    if eqn.params["num_keys"] != 1:
        raise NotImplementedError("sort by several keys")
    axis = eqn.params["dimension"]
    size = graph.sizes_of([arrays[0].shape[axis]])
    keys, order = graph.node(
        "TopK", arrays[0], size, outputs=2, axis=axis, largest=0, sorted=1
    )
    others = (graph.op("GatherElements", a, order, axis=axis) for a in arrays[1:])
    return results(eqn, (keys, *others))


@_of_full
def _top_k(graph: Graph, eqn: Equation, x: Array) -> list[Array]:
    values, places = (var.aval for var in eqn.outvars)
    count = graph.sizes_of([values.shape[-1]])
    largest, order = graph.node("TopK", x, count, outputs=2, axis=-1)
    numbers = graph.cast(Value(order, places.shape), places.dtype)
    return [Value(largest, values.shape), numbers]


ELEMENTWISE = {
    **{name: _unary(kind) for name, kind in UNARY.items()},
    **{name: _binary(kind) for name, kind in BINARY.items()},
    "and": _logical("And", "BitwiseAnd"),
    "clamp": _clamp,
    "convert_element_type": _convert,
    "div": _divide,
    "erfc": _erfc,
    "expm1": _expm1,
    "integer_pow": _integer_power,
    "is_finite": _finite,
    "log1p": _log1p,
    "ne": _not_equal,
    "not": _logical("Not", "BitwiseNot"),
    "or": _logical("Or", "BitwiseOr"),
    "reduce_precision": _rounded,
    "rem": _remainder,
    "rsqrt": _reciprocal_root,
    "select_n": _select,
    "square": _square,
}
RULES: dict[str, Rule] = {
    **ELEMENTWISE,
    "argmax": _place_of("ArgMax"),
    "argmin": _place_of("ArgMin"),
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "conv_general_dilated": _convolution,
    "cumsum": _cumulative_sum,
    "dim_as_value": _dim_as_value,
    "dot_general": _product,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce_and": _of_truths("ReduceMin"),
    **dict.fromkeys(_REDUCED, _reduced),
    "reduce_or": _of_truths("ReduceMax"),
    "reshape": _reshape,
    "rev": _reverse,
    "scatter": _scatter("none"),
    "scatter-add": _scatter("add"),
    "scatter_add": _scatter("add"),
    "scatter-mul": _scatter("mul"),
    "scatter_mul": _scatter("mul"),
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "top_k": _top_k,
    "transpose": _transpose,
}
