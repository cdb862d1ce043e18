"""The manifest of a checkpoint: its metadata, and the checksum of every file."""

import json
import pathlib
import zlib
from typing import Any

from opjax import _formats
from opjax._trees import Json

NAME = "opjax_manifest.json"
_KEYS = {"step", "metadata", "crc32"}  # the first manifests had no "own" and "format"


def text(path: pathlib.Path, step: int, metadata: Json) -> str:
    """Returns the text of the manifest for a checkpoint on disk.

    Args:
      path: folder of the checkpoint.
      step: step of the checkpoint.
      metadata: JSON object.
    """
    return signed(
        {
            "step": step,
            "metadata": metadata,
            "format": _formats.CHECKPOINT,
            "crc32": checksums(path),
        }
    )


def signed(values: Json) -> str:
    """Returns the text of a manifest, with the CRC-32 of its values under `own`."""
    stored = json.loads(json.dumps(values))  # as they will be read
    return json.dumps(stored | {"own": own(stored)}, indent=1)


def own(values: Json) -> int:
    """Returns the CRC-32 of values that were read from JSON."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def read(path: pathlib.Path) -> dict[str, Any]:
    """Reads a manifest: `step`, `metadata` and `crc32`, the checksums of the files.

    Its own checksum is compared first, for any format, so that damage is not reported
    as a newer format.

    Args:
      path: folder of the checkpoint.

    Raises:
      OSError: if its values have changed since they were written.
      ValueError: if it is not JSON, or has a newer format.
    """
    file = path / NAME
    values = json.loads(file.read_text())
    if values.pop("own", None) not in (None, own(values)):
        raise OSError("its manifest has changed")
    known = values.pop("format", 0)
    _formats.check(file, known, _formats.CHECKPOINT, what="checkpoints")
    if set(values) != _KEYS:
        raise OSError("its manifest has changed")
    return values


def checksums(path: pathlib.Path) -> dict[str, int]:
    """Returns the CRC-32 of every file, because Orbax detects only some damage.

    Args:
      path: folder of the checkpoint.
    """
    return {
        file.relative_to(path).as_posix(): zlib.crc32(file.read_bytes())
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.startswith(NAME)
    }
