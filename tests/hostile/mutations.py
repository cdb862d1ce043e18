"""Ways to break files: of bytes, of text, of JSON values, and of what formats say."""

import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Rng = np.random.Generator
Mutation = Callable[[bytes, Rng], bytes]

_LENGTHS = [0, 1, 3, 7, 127, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40]
_LENGTHS += [2**62, 2**63 - 1, 2**64 - 1]
_WORDS = [b"0", b"-1", b"1e400", b"nan", b"inf", b"1000000000000", b"", b"0x10"]
_WORDS += [b"99999999999999999999", b"2147483648", b"1e-320", b"\xff", b"3.5", b"A"]
_VALUES: list[Any] = [None, True, 0, -1, 1.5, 10**12, 10**400, 1e308, "", "x", [], {}]
_VALUES += [float("nan"), float("inf"), "../../escaped", "os:system", [[[0]]], "\ud800"]
_VALUES += ["antigravity:fly", "builtins:eval", "subprocess:run", [1, "a", None]]


def pick(rng: Rng, choices: Sequence[Any]) -> Any:
    """One of several."""
    return choices[int(rng.integers(len(choices)))]


def _place(data: bytes, rng: Rng, size: int = 1) -> int:
    """A position, more often than not near one of the ends, where the lengths are."""
    last = max(len(data) - size, 0)
    if rng.random() < 0.5:
        near = int(rng.integers(0, min(last, 256) + 1))
        return near if rng.random() < 0.7 else last - near
    return int(rng.integers(0, last + 1))


def flip(data: bytes, rng: Rng) -> bytes:
    """Flips up to eight bits."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        found[_place(data, rng)] ^= 1 << int(rng.integers(8))
    return bytes(found)


def truncate(data: bytes, rng: Rng) -> bytes:
    """Keeps a part, from the start."""
    return data[: int(rng.integers(0, len(data)))]


def overwrite(data: bytes, rng: Rng) -> bytes:
    """Writes a length, of any size and order, over bytes."""
    code = pick(rng, "<>") + pick(rng, "BHIQ")
    size = struct.calcsize(code)
    value = int(pick(rng, _LENGTHS)) % 2 ** (8 * size)
    start = _place(data, rng, size)
    if rng.random() < 0.7:
        start -= start % size
    return data[:start] + struct.pack(code, value) + data[start + size :]


def splice(data: bytes, rng: Rng) -> bytes:
    """Copies a part over another, or puts it there, or takes it out."""
    first, size = _place(data, rng), int(rng.integers(1, 64))
    there, part = _place(data, rng), data[first : first + size]
    keep = there + (size if rng.random() < 0.5 else 0)
    return data[:there] + (part if rng.random() < 0.7 else b"") + data[keep:]


def fill(data: bytes, rng: Rng) -> bytes:
    """Writes zeros, ones or noise over a part."""
    start, size = _place(data, rng), int(rng.integers(1, 512))
    part = pick(rng, [bytes(size), b"\xff" * size, rng.bytes(size)])
    return data[:start] + part + data[start + size :]


BYTES: tuple[Mutation, ...] = (flip, truncate, overwrite, overwrite, splice, fill)


def number(data: bytes, rng: Rng) -> bytes:
    """Replaces a number of a text by another word."""
    found = list(re.finditer(rb"-?\d[\d.eE+-]*", data))
    if not found:
        return flip(data, rng)
    near = min(len(found), 24) if rng.random() < 0.5 else len(found)
    match = found[int(rng.integers(near))]
    return data[: match.start()] + pick(rng, _WORDS) + data[match.end() :]


def word(data: bytes, rng: Rng) -> bytes:
    """Replaces a word of a text by another of its words, or of ours."""
    found = list(re.finditer(rb"[A-Za-z_]\w*", data))
    if not found:
        return flip(data, rng)
    near = min(len(found), 60) if rng.random() < 0.7 else len(found)
    match, other = (found[int(rng.integers(near))] for _ in range(2))
    new = other[0] if rng.random() < 0.6 else pick(rng, _WORDS)
    return data[: match.start()] + new + data[match.end() :]


def lines(data: bytes, rng: Rng) -> bytes:
    """Repeats, moves or leaves out lines of a text."""
    found = data.split(b"\n")
    i, j = (int(k) for k in rng.integers(len(found), size=2))
    line = found.pop(i)
    if rng.random() < 0.7:
        found[j:j] = [line] * int(rng.integers(1, 4))
    return b"\n".join(found)


TEXT: tuple[Mutation, ...] = (number, number, word, lines, *BYTES)


def deflated(data: bytes, rng: Rng) -> bytes:
    """Breaks the contents of a zlib stream, and compresses them again.

    In a file of MATLAB 5 these are its elements behind 128 bytes.
    """
    found, rest = data[:128], data[128:]
    while len(rest) >= 8:
        kind, size = struct.unpack("<II", rest[:8])
        body, rest = rest[8 : 8 + size], rest[8 + size :]
        if kind == 15 and rng.random() < 0.8:
            change = pick(rng, BYTES)
            body = zlib.compress(change(zlib.decompress(body), rng))
        found += struct.pack("<II", kind, len(body)) + body
    return found + rest


def value(data: bytes, rng: Rng) -> bytes:
    """Replaces, leaves out, repeats or nests values of JSON."""
    tree = json.loads(data)
    for _ in range(int(rng.integers(1, 4))):
        holder, key = pick(rng, list(_places(tree)))
        what = rng.random()
        if what < 0.7:
            holder[key] = pick(rng, _VALUES)
        elif what < 0.85:
            del holder[key]
        elif isinstance(holder, dict):
            holder["unknown"] = holder[key]
        else:
            holder.append(holder[key])
        if not list(_places(tree)):
            break
    text = json.dumps(tree)
    if rng.random() < 0.02:
        text = text.replace("0", "[" * 100_000 + "]" * 100_000, 1)
    return text.encode()


def _places(tree: Any):
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


JSON: tuple[Mutation, ...] = (*(value,) * 6, number, word, flip, truncate, splice)


def choose(data: bytes, rng: Rng, mutations: tuple[Mutation, ...]) -> bytes:
    """Breaks a file once, or more than once."""
    for _ in range(1 + int(rng.random() < 0.3) + int(rng.random() < 0.1)):
        if not data:
            break
        try:
            data = pick(rng, mutations)(data, rng)
        except (
            ValueError,
            zlib.error,
            struct.error,
            TypeError,
            RecursionError,
        ):  # broken already
            data = flip(data, rng)
    return data
