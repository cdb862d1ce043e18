"""Builds an ONNX graph: nodes, constants and sizes of symbolic dimensions."""

# pyright: basic
import hashlib
import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx  # pyright: ignore[reportMissingImports]
from numpy.typing import DTypeLike

Dim = Any  # a size: an integer, or a symbolic dimension of jax.export
Equation = Any  # of a jaxpr: JAX leaves the shapes of its arrays untyped
OPSET, IR_VERSION = 20, 9  # ONNX Runtime from 1.17 and onnxruntime-web read these
RUNTIME = "com.microsoft"  # domain of operations that ONNX Runtime adds
END = 2**63 - 1  # of a slice without a limit


class Value(NamedTuple):
    """An array that the graph computes.

    Attributes:
      name: its name in the graph.
      shape: its sizes, integers or symbolic; where the program's array is larger, it is
        one, and the array is repeated where an operation needs that.
    """

    name: str
    shape: tuple[Dim, ...]


class Pair(NamedTuple):
    """Real and imaginary parts of a complex array."""

    real: "Array"
    imag: "Array"


Known = np.ndarray  # an array that is known at export
Array = Value | Known
Operand = str | Array | np.generic | Sequence[int]  # of a node


def results(eqn: Equation, names: Iterable[str]) -> list[Array]:
    """Returns the results of an equation, from their names."""
    return [Value(n, v.aval.shape) for n, v in zip(names, eqn.outvars, strict=True)]


class _Constants:
    """Names and initialisers of a graph and its subgraphs."""

    def __init__(self):
        self.count = 0
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[Any, str] = {}

    def fresh(self) -> str:
        self.count += 1
        return f"/{self.count}"  # no name of an input or output

    def name(self, array: np.ndarray) -> str:
        """The initialiser of an array; equal arrays, as a shared kernel, have one."""
        content = hashlib.sha256(array.tobytes()).digest()
        key = array.dtype.str, array.shape, content
        if key not in self._names:
            self._names[key] = self.fresh()
            self.arrays[self._names[key]] = array
        return self._names[key]


