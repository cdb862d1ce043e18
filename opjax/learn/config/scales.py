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
from opjax.samples.mirror import AXES, Mirror

_UNITS = ("deg", "rad")


class Angle(NamedTuple):
    """A scalar that is an angle.

    Attributes:
      name: of the scalar.
      degrees: whether it is in degrees, not in radians.
    """

    name: str
    degrees: bool = True


@dataclasses.dataclass(frozen=True)
class ScaleOptions(Options):
    """Physical scales and symmetries."""

    scales: str = option(
        "",
        "What fields, scalars or coordinates of a case are divided by before anything "
        "is learned, and predictions multiplied by: NAME: FORMULA of scalars of the "
        'case, separated by commas, such as "U: load/modulus, S_Mises: load". points '
        "stands for all coordinates. Scalars of a formula are read, but given to the "
        "model only if --scalar_names has them",
    )
    angles: str = option(
        "",
        "Scalars of --scalar_names that are angles in degrees, separated by commas. "
        "The model is given cosine and sine. alpha:rad is an angle in radians",
    )
    mirror: str = option(
        "",
        "Axis that the training cases are mirrored in, x, y or z: each has a mirrored "
        "copy besides. Components of vectors and tensors and --angles are mirrored "
        "along; further scalars and fields that change their sign are named, as in "
        '"y: circulation, vorticity". Several axes have semicolons between them',
    )

    def __post_init__(self):
        """Refuses what is no formula and no angle."""
        super().__post_init__()
        parse_scales(self.scales)
        parse_angles(self.angles)
        parse_mirrors(self.mirror)


def parse_scales(text: str) -> dict[str, Expression]:
    """Reads formulas by the name of what they scale.

    Raises:
      ValueError: if a part has no name or is no formula, or a name is there twice.
    """
    try:
        scales = expressions.parse_named(text)
    except ValueError as error:
        raise ValueError(f"scales: {error}") from None
    for name, formula in scales.items():
        if not formula.names:
            raise ValueError(
                f"scales: {formula.text} of {name} is the same for all cases, which "
                "changes nothing; name a scalar of the case, or leave it out."
            )
    return scales


def parse_angles(text: str) -> tuple[Angle, ...]:
    """Reads the names of angles.

    Raises:
      ValueError: if a unit is unknown, or a name is there twice.
    """
    angles: list[Angle] = []
    for part in parse_names(text):
        name, colon, unit = part.rpartition(":")
        if not colon:
            name, unit = part, "deg"
        if not name.strip() or unit.strip() not in _UNITS:
            raise ValueError(
                f"angles: {part!r} is no name of a scalar, or has another unit than "
                f"{' or '.join(_UNITS)}; write alpha or alpha:rad."
            )
        angles.append(Angle(name.strip(), unit.strip() == "deg"))
    names = [one.name for one in angles]
    if len(set(names)) < len(names):
        raise ValueError(f"angles={text!r} has a name twice; name it once.")
    return tuple(angles)


def parse_mirrors(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Reads axes, and the names of what changes its sign with each.

    Raises:
      ValueError: if an axis is unknown or there twice.
    """
    mirrors: list[tuple[str, tuple[str, ...]]] = []
    for part in filter(str.strip, text.split(";")):
        axis, _, names = (piece.strip() for piece in part.partition(":"))
        if axis not in tuple(AXES) or axis in dict(mirrors):
            raise ValueError(
                f"mirror: {part.strip()!r} has no axis x, y or z of its own; write y, "
                "or y: NAME, NAME for scalars and fields that change their sign."
            )
        mirrors.append((axis, parse_names(names)))
    return tuple(mirrors)


def mirrors_of(config: Mapping[str, Any]) -> list[Mirror]:
    """Returns the reflections of a configuration, in which angles are turned."""
    angles = parse_angles(config.get("angles") or "")
    turned = {one.name: 180.0 if one.degrees else math.pi for one in angles}
    mirrors = parse_mirrors(config.get("mirror") or "")
    return [Mirror(axis, names, turned) for axis, names in mirrors]


def numbers_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of numbers of a case that formulas of a configuration need.

    Those without the scalars that the model is given, which are read anyway.

    Args:
      config: values by the names of flags; none of them is needed.
    """
    formulas = parse_scales(config.get("scales") or "").values()
    names = dict.fromkeys(name for one in formulas for name in one.names)
    scalars = parse_names(config.get("scalar_names") or ())
    return tuple(name for name in names if name not in scalars)
