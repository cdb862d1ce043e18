"""Names of trained operators: folders, operators that ship with opjax, and the hub."""

import importlib
import os
import pathlib

import opjax
from opjax.learn.predict import published

HUB = "hf://"
_SHIPPED = pathlib.Path(opjax.__file__).parent / "operators"


def list_operators() -> dict[str, str]:
    """Lists the trained operators that ship with opjax.

    Returns:
      One sentence for each name, for `learn.load(name)`.

    Examples:
      >>> from opjax import learn
      >>> "darcy" in learn.list_operators()
      True
    """
    return {
        path.parent.name: published.read_config(path.parent).get("summary", "")
        for path in sorted(_SHIPPED.glob(f"*/{published.CONFIG}"))
    }


def resolve(operator: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the folder of an operator.

    Args:
      operator: a folder; the name of an operator that ships with opjax, if no file or
        folder has this name; or `hf://owner/name`, or `hf://owner/name@revision`, which
        is downloaded with `huggingface_hub`.

    Raises:
      ImportError: if `huggingface_hub` is needed but not installed.
      ValueError: if the text after `hf://` is not `owner/name`.
    """
    text = os.fspath(operator)
    if text.startswith(HUB):
        return _downloaded(text)
    return _SHIPPED / text if is_name(text) else pathlib.Path(text).expanduser()


def is_name(text: str) -> bool:
    """Whether a text is no path: on the hub, or shipped if no folder has this name."""
    path = pathlib.Path(text).expanduser()
    shipped = path.name == text and (_SHIPPED / text).is_dir()
    return text.startswith(HUB) or (shipped and not path.exists())


def hint(path: pathlib.Path) -> str:
    """Returns what a message adds if a folder has no operator."""
    names = ", ".join(list_operators())
    if path.name in list_operators():
        return (
            f"; this folder takes precedence over the operator {path.name} that ships "
            "with opjax, which learn.load finds from any other directory"
        )
    return f", or the name of an operator that ships with opjax: {names}"


def _downloaded(text: str) -> pathlib.Path:
    name, _, revision = text.removeprefix(HUB).partition("@")
    if len(name.split("/")) != 2 or not all(name.split("/")):
        raise ValueError(
            f"{text!r} must be {HUB}owner/name or {HUB}owner/name@revision."
        )
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(
            f"{text} needs huggingface_hub, which is not installed: "
            "pip install huggingface_hub."
        ) from error
    found = hub.snapshot_download(
        repo_id=name, revision=revision or None, allow_patterns=list(published.FILES)
    )
    return pathlib.Path(found)
