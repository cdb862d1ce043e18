"""What a folder says of the run it holds, maybe one of an earlier version."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

from opjax.learn import fields
from opjax.learn.json_files import to_json, write_text

_Config = TypeVar("_Config")
# What a run leaves that has begun to train, and what belongs to its one model.
_TRACES = ("metrics.jsonl", "checkpoints", "result.json")
_OF_MEMBER = (*_TRACES, "predictions.npz", "figures", "tensorboard")


def read_config(
    workdir: str | os.PathLike,
    cls: type[_Config],
    presets: Mapping[str, _Config] | None = None,
) -> _Config | None:
    """Reads the configuration of a run, to continue it by `--workdir` alone.

    Args:
      workdir: folder of the run, maybe of an earlier version.
      cls: dataclass of the configuration; lists become tuples.
      presets: by name; absent fields take the values of the run's.

    Returns:
      The configuration, or None if the folder has none.

    Raises:
      ValueError: if `config.json` is damaged or has unknown fields.
    """
    path = pathlib.Path(workdir)
    if not (path / "config.json").exists():
        return None

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    stored = _stored(path)
    base = (presets or {}).get(stored.get("preset", ""))
    values = fields.upgrade(stored, cls, base)
    names = {field.name for field in dataclasses.fields(cls)}  # pyright: ignore
    if names != values.keys():
        lacks = (
            f"lacks {sorted(names - values.keys())} and "
            if names - values.keys()
            else ""
        )
        raise ValueError(
            f"{path} holds a run of another program or version: its config.json {lacks}"
            f"has the unknown fields {sorted(values.keys() - names)}. Continue it with "
            "the program it was started with, or give another --workdir."
        )
    return cls(**{name: tuples(value) for name, value in values.items()})


def adopt(workdir: str | os.PathLike, cls: type) -> None:
    """Moves what an earlier version left of its only model to a folder of its own.

    Its result stays, as that of the run, and is the result of the member, too.

    Args:
      workdir: folder of a study, maybe of an earlier version.
      cls: dataclass of the configuration, with `models` and `seeds`.
    """
    path = pathlib.Path(workdir)
    if not all((path / name).exists() for name in ("config.json", "checkpoints")):
        return
    stored = fields.upgrade(_stored(path), cls)
    member = path / f"{stored['models'][0]}-{stored['seeds'][0]}"
    member.mkdir(exist_ok=True)
    for name in _OF_MEMBER:
        if (path / name).exists():
            (path / name).rename(member / name)
    if (member / "result.json").exists():
        write_text(path / "result.json", (member / "result.json").read_text())
    write_text(member / "config.json", (path / "config.json").read_text())


def begun(path: pathlib.Path) -> bool:
    """Whether a folder holds more than a configuration."""
    # Where training never began, for want of data say, there is nothing to lose.
    depths = ("", "*/", "*/*/")  # the run itself, members, members of its parts
    return any(any(path.glob(f"{d}{name}")) for d in depths for name in _TRACES)


def match(path: pathlib.Path, config: Any, base: Any) -> None:
    """Raises ValueError for another configuration; makes room for other members."""
    stored = to_json(fields.upgrade(_stored(path), type(config), base))
    now = to_json(dataclasses.asdict(config))
    differing = [
        name
        for name in sorted(stored.keys() | now.keys())
        if name not in stored or name not in now or stored[name] != now[name]
    ]
    declared = {field.name: field.metadata for field in dataclasses.fields(config)}
    refused = [
        f"{name}: {stored.get(name, '(absent)')!r} there, "
        f"{now.get(name, '(unknown)')!r} now"
        for name in differing
        if not declared.get(name, {}).get("members")
    ]
    if refused:
        raise ValueError(
            f"{path} holds a run with another configuration ({'; '.join(refused)}). "
            "Give another --workdir, or the same configuration to continue that run "
            "(--workdir alone does)."
        )
    if differing:  # other members: finished ones stay, the result is made anew
        (path / "result.json").unlink(missing_ok=True)


def _stored(path: pathlib.Path) -> dict[str, Any]:
    try:
        values = json.loads((path / "config.json").read_text())
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise ValueError(
            f"{path} has a damaged config.json ({error}). Restore it from a copy, "
            "delete it where nothing is to be continued, or give another --workdir."
        ) from error
    return values
