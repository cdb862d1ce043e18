"""Options: declared once as fields of frozen dataclasses, in groups for programs."""

from opjax.learn.config.fields import option
from opjax.learn.config.groups import (
    DataOptions,
    ModelOptions,
    Options,
    RunOptions,
    SizeOptions,
    StepOptions,
    TrainingOptions,
    UpdateOptions,
)

__all__ = [
    "DataOptions",
    "ModelOptions",
    "Options",
    "RunOptions",
    "SizeOptions",
    "StepOptions",
    "TrainingOptions",
    "UpdateOptions",
    "option",
]
