"""Former names of options, for stored configurations and error messages.

This is the only place that uses the former names.
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
    """Converts a stored configuration to the current names of options.

    Args:
      values: configuration stored by any version.
      names: names of all options of the program. If None, they are unknown: the old
        names are then kept in addition, for user-defined models.
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
