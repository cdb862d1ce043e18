"""Quantities of interest, as the flag `--quantities` spells them.

    KIND:FIELD[@BOUNDARY][:KEY=VALUE]...

    max:stress            min, mean and integral likewise; over the mesh
    max:S:mises           of an invariant; max:U_x of a component
    integral:q@inlet      or over a named boundary
    sum:RF_x@clamp        over the points of a boundary
    flux:U@outlet         of a vector, out of the mesh
    force_x:p@wall        force of the pressure p on a wall; force_y, force_z
    moment_z:p@wall:about=0.25,0
    shear_x:U@wall:viscosity=1e-3        force of the shear stress of a velocity
    lift:p@wall:angle_deg=4:speed=2:area=0.5
    drag:p@wall:angle_rad=alpha

`angle_deg` or `angle_rad` is the angle between the incoming flow and the first axis,
which drag and lift need. If `density`, `speed` or `area` is given, forces are divided
by `density * speed**2 * area / 2`; omitted factors are one. `reference` is subtracted
from the pressure. `kinematic` is a density, which multiplies a kinematic pressure or
viscosity. A value is a number, the name of a scalar of the case, or the name of an
input field that is constant in every case.
"""

import dataclasses
import math
import re

EXTREMES = ("max", "min")
MEANS = ("mean", "integral")
SUM, FLUX = "sum", "flux"
FORCES = ("force_x", "force_y", "force_z")
MOMENTS = ("moment_x", "moment_y", "moment_z")
SHEARS = ("shear_x", "shear_y", "shear_z")
ACROSS_FLOW = ("drag", "lift")
_PRESSED = (*FORCES, *MOMENTS, *ACROSS_FLOW)  # by the pressure
KINDS = (*EXTREMES, *MEANS, SUM, FLUX, *_PRESSED, *SHEARS)
_COEFFICIENT = ("density", "speed", "area")
_VISCOSITY = "viscosity"
_REFERENCES = (*_COEFFICIENT, "reference", "kinematic", _VISCOSITY)
_ANGLES = ("angle_deg", "angle_rad")
_ABOUT = "about"
_KEYS = (*_REFERENCES, *_ANGLES)
# Commas between quantities; those of `about=0,0` have a number behind them.
_COMMA = re.compile(r",(?!\s*[-+.]?\d)")

