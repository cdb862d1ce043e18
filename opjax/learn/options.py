"""Command lines from configurations: flags, presets, help, and errors in a sentence.

A program lists its hyper-parameters in a frozen dataclass of `option` fields and names
a few of its instances in `presets`. Flags without a value leave the preset as it is.
"""

import contextlib
import dataclasses
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import app, flags
from absl import logging as absl_logging

from opjax.learn import fields, stopping
from opjax.learn.fields import check, check_choice, option
from opjax.learn.help_text import COMMON, field_text, help_text
from opjax.learn.stored import read_config

__all__ = [
    "check",
    "check_choice",
    "console",
    "define_flags",
    "launch",
    "option",
    "read_flags",
]

_Config = TypeVar("_Config")
_HELP = ("--help", "-help", "--helpshort", "-helpshort", "-?", "-h")

# Makes --help list the flags under the program that asked for them.
flags.disclaim_key_flags()


class _ListParser(flags.ArgumentParser):
    """Turns text with commas into a tuple of numbers or words."""

    def __init__(self, element: type):
        super().__init__()
        self._element = element
        self.syntactic_help = "a comma separated list"

    def parse(self, argument: Any) -> Any:
        """Returns the tuple; raises ValueError for what is no element."""
        if not isinstance(argument, str):
            return tuple(argument)
        parts = [part.strip() for part in argument.split(",")]
        try:
            return tuple(self._element(part) for part in parts)
        except ValueError:
            name = {int: "whole numbers", float: "numbers"}[self._element]
            raise ValueError(f"must be {name} separated by commas") from None

    def flag_type(self) -> str:
        """Returns what absl calls the type."""
        return f"comma separated list of {self._element.__name__}"


def define_flags(
    presets: Mapping[str, Any], *, flag_values: flags.FlagValues = flags.FLAGS
) -> None:
    """Defines one flag for each field, and those of every program.

    Call it under `if __name__ == "__main__"`: two programs imported by one process
    would otherwise define the same flags twice.

    Args:
      presets: configurations by name, all of one class with a field `preset`; the
        default is the class's own.
      flag_values: where to define them.
    """
    kinds = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    given: Any = {"flag_values": flag_values}
    cls = _class(presets)
    for field in dataclasses.fields(cls):
        element, several = fields.kind(cls, field.name)
        choices = presets if field.name == "preset" else field.metadata["choices"]
        text = field_text(field, presets)
        if several:
            serializer: Any = flags.CsvListSerializer(",")
            parser = _ListParser(element)
            flags.DEFINE(parser, field.name, None, text, flag_values, serializer)
        elif choices is not None:
            flags.DEFINE_enum(field.name, None, list(choices), text, **given)
        else:
            define: Any = kinds[element]
            define(field.name, None, text, **given)
    for alias, name in fields.aliases(cls).items():
        flags.DEFINE_alias(alias, name, **given)
    for name, text in COMMON.items():
        define = flags.DEFINE_string if name.endswith("dir") else flags.DEFINE_bool
        define(name, None if name.endswith("dir") else False, text, **given)


def read_flags(
    presets: Mapping[str, _Config], *, flag_values: flags.FlagValues = flags.FLAGS
) -> _Config:
    """Builds the configuration that the flags ask for.

    Args:
      presets: as given to `define_flags`.
      flag_values: parsed flags.

    Returns:
      The preset with the given flags in place of its values, or the configuration
      stored in --workdir if no other flag was given.

    Raises:
      ValueError: if the configuration refuses a value.
    """
    cls: Any = _class(presets)
    values = {f.name: flag_values[f.name].value for f in dataclasses.fields(cls)}
    given = {name: value for name, value in values.items() if value is not None}
    if flag_values.workdir and not given:
        stored = read_config(flag_values.workdir, cls, presets)
        if stored is not None:
            return stored
    preset = presets[given.get("preset", cls.preset)]
    return dataclasses.replace(preset, **given)  # pyright: ignore


def launch(
    presets: Mapping[str, Any],
    run: Callable[..., Any],
    *,
    program: str = "",
    describe: Callable[..., dict[str, Any]] | None = None,
) -> None:
    """Runs a program on its flags; does not return.

    Args:
      presets: as for `define_flags`.
      run: `run(config, workdir=..., cache_dir=..., tensorboard=...)`.
      program: name of the program, as in its folder.
      describe: `describe(config, cache_dir=...)`, what --describe prints.
    """
    module = sys.modules["__main__"]
    if any(argument in _HELP for argument in sys.argv[1:]):
        print(module.__doc__ or "", help_text(presets, program=program), sep="\n")
        sys.exit(0)

    def main(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
        given = flags.FLAGS
        with console():
            config = read_flags(presets)
            if given.describe:
                assert describe is not None
                result = describe(config, cache_dir=given.cache_dir)
                print(json.dumps(result, allow_nan=False), flush=True)
                return
            run(
                config,
                workdir=given.workdir,
                cache_dir=given.cache_dir,
                tensorboard=given.tensorboard,
            )

    define_flags(presets)
    app.run(main)


@contextlib.contextmanager
def console() -> Iterator[None]:
    """Makes the output of a program readable: plain progress, errors in a sentence.

    Bad input and failing disks are reported in full by the messages of their errors;
    --verbosity=1 shows the traceback as well, and what JAX has to say.
    """
    verbose = absl_logging.level_debug()
    if not verbose:
        absl_logging.get_absl_handler().setFormatter(logging.Formatter("%(message)s"))
        logging.getLogger("jax").setLevel(logging.WARNING)
    try:
        yield
    except stopping.Stopped as stopped:
        print(f"{stopped} The same command continues.", file=sys.stderr)
        sys.exit(stopping.STATUS)
    except (
        ImportError,
        OSError,
        RuntimeError,
        ValueError,
        FloatingPointError,
    ) as error:
        if verbose:
            raise
        sys.exit(f"{type(error).__name__}: {error}\n(--verbosity=1 shows where.)")


def _class(presets: Mapping[str, Any]) -> type:
    return type(next(iter(presets.values())))
