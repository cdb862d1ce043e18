"""ONNX graphs of whole programs: calls, loops, branches."""

# pyright: basic
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import onnx  # pyright: ignore[reportMissingImports]

from opjax._onnx import spectra
from opjax._onnx.fusions import fuse
from opjax._onnx.graph import (
    Array,
    Dim,
    Equation,
    Graph,
    Pair,
    Value,
    model,
    results,
    value_info,
)
from opjax._onnx.rules import IDENTITIES, RULES, stacked

_BY_NUMPY = {"broadcast_in_dim", "reshape", "slice", "squeeze", "transpose"}
_SMALL = 4096  # entries of known arrays that are computed at export
_UNROLLED = 4  # steps of a loop that are written out, also if each has
_PARAMETERS = 512  # constants of its own


def content(
    function: Callable[..., Mapping[str, jax.Array]],
    shapes: Mapping[str, jax.ShapeDtypeStruct],
    names: Sequence[str],
    metadata: Mapping[str, str],
) -> bytes:
    """Converts a function of arrays into the content of an ONNX file.

    Args:
      function: JAX function of arrays that returns arrays by name.
      shapes: shapes of its arguments, by name, with symbolic sizes.
      names: names of the results, in the order of the file.
      metadata: texts that the file stores.

    Raises:
      NotImplementedError: if ONNX has no counterpart of a part of the function.
    """
    traced = jax.jit(function).trace(*shapes.values())
    program: Any = traced.jaxpr
    graph = Graph()
    for name, struct in shapes.items():
        for axis, dim in enumerate(struct.shape):
            if jax.export.is_symbolic_dim(dim) and str(dim) not in graph.sizes:
                size = graph.op("Shape", name, start=axis, end=axis + 1)
                graph.sizes[str(dim)] = size
    arguments = [Value(name, s.shape) for name, s in shapes.items()]
    values = evaluate(graph, program.jaxpr, program.consts, arguments)
    inputs = [value_info(name, s.dtype, s.shape) for name, s in shapes.items()]
    outputs = {}
    results: Any = jax.tree.unflatten(
        jax.tree.structure(traced.out_info), zip(values, program.out_avals, strict=True)
    )
    for name in names:
        value, aval = results[name]
        full = graph.name(graph.full(value, aval.shape))
        graph.nodes.append(onnx.helper.make_node("Identity", [full], [name]))
        outputs[name] = value_info(name, aval.dtype, aval.shape)
    fuse(graph)
    return model(graph, inputs, list(outputs.values()), metadata)


