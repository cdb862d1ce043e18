"""Quantities of interest as a flag names them.

    KIND:FIELD[@BOUNDARY][:KEY=VALUE]...

    max:stress            min, mean and integral likewise; over the mesh
    integral:q@inlet      or over a named boundary
    force_x:p@wall        force of the pressure p on a wall; force_y, force_z
    lift:p@wall:angle_deg=4:speed=2:area=0.5
    drag:p@wall:angle_rad=alpha

`angle_deg` or `angle_rad` is the angle of the incoming flow with the first axis, which
drag and lift need. With `density`, `speed` or `area`, forces are divided by
`density * speed**2 * area / 2`, where those left out are one. A value is a number, or
the name of a scalar of the case, or of an input field that is constant in every case.
"""

import dataclasses
import math

EXTREMES = ("max", "min")
MEANS = ("mean", "integral")
FORCES = ("force_x", "force_y", "force_z")
ACROSS_FLOW = ("drag", "lift")
KINDS = (*EXTREMES, *MEANS, *FORCES, *ACROSS_FLOW)
_REFERENCES = ("density", "speed", "area")
_ANGLES = ("angle_deg", "angle_rad")

Value = float | str  # a number, or the name of a scalar or an input


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number that is asked of a field.

    Attributes:
      text: what the flag says, its name in tables.
      kind: one of `KINDS`.
      field: name of the field.
      boundary: name of the boundary; empty for the whole mesh.
      references: density, speed and area of a coefficient, those that are given.
      angle: of the incoming flow; None where it has no meaning.
      degrees: whether the angle is in degrees.
    """

    text: str
    kind: str
    field: str
    boundary: str = ""
    references: tuple[tuple[str, Value], ...] = ()
    angle: Value | None = None
    degrees: bool = False

    @property
    def is_force(self) -> bool:
        """Whether it needs the area vectors of a wall."""
        return self.kind in FORCES + ACROSS_FLOW

    @property
    def key(self) -> str:
        """Its name as the ending of a key, letters, digits and underscores."""
        return "".join(c if c.isalnum() else "_" for c in self.text)


def parse(text: str) -> tuple[Quantity, ...]:
    """Reads the quantities of a flag, separated by commas.

    Raises:
      ValueError: if one is not as the module says, or is there twice.
    """
    listed = [part.strip() for part in text.split(",") if part.strip()]
    found = tuple(_one(part) for part in listed)
    keys = [one.key for one in found]
    for one in found:
        if keys.count(one.key) > 1:
            raise ValueError(f"quantities={text!r} has {one.text!r} twice.")
    return found


def _one(text: str) -> Quantity:
    kind, *rest = text.split(":")
    if kind not in KINDS:
        raise ValueError(
            f"quantities: the kind {kind!r} of {text!r} is unknown; choose from "
            f"{', '.join(KINDS)}, as in max:stress or lift:p@wall:angle_deg=4."
        )
    field, _, boundary = (rest[0] if rest else "").partition("@")
    if not field or "=" in field or (rest[0].endswith("@")):
        raise ValueError(
            f"quantities: {text!r} names no field, or none before @; write "
            f"{kind}:FIELD or {kind}:FIELD@BOUNDARY."
        )
    options = dict(_option(text, part) for part in rest[1:])
    if len(options) < len(rest) - 1:
        raise ValueError(f"quantities: {text!r} gives a value twice.")
    _check_options(text, kind, options)
    angles = [key for key in _ANGLES if key in options]
    return Quantity(
        text,
        kind,
        field,
        boundary,
        tuple((key, options[key]) for key in _REFERENCES if key in options),
        options[angles[0]] if angles else None,
        angles == ["angle_deg"],
    )


def _option(text: str, part: str) -> tuple[str, Value]:
    key, _, value = part.partition("=")
    if key not in _REFERENCES + _ANGLES or not value:
        raise ValueError(
            f"quantities: {part!r} in {text!r} is none of "
            f"{', '.join(f'{key}=VALUE' for key in _REFERENCES + _ANGLES)}."
        )
    try:
        number = float(value)
    except ValueError:
        return key, value
    if not math.isfinite(number) or (key in _REFERENCES and number <= 0):
        raise ValueError(
            f"quantities: {part!r} in {text!r} must be finite, and reference values "
            "positive."
        )
    return key, number


def _check_options(text: str, kind: str, options: dict[str, Value]) -> None:
    angles = [key for key in _ANGLES if key in options]
    if options and kind not in FORCES + ACROSS_FLOW:
        raise ValueError(
            f"quantities: {next(iter(options))} means nothing in {text!r}, which is no "
            "force; leave it out."
        )
    if angles and kind in FORCES:
        raise ValueError(
            f"quantities: {angles[0]} means nothing in {text!r}, which has a fixed "
            "axis; leave it out."
        )
    if kind in ACROSS_FLOW and len(angles) != 1:
        raise ValueError(
            f"quantities: {text!r} needs the angle of the incoming flow, once: "
            "angle_deg=VALUE in degrees or angle_rad=VALUE in radians; 0 for flow "
            "along the first axis."
        )
