"""File reading options of a run, from the values of its flags."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from opjax.files import ReadOptions
from opjax.learn.config.quantities import parse
from opjax.learn.config.scales import numbers_of

# Flags of other names than the options that they give.
_FLAGS = {
    "features": "feature_names",
    "target": "target_names",
    "scalars": "scalar_names",
}


def read_options(config: Mapping[str, Any]) -> ReadOptions:
    """Returns the reading options of a run.

    Args:
      config: values by flag name. A missing value, as in runs of earlier versions, or
        an empty one stands for the default.

    Raises:
      ValueError: as from `ReadOptions`.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(ReadOptions):
        value = config.get(_FLAGS.get(field.name, field.name))
        values[field.name] = value or field.default
    asked = parse(config.get("quantities") or "")
    values["facets"] = any(one.is_over_facets for one in asked)
    values["numbers"] = numbers_of(config)
    return ReadOptions(**values)
