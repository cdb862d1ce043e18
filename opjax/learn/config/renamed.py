"""Names that options had before, in folders that are read and flags that are refused.

No other place knows them.
"""

from collections.abc import Collection, Mapping
from typing import Any

# Options by the names of opjax 0.2.
FIELDS = {
    "features": "width",
    "decoder_features": "decoder_width",
    "fno_features": "fno_width",
}
# Flags by the names of opjax 0.2.
FLAGS = {**FIELDS, "mesh": "devices"}


def current(
    values: Mapping[str, Any], names: Collection[str] | None = None
) -> dict[str, Any]:
    """Returns a stored configuration by the names that options have now.

    Args:
      values: that any version stored.
      names: of all options of the program. If None they are not known: then the old
        names are kept beside the new ones, for models of your own.
    """
    current = dict(values)
    for old, new in FIELDS.items():
        if old not in current or new in current:
            continue
        if names is None:
            current[new] = current[old]
        elif new in names and old not in names:
            current[new] = current.pop(old)
    return current
