"""Fields of the output function: their channels, their spread, and their errors."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_UNNAMED = "target"  # of arrays whose channels nobody has named
_AXES = "xyz"


class Field(NamedTuple):
    """A field of the output function, which has a separate error.

    Attributes:
      name: name in tables and reports.
      channels: indices of its channels that vary in training; for a vector, its
        components.
      spread: square root of the summed variances of these channels over all points of
        the training samples, in the unit of the field.
    """

    name: str
    channels: tuple[int, ...]
    spread: float


class Fields(NamedTuple):
    """All fields of an output function.

    Attributes:
      varying: fields that are included in losses and errors.
      constant: names of the channels that are constant in training, up to rounding.
    """

    varying: tuple[Field, ...]
    constant: tuple[str, ...] = ()

    @property
    def num_channels(self) -> int:
        """Number of all channels."""
        return len(self.channels) + len(self.constant)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the varying fields."""
        return tuple(field.name for field in self.varying)

    @property
    def channels(self) -> list[int]:
        """Indices of all varying channels."""
        return [channel for field in self.varying for channel in field.channels]

    def sentence(self) -> str:
        """Names the channels excluded from all metrics; empty if there are none."""
        if not self.constant:
            return ""
        verb = "is" if len(self.constant) == 1 else "are"
        return (
            f"{', '.join(self.constant)} {verb} constant in the training samples, and "
            "in no loss, error or band."
        )


def groups(names: Sequence[str] | None, count: int) -> list[tuple[str, list[int]]]:
    """Returns names of fields and indices of their channels.

    Neighbouring channels with one name are one field. Each channel without a name is a
    separate field.

    Args:
      names: names of the channels; None or empty if they have none.
      count: number of channels.
    """
    if not names or set(names) == {_UNNAMED}:
        named = [_UNNAMED] if count == 1 else [f"{_UNNAMED}_{i}" for i in range(count)]
        return [(name, [i]) for i, name in enumerate(named)]
    runs = itertools.groupby(range(count), key=lambda i: names[i])
    fields = [(name, list(channels)) for name, channels in runs]
    if len(dict(fields)) < len(fields):
        raise ValueError(
            f"The channels of the target are {', '.join(names)}: channels with the "
            "same name must be adjacent, and each field must have a different "
            "name."
        )
    return fields


def channels_of(names: Sequence[str]) -> dict[str, list[int]]:
    """Returns the channels of every name."""
    return {n: [i for i, other in enumerate(names) if other == n] for n in names}


def by_name(values: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Divides channels `(n, c)` into fields, `(n,)` if a name has one channel."""
    fields = channels_of(names).items()
    return {k: values[:, own[0] if len(own) == 1 else own] for k, own in fields}


def component_names(names: Sequence[str] | None, count: int) -> list[str]:
    """Returns a name for each channel; `U_x` is the first component of a vector `U`."""
    components: list[str] = []
    for name, channels in groups(names, count):
        ends = _AXES if len(channels) <= len(_AXES) else map(str, range(len(channels)))
        several = [f"{name}_{end}" for _, end in zip(channels, ends, strict=False)]
        components += several if len(channels) > 1 else [name]
    return components


def fields_of(
    names: Sequence[str] | None, std: np.ndarray, varying: np.ndarray
) -> Fields:
    """Returns the fields of an output function.

    Args:
      names: names of its channels; None or empty if they have none.
      std: standard deviation of every channel over the training points, `(q,)`.
      varying: whether each channel varies by more than rounding, `(q,)`.

    Raises:
      ValueError: if channels with the same name are not adjacent.
    """
    each = component_names(names, len(std))
    constant = tuple(each[i] for i in np.flatnonzero(~varying))
    fields: list[Field] = []
    for name, channels in groups(names, len(std)):
        kept = tuple(channel for channel in channels if varying[channel])
        if kept:
            spread = float(np.linalg.norm(np.asarray(std, np.float64)[list(kept)]))
            fields.append(Field(name, kept, spread))
    return Fields(tuple(fields), constant)


def to_description(fields: Fields) -> dict[str, Any]:
    """Returns JSON values, for `from_description`."""
    return {
        "varying": [[f.name, list(f.channels), f.spread] for f in fields.varying],
        "constant": list(fields.constant),
    }


def from_description(found: Mapping[str, Any]) -> Fields:
    """Restores the result of `to_description`."""
    varying = tuple(
        Field(str(name), tuple(map(int, channels)), float(spread))
        for name, channels, spread in found["varying"]
    )
    return Fields(varying, tuple(map(str, found["constant"])))