class Graph:
    """A graph under construction, or a subgraph, which sees the values around it.

    Args:
      around: the graph of a subgraph.
    """

    def __init__(self, around: "Graph | None" = None):
        self.root: Graph = around.root if around else self
        self.constants: _Constants = around.constants if around else _Constants()
        self.nodes: list[onnx.NodeProto] = []
        self.sizes: dict[str, str] = around.sizes if around else {}
        self._known: ChainMap[Any, list[str]] = (
            around._known.new_child() if around else ChainMap()
        )

    def node(
        self, kind: str, *inputs: Operand, outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Adds a node, unless there is an equal one, and returns its outputs."""
        names = [self.name(each) for each in inputs]
        key = None
        if not any(isinstance(a, onnx.GraphProto) for a in attributes.values()):
            key = (kind, *names, outputs, repr(sorted(attributes.items())))
            if key in self._known:
                return self._known[key]
        results = [self.constants.fresh() for _ in range(outputs)]
        self.nodes.append(onnx.helper.make_node(kind, names, results, **attributes))
        if key is not None:
            self._known[key] = results
        return results

    def op(self, kind: str, *inputs: Operand, **attributes: Any) -> str:
        """Adds a node with one output and returns its name."""
        return self.node(kind, *inputs, **attributes)[0]

    def name(self, value: Operand) -> str:
        """The name of a value, of a known array, or of integers."""
        if isinstance(value, str):
            return value
        if isinstance(value, Value):
            return value.name
        if isinstance(value, np.ndarray | np.generic):
            return self.constants.name(np.asarray(value))
        return self.constants.name(np.asarray(value, np.int64))

    # Sizes and shapes.

    def size(self, dim: Dim) -> int | str:
        """A size: a number, or a tensor of one integer that is computed from inputs."""
        if not jax.export.is_symbolic_dim(dim):
            return int(dim)
        sizes: Any = {
            name: _Size(self.root, tensor) for name, tensor in self.sizes.items()
        }
        try:
            size = dim._evaluate(sizes)
        except TypeError as error:  # a minimum or maximum
            raise NotImplementedError(f"the size {dim}") from error
        return size.name if isinstance(size, _Size) else int(size)

    def sizes_of(self, dims: Iterable[Dim]) -> str | Known:
        """A tensor of sizes."""
        sizes = [self.size(dim) for dim in dims]
        if all(isinstance(size, int) for size in sizes):
            return np.asarray(sizes, np.int64)
        parts = [s if isinstance(s, str) else np.asarray([s], np.int64) for s in sizes]
        return parts[0] if len(parts) == 1 else self.root.op("Concat", *parts, axis=0)

    # Operations on shapes, which known arrays undergo at export.

    def full(self, array: Array, shape: Sequence[Dim]) -> Array:
        """Repeats an array up to the shape that the program gives it."""
        if isinstance(array, Pair):
            raise NotImplementedError("a complex array in a loop or as a result")
        if tuple(array.shape) == tuple(shape):
            return array
        fixed = not any(map(jax.export.is_symbolic_dim, shape))
        if isinstance(array, np.ndarray) and fixed and math.prod(shape) <= 4096:
            return np.broadcast_to(array, shape)
        return Value(self.op("Expand", array, self.sizes_of(shape)), tuple(shape))

    def reshape(self, array: Array, shape: Sequence[Dim]) -> Array:
        """Changes the shape of an array."""
        if tuple(array.shape) == tuple(shape):
            return array
        if isinstance(array, np.ndarray):
            return array.reshape(tuple(shape))
        symbolic = [jax.export.is_symbolic_dim(dim) for dim in shape]
        if sum(symbolic) <= 1:
            sizes: Any = [-1 if s else d for s, d in zip(symbolic, shape, strict=True)]
            sizes = np.asarray(sizes, np.int64)
        else:
            sizes = self.sizes_of(shape)
        return Value(self.op("Reshape", array, sizes), tuple(shape))

    def transpose(self, array: Array, order: Sequence[int]) -> Array:
        """Permutes axes."""
        if list(order) == list(range(len(order))):
            return array
        if isinstance(array, np.ndarray):
            return array.transpose(order)
        moved = tuple(array.shape[axis] for axis in order)
        return Value(self.op("Transpose", array, perm=list(order)), moved)

    def restored(self, name: str, shape: Sequence[Dim], order: Sequence[int]) -> Array:
        """Puts the axes of a result in order, which are in another `order`."""
        moved = Value(name, tuple(shape[axis] for axis in order))
        return self.transpose(moved, np.argsort(order).tolist())

    def unsqueeze(self, array: Array, axes: Sequence[int]) -> Array:
        """Adds axes of size one, at these places of the result."""
        if not axes:
            return array
        if isinstance(array, np.ndarray):
            return np.expand_dims(array, tuple(axes))
        shape = list(array.shape)
        for axis in sorted(axes):
            shape.insert(axis, 1)
        return Value(self.op("Unsqueeze", array, list(axes)), tuple(shape))

    def squeeze(self, array: Array, axes: Sequence[int]) -> Array:
        """Removes axes of size one."""
        if not axes:
            return array
        if isinstance(array, np.ndarray):
            return array.squeeze(tuple(axes))
        shape = tuple(d for i, d in enumerate(array.shape) if i not in axes)
        return Value(self.op("Squeeze", array, list(axes)), shape)

    def cast(self, array: Array, dtype: DTypeLike) -> Array:
        """Changes the dtype of an array."""
        if isinstance(array, np.ndarray):
            return array.astype(dtype)
        return Value(self.op("Cast", array, to=element_type(dtype)), array.shape)


class _Size:
    """A size in arithmetic of JAX's symbolic dimensions, as a tensor of one integer."""

    def __init__(self, graph: Graph, name: str):
        self.graph, self.name = graph, name

    def _with(self, kind: str, other: Dim, **attributes: Any) -> "_Size":
        tensor = other.name if isinstance(other, _Size) else [int(other)]
        return _Size(self.graph, self.graph.op(kind, self.name, tensor, **attributes))

    def __add__(self, other: Dim) -> "_Size":
        return self._with("Add", other)

    def __mul__(self, other: Dim) -> "_Size":
        return self._with("Mul", other)

    def __divmod__(self, other: Dim) -> tuple["_Size", "_Size"]:
        rest = self._with("Mod", other)  # of the sign of the divisor
        return self._with("Sub", rest)._with("Div", other), rest

    __radd__, __rmul__ = __add__, __mul__


def element_type(dtype: DTypeLike) -> int:
    """ONNX' number of a dtype."""
    if np.dtype(dtype).kind == "c":
        raise NotImplementedError("a complex array in a loop or as a result")
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def value_info(
    name: str, dtype: DTypeLike, shape: Sequence[Dim] | None
) -> onnx.ValueInfoProto:
    """The type of an input or output; symbolic sizes keep their names."""
    named = shape and [
        str(dim) if jax.export.is_symbolic_dim(dim) else int(dim) for dim in shape
    ]
    return onnx.helper.make_tensor_value_info(name, element_type(dtype), named)


def model(
    graph: Graph,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    metadata: Mapping[str, str],
) -> bytes:
    """The content of an ONNX file with the nodes and constants that outputs need."""
    needed = {each.name for each in outputs}
    kept = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed |= _read(node)
    arrays = [
        onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
        for name, array in graph.constants.arrays.items()
        if name in needed
    ]
    made = onnx.helper.make_graph(
        kept[::-1], "operator", list(inputs), list(outputs), arrays
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    if any(node.domain == RUNTIME for node in kept):
        opsets.append(onnx.helper.make_opsetid(RUNTIME, 1))
    proto = onnx.helper.make_model(
        made, producer_name="opjax", opset_imports=opsets, ir_version=IR_VERSION
    )
    onnx.helper.set_model_props(proto, dict(metadata))
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def metadata(content: bytes) -> dict[str, str]:
    """The texts that a file stores, by name."""
    entries = onnx.load_from_string(content).metadata_props
    return {entry.key: entry.value for entry in entries}


def _read(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, in subgraphs, too."""
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                names |= _read(inner)
            names |= {each.name for each in attribute.g.output}
    return names
