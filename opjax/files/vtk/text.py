"""Numbers that are stored as text in VTK's XML files."""

import numpy as np


def parse(text: bytes, dtype: np.dtype) -> np.ndarray:
    """Parses numbers separated by white space.

    Raises:
      ValueError: if a word is not a number, or too large for its type.
    """
    words = count(text)
    if not words:
        return np.zeros(0, dtype.newbyteorder("="))
    wide = {"f": np.float64, "i": np.int64, "u": np.uint64}[dtype.kind]
    if dtype.kind == "u" and b"-" in text:
        raise ValueError("an unexpected negative number")
    try:
        numbers = np.fromstring(text, wide, sep=" ")
    except DeprecationWarning as error:
        raise ValueError("a word that is not a number") from error
    if len(numbers) != words:
        raise ValueError(f"{words} words, but {len(numbers)} numbers")
    last = text.rsplit(maxsplit=1)[-1][:400]  # its end may be anything, so far
    if wide(last) != numbers[-1] and numbers[-1] == numbers[-1]:
        raise ValueError(f"{last[:40]!r} is not a number")
    if dtype.kind != "f" and dtype.itemsize < 8:
        ends = np.iinfo(dtype)
        if numbers.min() < ends.min or numbers.max() > ends.max:
            raise ValueError(f"numbers outside the range of {dtype}")
    with np.errstate(over="ignore"):  # refused later, as what is not finite
        return numbers.astype(dtype.newbyteorder("="), copy=False)


def ends(text: bytes) -> np.ndarray:
    """Returns the end positions of words."""
    space = np.frombuffer(text, np.uint8) <= 32
    inside = np.concatenate([~space, [False]])
    return np.flatnonzero(inside[:-1] & ~inside[1:]) + 1


def count(text: bytes) -> int:
    """Returns the number of words."""
    return len(ends(text))
