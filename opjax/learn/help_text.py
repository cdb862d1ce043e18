"""What --help says: flags by group, with what the presets have."""

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Any

from opjax.learn import fields

COMMON = {
    "workdir": "Folder of the run; alone, it continues the run it holds",
    "cache_dir": "Folder of generated data (default $OPJAX_CACHE or ~/.cache/opjax)",
    "tensorboard": "Write TensorBoard files too",
    "describe": "Say what the run would do, without training",
}


def field_text(field: dataclasses.Field, presets: Mapping[str, Any]) -> str:
    """Returns the help of a field: its text, its choices, and what presets have."""
    if field.name == "preset":
        return (
            f"{field.metadata['text']} ({', '.join(presets)}; default {field.default})"
        )
    values = {name: getattr(preset, field.name) for name, preset in presets.items()}
    spelled = {name: _shown(value) for name, value in values.items()}
    for name in list(spelled):  # a preset of a model, by what it has otherwise
        paper = name.partition("_")[0]
        if paper != name and spelled.get(paper) == spelled[name]:
            del spelled[name]
    if len(set(spelled.values())) == 1:
        note = f"default {_shown(field.default)}"
        if values and next(iter(values.values())) != field.default:
            note = next(iter(spelled.values()))
    else:
        note = ", ".join(f"{name} {value}" for name, value in spelled.items())
    choices = field.metadata["choices"]
    some = "" if choices is None else f": {', '.join(choices)}"
    return f"{field.metadata['text']}{some} ({note})"


def _shown(value: Any) -> str:
    return fields.spell(value) if isinstance(value, tuple) else repr(value)


def help_text(presets: Mapping[str, Any], *, program: str) -> str:
    """Returns the help of a program, its flags by group.

    Args:
      presets: as for `define_flags`.
      program: name of the program, as in its folder.
    """
    cls: Any = type(next(iter(presets.values())))
    groups: dict[type, list[str]] = {}
    other = {name: alias for alias, name in fields.aliases(cls).items()}
    for field in dataclasses.fields(cls):
        # The class that declared it first: a program may declare it anew.
        owner = [base for base in cls.__mro__ if field.name in vars(base)][-1]
        name = f"--{field.name}"
        if field.name in other:
            name += f" (or --{other[field.name]})"
        text = _wrapped(name, field_text(field, presets))
        groups.setdefault(owner, []).append(text)
    default = f"runs/{program}-{cls.preset}"
    lines = []
    for owner in cls.__mro__:
        if owner in groups:
            title = (
                "This program" if owner is cls else (owner.__doc__ or owner.__name__)
            )
            lines.append(title.strip().splitlines()[0].rstrip(".") + ":")
            lines += groups[owner]
    lines.append("Folders and output:")
    for name, words in COMMON.items():
        if name == "workdir":
            words += (
                f" (default {default}, with another preset's name and whatever differs "
                "from the preset added)"
            )
        lines.append(_wrapped(f"--{name}", words))
    return "\n".join(lines)


def _wrapped(name: str, text: str) -> str:
    body = textwrap.fill(
        text, width=88, initial_indent=" " * 6, subsequent_indent=" " * 6
    )
    return f"  {name}\n{body}"
