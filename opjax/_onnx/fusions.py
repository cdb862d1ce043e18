"""Replaces groups of nodes by one: softmax, layer norm; GELU as runtimes know it."""

# pyright: basic
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx  # pyright: ignore[reportMissingImports]

from opjax._onnx.graph import Graph


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
            "Div": self.softmax,
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
        found = self.array(name)
        return math.nan if found is None or found.size != 1 else float(found.item())

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
        """Writes `x / 2 erfc(-x / sqrt 2)` as `x (1 + erf(x / sqrt 2)) / 2`."""
        half, rest = self.made(node.input[0], "Mul"), self.made(node.input[1], "Sub")
        inner = self.made(rest[1], "Erf") if rest else []
        scaled = self.made(inner[0], "Mul") if inner else []
        negative = self.made(scaled[0], "Neg") if scaled else []
        if not half or not negative or negative[0] != half[1]:
            return None
        numbers = [self.number(each) for each in (half[0], rest[0], scaled[1])]
        if not np.allclose(numbers, [0.5, 1, math.sqrt(0.5)], rtol=1e-6):
            return None
        x, fresh = half[1], [self.constants.fresh() for _ in range(4)]
        root, one, two = (
            self.constants.name(np.asarray(value, np.float32))
            for value in (math.sqrt(2), 1, 0.5)
        )
        make = onnx.helper.make_node
        return [
            make("Div", [x, root], [fresh[0]]),
            make("Erf", [fresh[0]], [fresh[1]]),
            make("Add", [fresh[1], one], [fresh[2]]),
            make("Mul", [x, fresh[2]], [fresh[3]]),
            _node("Mul", [fresh[3], two], node),
        ]


def _node(
    kind: str, inputs: list[str], before: onnx.NodeProto, **attributes: Any
) -> onnx.NodeProto:
    return onnx.helper.make_node(kind, inputs, list(before.output), **attributes)
