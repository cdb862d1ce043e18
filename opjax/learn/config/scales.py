"""Options of physical scales and symmetries."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from opjax.files import expressions
from opjax.files.expressions import Expression
from opjax.files.options import parse_names
from opjax.learn.config.fields import option
from opjax.learn.config.groups import Options
from opjax.samples.base import AXES
from opjax.samples.mirror import Mirror

_UNITS = ("deg", "rad")


class Angle(NamedTuple):
    """A scalar that is an angle.

    Attributes:
      name: name of the scalar.
      degrees: whether the unit is degrees, not radians.
    """

    name: str
    degrees: bool = True


@dataclasses.dataclass(frozen=True)
class ScaleOptions(Options):
    """Physical scales and symmetries."""

    scales: str = option(
        "",
        "Scales of fields, scalars or coordinates, NAME: FORMULA of scalars of the "
        'case, separated by commas, such as "U: load/modulus, S_Mises: load". Values '
        "are divided by their scale before training, and predictions are multiplied "
        "by it. points means all coordinates. The model receives scalars in a formula "
        "only if --scalar_names names them",
    )
    angles: str = option(
        "",
        "Scalars of --scalar_names that are angles in degrees, separated by commas. "
        "The model receives cosine and sine. alpha:rad is an angle in radians",
    )
    mirror: str = option(
        "",
        "Axis of reflection, x, y or z: adds a mirrored copy of every training case. "
        "Components of vectors and tensors and --angles are mirrored too. Name other "
        "scalars and fields that change their sign, as in "
        '"y: circulation, vorticity". Separate several axes by semicolons',
    )

    def __post_init__(self):
        """Refuses what is no formula and no angle."""
        super().__post_init__()
        parse_scales(self.scales)
        parse_angles(self.angles)
        parse_mirrors(self.mirror)


def parse_scales(text: str) -> dict[str, Expression]:
    """Parses scaling formulas, by the name of the scaled variable.

    Raises:
      ValueError: if a part has no name or is not a formula, or a name is repeated.
    """
    try:
        scales = expressions.parse_named(text)
    except ValueError as error:
        raise ValueError(f"scales: {error}") from None
    for name, formula in scales.items():
        if not formula.names:
            raise ValueError(
                f"scales: {formula.text} of {name} contains no scalar, so it is "
                "the same for all cases and has no effect; use a scalar of the "
                "case, or omit it."
            )
    return scales


def parse_angles(text: str) -> tuple[Angle, ...]:
    """Parses the names of angles.

    Raises:
      ValueError: if a unit is unknown, or a name is repeated.
    """
    angles: list[Angle] = []
    for part in parse_names(text):
        name, colon, unit = part.rpartition(":")
        if not colon:
            name, unit = part, "deg"
        if not name.strip() or unit.strip() not in _UNITS:
            raise ValueError(
                f"angles: {part!r} is not the name of a scalar, or has a unit other "
                f"than {' or '.join(_UNITS)}; write alpha or alpha:rad."
            )
        angles.append(Angle(name.strip(), unit.strip() == "deg"))
    names = [one.name for one in angles]
    if len(set(names)) < len(names):
        raise ValueError(f"angles={text!r} contains a name twice; name it once.")
    return tuple(angles)


def parse_mirrors(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Parses mirror axes, each with the names of the fields that change sign.

    Raises:
      ValueError: if an axis is unknown or repeated.
    """
    mirrors: list[tuple[str, tuple[str, ...]]] = []
    for part in filter(str.strip, text.split(";")):
        axis, _, names = (piece.strip() for piece in part.partition(":"))
        if axis not in tuple(AXES) or axis in dict(mirrors):
            raise ValueError(
                f"mirror: {part.strip()!r} has no axis x, y or z; write y, or y: "
                "NAME, NAME for scalars and fields that change their sign."
            )
        mirrors.append((axis, parse_names(names)))
    return tuple(mirrors)


def mirrors_of(config: Mapping[str, Any]) -> list[Mirror]:
    """Returns the reflections of a configuration, with its angles."""
    angles = parse_angles(config.get("angles") or "")
    turned = {one.name: 180.0 if one.degrees else math.pi for one in angles}
    mirrors = parse_mirrors(config.get("mirror") or "")
    return [Mirror(axis, names, turned) for axis, names in mirrors]


def numbers_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of case numbers that the formulas of a configuration need.

    Scalars that are model inputs are omitted, because they are read anyway.

    Args:
      config: values by flag name; all are optional.
    """
    formulas = parse_scales(config.get("scales") or "").values()
    names = dict.fromkeys(name for one in formulas for name in one.names)
    scalars = parse_names(config.get("scalar_names") or ())
    return tuple(name for name in names if name not in scalars)
