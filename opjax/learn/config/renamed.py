"""Names that options had before, in folders that are read and flags that are refused.

No other place knows them.
"""

from collections.abc import Collection, Mapping
from typing import Any

FORMATS = (0, 1)  # of configurations with the names before

# Options by the names of opjax 0.2.
FIELDS = {
    "features": "width",
    "decoder_features": "decoder_width",
    "fno_features": "fno_width",
}
# Flags by the names of opjax 0.2.
FLAGS = {**FIELDS, "mesh": "devices"}


def current(values: Mapping[str, Any], own: Collection[str] = ()) -> dict[str, Any]:
    """Returns a configuration of opjax 0.2 by the names that options have now.

    Args:
      values: that were stored.
      own: names of options that a program has itself, which are left alone.
    """
    return {
        name if name in own else FIELDS.get(name, name): value
        for name, value in values.items()
    }
