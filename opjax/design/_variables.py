"""Variables of a design as a vector between 0 and 1."""

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

Variables = Mapping[str, ArrayLike]
Bounds = Mapping[str, tuple[ArrayLike, ArrayLike]]
Layout = tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes


class Box:
    """Variables between bounds; the unit vector `u` stands for `low + u width`.

    Args:
      start: values inside.
      bounds: smallest and largest value of each variable.

    Raises:
      ValueError: if names differ, bounds are not finite, or the start is outside.
    """

    def __init__(self, start: Variables, bounds: Bounds):
        if set(start) != set(bounds) or not start:
            raise ValueError(
                f"start has the variables {sorted(start)}, but bounds has "
                f"{sorted(bounds)}: expected the same names, at least one."
            )
        self.layout = tuple((name, np.shape(value)) for name, value in start.items())
        lows = {name: bounds[name][0] for name in start}
        highs = {name: bounds[name][1] for name in start}
        for name, value in start.items():
            low, off, high = (
                np.asarray(a, np.float64) for a in (lows[name], value, highs[name])
            )
            if not np.all(np.isfinite(high - low) & (low <= high)):
                raise ValueError(
                    f"The bounds of {name} are {low.tolist()} and {high.tolist()}, "
                    "expected two finite values, the smaller one first."
                )
            if not np.all((off >= low) & (off <= high)):
                raise ValueError(
                    f"The start of {name} is {off.tolist()}, outside its bounds "
                    f"{low.tolist()} and {high.tolist()}. If these are the training "
                    "ranges of the operator, it does not know such cases."
                )
        self.low = self._flat(lows)
        self.width = self._flat(highs) - self.low

    def _flat(self, values: Variables) -> np.ndarray:
        rows = [
            np.broadcast_to(np.asarray(values[name], np.float64), shape).ravel()
            for name, shape in self.layout
        ]
        return np.concatenate(rows)

    def units(self, variables: Variables) -> np.ndarray:
        """Returns the unit vector of variables; of one with equal bounds, zero."""
        off = self._flat(variables) - self.low
        return np.divide(off, self.width, out=np.zeros_like(off), where=self.width > 0)

    def variables(self, units: np.ndarray) -> dict[str, Any]:
        """Returns the variables of a unit vector."""
        return unpack(self.layout, self.low + units * self.width)


def unpack(layout: Layout, flat: Any) -> dict[str, Any]:
    """Returns the variables of a vector, in arrays of its kind."""
    xp = np if isinstance(flat, np.ndarray) else jnp
    ends = np.cumsum([math.prod(shape) for _, shape in layout])
    parts = xp.split(flat, ends[:-1])
    return {
        name: xp.reshape(part, shape)
        for part, (name, shape) in zip(parts, layout, strict=True)
    }
