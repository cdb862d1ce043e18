"""Prints --help and --helpfull: usage, groups of flags, and the models."""

import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

_WIDTH = 80
# Flags that --help names and only --helpfull explains: most runs leave them alone.
_SELDOM = frozenset(
    [
        *("num_train", "num_validation", "num_test", "stream_memory"),
        *("unroll_gradient", "time_target", "rollout_steps", "validation_steps"),
        *("reference_points", "shared_basis", "initial_kernels", "rematerialize"),
        *("storage_dtype", "compute_dtype", "microbatch", "num_buckets"),
        *("pct_start", "div_factor", "final_div_factor", "cycle_momentum"),
        *("beta1", "beta2", "eps", "checkpoint_every"),
        *("coordinator", "num_processes", "process_id"),
    ]
)


def page(
    doc: str,
    groups: Mapping[str, Sequence[str]],
    flag_values: flags.FlagValues,
    *,
    full: bool = True,
) -> str:
    """Returns the help page of a program.

    Args:
      doc: description of the program, with an example.
      groups: flag names by group title, in the order of the page.
      flag_values: the absl flag values.
      full: explain rarely used flags too, instead of only listing them.
    """
    sections = [doc.strip(), f"Usage: {_command()} [--flag=value ...]"]
    for title, names in groups.items():
        left = [name for name in names if name in _SELDOM and not full]
        shown = [_shown(flag_values[name]) for name in names if name not in left]
        if left:
            found = ", ".join(f"--{name}" for name in left)
            shown.append(_wrapped("  Seldom needed, see --helpfull:", found))
        sections.append("\n".join([f"{title}:", *shown]))
    return "\n\n".join(sections)


def show(text: str) -> None:
    """Prints a text; ignores a reader that closes the pipe early, such as `head`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:  # nor is there one when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def listed(title: str, rows: Mapping[str, str]) -> str:
    """Returns a section that lists names with descriptions."""
    parts = [_wrapped(f"  {name}:", text) for name, text in rows.items()]
    return "\n".join([f"{title}:", *parts])


def _command() -> str:
    """How the program was started."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is None or spec.name == "__main__":
        return sys.argv[0].rpartition("/")[2]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def _shown(flag: "flags.Flag[Any]") -> str:
    """A flag, the kind of its value, and its help."""
    if flag.boolean:
        head = f"--[no]{flag.name}"
    elif isinstance(flag, flags.EnumFlag):
        head = f"--{flag.name}={'|'.join(flag.parser.enum_values)}"
    else:
        names = {"int": "N", "float": "X", "comma separated list of strings": "A,B"}
        head = f"--{flag.name}={names.get(flag.flag_type(), 'TEXT')}"
    text = re.sub(r"\s+", " ", re.sub(r"^<[^>]*>: ", "", flag.help or ""))
    if flag.default not in (None, "", []) and "default" not in text:
        text += f" (default {flag.default})"
    return _wrapped(f"  {head}", text)


def _wrapped(head: str, text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH - 6)
    return "\n".join([head, *(f"      {line}" for line in lines)])
