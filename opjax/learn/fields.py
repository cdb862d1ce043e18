"""Fields of configurations: declared once, with limits and choices, and spelled.

A configuration is a frozen dataclass of `option` fields. From them come the flags of
a program, the checks, the name of its folder, the command that repeats a run, and what
is made of a `config.json` that an earlier version wrote.
"""

import dataclasses
import math
import os
import re
import shlex
import typing
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

# Other names, of flags and in the folders of earlier versions, of one field.
ALIASES = {
    "attentions": "models",
    "coarse_subdomains": "coarse_boxes",
    "methods": "models",
    "model": "models",
    "modes": "num_modes",
    "n": "num_points",
    "seed": "seeds",
    "steps": "num_steps",
    "subdomains": "num_boxes",
}
_LONGEST = 100  # characters of a default folder's name


def option(
    default: Any,
    text: str,
    *,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
    below: float = math.inf,
    choices: Collection[str] | None = None,
    members: bool = False,
) -> Any:
    """Declares a field of a configuration.

    Args:
      default: a bool, int, float or str, or a tuple of them; its type is that of the
        flag, the annotation `tuple[int, ...]` that of the elements.
      text: help text of the flag.
      minimum: smallest value of a number.
      above: a number must be larger than this.
      maximum: largest value of a number.
      below: a number must be smaller than this.
      choices: all values that a text may have.
      members: whether the field chooses members of a study, each of which has a folder
        of its own, so that it may change in the folder of the study.

    Returns:
      A dataclass field.
    """
    limits = {"at least": minimum, "above": above, "at most": maximum, "below": below}
    return dataclasses.field(
        default=default,
        metadata={
            "text": text,
            "limits": limits,
            "choices": None if choices is None else tuple(choices),
            "members": members,
        },
    )


def check(config: Any) -> None:
    """Raises ValueError if a value is not finite, out of range or not to be chosen.

    Args:
      config: dataclass of `option` fields.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not isinstance(value, tuple):
            _check_value(field, value)
            continue
        if not value:
            raise ValueError(f"{field.name} is empty; name at least one.")
        for element in value:
            _check_value(field, element)
            if value.count(element) > 1:
                raise ValueError(f"{field.name}={spell(value)} has {element} twice.")


def _check_value(field: dataclasses.Field, value: Any) -> None:
    if isinstance(value, str):
        if field.metadata["choices"] is not None:
            check_choice(field.name, value, field.metadata["choices"])
        return
    limits = field.metadata["limits"]
    inside = limits["at least"] <= value <= limits["at most"]
    inside = inside and limits["above"] < value < limits["below"]
    if not (math.isfinite(value) and inside):
        words = [f"{k} {v}" for k, v in limits.items() if math.isfinite(v)]
        words = ["finite", *words]
        raise ValueError(f"{field.name}={value} must be {' and '.join(words)}.")


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raises ValueError, listing the choices, unless `value` is one of them."""
    if value not in choices:
        raise ValueError(
            f"{name}={value!r} is unknown; choose from {', '.join(choices)}."
        )


def kind(cls: type, name: str) -> tuple[type, bool]:
    """Returns the type of a field, of its elements if it is a tuple, and whether so."""
    hint = typing.get_type_hints(cls)[name]
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def aliases(cls: type) -> dict[str, str]:
    """Returns other names of the fields of a configuration, with the fields."""
    names = {field.name for field in dataclasses.fields(cls)}
    return {a: name for a, name in ALIASES.items() if name in names and a not in names}


def upgrade(stored: Mapping[str, Any], cls: type, base: Any = None) -> dict[str, Any]:
    """Brings the JSON values of an earlier version to the fields of a configuration.

    Names become those of today, lists that were text or one value become lists, and
    absent fields take the values of `base`.

    Args:
      stored: JSON values by name.
      cls: dataclass of the configuration.
      base: configuration that says the values of absent fields, such as the preset;
        None for the defaults.

    Returns:
      The values; unknown names are kept.
    """
    renamed = aliases(cls)
    values = {renamed.get(name, name): value for name, value in stored.items()}
    for field in dataclasses.fields(cls):
        if field.name not in values:
            default = field.default if base is None else getattr(base, field.name)
            if default is not dataclasses.MISSING:
                values[field.name] = default
        elif not isinstance(values[field.name], list):
            element, several = kind(cls, field.name)
            if several:
                parts = str(values[field.name]).split(",")
                values[field.name] = [element(part.strip()) for part in parts]
    return values


def differences(config: Any, base: Any) -> dict[str, Any]:
    """Returns the fields that are not as in `base`, in order, models first."""
    names = [field.name for field in dataclasses.fields(config)]
    names.sort(key=lambda name: (name != "models") + (name == "seeds"))
    pairs = {name: getattr(config, name) for name in names if name != "preset"}
    return {name: v for name, v in pairs.items() if v != getattr(base, name)}


def base_of(config: Any, presets: Mapping[str, Any]) -> Any:
    """Returns the preset that a configuration names, the defaults if there is none."""
    return presets.get(config.preset) or type(config)()


def preset_of(presets: Mapping[str, Any], name: str, models: Collection[str]) -> Any:
    """Returns the preset of a name, for a model that has one of its own that one.

    Args:
      presets: configurations by name; `paper_fno` is that of the model `fno` to the
        name `paper`.
      name: of a preset.
      models: that are to be trained with it; none to leave the choice to the preset.

    Raises:
      ValueError: if one of several models has a preset of its own.
    """
    own = [f"{name}_{model}" for model in models if f"{name}_{model}" in presets]
    if own and len(models) > 1:
        raise ValueError(
            f"preset={name} is not one for all of models={spell(tuple(models))}: there "
            f"is {spell(tuple(own))}. Train these alone, as --preset={name} with one "
            "model, or name the preset that all of them shall share."
        )
    return presets[own[0] if own else name]


def command(program: str, config: Any, base: Any) -> str:
    """Returns the command that makes a configuration.

    Args:
      program: how it is started.
      config: all that the numbers of a run depend on.
      base: its preset.
    """
    return " ".join([program, f"--preset={config.preset}", *_flags(config, base)])


def _flags(config: Any, base: Any) -> Iterator[str]:
    for name, value in differences(config, base).items():
        if isinstance(value, bool):
            yield f"--{'' if value else 'no'}{name}"
        else:
            yield f"--{name}={shlex.quote(spell(value))}"


def spell(value: Any) -> str:
    """Spells a value as on the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def run_name(program: str, config: Any, base: Any) -> str:
    """Returns the name of a run's folder: program, preset and what differs from it.

    Args:
      program: its name.
      config: all that the numbers of a run depend on.
      base: its preset.
    """
    parts = [program, config.preset]
    parts += [_short(*pair) for pair in differences(config, base).items()]
    name = "-".join(parts)
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{zlib.crc32(name.encode()):08x}"


def _short(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    plain = "+".join(map(_plain, value if isinstance(value, tuple) else (value,)))
    if isinstance(value, str) and plain != value:  # folders may share their last name
        plain = _plain(os.path.basename(value.rstrip("/")))
        plain += f"_{zlib.crc32(value.encode()):08x}"
    return plain if name == "models" else name.removeprefix("num_") + plain


def _plain(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", str(value))
