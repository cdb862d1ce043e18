"""Training, resuming, comparing and predicting with operators, on any data.

`Program` makes a command line of presets and a `Task`; `regression` is the ordinary
task, of `Splits` of samples; `fit` trains a model on it; `load` reads what a run has
learned. Models are named in `operators.REGISTRY`, figures in `figures.FIGURES`: a line
for each.

`--devices=points:4,batch:2` of a program, `Settings.mesh`, splits the points of a
sample and the samples of a batch over devices, see `training.sharding`: on a CPU over
its cores, each of them a device with threads of its own. `batch` is for every model.
These may be the devices of several processes, `--coordinator`, see `run.hosts`.
"""

from opjax.learn.cli.program import Program
from opjax.learn.cli.train import PRESETS as TRAIN_PRESETS
from opjax.learn.cli.train import Config as TrainConfig
from opjax.learn.cli.train_samples import train
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
from opjax.learn.config.fields import option
from opjax.learn.config.presets import (
    FAST,
    FLARE_RECIPE,
    GNOT_RECIPE,
    LNO_RECIPE,
    PAPER,
    SMOKE,
    BenchmarkOptions,
    FieldOptions,
    Recipe,
    published,
    quick,
    recipe,
)
from opjax.learn.predict.calibration import (
    Calibration,
    calibrate,
    load_calibration,
    siblings,
)
from opjax.learn.predict.field import Field
from opjax.learn.predict.prediction import Limits
from opjax.learn.predict.ranking import Ranked, rank
from opjax.learn.predict.trained import Trained, load
from opjax.learn.report.members import Finished, Report
from opjax.learn.run.fitting import Fitted, fit
from opjax.learn.run.settings import Settings
from opjax.learn.run.stopping import Stopped
from opjax.learn.tasks.benchmark import benchmark
from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.evaluation import Evaluation
from opjax.learn.tasks.model_data import Encoding
from opjax.learn.tasks.supervised import regression
from opjax.learn.tasks.task import FreshTask, Task
from opjax.samples import Splits
from opjax.training.replicas import Replicas

__all__ = [
    "FAST",
    "FLARE_RECIPE",
    "GNOT_RECIPE",
    "LNO_RECIPE",
    "PAPER",
    "SMOKE",
    "BenchmarkOptions",
    "Calibration",
    "DataOptions",
    "Encoding",
    "Evaluation",
    "Field",
    "FieldOptions",
    "Finished",
    "Fitted",
    "FreshTask",
    "Limits",
    "Loss",
    "ModelOptions",
    "Options",
    "Program",
    "Ranked",
    "Recipe",
    "Replicas",
    "Report",
    "RunOptions",
    "Settings",
    "SizeOptions",
    "Splits",
    "StepOptions",
    "Stopped",
    "Task",
    "TRAIN_PRESETS",
    "TrainConfig",
    "Trained",
    "TrainingOptions",
    "UpdateOptions",
    "benchmark",
    "calibrate",
    "fit",
    "load",
    "load_calibration",
    "option",
    "published",
    "quick",
    "rank",
    "recipe",
    "regression",
    "siblings",
    "train",
]
