"""Command lines from configurations: flags, presets, help and error messages.

A program defines its hyper-parameters in a frozen dataclass of `option` fields, and
names some instances of it in `presets`. A flag that is not given keeps the value of the
preset.
"""

import contextlib
import dataclasses
import json
import logging
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from absl import app, flags
from absl import logging as absl_logging

from opjax.learn.cli import arenas, compiled, flag_names, help_page
from opjax.learn.config import (
    DataOptions,
    ModelOptions,
    RunOptions,
    SizeOptions,
    StepOptions,
    TrainingOptions,
    UpdateOptions,
    fields,
    option,
)
from opjax.learn.run import devices, hosts, stopping
from opjax.learn.run.folder import read_config

_Config = TypeVar("_Config", bound=fields.Preset)
_Options = TypeVar("_Options", bound=fields.Configuration)
_HELP = ("--help", "-help", "--helpshort", "-helpshort", "-?", "-h")
_HELP_FULL = ("--helpfull", "-helpfull")
_OUTPUT = "Folders and output"
_FOLDER = "{folder}"  # in help, the default folder of a run
_HIDDEN = "Other names of flags"
# Groups in the order of --help; those of a program come first.
_ORDER = (
    DataOptions,
    RunOptions,
    ModelOptions,
    SizeOptions,
    TrainingOptions,
    StepOptions,
    UpdateOptions,
)
_REPORTED = (
    ImportError,
    OSError,
    RuntimeError,
    ValueError,
    FloatingPointError,
    MemoryError,
)
_DEFINE: dict[type, Callable[..., object]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
# Other names of flags.
_ALIASES = {
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


class _TupleParser(flags.ArgumentParser[tuple[Any, ...]]):
    """A tuple of elements of one type, separated by commas."""

    def __init__(self, element: Callable[[str], object]):
        super().__init__()
        self._element, self._list = element, flags.ListParser()
        self.syntactic_help = self._list.syntactic_help

    def parse(self, argument: str) -> tuple[object, ...]:
        """Returns the tuple; raises ValueError for what is no element."""
        return tuple(map(self._element, self._list.parse(argument)))

    def flag_type(self) -> str:
        """Returns what help says of it."""
        return self._list.flag_type()


def define_flags(
    presets: Mapping[str, fields.Preset],
    *,
    program: str = "",
    flag_values: flags.FlagValues = flags.FLAGS,
) -> dict[str, list[str]]:
    """Defines one flag per field, and the flags that all programs share.

    Call it under `if __name__ == "__main__"`. Otherwise a process that imports two
    programs defines the same flags twice.

    Args:
      presets: configurations by name, all of one class with a field `preset`. The
        default is `fast` if there is one, otherwise the default of the class.
      program: name of the program, as in its folder.
      flag_values: the absl flag values to define them in.

    Returns:
      Names of the flags by group title, both in the order of `--help`.
    """
    cls = _class(presets)
    hints, groups = typing.get_type_hints(cls), dict[str, list[str]]()
    for title, options in _grouped(cls).items():
        place = _Place(flag_values, title)
        for field in options:
            _define(field, hints[field.name], presets, place)
        groups[title] = [field.name for field in options]
    named = {name for names in groups.values() for name in names}
    for alias, name in _ALIASES.items():
        if name in named and alias not in named:
            flags.DEFINE_alias(alias, name, flag_values, _HIDDEN)
    folder = f"runs/{program}-{_default(presets)}"
    groups[_OUTPUT] = _define_all(RunFlags, _Place(flag_values), folder)
    return groups


def _grouped(cls: type[fields.Preset]) -> dict[str, list[dataclasses.Field[Any]]]:
    """Fields with flags of their own by titles: data, model, size, training."""

    def owner(field: dataclasses.Field[Any]) -> type:
        # The class that declared it first: a program may declare it anew.
        return [base for base in cls.__mro__ if field.name in vars(base)][-1]

    def place(owner: type) -> int:
        return _ORDER.index(owner) if owner in _ORDER else -1

    owners = sorted(cls.__mro__, key=place)
    groups = {_title(cls, one): list[dataclasses.Field[Any]]() for one in owners}
    for field in dataclasses.fields(cls):
        if not field.metadata["within"]:
            groups[_title(cls, owner(field))].append(field)
    return {title: options for title, options in groups.items() if options}


class _Place(typing.NamedTuple):
    """Where flags are defined, and the group they are shown in."""

    flag_values: flags.FlagValues
    group: str = _OUTPUT

    def flag(self, define: Callable[..., object], *given: object) -> None:
        """Defines a flag."""
        define(*given, flag_values=self.flag_values, module_name=self.group)


@dataclasses.dataclass(frozen=True)
class RunFlags:
    """Values of the flags that all programs share, see `Program.run`."""

    workdir: str | None = option(
        None,
        f"Folder of the run. Without other flags, it continues this run (default "
        f"{_FOLDER}, with the name of the preset and the flags that differ from the "
        "preset)",
    )
    cache_dir: str | None = option(
        None, "Folder for generated data (default $OPJAX_CACHE or ~/.cache/opjax)"
    )
    tensorboard: bool = option(False, "Write TensorBoard files as well")
    devices: str = option("", devices.HELP)
    coordinator: str = option("", hosts.COORDINATOR_HELP)
    num_processes: int | None = option(
        None, "Number of processes of this run, see --coordinator"
    )
    process_id: int | None = option(
        None, "Index of this process, from 0, see --coordinator"
    )
    describe: bool = option(
        False, "Print data, parameters, memory and time of the run without training"
    )


def _title(cls: type, owner: type) -> str:
    """The title of the flags of a class, the first line of its documentation."""
    if owner is cls:
        return "This program"
    return (owner.__doc__ or owner.__name__).strip().splitlines()[0].rstrip(".")


def _define(
    field: dataclasses.Field[Any],
    hint: object,
    presets: Mapping[str, fields.Preset],
    place: _Place,
) -> None:
    """Defines the flag of a field; its help says what the presets have."""
    choices, text = field.metadata["choices"], field.metadata["text"]
    several = typing.get_origin(hint) is tuple
    if several and choices is not None:  # absl shows those of single values
        text += f": {', '.join(choices)}"
    if field.name == "preset":
        choices, text = tuple(presets), f"{text} (default {_default(presets)})"
    else:
        # Without those of single models, such as `paper_fno`: there are too many.
        names = [k for k, p in presets.items() if not _of_model(k, p)]
        values = [getattr(presets[name], field.name) for name in names]
        shown = [fields.spell(v) if several else repr(v) for v in values]
        pairs = [f"{name} {value}" for name, value in zip(names, shown, strict=True)]
        if len(set(shown)) > 1:
            text += f" ({', '.join(pairs)})"
        elif shown[0] not in ("", "''"):  # the text says what empty means
            text += f" (default {shown[0]})"
    _define_flag(field.name, hint, text, place, choices=choices)


def _define_flag(
    name: str,
    hint: object,
    text: str,
    place: _Place,
    *,
    choices: Collection[str] | None = None,
    default: fields.Default | None = None,
    minimum: float = -math.inf,
) -> None:
    """Defines a flag of the type of an annotation: `float`, `int | None`, `Paths`."""
    if element := _element(hint):
        parser = _TupleParser(element)
        define = partial(flags.DEFINE, serializer=flags.CsvListSerializer(","))
        place.flag(define, parser, name, default or None, text)
    elif choices is not None:
        place.flag(flags.DEFINE_enum, name, default, list(choices), text)
    elif minimum > -math.inf:
        define = partial(_DEFINE[_plain(hint)], lower_bound=minimum)
        place.flag(define, name, default, text)
    else:
        place.flag(_DEFINE[_plain(hint)], name, default, text)


def _element(hint: object) -> type | None:
    """The type of the elements, if a flag has several: of a tuple or a sequence."""
    several = (tuple, Sequence)
    for one in typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
        if typing.get_origin(one) in several:
            return _plain(typing.get_args(one)[0])
    return None


def _plain(hint: Any) -> type:
    """The type of the values of a flag: the first one of a union that a flag has."""
    if isinstance(hint, types.UnionType):
        return next(one for one in typing.get_args(hint) if one in _DEFINE)
    return hint


def _of_model(name: str, preset: fields.Preset) -> bool:
    return name.partition("_")[2] in getattr(preset, "models", ())


def read_flags(
    presets: Mapping[str, _Config], *, flag_values: flags.FlagValues = flags.FLAGS
) -> _Config:
    """Returns the preset with the values of the flags, see `fields.preset_of`.

    If only --workdir is given, returns the configuration that the folder contains.
    """
    cls = _class(presets)
    named = [f.name for f in dataclasses.fields(cls) if not f.metadata["within"]]
    values = {name: flag_values[name].value for name in named}
    chosen = {name: value for name, value in values.items() if value is not None}
    if flag_values.workdir and not chosen:
        stored = read_config(flag_values.workdir, cls)
        if stored is not None:
            return stored
    models = tuple(chosen.get("models", ()))
    preset = fields.preset_of(presets, chosen.pop("preset", _default(presets)), models)
    return dataclasses.replace(preset, **chosen)


def launch(
    cls: type[_Options],
    run: Callable[[_Options], dict[str, Any] | None],
    *,
    doc: str | None,
    continues: bool = False,
    operands: str = "",
) -> None:
    """Runs a program without presets on its flags; does not return.

    Args:
      cls: class of the options.
      run: the function to run with the options. Its result is printed as JSON, unless
        it is None.
      doc: first paragraph of --help.
      continues: whether the same command resumes a stopped run.
      operands: name of the option that receives arguments without a flag, if any.
    """
    names = define_options(cls)
    start(
        lambda: run(read_options(cls)),
        {"Flags": names},
        doc=doc,
        continues=continues,
        operands=operands,
    )


def define_options(
    cls: type[fields.Configuration], *, flag_values: flags.FlagValues = flags.FLAGS
) -> list[str]:
    """Defines one flag for each option of a program without presets.

    Args:
      cls: class of the options.
      flag_values: the absl flag values to define them in.

    Returns:
      Names of the flags, in the order of `--help`.
    """
    return _define_all(cls, _Place(flag_values, cls.__module__))


def _define_all(
    cls: type[fields.Configuration], place: _Place, folder: str = ""
) -> list[str]:
    """Defines the flags of a class, whose help may name the default folder."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        needed = field.default is dataclasses.MISSING
        _define_flag(
            field.name,
            hints[field.name],
            field.metadata["text"].replace(_FOLDER, folder),
            place,
            choices=field.metadata["choices"],
            default=None if needed else typing.cast(Any, field.default),
            minimum=field.metadata["limits"]["at least"],
        )
        if needed:
            flags.mark_flag_as_required(field.name, place.flag_values)
    return [field.name for field in dataclasses.fields(cls)]


def read_options(
    cls: type[_Options], *, flag_values: flags.FlagValues = flags.FLAGS
) -> _Options:
    """Returns the options with the values of their flags, see `define_options`."""
    values = {f.name: flag_values[f.name].value for f in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if value is not None})


def start(
    work: Callable[[], dict[str, Any] | None],
    groups: Mapping[str, Sequence[str]],
    *,
    doc: str | None = None,
    notes: str = "",
    within: Collection[str] = (),
    continues: bool = True,
    operands: str = "",
) -> None:
    """Parses the flags, runs, and prints the result as JSON; or prints --help.

    Args:
      work: the function to run.
      groups: flag names by group title, for --help.
      doc: first paragraph of --help; by default the docstring of the main module.
      notes: last paragraph of --help.
      within: options that are set with --model_options.
      continues: whether the same command resumes a stopped run.
      operands: name of the flag that receives arguments without a flag.
    """
    full = any(argument in _HELP_FULL for argument in sys.argv[1:])
    if full or any(argument in _HELP for argument in sys.argv[1:]):
        text = doc or sys.modules["__main__"].__doc__ or ""
        page = help_page.page(text, groups, flags.FLAGS, full=full)
        help_page.show("\n\n".join([page, notes]))
        sys.exit(0)

    def main(argv: Sequence[str]) -> None:
        if operands and len(argv) > 1 and not flags.FLAGS[operands].present:
            flags.FLAGS[operands].value = ",".join(argv[1:])
        elif len(argv) > 1:
            sys.exit(flag_names.unexpected(argv[1:], sys.argv[1:]))
        compiled.keep()
        arenas.limit()
        with console(continues=continues), stopping.at_once(continues=continues):
            result = work()
            if result is not None:
                print(json.dumps(result, allow_nan=False), flush=True)

    app.run(main, flags_parser=partial(parse, within=within))


def parse(
    arguments: Sequence[str],
    *,
    within: Collection[str] = (),
    flag_values: flags.FlagValues = flags.FLAGS,
) -> list[str]:
    """Parses the flags; exits with an error message if one is wrong.

    Args:
      arguments: name of the program and its arguments.
      within: options that are set with --model_options.
      flag_values: the flags.

    Returns:
      The remaining arguments.
    """
    try:
        return flag_values(arguments)
    except flags.UnrecognizedFlagError as error:
        known = [name for name in flag_values if name not in _ALIASES]
        hint = flag_names.meant(error.flagname, known, within)
        what = f"Unknown flag --{error.flagname}. {hint}".rstrip()
    except flags.Error as error:
        what = str(error)
    sys.exit(f"{what}\n(--help lists all flags.)")


@contextlib.contextmanager
def console(*, continues: bool = True) -> Generator[None]:
    """Makes the output readable: short progress lines and one-sentence errors.

    Bad input and disk errors are reported by their message. --verbosity=1 also shows
    the traceback and JAX's log.

    Args:
      continues: whether the same command resumes a stopped run.
    """
    again = stopping.again(continues)
    verbose = absl_logging.level_debug()
    if not verbose:
        absl_logging.get_absl_handler().setFormatter(logging.Formatter("%(message)s"))
        logging.getLogger("jax").setLevel(logging.WARNING)
    try:
        yield
    except stopping.Stopped as stopped:
        print(f"{stopped} {again}", file=sys.stderr)
        sys.exit(stopping.STATUS)
    except KeyboardInterrupt:  # the second one
        print(f"Stopped at once. {again}", file=sys.stderr)
        sys.exit(stopping.STATUS)
    except _REPORTED as error:
        if verbose:
            raise
        sys.exit(f"{type(error).__name__}: {error}\n(--verbosity=1 shows where.)")


def _default(presets: Mapping[str, fields.Preset]) -> str:
    """The name of the preset that is taken without one."""
    if "fast" in presets:
        return "fast"
    (own,) = (f for f in dataclasses.fields(_class(presets)) if f.name == "preset")
    return str(own.default)


def _class(presets: Mapping[str, _Config]) -> type[_Config]:
    return type(next(iter(presets.values())))
