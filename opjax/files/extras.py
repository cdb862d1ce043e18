"""Imports of optional dependencies."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any


def optional(module: str, path: Path, *, extra: str = "experiments") -> Any:
    """Imports a library that is needed for a file.

    Args:
      module: name of the module.
      path: the file, for the message.
      extra: name of the extra of opjax that installs the library.

    Raises:
      ImportError: if the library is missing. The message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, path, extra) from error


def require(module: str, path: Path, *, extra: str) -> None:
    """Checks that a library is installed, without importing it.

    Args:
      module: name of the module.
      path: the file that needs it, for the message.
      extra: name of the extra of opjax that installs the library.

    Raises:
      ImportError: if the library is missing. The message names the extra.
    """
    if importlib.util.find_spec(module) is None:
        raise _missing(module, path, extra)


def _missing(module: str, path: Path, extra: str) -> ImportError:
    return ImportError(
        f"{path} needs {module.split('.')[0]}, which is not installed: "
        f'pip install "opjax[{extra}]", or convert the file to .npz.'
    )
