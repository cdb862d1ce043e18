"""Training, resuming, comparing and predicting with operators, on any data.

`Program` makes a command line of presets and a `Task`; `regression` is the ordinary
task, of `Splits` of samples; `fit` trains a model on it; `load` reads what a run has
learned. Models are named in `operators.REGISTRY`, figures in `figures.FIGURES`: a line
for each.

`--mesh=points:4,batch:2` of a program, `Settings.mesh`, splits the points of a sample
and the samples of a batch over devices, see `opjax.sharding`: on a CPU over its cores,
each of them a device with threads of its own. `batch` is for every model. These may be
the devices of several processes, `--coordinator`, see `hosts`.
"""

from opjax.datasets.samples import Splits
from opjax.learn.benchmark import (
    FAST,
    FLARE,
    GNOT,
    LNO,
    PAPER,
    SMOKE,
    BenchmarkOptions,
    FieldOptions,
    benchmark,
    published,
    quick,
)
from opjax.learn.config import (
    DataOptions,
    ModelOptions,
    Options,
    RunOptions,
    SizeOptions,
    StepOptions,
    TrainingOptions,
    UpdateOptions,
)
from opjax.learn.field import Field
from opjax.learn.fields import option
from opjax.learn.fitting import Fitted, Settings, fit
from opjax.learn.members import Finished, Report
from opjax.learn.program import Program
from opjax.learn.stopping import Stopped
from opjax.learn.supervised import regression
from opjax.learn.task import Task
from opjax.learn.trained import Trained, load
from opjax.replicas import Replicas

__all__ = [
    "FAST",
    "FLARE",
    "GNOT",
    "LNO",
    "PAPER",
    "SMOKE",
    "BenchmarkOptions",
    "DataOptions",
    "Field",
    "FieldOptions",
    "Finished",
    "Fitted",
    "ModelOptions",
    "Options",
    "Program",
    "Replicas",
    "Report",
    "RunOptions",
    "Settings",
    "SizeOptions",
    "Splits",
    "StepOptions",
    "Stopped",
    "Task",
    "Trained",
    "TrainingOptions",
    "UpdateOptions",
    "benchmark",
    "fit",
    "load",
    "option",
    "published",
    "quick",
    "regression",
]
