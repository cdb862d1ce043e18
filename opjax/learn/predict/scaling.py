"""Physical scales of cases: fields are divided by formulas of the case's scalars.

Only `Scaling` handles scales. `reduce` converts a case from physical units to the
scaled values that a model and its normalisers receive, and `physical` converts
predictions to physical units.
"""

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from opjax.files.expressions import Expression
from opjax.learn.config.scales import Angle, parse_angles, parse_scales
from opjax.samples import Sample, Splits
from opjax.samples.base import AXES, converted, letters
from opjax.samples.fields import Fields
from opjax.samples.normalizers import Names

_POINTS = "points"
_ROLES = ("target", "features", "scalars", "target_scalars")
# Times as large as in training, or as small: other units, it seems.
_UNITS = 10

Factors = dict[str, np.ndarray]  # of the channels of arrays that are scaled


@dataclasses.dataclass(frozen=True)
class Scaling:
    """The scales and angles of a run: arrays of a case are divided by the scales.

    Attributes:
      scales: formulas of scalars, by the name of a field or scalar, or of coordinates.
      angles: scalars that are replaced by their cosine and sine.
      names: names of the channels, by array; for an array without channel names, the
        name of the array is used.
      axes: axes of space of the coordinates, see `Sample.axes`.
    """

    scales: Mapping[str, Expression]
    angles: tuple[Angle, ...] = ()
    names: Names = dataclasses.field(default_factory=dict)
    axes: tuple[int, ...] = dataclasses.field(default=(), compare=False)

    def __post_init__(self):
        """Refuses names that nothing has."""
        for name in self.scales:
            self._where(name)
        names = self.names.get("scalars", ())
        for angle in self.angles:
            if angle.name not in names:
                raise ValueError(
                    f"angles: {angle.name!r} is not an input scalar (available: "
                    f"{', '.join(names) or 'none'}); add it to scalar_names."
                )
            if angle.name in self.scales:
                raise ValueError(
                    f"{angle.name} is an angle, which cannot be scaled; remove it "
                    "from scales or from angles."
                )

    @classmethod
    def of(
        cls, config: Mapping[str, Any], names: Names, axes: tuple[int, ...] = ()
    ) -> Self | None:
        """Returns the scaling of a configuration; None if it has none.

        Args:
          config: values by flag name; all are optional.
          names: names of the channels of arrays.
          axes: see `Scaling`.

        Raises:
          ValueError: if a formula is invalid, or a name is unknown.
        """
        scales = parse_scales(config.get("scales") or "")
        angles = parse_angles(config.get("angles") or "")
        if not scales and not angles:
            return None
        each = {k: tuple(listed) for k, listed in names.items()}
        return cls(scales, angles, each, axes)

    def reduce(self, sample: Sample) -> Sample:
        """Returns the scaled case, as the model and its normalisers receive it.

        Raises:
          ValueError: if a formula is not positive and finite. The message names the
            case.
        """
        factors = self.factors(sample)

        def reduced(role: str, array: np.ndarray) -> np.ndarray:
            values = np.asarray(array, np.float64) / factors[role]
            return values.astype(array.dtype)

        sample = converted(sample, reduced, factors)
        if not self.angles or sample.scalars is None:
            return sample
        turned = np.asarray(self.turned(sample.scalars, np))
        return sample._replace(scalars=turned.astype(sample.scalars.dtype))

    def splits(self, splits: Splits) -> Splits:
        """Returns all scaled cases of a benchmark."""
        return splits.mapped(lambda part: [self.reduce(sample) for sample in part])

    def physical(
        self, values: np.ndarray, sample: Sample, role: str = "target"
    ) -> np.ndarray:
        """Converts predictions to physical units.

        Args:
          values: predictions for the scaled case, `(..., c)`.
          sample: the case, in physical units.
          role: `"target"` or `"target_scalars"`.
        """
        factor = self.factors(sample).get(role)
        if factor is None:
            return values
        return (np.asarray(values, np.float64) * factor).astype(values.dtype)

    def reduced_values(self, values: np.ndarray, sample: Sample) -> np.ndarray:
        """Returns a scaled field from one in physical units."""
        return np.asarray(values, np.float64) / self.factor(sample, values.shape[-1])

    def factor(self, sample: Sample, channels: int) -> np.ndarray:
        """Returns the scales of the target channels of a case, `(q,)`."""
        factor = self.factors(sample).get("target", np.ones(1))
        return np.broadcast_to(factor, (channels,))

    def fields(self, sample: Sample, fields: Fields) -> Fields:
        """Returns fields with their spread in the physical units of a case."""
        factor = self.factor(sample, fields.num_channels)
        varying = tuple(
            one._replace(spread=one.spread * float(factor[one.channels[0]]))
            for one in fields.varying
        )
        return fields._replace(varying=varying)

    def factors(self, sample: Sample) -> Factors:
        """Returns the scales of channels, by array, for the scaled arrays."""
        factors: Factors = {}
        values = self.values(sample)
        for name, formula in self.scales.items():
            role, channels = self._where(name)
            size = self._size(role, sample)
            if channels is not None and channels[-1] >= size:
                raise ValueError(
                    f"{sample.name}: scales contains {name}, but its points have "
                    f"{size} coordinates; omit it."
                )
            one = factors.setdefault(role, np.ones(size))
            one[slice(None) if channels is None else channels] = self._value(
                name, formula, values, sample
            )
        return factors

    def traced_factors(
        self, values: Mapping[str, jax.Array], channels: Mapping[str, int]
    ) -> dict[str, jax.Array]:
        """Returns `factors` for numbers that JAX traces, without checks.

        Args:
          values: numbers of a case by name.
          channels: numbers of channels of the arrays.
        """
        factors: dict[str, jax.Array] = {}
        for name, formula in self.scales.items():
            role, rows = self._where(name)
            one = factors.get(role, jnp.ones(channels[role]))
            place = slice(None) if rows is None else np.asarray(rows)
            factors[role] = one.at[place].set(formula.traced(values))
        return factors

    def turned(self, scalars: Any, array: Any = jnp) -> Any:
        """Returns scalars with each angle replaced by its cosine and sine.

        Args:
          scalars: `(s,)`.
          array: array module, `jax.numpy` or `numpy`.
        """
        degrees = {angle.name: angle.degrees for angle in self.angles}
        parts: list[Any] = []
        for place, name in enumerate(self.names.get("scalars", ())):
            value = scalars[place]
            if name in degrees:
                angle = value * (math.pi / 180) if degrees[name] else value
                parts += [array.cos(angle), array.sin(angle)]
            else:
                parts.append(value)
        return array.stack(parts)

    def values(self, sample: Sample) -> dict[str, float]:
        """Returns the numbers of a case by name, including its scalars."""
        scalars = [] if sample.scalars is None else np.ravel(sample.scalars).tolist()
        named = dict(zip(self.names.get("scalars", ()), scalars, strict=False))
        return named | {k: float(v) for k, v in (sample.numbers or {}).items()}

    def reduced_names(self) -> dict[str, list[str]]:
        """Returns the names of the channels of scaled cases, by array."""
        names = {role: list(listed) for role, listed in self.names.items()}
        if self.angles:
            turned = {angle.name for angle in self.angles}
            names["scalars"] = [
                part
                for name in self.names["scalars"]
                for part in (
                    (f"cos({name})", f"sin({name})") if name in turned else (name,)
                )
            ]
        return names

    def measure(self, train: Sequence[Sample]) -> dict[str, list[float]]:
        """Returns minimum and maximum in training of the numbers in formulas."""
        used = {name for one in self.scales.values() for name in one.names}
        rows = [self.values(sample) for sample in train]
        return {
            name: [min(row[name] for row in rows), max(row[name] for row in rows)]
            for name in sorted(used)
        }

    def warn_of_units(
        self, sample: Sample, ranges: Mapping[str, Sequence[float]]
    ) -> None:
        """Warns if a number of a formula is far outside its training range.

        Args:
          sample: case to predict.
          ranges: ranges from `measure`.
        """
        values = self.values(sample)
        for name, (low, high) in ranges.items():
            size, ends = abs(values[name]), sorted((abs(low), abs(high)))
            if not ends[0] / _UNITS <= size <= ends[1] * _UNITS:
                warnings.warn(
                    f"{sample.name}: {name} is {values[name]:g}, but {low:g} to "
                    f"{high:g} in training. Check its units, because the "
                    "prediction is scaled by it.",
                    stacklevel=2,
                )

    def _where(self, name: str) -> tuple[str, list[int] | None]:
        """The array that a name is in, and its channels; None for all of them."""
        places: list[tuple[str, list[int] | None]] = []
        for role in _ROLES:
            listed = self.names.get(role)
            if not listed and name == role:
                places.append((role, None))
            elif channels := [i for i, n in enumerate(listed or ()) if n == name]:
                places.append((role, channels))
        if not places and name == _POINTS:
            return "mesh_points", None
        if not places and name in (*AXES,):
            axis, axes = AXES.index(name), self.axes or (0, 1, 2)
            if axis not in axes:
                raise ValueError(
                    f"scales contains {name}, but points vary along {letters(axes)} "
                    "only; omit it."
                )
            return "mesh_points", [axes.index(axis)]
        if len(places) != 1:
            names = [n for role in _ROLES for n in self.names.get(role) or (role,)]
            raise ValueError(
                f"scales: {name!r} is the name of {len(places)} arrays; use one of "
                f"{', '.join(dict.fromkeys(names))}, or points, x, y or z."
            )
        return places[0]

    def _size(self, role: str, sample: Sample) -> int:
        array = getattr(sample, role)
        if array is not None:
            return np.shape(array)[-1]
        return len(self.names.get(role) or (role,))

    def _value(
        self,
        name: str,
        formula: Expression,
        values: Mapping[str, float],
        sample: Sample,
    ) -> float:
        try:
            value = float(formula(values))
        except ValueError as error:
            raise ValueError(f"{sample.name}: the scale of {name}: {error}") from None
        if not (math.isfinite(value) and value > 0):
            used = ", ".join(f"{key} = {values[key]:g}" for key in formula.names)
            raise ValueError(
                f"{sample.name}: the scale of {name}, {formula.text}, is {value:g} "
                f"with {used}, expected a positive number. Correct the case or omit "
                "it; for numbers of either sign, use abs()."
            )
        return value
