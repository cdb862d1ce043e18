"""Trains operators on any data, resumes, compares models and predicts.

`Program` builds a command line from presets and a `Task`. `regression` is the usual
task: it learns from `Splits` of samples. `fit` trains a model on a task. `load` reads a
trained operator. `operators.REGISTRY` lists the models, `figures.FIGURES` the figures;
adding one takes one line.

`--devices=points:4,batch:2` of a program, `Settings.mesh`, splits the points of a
sample and the samples of a batch over devices, see `training.sharding`. On a CPU, the
devices are cores with separate threads. Every model supports `batch`. The devices may
belong to several processes, see `--coordinator` and `run.hosts`.
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
from opjax.learn.predict.named import list_operators
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
    "list_operators",
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
