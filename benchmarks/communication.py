"""Data exchanged between devices in a step, read from the compiled program."""

import math
import re
from typing import Any

_SUMS = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter")
_EXCHANGE = re.compile(rf"^(.*?) (?:{'|'.join(_SUMS)}|collective-permute)(?:-start)?\(")
_ARRAY = re.compile(r"\b([a-z]+)(\d*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:body|condition|to_apply|calls)=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")


def exchanged(compiled: Any) -> dict[str, int]:
    """Counts the operations between devices of one call, those of loops as they run.

    Args:
      compiled: from `jax.jit(function).lower(...).compile()`.

    Returns:
      `collectives`, how many, and `bytes_exchanged`, of what they return to a device.
    """
    bodies, entry = _computations(compiled.as_text())

    def visit(name: str) -> tuple[int, int]:
        count = total = 0
        for line in bodies.get(name, ()):
            found = _EXCHANGE.match(line)
            if found:
                count, total = count + 1, total + _bytes(found[1])
                continue
            called = [visit(inner) for inner in _CALLED.findall(line)]
            trips = _TRIPS.search(line)
            times = int(trips[1]) if trips else 1
            if " while(" in line and not trips and any(n for n, _ in called):
                raise ValueError("A loop of unknown length exchanges data.")
            count += times * sum(n for n, _ in called)
            total += times * sum(size for _, size in called)
        return count, total

    count, total = visit(entry)
    return {"collectives": count, "bytes_exchanged": total}


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The right-hand sides of every computation, by its name, and the first name."""
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name and " = " in line:
            bodies[name].append(line.partition(" = ")[2])
    return bodies, entry


def _bytes(types: str) -> int:
    total = 0
    for kind, bits, shape in _ARRAY.findall(types):
        width = 8 if kind == "pred" else int(bits)
        total += width // 8 * math.prod(int(n) for n in shape.split(",") if n)
    return total