def evaluate(
    graph: Graph, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Array]
) -> list[Array]:
    """Adds the nodes of a program to a graph and returns its results."""
    values: dict[Any, Array] = {}

    def read(atom: Any) -> Array:
        if isinstance(atom, jax.extend.core.Literal):
            aval: Any = atom.aval
            return np.asarray(atom.val, aval.dtype)
        return values[atom]

    values.update(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    for eqn in jaxpr.eqns:
        results = _apply(graph, eqn, [read(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    name = eqn.primitive.name
    if name in IDENTITIES:
        return arguments
    if _is_small(name, eqn, arguments):
        return _computed(eqn, arguments)
    if name in _CALLS:
        return _CALLS[name](graph, eqn, arguments)
    if spectra.is_complex(eqn):
        return [spectra.apply(graph, eqn, arguments)]
    if name not in RULES:
        raise NotImplementedError(name)
    values = RULES[name](graph, eqn, *arguments)
    return values if eqn.primitive.multiple_results else [values]


def _is_small(name: str, eqn: Equation, arguments: list[Any]) -> bool:
    """Whether an operation is done at export: on small known arrays, or random keys."""
    if not arguments or any(isinstance(each, Value | Pair) for each in arguments):
        return False
    plain = all(isinstance(each, np.ndarray) for each in arguments)
    if (plain and name in _BY_NUMPY) or (name in _CALLS and name != "one_by_one"):
        return False
    avals = [var.aval for var in (*eqn.invars, *eqn.outvars)]
    if any(jax.export.is_symbolic_dim(d) for aval in avals for d in aval.shape):
        return False
    return all(aval.size <= _SMALL for aval in avals)


def _computed(eqn: Equation, arguments: list[Any]) -> list[Any]:
    with jax.default_device(jax.devices("cpu")[0]):
        full = [
            jnp.asarray(np.broadcast_to(array, var.aval.shape), var.aval.dtype)
            if isinstance(array, np.ndarray)
            else array
            for array, var in zip(arguments, eqn.invars, strict=True)
        ]
        values = eqn.primitive.bind(*full, **eqn.params)
    return [
        each if jnp.issubdtype(each.dtype, jax.dtypes.prng_key) else np.asarray(each)
        for each in (values if eqn.primitive.multiple_results else [values])
    ]


# Calls.


def _call(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    consts = getattr(inner, "consts", ())
    return evaluate(graph, getattr(inner, "jaxpr", inner), consts, arguments)


def _one_by_one(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    """A function of `opjax._sequential`, batched, in the form without LAPACK."""
    function, consts = jax.extend.core.jaxpr_as_fun(eqn.params["jaxpr"]), 0
    if eqn.params["elementary"] is not None:
        function, consts = eqn.params["elementary"]
    for _ in range(eqn.params["depth"]):
        function = jax.vmap(function)
    avals = [var.aval for var in eqn.invars[consts:]]
    program = jax.make_jaxpr(function)(*avals)
    return evaluate(graph, program.jaxpr, program.consts, arguments[consts:])


def _platform(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    """The branch of `lax.platform_dependent` for any platform."""
    return [np.asarray(eqn.params["platforms"].index(None), np.int32)]


# Branches and loops.


def _cond(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    which, *operands = arguments
    branches = eqn.params["branches"]
    if isinstance(which, np.ndarray):
        chosen = branches[int(np.clip(int(which), 0, len(branches) - 1))]
        return evaluate(graph, chosen.jaxpr, chosen.consts, operands)
    if len(branches) != 2:
        raise NotImplementedError("switch between more than two branches")
    bodies = [_body(graph, b, [], operands) for b in branches]
    truth = graph.cast(which, bool)
    names = graph.node(
        "If",
        truth,
        outputs=len(eqn.outvars),
        else_branch=bodies[0],
        then_branch=bodies[1],
    )
    return results(eqn, names)


def _body(
    graph: Graph,
    program: Any,
    inputs: Sequence[tuple[str, Any]],
    arguments: Sequence[Array],
    *,
    name: str = "body",
    extra: Callable[[Graph, list[Array]], list[tuple[Array, Any]]] | None = None,
) -> Any:
    """A subgraph of a program, with its inputs and their types."""
    inner = Graph(graph)
    results = evaluate(inner, program.jaxpr, program.consts, arguments)
    typed = list(zip(results, program.out_avals, strict=True))
    if extra is not None:
        typed = extra(inner, results) + typed
    infos, taken = [], set()
    for result, aval in typed:
        full = inner.name(inner.full(result, aval.shape))
        made = {own for node in inner.nodes for own in node.output}
        if full in taken or full not in made:
            # An output needs a name of its own, even if it is a value around the body.
            own = inner.constants.fresh()
            inner.nodes.append(onnx.helper.make_node("Identity", [full], [own]))
            full = own
        taken.add(full)
        infos.append(value_info(full, aval.dtype, aval.shape))
    typed_inputs = [value_info(n, a.dtype, a.shape) for n, a in inputs]
    return onnx.helper.make_graph(inner.nodes, name, typed_inputs, infos)


def _scan(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    p = eqn.params
    program, length = p["jaxpr"], p["length"]
    consts, carry = p["num_consts"], p["num_carry"]
    constants, states, rows = (
        arguments[:consts],
        arguments[consts : consts + carry],
        arguments[consts + carry :],
    )
    avals = program.in_avals
    large = any(
        isinstance(x, np.ndarray) and x.size >= _PARAMETERS * length for x in rows
    )
    if isinstance(length, int) and (large or length <= _UNROLLED):
        return _unrolled(graph, eqn, constants, states, rows)
    fresh = graph.constants.fresh
    full = [
        graph.full(x, var.aval.shape)
        for x, var in zip(arguments[consts:], eqn.invars[consts:], strict=True)
    ]
    inputs = [(fresh(), aval) for aval in avals[consts:]]
    values = [Value(name, aval.shape) for name, aval in inputs]
    if not rows:  # ONNX counts the steps by an input
        rows = [np.zeros(length, np.int32)]
        full += rows
        inputs.append((fresh(), jax.core.ShapedArray((), np.dtype(np.int32))))
    body = _body(graph, program, inputs, [*constants, *values])
    ys = len(eqn.outvars) - carry
    backwards = int(p["reverse"])
    names = graph.node(
        "Scan",
        *full,
        outputs=len(eqn.outvars),
        body=body,
        num_scan_inputs=len(rows),
        scan_input_directions=[backwards] * len(rows),
        **({"scan_output_directions": [backwards] * ys} if ys else {}),
    )
    return results(eqn, names)


def _unrolled(
    graph: Graph,
    eqn: Equation,
    constants: list[Array],
    states: list[Array],
    rows: list[Array],
) -> list[Array]:
    """The steps of a loop one after the other, each with its own constants."""
    p = eqn.params
    steps = range(p["length"])
    collected = []
    first = p["num_consts"] + p["num_carry"]
    shapes = [var.aval.shape for var in eqn.invars[first:]]
    for i in reversed(steps) if p["reverse"] else steps:
        here = [_row(graph, x, s, i) for x, s in zip(rows, shapes, strict=True)]
        results = evaluate(
            graph, p["jaxpr"].jaxpr, p["jaxpr"].consts, [*constants, *states, *here]
        )
        states = results[: p["num_carry"]]
        collected.append(results[p["num_carry"] :])
    if p["reverse"]:
        collected.reverse()
    stacks = []
    for parts, var in zip(zip(*collected, strict=True), eqn.outvars[p["num_carry"] :],
                          strict=True):  # fmt: skip
        whole = [graph.full(part, var.aval.shape[1:]) for part in parts]
        stacks.append(Value(stacked(graph, whole, 0), var.aval.shape))
    return [*states, *stacks]


def _row(graph: Graph, x: Array, shape: Sequence[Dim], i: int) -> Array:
    if isinstance(x, np.ndarray):
        return np.asarray(x[0 if x.shape[0] == 1 else i])
    x = graph.full(x, shape)
    return Value(graph.op("Gather", x, np.asarray(i), axis=0), tuple(shape[1:]))


def _while(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    p = eqn.params
    test, body = p["cond_jaxpr"], p["body_jaxpr"]
    if test.out_avals[0].shape:
        return _per_sample(graph, eqn, arguments)
    split = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    of_test, of_body, states = (
        arguments[: split[0]],
        arguments[split[0] : split[1]],
        arguments[split[1] :],
    )
    avals = body.in_avals[p["body_nconsts"] :]
    states = [graph.full(x, a.shape) for x, a in zip(states, avals, strict=True)]
    (begin,) = evaluate(graph, test.jaxpr, test.consts, [*of_test, *states])
    fresh = graph.constants.fresh
    truth, count = test.out_avals[0], jax.core.ShapedArray((), np.dtype(np.int64))
    named = [(fresh(), aval) for aval in avals]
    inputs = [(fresh(), count), (fresh(), truth), *named]
    values = [Value(name, aval.shape) for name, aval in named]

    def again(inner: Graph, results: list[Array]) -> list[tuple[Array, Any]]:
        (more,) = evaluate(inner, test.jaxpr, test.consts, [*of_test, *results])
        return [(more, truth)]

    subgraph = _body(graph, body, inputs, [*of_body, *values], extra=again)
    names = graph.node(
        "Loop", "", begin, *states, outputs=len(eqn.outvars), body=subgraph
    )
    return results(eqn, names)


def _per_sample(graph: Graph, eqn: Equation, arguments: list[Array]) -> list[Array]:
    """A loop under `jax.vmap`: until all samples end, and each keeps its end."""
    p = eqn.params
    test, body = (
        jax.extend.core.jaxpr_as_fun(p[name]) for name in ("cond_jaxpr", "body_jaxpr")
    )
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]

    def whole(*given: Any) -> Any:
        of_test, of_body, begin = given[:first], given[first:second], given[second:]

        def step(states: tuple[Any, ...]) -> tuple[Any, ...]:
            (more,) = test(*of_test, *states)
            return tuple(
                jnp.where(more.reshape(more.shape + (1,) * (b.ndim - more.ndim)), b, a)
                for a, b in zip(states, body(*of_body, *states), strict=True)
            )

        return jax.lax.while_loop(
            lambda states: jnp.any(test(*of_test, *states)[0]), step, tuple(begin)
        )

    program = jax.make_jaxpr(whole)(*(var.aval for var in eqn.invars))
    return evaluate(graph, program.jaxpr, program.consts, arguments)


_CALLS: dict[str, Callable[..., list[Array]]] = {
    **dict.fromkeys(
        (
            "checkpoint",
            "closed_call",
            "core_call",
            "custom_jvp_call",
            "custom_vjp_call",
            "jit",
            "pjit",
            "remat",
            "remat2",
        ),
        _call,
    ),
    "cond": _cond,
    "one_by_one": _one_by_one,
    "platform_index": _platform,
    "scan": _scan,
    "while": _while,
}
