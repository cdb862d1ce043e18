"""Pages of the command lines, from the definitions of their flags."""

import contextlib
import importlib
import pathlib
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from absl import flags

EXPERIMENTS = [
    "darcy",
    "elasticity",
    "plasticity",
    "airfoil",
    "pipe",
    "navier_stokes",
    "burgers",
    "darcy_inverse",
    "darcy_notch",
    "airfrans",
    "bodies",
    "lift",
    "rna",
    "sinusoid",
    "poisson_schwarz",
    "ablation",
    "scaling",
    "paper_runs",
    "published",
]
# Command, module and a line of what it is for.
OWN = {
    "opjax-check": "opjax.learn.cli.check",
    "opjax-train": "opjax.learn.cli.train",
    "opjax-predict": "opjax.learn.cli.predict",
    "opjax-calibrate": "opjax.learn.cli.calibrate",
    "opjax-report": "opjax.learn.cli.report",
    "opjax-publish": "opjax.learn.cli.publish",
}


def flags_of(module: Any) -> dict[str, list[flags.Flag]]:
    """Flags of a program by groups, apart from those of other programs."""
    from opjax.learn.cli import command_line

    if hasattr(module, "PROGRAM"):
        values, program = flags.FlagValues(), module.PROGRAM
        groups = command_line.define_flags(
            program.presets, program=program.name, flag_values=values
        )
        return {group: [values[n] for n in names] for group, names in groups.items()}
    found = flags.FLAGS.flags_by_module_dict().get(module.__name__, [])
    if not found:
        with _alone(), mock.patch.object(command_line, "start"):
            module.main()  # defines its flags, and would start
            found = list(flags.FLAGS.flags_by_module_dict()[module.__name__])
            for flag in found:
                delattr(flags.FLAGS, flag.name)
    return {"Flags": sorted(found, key=lambda flag: flag.name)}


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Puts flags of other programs aside, which may have the same names."""
    values = flags.FLAGS
    others = [
        (name, flag)
        for name, found in values.flags_by_module_dict().items()
        for flag in found
        if not name.startswith("absl")
    ]
    for _, flag in others:
        delattr(values, flag.name)
    try:
        yield
    finally:
        for name, flag in others:
            values[flag.name] = flag
            values.register_flag_by_module(name, flag)


def _table(found: list) -> str:
    rows = []
    for flag in found:
        name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
        text = re.sub(r"\s+", " ", flag.help or "")
        text = re.sub(r"^<[^>]*>: ", "", text)  # choices, shown below
        if flag.default and "default" not in text:
            text += f" (default {flag.default_as_str})"
        choices = getattr(flag.parser, "enum_values", None)
        if choices:
            text = f"{', '.join(f'`{c}`' for c in choices)}. {text}"
        text = text.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{name}` | {text} |")
    return "\n".join(["| flag | what it does |", "| --- | --- |", *rows, ""])


def _page(command: str, module: ModuleType) -> str:
    title = command.removeprefix("python -m experiments.")
    lines = [f"# {title}\n", (module.__doc__ or "").strip() + "\n"]
    for group, found in flags_of(module).items():
        lines += [f"## {group}\n", _table(found)]
    return "\n".join(lines)


def commands() -> dict[str, str]:
    """Modules of all programs by their commands."""
    return OWN | {
        f"python -m experiments.{name}": f"experiments.{name}" for name in EXPERIMENTS
    }


def pages() -> Iterator[tuple[str, str, str]]:
    """Address, title and text of the page of every program."""
    rows = []
    made = []
    for command, name in commands().items():
        module = importlib.import_module(name)
        title = command.removeprefix("python -m experiments.")
        first = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        rows.append(f"| [`{title}`]({title}.md) | {first} |")
        made.append((f"programs/{title}.md", title, _page(command, module)))
    head = (pathlib.Path(__file__).parent / "programs.md").read_text()
    text = head + "\n".join([*rows, ""])
    yield "programs/index.md", "", text
    yield from made
