"""Fields of configurations: declaration with limits and choices, and spelling.

A configuration is a frozen dataclass of `option` fields. They define the flags of a
program, the checks, the name of the run folder and the command that repeats a run.
"""

import dataclasses
import math
import os
import re
import shlex
import zlib
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

_LONGEST = 100  # characters of a default folder's name

# Values of options, as of the flags.
Value = bool | int | float | str
Default = Value | tuple[Value, ...]


class Configuration(Protocol):
    """A dataclass of `option` fields."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


class Preset(Configuration, Protocol):
    """A configuration that stores the name of its preset."""

    @property
    def preset(self) -> str:
        """Name of the preset."""
        ...


_Preset = TypeVar("_Preset", bound=Preset)
_Part = TypeVar("_Part", bound=Configuration)


def option(
    default: Default | None,
    text: str,
    *,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
    below: float = math.inf,
    choices: Collection[str] | None = None,
    members: bool = False,
    within: str = "",
) -> Any:
    """Declares a field of a configuration.

    Args:
      default: a bool, int, float, str, a tuple of them, or None for no value. The
        annotation defines the type of the flag, for example `int | None` or `tuple[int,
        ...]`.
      text: help text of the flag.
      minimum: lower bound of a number.
      above: exclusive lower bound of a number.
      maximum: upper bound of a number.
      below: exclusive upper bound of a number.
      choices: all valid values of a text.
      members: whether the field selects members of a study. Each member has its own
        folder, so the field may change when the study is resumed.
      within: name of the field whose flag also sets this one, as option=value; empty
        for a field with its own flag.

    Returns:
      A dataclass field.

    Examples:
      >>> import dataclasses
      >>> from opjax import learn
      >>> @dataclasses.dataclass(frozen=True)
      ... class Config(learn.FieldOptions):
      ...     viscosity: float = learn.option(0.01, "Viscosity, in m^2/s", above=0)
      >>> Config(viscosity=0.1).viscosity
      0.1
      >>> Config(viscosity=-0.1)
      Traceback (most recent call last):
          ...
      ValueError: viscosity=-0.1 must be finite and above 0.
    """
    limits = {"at least": minimum, "above": above, "at most": maximum, "below": below}
    metadata: dict[str, Any] = {
        "text": text,
        "limits": limits,
        "choices": None if choices is None else tuple(choices),
        "members": members,
        "within": within,
        "repeats": False,
        "before": default,
        "only_with": {},
    }
    return dataclasses.field(default=default, metadata=metadata)


def required(text: str) -> Any:
    """Declares a field without a default, whose flag is required, see `option`."""
    return dataclasses.field(metadata=option(None, text).metadata)


def repeating(field: Any) -> Any:
    """Returns an `option` whose elements may repeat."""
    return _marked(field, "repeats", True)


def only_with(field: dataclasses.Field[Any], **values: Collection[str]) -> Any:
    """Returns an `option` that only has an effect with certain values of others.

    Args:
      field: the option.
      **values: for the names of other options, the values with one of which it has.

    Examples:
      >>> import dataclasses
      >>> from opjax import learn
      >>> from opjax.learn.config.fields import only_with
      >>> @dataclasses.dataclass(frozen=True)
      ... class Config(learn.FieldOptions):
      ...     law: str = learn.option("linear", "Law", choices=("linear", "power"))
      ...     power: int = only_with(learn.option(2, "Its power"), law=["power"])
    """
    return _marked(field, "only_with", values)


def added(field: Any, *, before: Default) -> Any:
    """Returns an `option` that runs of earlier versions lack; they used `before`."""
    return _marked(field, "before", before)


def _marked(field: dataclasses.Field[Any], mark: str, value: object) -> Any:
    metadata = {**field.metadata, mark: value}
    return dataclasses.field(default=field.default, metadata=metadata)


def part(cls: type[_Part], config: Configuration, **own: object) -> _Part:
    """Returns an object of another class with the matching fields of a configuration.

    Args:
      cls: the class, a dataclass.
      config: the configuration.
      **own: fields of the object that have different values, or that the configuration
        lacks.
    """
    common = {field.name for field in dataclasses.fields(config)} - own.keys()
    values = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(cls)
        if field.name in common
    }
    return cls(**(values | own))


def check(config: Configuration) -> None:
    """Raises ValueError if a value is not finite, out of range or not a choice."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        several = isinstance(value, tuple)
        if several and field.default and not value:
            raise ValueError(f"{field.name} is empty; it needs at least one entry.")
        for element in value if several else (value,):
            _check_value(field, element)
            repeats = field.metadata["repeats"]
            if several and not repeats and value.count(element) > 1:
                raise ValueError(
                    f"{field.name}={spell(value)} contains {element} twice."
                )


