"""Replaces groups of nodes by one: softmax, layer norm, GELU, attention."""

# pyright: basic
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx  # pyright: ignore[reportMissingImports]

from opjax._onnx.graph import RUNTIME, Graph


def fuse(graph: Graph) -> None:
    """Replaces the last node of each group; the others remain for other readers."""
    search = _Search(graph)
    nodes = []
    for node in graph.nodes:
        nodes.extend(search.replaced(node))
    graph.nodes = nodes


class _Search:
    def __init__(self, graph: Graph):
        self.constants = graph.constants
        self.makers = {name: node for node in graph.nodes for name in node.output}

    def replaced(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        rules: dict[str, Callable[[onnx.NodeProto], list[onnx.NodeProto] | None]] = {
            "Add": self.layer_norm,
            "Div": lambda node: self.softmax(node) or self.attention(node),
            "Mul": self.gelu,
        }
        rule = rules.get(node.op_type)
        yield from (rule(node) if rule else None) or [node]

    def made(self, name: str, kind: str) -> list[str]:
        """The inputs of the node that makes a value; none if it is of another kind."""
        node = self.makers.get(name)
        return list(node.input) if node is not None and node.op_type == kind else []

    def array(self, name: str) -> np.ndarray | None:
        return self.constants.arrays.get(name)

    def number(self, name: str) -> float:
        """A constant of one entry; NaN for other values."""
        constant = self.array(name)
        return (
            math.nan
            if constant is None or constant.size != 1
            else float(constant.item())
        )

    def is_near(self, name: str, number: float) -> bool:
        return math.isclose(self.number(name), number, rel_tol=1e-6)

    def source(self, name: str, kind: str) -> str:
        """The first input of the node that makes a value; empty if of another kind."""
        return (self.made(name, kind) or [""])[0]

    def beside(self, name: str, kind: str, number: float) -> str:
        """The second input, where the first one is about a number; else empty."""
        parts = self.made(name, kind)
        return parts[1] if parts and self.is_near(parts[0], number) else ""

    def reduced(self, name: str, kind: str) -> tuple[str, int]:
        """What is reduced along one axis that is kept; an empty name if nothing is."""
        parts = self.made(name, "Unsqueeze")
        if parts and kind == "ReduceMax":  # above minus infinity
            limited = self.made(parts[0], "Max")
            parts = [limited[1], parts[1]] if limited else parts
        inner = self.made(parts[0], kind) if parts else []
        axes = [self.array(each) for each in (parts[1], inner[1])] if inner else []
        if len(axes) != 2 or any(a is None or a.size != 1 for a in axes):
            return "", 0
        first, second = (int(a.item()) for a in axes if a is not None)
        return (inner[0], first) if first == second else ("", 0)

    def softmax(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        exponential, total = node.input
        summed, axis = self.reduced(total, "ReduceSum")
        shifted = self.made(exponential, "Exp")
        parts = self.made(shifted[0], "Sub") if shifted else []
        if not parts or summed != exponential:
            return None
        if self.reduced(parts[1], "ReduceMax") != (parts[0], axis):
            return None
        return [_node("Softmax", [parts[0]], node, axis=axis)]

    def attention(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Writes `V^T E / sum(E)`, `E = exp(S - max S)`, as attention of the runtime.

        For scores `S = K Q^T`, which the runtime never stores as a whole.
        """
        product, total = self.made(node.input[0], "MatMul"), node.input[1]
        parts = self.made(self.source(product[1], "Exp"), "Sub") if product else []
        if not parts or self.reduced(total, "ReduceSum") != (product[1], 1):
            return None
        scores = self.made(self.beside(parts[0], "Add", 0) or parts[0], "MatMul")
        if not scores or self.reduced(parts[1], "ReduceMax") != (parts[0], 1):
            return None
        query, value = self.swapped(scores[1]), self.swapped(product[0])
        if not query or not value:
            return None
        averages, names = self.constants.fresh(), [query, scores[0], value]
        options = {"domain": RUNTIME, "num_heads": 1, "scale": 1.0}
        make = onnx.helper.make_node
        return [
            make("MultiHeadAttention", names, [averages], **options),
            _node("Transpose", [averages], node, perm=[0, 2, 1]),
        ]

    def swapped(self, name: str) -> str:
        """What is transposed, of three axes the last two; else empty."""
        maker = self.makers.get(name)
        if maker is None or maker.op_type != "Transpose":
            return ""
        return maker.input[0] if list(maker.attribute[0].ints) == [0, 2, 1] else ""

    def mean(self, name: str) -> tuple[str, int, float]:
        parts = self.made(name, "Div")
        if not parts:
            return "", 0, math.nan
        return *self.reduced(parts[0], "ReduceSum"), self.number(parts[1])

    def layer_norm(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        scaled, bias = self.made(node.input[0], "Mul"), self.array(node.input[1])
        scale = self.array(scaled[1]) if scaled else None
        parts = self.made(scaled[0], "Mul") if scaled else []
        if scale is None or bias is None or not parts or scale.shape != bias.shape:
            return None
        centred = self.made(parts[0], "Sub")
        root = self.made(parts[1], "Reciprocal")
        total = self.made(root[0], "Sqrt") if root else []
        above = self.made(total[0], "Add") if total else []
        if not above or not centred:
            return None
        squares, axis, count = self.mean(above[0])
        source, same, equal = self.mean(centred[1])
        fits = (
            self.made(squares, "Mul") == [parts[0], parts[0]]
            and source == centred[0]
            and axis == same == scale.ndim - 1
            and count == equal == scale.shape[-1] == scale.size
        )
        if not fits or math.isnan(self.number(above[1])):
            return None
        flat = [self.constants.name(a.reshape(-1)) for a in (scale, bias)]
        epsilon = self.number(above[1])
        names = [source, *flat]
        return [_node("LayerNormalization", names, node, axis=-1, epsilon=epsilon)]

    def gelu(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        first, second = node.input
        x = self.beside(first, "Mul", 0.5)
        scaled = self.made(self.source(self.beside(second, "Sub", 1), "Erf"), "Mul")
        if (
            x
            and scaled
            and self.source(scaled[0], "Neg") == x
            and self.is_near(scaled[1], math.sqrt(0.5))
        ):
            return [_node("Gelu", [x], node)]
        rest = self.beside(self.beside(second, "Mul", 0.5), "Add", 1)
        slope = self.beside(self.source(rest, "Tanh"), "Mul", math.sqrt(2 / math.pi))
        terms = self.made(slope, "Add")
        cube = (
            self.made(self.beside(terms[-1], "Mul", 0.044715), "Mul") if terms else []
        )
        if (
            cube[:1] == terms[:1] == [first]
            and self.made(cube[1], "Mul") == [first] * 2
        ):
            return [_node("Gelu", [first], node, approximate="tanh")]
        return None


def _node(
    kind: str, inputs: list[str], before: onnx.NodeProto, **attributes: Any
) -> onnx.NodeProto:
    return onnx.helper.make_node(kind, inputs, list(before.output), **attributes)
