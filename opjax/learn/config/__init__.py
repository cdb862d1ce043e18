"""Options: fields of frozen dataclasses, declared once, in groups for programs."""

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