Value = float | str  # a number, or the name of a scalar or an input


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A quantity of interest, computed from a field.

    Attributes:
      text: spelling in the flag, and name in tables.
      kind: one of `KINDS`.
      field: name of the field, or of a component or invariant of one.
      boundary: name of the boundary; empty for the whole mesh.
      references: given values among density, speed and area of a coefficient, reference
        and density of a pressure, and viscosity.
      angle: angle of the incoming flow; None if it does not apply.
      degrees: whether the angle is in degrees.
      about: reference point of a moment; empty for the origin.
    """

    text: str
    kind: str
    field: str
    boundary: str = ""
    references: tuple[tuple[str, Value], ...] = ()
    angle: Value | None = None
    degrees: bool = False
    about: tuple[float, ...] = ()

    @property
    def is_force(self) -> bool:
        """Whether the quantity is a force or a moment."""
        return self.kind in _PRESSED + SHEARS

    @property
    def is_over_facets(self) -> bool:
        """Whether the quantity needs the facets of a boundary."""
        over_boundary = self.kind in MEANS and bool(self.boundary)
        return self.is_force or self.kind == FLUX or over_boundary

    @property
    def needs_closed(self) -> bool:
        """Whether the boundary must be closed, because no reference pressure is given.

        The force of a constant pressure on a closed wall is zero.
        """
        return self.kind in _PRESSED and "reference" not in dict(self.references)

    @property
    def is_coefficient(self) -> bool:
        """Whether a force is divided by the dynamic pressure force."""
        return any(key in _COEFFICIENT for key, _ in self.references)

    @property
    def key(self) -> str:
        """The name as part of a key: only letters, digits and underscores."""
        return "".join(c if c.isalnum() else "_" for c in self.text)


def parse(text: str) -> tuple[Quantity, ...]:
    """Reads the quantities of a flag, separated by commas.

    Raises:
      ValueError: if one does not follow the syntax in the module docstring, or is
        listed twice.
    """
    listed = [part.strip() for part in _COMMA.split(text) if part.strip()]
    quantities = tuple(_one(part) for part in listed)
    keys = [one.key for one in quantities]
    for one in quantities:
        if keys.count(one.key) > 1:
            raise ValueError(f"quantities={text!r} contains {one.text!r} twice.")
    return quantities


def _one(text: str) -> Quantity:
    kind, *rest = text.split(":")
    if kind not in KINDS:
        raise ValueError(
            f"quantities: the kind {kind!r} of {text!r} is unknown; choose from "
            f"{', '.join(KINDS)}, as in max:stress or lift:p@wall:angle_deg=4."
        )
    num_names = next((i for i, part in enumerate(rest) if "=" in part), len(rest))
    named, given = ":".join(rest[:num_names]), rest[num_names:]
    field, at, boundary = named.partition("@")
    if not field or bool(at) != bool(boundary):
        raise ValueError(
            f"quantities: {text!r} has no field before @; write {kind}:FIELD or "
            f"{kind}:FIELD@BOUNDARY."
        )
    if ":" in boundary:
        boundary, _, part = boundary.partition(":")
        raise ValueError(
            f"quantities: {text!r} has {part!r} after the boundary; write "
            f"{kind}:{field}:{part}@{boundary} for an invariant of the field."
        )
    if kind == FLUX and not boundary:
        raise ValueError(
            f"quantities: {text!r} has no boundary; write {kind}:{field}@BOUNDARY."
        )
    abouts = [part for part in given if part.startswith(f"{_ABOUT}=")]
    others = [part for part in given if part not in abouts]
    options = dict(_option(text, part) for part in others)
    if len(options) < len(others) or len(abouts) > 1:
        raise ValueError(f"quantities: {text!r} sets a value twice.")
    _check_options(text, kind, [*options, *[_ABOUT] * len(abouts)])
    angles = [key for key in _ANGLES if key in options]
    return Quantity(
        text,
        kind,
        field,
        boundary,
        tuple((key, options[key]) for key in _REFERENCES if key in options),
        options[angles[0]] if angles else None,
        angles == ["angle_deg"],
        _point(text, abouts[0]) if abouts else (),
    )


def _point(text: str, part: str) -> tuple[float, ...]:
    try:
        point = tuple(float(one) for one in part.removeprefix(f"{_ABOUT}=").split(","))
    except ValueError:
        point = ()
    if len(point) not in (2, 3) or not all(map(math.isfinite, point)):
        raise ValueError(
            f"quantities: {part!r} in {text!r} is not a point; write its coordinates, "
            "about=0.25,0 in two dimensions or about=0.25,0,0 in three."
        )
    return point


def _option(text: str, part: str) -> tuple[str, Value]:
    key, _, value = part.partition("=")
    if key not in _KEYS or not value:
        raise ValueError(
            f"quantities: {part!r} in {text!r} is unknown; choose from "
            f"{', '.join(f'{key}=VALUE' for key in (*_KEYS, _ABOUT))}."
        )
    try:
        number = float(value)
    except ValueError:
        return key, value
    positive = key in _REFERENCES and key != "reference"
    if not math.isfinite(number) or (positive and number <= 0):
        raise ValueError(
            f"quantities: {part!r} in {text!r} must be finite, and reference "
            "values must be positive."
        )
    return key, number


def _check_options(text: str, kind: str, given: list[str]) -> None:
    angles = [key for key in _ANGLES if key in given]
    if given and kind not in _PRESSED + SHEARS:
        raise ValueError(
            f"quantities: {given[0]} has no effect in {text!r}, which is not a "
            "force; omit it."
        )
    if angles and kind not in ACROSS_FLOW:
        raise ValueError(
            f"quantities: {angles[0]} has no effect in {text!r}, which has a fixed "
            "axis; omit it."
        )
    if _ABOUT in given and kind not in MOMENTS:
        raise ValueError(
            f"quantities: {_ABOUT} has no effect in {text!r}, which is not a moment; "
            "omit it."
        )
    if (kind in SHEARS) != (_VISCOSITY in given) or (
        kind in SHEARS and "reference" in given
    ):
        raise ValueError(
            f"quantities: {text!r}: shear_x, shear_y and shear_z need "
            "viscosity=VALUE and do not support reference; other quantities do "
            "not support viscosity."
        )
    if kind in ACROSS_FLOW and len(angles) != 1:
        raise ValueError(
            f"quantities: {text!r} needs the angle of the incoming flow exactly "
            "once: angle_deg=VALUE in degrees or angle_rad=VALUE in radians; 0 "
            "for flow along the first axis."
        )
