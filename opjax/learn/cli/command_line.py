"""Command lines from configurations: flags, presets, help, and errors in a sentence.

A program lists its hyper-parameters in a frozen dataclass of `option` fields and names
a few of its instances in `presets`. Flags without a value leave the preset as it is.
"""

import contextlib
import dataclasses
import json
import logging
import sys
import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from absl import app, flags
from absl import logging as absl_logging

from opjax.learn.cli import arenas, compiled
from opjax.learn.config import fields
from opjax.learn.run import devices, hosts, stopping
from opjax.learn.run.folder import read_config

_Config = TypeVar("_Config", bound=fields.Preset)
_HELP = ("--help", "-help", "--helpshort", "-helpshort", "-?", "-h")
_OUTPUT = "Folders and output"
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
) -> list[str]:
    """Defines one flag for each field, and those of every program.

    Call it under `if __name__ == "__main__"`: two programs imported by one process
    would otherwise define the same flags twice.

    Args:
      presets: configurations by name, all of one class with a field `preset`; the
        default is `fast`, where there is one, or else the class's own.
      program: its name, as in its folder.
      flag_values: where to define them.

    Returns:
      Titles of the groups, which absl takes for the modules of the flags.
    """
    cls = _class(presets)
    hints, groups = typing.get_type_hints(cls), dict[str, str]()
    for field in dataclasses.fields(cls):
        # The class that declared it first: a program may declare it anew.
        owner = [base for base in cls.__mro__ if field.name in vars(base)][-1]
        groups[field.name] = _title(cls, owner)
        place = _Place(flag_values, groups[field.name])
        _define(field, hints[field.name], presets, place)
    for alias, name in _ALIASES.items():
        if name in groups and alias not in groups:
            flags.DEFINE_alias(alias, name, flag_values, groups[name])
    _define_run_flags(f"runs/{program}-{_default(presets)}", _Place(flag_values))
    titles = [_title(cls, owner) for owner in cls.__mro__]
    return [title for title in titles if title in groups.values()] + [_OUTPUT]


class _Place(typing.NamedTuple):
    """Where flags are defined, and the group they are shown in."""

    flag_values: flags.FlagValues
    group: str = _OUTPUT

    def flag(self, define: Callable[..., object], *given: object) -> None:
        """Defines a flag."""
        define(*given, flag_values=self.flag_values, module_name=self.group)


@dataclasses.dataclass(frozen=True)
class RunFlags:
    """Values of the flags that every program has, see `Program.run`."""

    workdir: str | None
    cache_dir: str | None
    tensorboard: bool
    mesh: str
    coordinator: str
    num_processes: int | None
    process_id: int | None
    describe: bool


def _define_run_flags(folder: str, place: _Place) -> None:
    """Defines `RunFlags`."""
    place.flag(
        flags.DEFINE_string,
        "workdir",
        None,
        "Folder of the run. Given alone, it continues the run inside (default "
        f"{folder}, with the name of the preset and the flags that differ from the "
        "preset)",
    )
    place.flag(
        flags.DEFINE_string,
        "cache_dir",
        None,
        "Folder that keeps generated data (default $OPJAX_CACHE or ~/.cache/opjax)",
    )
    place.flag(
        flags.DEFINE_bool, "tensorboard", False, "Write TensorBoard files as well"
    )
    place.flag(flags.DEFINE_string, "mesh", "", devices.HELP)
    place.flag(flags.DEFINE_string, "coordinator", "", hosts.COORDINATOR_HELP)
    place.flag(
        flags.DEFINE_integer,
        "num_processes",
        None,
        "Number of processes of this run, see --coordinator",
    )
    place.flag(
        flags.DEFINE_integer,
        "process_id",
        None,
        "Index of this process, from 0, see --coordinator",
    )
    place.flag(
        flags.DEFINE_bool,
        "describe",
        False,
        "Print data, parameters, memory and time of the run without training",
    )


def read_run_flags(*, flag_values: flags.FlagValues = flags.FLAGS) -> RunFlags:
    """Returns the values of the flags that every program has."""

    def value(name: str) -> Any:
        return flag_values[name].value

    return RunFlags(
        workdir=value("workdir"),
        cache_dir=value("cache_dir"),
        tensorboard=value("tensorboard"),
        mesh=value("mesh"),
        coordinator=value("coordinator"),
        num_processes=value("num_processes"),
        process_id=value("process_id"),
        describe=value("describe"),
    )


def _title(cls: type, owner: type) -> str:
    """The title of the flags of a class, the first line of its documentation."""
    if owner is cls:
        return "This program"
    return (owner.__doc__ or owner.__name__).strip().splitlines()[0].rstrip(".")


def _define(
    field: dataclasses.Field[Any],
    hint: Any,
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
        same = len(set(shown)) == 1
        text += f" ({f'default {shown[0]}' if same else ', '.join(pairs)})"
    if several:
        parser = _TupleParser(typing.get_args(hint)[0])
        define = partial(flags.DEFINE, serializer=flags.CsvListSerializer(","))
        place.flag(define, parser, field.name, None, text)
    elif choices is not None:
        place.flag(flags.DEFINE_enum, field.name, None, list(choices), text)
    else:
        place.flag(_DEFINE[hint], field.name, None, text)


def _of_model(name: str, preset: fields.Preset) -> bool:
    return name.partition("_")[2] in getattr(preset, "models", ())


def read_flags(
    presets: Mapping[str, _Config], *, flag_values: flags.FlagValues = flags.FLAGS
) -> _Config:
    """Returns the preset that flags name, with their values, see `fields.preset_of`.

    If --workdir alone was given, it is the configuration that is stored there.
    """
    cls = _class(presets)
    values = {f.name: flag_values[f.name].value for f in dataclasses.fields(cls)}
    given = {name: value for name, value in values.items() if value is not None}
    if flag_values.workdir and not given:
        stored = read_config(flag_values.workdir, cls)
        if stored is not None:
            return stored
    models = tuple(given.get("models", ()))
    preset = fields.preset_of(presets, given.pop("preset", _default(presets)), models)
    return dataclasses.replace(preset, **given)


def start(work: Callable[[], dict[str, Any] | None], groups: Sequence[str]) -> None:
    """Parses the flags, works, prints the result as JSON; or --help of the groups."""
    if any(argument in _HELP for argument in sys.argv[1:]):
        doc = sys.modules["__main__"].__doc__ or ""
        print(doc, *map(flags.FLAGS.module_help, groups), sep="\n")
        sys.exit(0)

    def main(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
        compiled.keep()
        arenas.limit()
        with console(), stopping.at_once():
            result = work()
            if result is not None:
                print(json.dumps(result, allow_nan=False), flush=True)

    app.run(main)


@contextlib.contextmanager
def console() -> Generator[None]:
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
    except KeyboardInterrupt:  # the second one
        print("Stopped at once. The same command continues.", file=sys.stderr)
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