def check_effects(config: Configuration, base: Configuration) -> None:
    """Raises ValueError if a value differs from the preset's without an effect."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == getattr(base, field.name):
            continue
        for name, values in field.metadata["only_with"].items():
            other = getattr(config, name)
            if not {*values} & {*(other if isinstance(other, tuple) else [other])}:
                raise ValueError(
                    f"{field.name}={spell(value)} has no effect with "
                    f"{name}={spell(other)}, only with {' or '.join(values)}; omit it."
                )


def _check_value(field: dataclasses.Field[Any], value: object) -> None:
    choices, limits = field.metadata["choices"], field.metadata["limits"]
    if not isinstance(value, int | float):
        if None not in (choices, value) and value not in choices:
            raise ValueError(
                f"{field.name}={value!r} is unknown; choose from {', '.join(choices)}."
            )
        return
    inside = limits["at least"] <= value <= limits["at most"]
    inside = inside and limits["above"] < value < limits["below"]
    if not (math.isfinite(value) and inside):
        words = [f"{k} {v}" for k, v in limits.items() if math.isfinite(v)]
        words = " and ".join(["finite", *words])
        raise ValueError(f"{field.name}={value} must be {words}.")


def check_types(cls: type[Configuration], values: Mapping[str, object]) -> None:
    """Raises ValueError if a stored value has a different type than its field.

    Args:
      cls: a configuration.
      values: values by field name; missing fields and unknown names are ignored.
    """
    for field in dataclasses.fields(cls):
        if field.name not in values:
            continue
        value, default = values[field.name], field.default
        fits = isinstance(default, tuple) == isinstance(value, tuple)
        of = default[0] if isinstance(default, tuple) and default else default
        if not isinstance(of, tuple):  # an empty one says nothing of its elements
            kinds = (float, int) if type(of) is float else (type(of),)
            for element in value if isinstance(value, tuple) else (value,):
                large = isinstance(element, int) and abs(element) >= 2**63
                fits = fits and type(element) in kinds and not large
        if not fits:
            raise ValueError(
                f"{field.name}={repr(value)[:80]} must have the form of {default!r}."
            )


def base_of(config: _Preset, presets: Mapping[str, _Preset]) -> _Preset:
    """Returns the preset that a configuration names, or the defaults."""
    return presets.get(config.preset) or type(config)()


def preset_of(
    presets: Mapping[str, _Preset], name: str, models: Collection[str]
) -> _Preset:
    """Returns a preset by name, or its variant for the selected model.

    For the preset `paper`, the variant for the model `fno` is `paper_fno`. If a model
    has a variant, it cannot be combined with other models.
    """
    own = [f"{name}_{model}" for model in models if f"{name}_{model}" in presets]
    if own and len(models) > 1:
        raise ValueError(
            f"preset={name} is not available for all of "
            f"models={spell(tuple(models))}, only {spell(tuple(own))}. Train these "
            f"separately, with --preset={name} and one model, or use a preset that "
            "all models have."
        )
    return presets[own[0] if own else name]


def _differences(config: _Preset, base: _Preset) -> dict[str, Default]:
    """The fields that are not as in `base`: models, then others, then seeds."""
    names = [field.name for field in dataclasses.fields(config)]
    names.sort(key=lambda name: (name != "models") + (name == "seeds"))
    pairs = {name: getattr(config, name) for name in names if name != "preset"}
    return {name: v for name, v in pairs.items() if v != getattr(base, name)}


def spell(value: Default) -> str:
    """Formats a value as on the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def command(program: str, config: _Preset, base: _Preset) -> str:
    """Returns the command line that produces a configuration from its preset `base`."""
    flags = [f"--preset={config.preset}"]
    for name, value in _spelled(config, _differences(config, base)).items():
        if isinstance(value, bool):
            flags.append(f"--{'' if value else 'no'}{name}")
        else:
            flags.append(f"--{name}={shlex.quote(spell(value))}")
    return " ".join([program, *flags])


def _spelled(config: Preset, found: dict[str, Default]) -> dict[str, Default]:
    """Values by flags, some of which give several fields."""
    spelled = dict(found)
    for field in dataclasses.fields(config):
        within = field.metadata["within"]
        if within and field.name in found:
            parts = spelled.get(within), f"{field.name}={spelled.pop(field.name)}"
            spelled[within] = ",".join(map(str, filter(None, parts)))
    return spelled


def run_name(program: str, config: _Preset, base: _Preset) -> str:
    """Returns the name of a run folder: program, preset and differences from it."""
    parts = [program, config.preset]
    parts += [_short(*pair) for pair in _differences(config, base).items()]
    name = "-".join(parts)
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{zlib.crc32(name.encode()):08x}"


def _short(name: str, value: Default) -> str:
    """A value and its name as part of the name of a folder."""
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    plain = "+".join(map(_plain, value if isinstance(value, tuple) else (value,)))
    if isinstance(value, str) and plain != value:  # folders may share their last name
        plain = _plain(os.path.basename(value.rstrip("/")))
        plain += f"_{zlib.crc32(value.encode()):08x}"
    return plain if name == "models" else name.removeprefix("num_") + plain


def _plain(value: Value) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", str(value))
