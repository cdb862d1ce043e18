"""Pages of the command lines, from the definitions of their flags."""

import importlib
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from absl import flags

EXPERIMENTS = (
    "darcy elasticity plasticity airfoil pipe navier_stokes burgers darcy_inverse "
    "darcy_notch airfrans bodies rna sinusoid poisson_schwarz ablation scaling "
    "paper_runs"
).split()
# Command, module and a line of what it is for.
OWN = {
    "opjax-train": "opjax.learn.train",
    "opjax-predict": "opjax.learn.predict",
    "opjax-report": "opjax.learn.report",
}


def flags_of(module: Any) -> dict[str, list[flags.Flag]]:
    """Flags of a program by groups, apart from those of other programs."""
    from opjax.learn import options

    if hasattr(module, "PROGRAM"):
        values, program = flags.FlagValues(), module.PROGRAM
        groups = options.define_flags(
            program.presets, program=program.name, flag_values=values
        )
        found = values.flags_by_module_dict()
        return {group: found[group] for group in groups}
    found = flags.FLAGS.flags_by_module_dict().get(module.__name__, [])
    if not found:
        with mock.patch.object(options, "start"):
            module.main()  # defines its flags, and would start
        found = flags.FLAGS.flags_by_module_dict()[module.__name__]
        for flag in found:
            delattr(flags.FLAGS, flag.name)
    return {"Flags": list(found)}


def _table(found: list) -> str:
    rows = []
    for flag in sorted(found, key=lambda flag: flag.name):
        name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
        text = re.sub(r"\s+", " ", flag.help or "")
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
    text = (_HEAD + "\n".join(rows)) + "\n"
    yield "programs/index.md", "", text
    yield from made


_HEAD = """# Programs

Three commands work on your files, `opjax-train`, `opjax-predict` and `opjax-report`; the
others are benchmarks of the papers and run in a clone, `python -m experiments.NAME`.
Flags have the same names everywhere, and a program has only those that it uses. These
pages are made from the definitions of the flags, as is `--help`.

- `--preset` names a set of values, and other flags change it. Without one it is `fast`,
  where a program has it. `smoke` takes seconds, `quick` minutes; `paper` is the published
  set-up, which needs a GPU.
- `--describe` says what a run would do, its parameters, memory and time, and does not
  train.
- `--workdir` alone continues the run in that folder.
- The last line printed is one JSON object.

| program | what it does |
| --- | --- |
"""
