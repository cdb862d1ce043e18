"""Command-line flags from the fields of a configuration, so that each is written once.

A program lists its hyper-parameters in a frozen dataclass of `option` fields and names
a few of its instances in `presets`. Flags without a value leave the preset as it is.
"""

import contextlib
import dataclasses
import logging
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import app, flags
from absl import logging as absl_logging

from opjax.learn.folder import stored_config

_Config = TypeVar("_Config")

# Makes --help list the flags under the program that asked for them.
flags.disclaim_key_flags()


def option(
    default: Any,
    text: str,
    *,
    minimum: float = -math.inf,
    above: float = -math.inf,
    maximum: float = math.inf,
    below: float = math.inf,
) -> Any:
    """Declares a field of a configuration.

    Args:
      default: a bool, int, float or str; its type is the type of the flag.
      text: help text of the flag.
      minimum: smallest value of a number.
      above: a number must be larger than this.
      maximum: largest value of a number.
      below: a number must be smaller than this.

    Returns:
      A dataclass field.
    """
    limits = {"at least": minimum, "above": above, "at most": maximum, "below": below}
    return dataclasses.field(default=default, metadata={"text": text, "limits": limits})


def check(config: Any) -> None:
    """Raises ValueError if a number of a configuration is not finite or out of range.

    Args:
      config: dataclass of `option` fields.
    """
    for field in dataclasses.fields(config):
        value, limits = getattr(config, field.name), field.metadata["limits"]
        if isinstance(value, str):
            continue
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


def define_flags(
    presets: Mapping[str, Any], *, flag_values: flags.FlagValues = flags.FLAGS
) -> None:
    """Defines one flag for each field, and --workdir, --cache_dir and --tensorboard.

    A field `models` is also --model.

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
    for field in dataclasses.fields(_class(presets)):
        values = {name: getattr(preset, field.name) for name, preset in presets.items()}
        if field.name == "preset":
            note = f"{', '.join(presets)}; default {field.default}"
        elif len(set(values.values())) == 1:
            note = f"default {field.default!r}"
        else:
            note = ", ".join(f"{name} {value!r}" for name, value in values.items())
        define: Any = kinds[type(field.default)]
        define(field.name, None, f"{field.metadata['text']} ({note})", **given)
    if "models" in {field.name for field in dataclasses.fields(_class(presets))}:
        flags.DEFINE_alias("model", "models", **given)
    flags.DEFINE_string(
        "workdir",
        None,
        "Folder of the run; alone, it continues the run it holds. "
        "(default runs/<program>-<preset>-<model>-<seed>)",
        **given,
    )
    flags.DEFINE_string(
        "cache_dir",
        None,
        "Folder of generated data. (default $OPJAX_CACHE or ~/.cache/opjax)",
        **given,
    )
    flags.DEFINE_bool("tensorboard", False, "Write TensorBoard files too.", **given)


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
      ValueError: if the preset is unknown or the configuration refuses a value.
    """
    cls: Any = _class(presets)
    values = {f.name: flag_values[f.name].value for f in dataclasses.fields(cls)}
    given = {name: value for name, value in values.items() if value is not None}
    if flag_values.workdir and not given:
        stored = stored_config(flag_values.workdir, cls)
        if stored is not None:
            return stored
    name = given.get("preset", cls.preset)
    check_choice("preset", name, presets)
    return dataclasses.replace(presets[name], **given)  # pyright: ignore


def launch(presets: Mapping[str, Any], run: Callable[..., Any]) -> None:
    """Runs a program on its flags; does not return.

    Args:
      presets: as for `define_flags`.
      run: `run(config, workdir=..., cache_dir=..., tensorboard=...)`.
    """

    def main(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
        with console():
            run(
                read_flags(presets),
                workdir=flags.FLAGS.workdir,
                cache_dir=flags.FLAGS.cache_dir,
                tensorboard=flags.FLAGS.tensorboard,
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
