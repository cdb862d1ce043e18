r"""Trains operators on your own data: files of samples on meshes of any size.

    opjax-train --train=data/train --test=data/test --feature_names=k,f \
      --target_names=u --workdir=runs/mine
    opjax-predict --workdir=runs/mine --input=new --output=predicted

`opjax.files` describes the file formats and the names of the arrays. The run's folder
contains a trained operator for each model, with its normalisers, its channels and the
ranges of the training data, so that `opjax-predict` can warn about unusual inputs.

For data larger than memory, `--stream_samples` reads samples batch by batch. The
results are the same, bit for bit. `--models=package.module:function` trains your own
model or attention, see `opjax.learn.registry.operators`.
"""

import contextlib
import dataclasses
import os
import tempfile
import warnings
from collections.abc import Generator, Mapping

from opjax import files
from opjax.datasets import heat
from opjax.files import reading
from opjax.files.building import copies
from opjax.files.fingerprints import fingerprint
from opjax.files.formats import listed
from opjax.files.options import LOCATIONS
from opjax.files.series import SeriesSplits, series_splits
from opjax.learn.cli.program import Program
from opjax.learn.config import (
    ModelOptions,
    Options,
    RunOptions,
    TrainingOptions,
    fields,
)
from opjax.learn.config.budget import BudgetOptions
from opjax.learn.config.fields import added, option
from opjax.learn.config.presets import FAST, PAPER, SMOKE, quick, recipe
from opjax.learn.config.quantities import parse
from opjax.learn.config.reading import read_options
from opjax.learn.config.scales import ScaleOptions, mirrors_of
from opjax.learn.config.start import StartOptions
from opjax.learn.config.time import TimeOptions
from opjax.learn.messages import say
from opjax.learn.predict import named, trained
from opjax.learn.predict.prediction import Limits
from opjax.learn.predict.scaling import Scaling
from opjax.learn.predict.trained import Trained
from opjax.learn.run.folder import DataFiles
from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.evaluation import Evaluation
from opjax.learn.tasks.field_losses import FORMS, Form
from opjax.learn.tasks.model_data import Encoding
from opjax.learn.tasks.start import check_options
from opjax.learn.tasks.streamed import StreamedTask, streamed_regression
from opjax.learn.tasks.supervised import regression
from opjax.learn.tasks.task import Task
from opjax.learn.tasks.time import rollouts
from opjax.samples import SCALARS, Shares, Splits, summaries
from opjax.samples.mirror import mirrored
from opjax.samples.normalizers import Names
from opjax.samples.summaries import Summary

DEMONSTRATION = "demonstration"
_SHOWN = "our demonstration of heat that spreads"
ARRAYS = "arrays:"  # and a digest: the samples of a call of `learn.train`

OPERATOR = "operator:"  # and a digest: the `init_from` of such a call


def _absolute(paths: str) -> str:
    if paths == DEMONSTRATION or paths.startswith((ARRAYS, OPERATOR)):
        return paths
    return ",".join(os.path.abspath(os.path.expanduser(p)) for p in listed(paths))


@dataclasses.dataclass(frozen=True)
class FileOptions(Options):
    """Your data."""

    train: str = option(
        "",
        "Folder, files or patterns of the training samples, separated by commas. "
        f"{DEMONSTRATION} generates a few samples to try the program",
    )
    test: str = option(
        "",
        "Folder, files or patterns of the test set, separated by commas. If empty, "
        "--test_fraction of the training files is held out",
    )
    feature_names: str = option(
        "",
        "Names of the input fields, separated by commas. If empty, the array "
        "features, if present",
    )
    target_names: str = option(
        "",
        "Names of the fields to predict, separated by commas; put a name with a "
        "comma in double quotes. If empty, the array target, if present",
    )
    scalar_names: str = option(
        "",
        "Names of input scalars of a sample, such as an angle or a load, separated "
        "by commas. They are scalar arrays, .vtu field data, or columns of cases.csv "
        "in the folder of the files",
    )
    target_scalars: str = option(
        "",
        "Names of scalars of a sample to predict, separated by commas, in addition "
        "to fields or without fields",
    )
    point_dim: int = option(
        0,
        "Dimension of space: the number of leading axes of VTK points that are used. "
        "0 drops axes along which points are constant or the mesh is one cell thick; "
        "3 keeps all",
        minimum=0,
    )
    quadrature: bool = option(
        False, "Compute quadrature weights from the mesh cells when a file has none"
    )
    location: str = option(
        "points",
        "Whether fields have one row per point or per cell. With cells, points of the "
        "operator are the cell centres, and quadrature weights are the cell volumes",
        choices=LOCATIONS,
    )
    boundary_names: str = option(
        "",
        "Names of boundaries, separated by commas. Each becomes a feature that is 1 on "
        "the boundary and 0 elsewhere",
    )
    boundary: str = option(
        "",
        "Named boundaries by conditions, separated by semicolons: clamp: x < 1e-6; "
        "hole: (x-5)^2 + y^2 < 1.01 and z > 0. A boundary consists of the points on "
        "the boundary of the mesh that satisfy the condition. Names are coordinates, "
        "scalar fields, and scalars of the case. Each becomes a feature as with "
        "--boundary_names",
    )
    geometry: str = option(
        "",
        "Features computed from the mesh, separated by commas: normals (outward unit "
        "normal of the nearest boundary facet), distance (to it) and layers "
        "(decaying functions of the distance), for each of --boundary_names and "
        "--boundary, or for the whole boundary of the mesh",
    )
    quantities: str = option(
        "",
        "Quantities of interest of the predicted fields, separated by commas: "
        "KIND:FIELD or KIND:FIELD@BOUNDARY with the kinds max, min, mean, integral "
        "and sum, such as max:S:mises or mean:U_x@outlet; flux:U@outlet; "
        "force_x:p@wall for a pressure p; moment_z:p@wall:about=0,0; "
        "lift:p@wall:angle_deg=4 and drag. density=, speed= or area= turn forces "
        "into coefficients. A value is a number, a scalar of the case or a constant "
        "input",
    )
    validation_fraction: float = option(
        0.1,
        "Fraction of the training samples that is held out to select the best epoch",
        above=0,
        below=1,
    )
    test_fraction: float = option(
        0.2,
        "Fraction of the training samples that is held out as the test set if --test "
        "is empty",
        above=0,
        below=1,
    )
    data_seed: int = option(
        0, "Seed of the split into training, validation and test sets", minimum=0
    )
    grid_axes: int = option(
        0,
        "Number of grid axes of the fields in files without mesh_points: 2 for "
        "arrays (h, w) or (h, w, channels). 0 reads files with points",
        minimum=0,
        maximum=3,
    )
    stacked: bool = option(
        False,
        "Read files that hold many samples along axis 0 of every array: .npz or .h5 "
        "files, or folders with one .npy file per array",
    )
    stream_samples: bool = option(
        False,
        "Read samples from disk batch by batch instead of all at the start. For data "
        "larger than memory. The results are the same",
    )
    num_train: int = option(
        0, "Maximum number of training samples. 0 uses all of them", minimum=0
    )
    num_validation: int = option(
        0, "Maximum number of validation samples. 0 uses all of them", minimum=0
    )
    num_test: int = option(
        0, "Maximum number of test samples. 0 uses all of them", minimum=0
    )
    stream_points: int = option(
        0,
        "Number of points of a training mesh that are in memory at once, for .h5 and "
        ".vtu files larger than memory. 0 reads whole meshes; 2048 is fast on one core",
        minimum=0,
    )
    stream_memory: float = option(
        4.0, "Memory of a training step in GiB, with --stream_points", above=0
    )

    @property
    def shares(self) -> Shares:
        """Options of the split into training, validation and test sets."""
        return Shares(
            self.validation_fraction,
            self.test_fraction,
            self.num_train,
            self.num_validation,
            self.num_test,
            self.data_seed,
        )


@dataclasses.dataclass(frozen=True)
class LossOptions(Options):
    """Loss."""

    loss: str = added(
        option(
            "case",
            "Error of each field. The mean over the fields is the loss and selects "
            "the best epoch. case: root mean square error divided by the variation "
            "of the field in the case, or by a tenth of its spread in training if "
            "this is larger; spread: divided by its spread in training; relative: "
            "divided by the norm of the field in the case. joint: relative error of "
            "all channels together in physical units, as in the papers; the field "
            "with the largest values dominates",
            choices=(*FORMS, "joint"),
        ),
        before="joint",
    )


@dataclasses.dataclass(frozen=True)
class Config(
    RunOptions,
    ModelOptions,
    TrainingOptions,
    BudgetOptions,
    LossOptions,
    FileOptions,
    ScaleOptions,
    TimeOptions,
    StartOptions,
):
    """Everything that affects the numbers of a run.

    Examples:
      >>> from opjax import learn
      >>> config = learn.TrainConfig(train="data/train", num_epochs=5, width=32)
      >>> config.num_epochs, config.models
      (5, ('functional', 'transolver', 'galerkin'))
      >>> learn.TrainConfig(num_epochs=0)
      Traceback (most recent call last):
          ...
      ValueError: num_epochs=0 must be finite and at least 1.
    """

    def __post_init__(self):
        """Makes paths absolute, so that the folder of a run says where they are."""
        super().__post_init__()
        for name in ("stream_samples", "stacked", "grid_axes"):
            if getattr(self, name) and self.train == DEMONSTRATION:
                raise ValueError(
                    f"{name} has no effect with train={DEMONSTRATION}, which "
                    "generates its few samples; omit it."
                )
        read_options(vars(self))  # refuses those that do not go together
        parse(self.quantities)
        self._refuse_without_cases()
        if self.time != "none":
            self._refuse_with_time()
        if self.stream_points:
            self._refuse_with_stream_points()
        elif self.stream_memory != Config.stream_memory:
            raise ValueError(
                f"stream_memory={self.stream_memory} has no effect without "
                "stream_points; set it, or omit both."
            )
        if len(self.unroll_schedule) > self.num_epochs:
            raise ValueError(
                f"unroll_schedule has {len(self.unroll_schedule)} stages, more than "
                f"num_epochs={self.num_epochs}; each needs at least one epoch."
            )
        self._refuse_with_init()
        if self.init_from and len(self.models) > 1:
            raise ValueError(
                "init_from starts one operator, but "
                f"models={','.join(self.models)}; pass one model."
            )
        for name in ("train", "test", "init_from"):
            if name != "init_from" or not named.is_name(self.init_from):
                object.__setattr__(self, name, _absolute(getattr(self, name)))

    def _refuse_with_init(self) -> None:
        """Raises ValueError for options of `init_from` that do not go with others."""
        whole = {
            "init_normalizers": self.init_normalizers != "keep",
            "init_channels": self.init_channels != "same",
        }
        freezes = {"train_only": bool(self.train_only), "rank": self.rank > 0}
        for name, is_given in (whole | freezes).items():
            series = self.time != "none" and name in whole
            if is_given and (series or self.stream_points):
                raise ValueError(
                    f"{name}={fields.spell(getattr(self, name))} needs samples that "
                    "are read as a whole; omit it with stream_points, and "
                    f"{', '.join(whole)} also with time."
                )

    def _refuse_without_cases(self) -> None:
        """Raises ValueError for options that need cases in memory and their fields."""
        joint, scaled = self.loss == "joint", ("scales", "angles", "mirror")
        scaled = [name for name in scaled if getattr(self, name)]
        reading = {
            "time": self.time != "none",
            "stream_points": bool(self.stream_points),
            "stream_samples": self.stream_samples,
        }
        if self.start_from != "nothing":
            _refuse(
                self,
                f"start_from={self.start_from}",
                reading | {"loss": joint, "init_from": bool(self.init_from)},
                "baselines need cases in memory and a loss with one error per field, "
                "and an untrained model",
            )
        if scaled:
            _refuse(
                self,
                scaled[0],
                reading | {"loss": joint and scaled != ["mirror"]},
                "scales and mirrored copies need cases in memory and errors relative "
                "to the spread",
            )

    def _refuse_with_time(self) -> None:
        """Raises ValueError for options that mean nothing for series."""
        one_each = "samples are series, one file or folder each"
        reasons = {
            "quantities": "quantities are not available for series",
            "stacked": one_each,
            "stream_points": one_each,
            "target_scalars": "it predicts frame by frame, but training on the last "
            "frames without --time supports scalars",
        }
        for name, reason in reasons.items():
            if value := getattr(self, name):
                shown = f"{name}={value}" if isinstance(value, str) else name
                raise ValueError(
                    f"{shown} has no effect with time={self.time}: {reason}; omit it."
                )

    def _refuse_with_stream_points(self) -> None:
        """Raises ValueError for options that mean nothing where meshes are sliced."""
        for field in dataclasses.fields(self):
            if field.name not in _WHOLE_MESHES:
                continue
            value = getattr(self, field.name)
            if value not in (field.default, _BEFORE.get(field.name)):
                raise ValueError(
                    f"{field.name}={value} has no effect with "
                    f"stream_points={self.stream_points}; omit it."
                )


def _refuse(
    config: Config, option: str, others: Mapping[str, bool], reason: str
) -> None:
    """Raises ValueError if another option is passed with an option."""
    for name, is_given in others.items():
        if is_given:
            raise ValueError(
                f"{option} has no effect with {name}={getattr(config, name)}: "
                f"{reason}; omit one of them."
            )


# Options of meshes that are in memory as a whole.
_WHOLE_MESHES = (
    "quadrature",
    "location",
    "boundary_names",
    "boundary",
    "geometry",
    "quantities",
    "grid_axes",
    "stacked",
    "stream_samples",
    "num_train",
    "num_validation",
    "num_test",
    "num_buckets",
    "train_points",
    "full_points",
    "num_steps",
    "microbatch",
    "chunk_size",
    "rematerialize",
    "storage_dtype",
)

# Defaults of opjax 0.2, which the configurations of its runs have.
_BEFORE = {"num_buckets": 4}

# Convolutions are off: they tie a model to one grid.
_DEFAULT = Config(models=("functional",), num_epochs=100, convolution=False)
# For 20 to 100 cases, beside `FAST`: many steps, each of a few hundred points.
SMALL = recipe(
    Config,
    preset="small",
    batch_size=4,
    num_steps=3000,
    train_points=(512,),
    full_points=0.05,
    num_buckets=1,
    eval_every=5,
)
FEW = range(20, 101)  # samples that `SMALL` is the recipe for
PRESETS = {
    "smoke": (
        SMOKE | recipe(Config, num_epochs=30, train=DEMONSTRATION, num_buckets=1)
    )(_DEFAULT),
    **quick(_DEFAULT),
    "small": (FAST | SMALL)(_DEFAULT),
    "paper": (PAPER | recipe(Config, loss="joint"))(_DEFAULT),
}


def make_task(config: Config, cache_dir: str | None = None) -> Task | StreamedTask:
    """Reads the samples and builds the task, see `learn.regression`."""
    del cache_dir
    if config.stream_points:
        return make_streamed_task(config)
    start = start_of(config)
    if config.time != "none":
        series = load_series(config)
        if config.train == DEMONSTRATION:
            series = series._replace(source=_SHOWN)
        return task_of(config, series, {}, start)
    splits, names = load(config)
    say_recipe(config, sum(map(len, (splits.train, splits.validation, splits.test))))
    return task_of(config, splits, names, start)


def task_of(
    config: Config,
    splits: Splits | SeriesSplits,
    names: Names,
    start: Trained | None,
) -> Task:
    """Builds the training task; `names` lists the channel names by role."""
    if isinstance(splits, SeriesSplits):
        return rollouts(
            config,
            splits,
            start=start,
            form=FORMS.get(config.loss),
            start_options=fields.part(StartOptions, config),
        )
    splits = _with_mirrored(config, splits, names)
    return regression(
        config,
        splits,
        encoding=Encoding(points=True),
        names=names,
        start=start,
        start_options=fields.part(StartOptions, config),
        evaluation=evaluation_of(config),
        loss=Loss(form=_form_of(config, summaries.of(splits.train[:1])[0])),
        scaling=Scaling.of(vars(config), names, summaries.axes_of(splits.train)),
        from_baseline=config.start_from == "baseline",
    )


def evaluation_of(config: Config) -> Evaluation:
    """Returns what to evaluate on the test samples."""
    return Evaluation(quantities=parse(config.quantities), baselines=True)


def say_recipe(config: Config, num_samples: int) -> None:
    """Prints what the recipe for few samples does, or suggests it."""
    if config.preset == SMALL.values["preset"]:
        points = fields.spell(config.train_points)
        say(
            f"Recipe for 20 to 100 samples (there are {num_samples}): "
            f"{config.num_steps} steps of {config.batch_size} samples with "
            f"train_points={points}, full_points={config.full_points}; "
            f"{config.optimizer}, learning rate {config.learning_rate}."
        )
    elif config.preset == Config.preset and num_samples < FEW[-1]:
        say(
            f"{num_samples} samples are few: --preset=small is the recipe for "
            f"{FEW[0]} to {FEW[-1]} of them, and --scales, --geometry and --mirror "
            "help, see the page on cases."
        )


def _with_mirrored(config: Config, splits: Splits, names: Names) -> Splits:
    """Adds mirrored copies of the training samples, if the configuration has some."""
    train = [*splits.train] if config.mirror else splits.train
    for one in mirrors_of(vars(config)):
        train = [*train, *mirrored(train, one, names)]
    return splits._replace(train=train)


def _form_of(config: Config, sample: Summary) -> Form | None:
    """Returns the error of a field, None for all channels together.

    Args:
      config: of the run.
      sample: summary of a training sample.

    Raises:
      ValueError: if a loss of fields is asked for, and scalars alone are predicted.
    """
    if "target" not in sample.channels and config.loss not in (Config.loss, "joint"):
        raise ValueError(
            f"loss={config.loss} has no effect here: it applies to fields, but only "
            "scalars are predicted. Omit it."
        )
    return FORMS.get(config.loss)


def start_of(config: Config) -> Trained | None:
    """Reads the operator that the training starts from, if any.

    Raises:
      FileNotFoundError: if the folder contains no finished run.
      ValueError: if it is a different model.
    """
    if not config.init_from:
        config.check_operator()
        return None
    if config.init_from.startswith(OPERATOR):
        raise ValueError(
            "This run started from an operator in memory; continue it with the same "
            "call of learn.train."
        )
    start = trained.load(config.init_from, own_model=config.model)
    refuse_baseline(start)
    check_options(start, config)
    tell(start, config)
    return start


def refuse_baseline(start: Trained) -> None:
    """Raises ValueError if the operator was trained on top of another baseline."""
    if start.start is not None:
        raise ValueError(
            f"init_from: the operator in {start.folder} uses a baseline of its own "
            "training cases; start from an operator without a baseline, or train "
            "from the beginning with --start_from=baseline."
        )


def tell(start: Trained, config: Config) -> None:
    """Prints the operator that the training starts from."""
    names = ", ".join(start.normalizers) or "none"
    what = {
        "keep": "kept",
        "renew": "fitted anew",
        "blend": "blended with those of the new samples",
    }[config.init_normalizers]
    say(f"Starting from {start.folder}; its normalisers are {what}: {names}.")


def make_streamed_task(config: Config) -> StreamedTask:
    """Reads the samples in slices and builds the streaming task."""
    if not config.train or config.train == DEMONSTRATION:
        raise ValueError(
            "Pass the training meshes for stream_points, --train=FOLDER or files."
        )
    splits = files.sliced_splits(
        listed(config.train),
        listed(config.test),
        read_options(vars(config)),
        config.shares,
    )
    if len(splits.train) < config.batch_size:
        raise ValueError(
            f"{len(splits.train)} training meshes are fewer than "
            f"batch_size={config.batch_size}; lower it."
        )
    with splits.train.open(0) as arrays:
        names = {
            name: arrays[name].channel_names if name in arrays else ()
            for name in ("features", "target", *SCALARS)
            if name in arrays or name not in SCALARS
        }
    limits = Limits(config.stream_points, config.stream_memory)
    return streamed_regression(
        splits,
        limits,
        names=names,
        start=start_of(config),
        form=_form_of(config, splits.train.summaries[0]),
    )


def load_series(config: Config) -> SeriesSplits:
    """Reads the series and splits them."""
    with _training_paths(config, series=True) as paths:
        splits = series_splits(
            paths,
            listed(config.test),
            read_options(vars(config)),
            config.shares,
            min_frames=config.history + 1,
            in_memory=not config.stream_samples,
        )
    if not config.stream_samples:
        _warn_of_copies(splits)
    return splits


@contextlib.contextmanager
def _training_paths(config: Config, *, series: bool = False) -> Generator[list[str]]:
    """Paths of the training data; those of the demonstration exist for a while."""
    if config.train.startswith(ARRAYS):
        raise ValueError(
            "This run was started with arrays; continue it with the same call of "
            "learn.train."
        )
    if not config.train:
        raise ValueError(
            "Pass the training samples, --train=FOLDER or files; or "
            f"--train={DEMONSTRATION} to try the program."
        )
    if config.train != DEMONSTRATION:
        yield listed(config.train)
        return
    with tempfile.TemporaryDirectory() as folder:
        write = heat.write_series if series else heat.write
        yield [str(write(folder, 20 if series else 40))]


def load(config: Config) -> tuple[Splits, dict[str, tuple[str, ...]]]:
    """Reads and splits the samples; names the channels of `features` and `target`."""
    shown = config.train == DEMONSTRATION
    options = read_options(vars(config))
    with _training_paths(config) as paths:
        if config.quantities:
            one = reading.first(paths, options)
            evaluation_of(config).check([one.sample], one.channels)
        splits = files.splits(
            paths,
            listed(config.test),
            options,
            config.shares,
            in_memory=not config.stream_samples,
        )
    if len(splits.train) < config.batch_size:
        raise ValueError(
            f"{len(splits.train)} training samples remain, fewer than "
            f"batch_size={config.batch_size}; add samples."
        )
    if not config.stream_samples:
        _warn_of_copies(splits)
    if shown:
        splits = splits._replace(source=_SHOWN)
    return splits, dict(splits.channels or {})


def _warn_of_copies(splits: Splits | SeriesSplits) -> None:
    """Warns of samples or series that are there twice, and may be in two sets."""
    pairs = copies([*splits.train, *splits.validation, *splits.test])
    if pairs:
        first, second = pairs[0]
        kind = "series" if isinstance(splits, SeriesSplits) else "samples"
        warnings.warn(
            f"{len(pairs)} {kind} are duplicates: {second} equals {first}. "
            "Duplicates in different sets make the error too small; remove them.",
            stacklevel=2,
        )


def data_files(config: Config) -> DataFiles:
    """The training and test files of a run; none for arrays and built-in data."""
    if not config.train or config.train.startswith((ARRAYS, DEMONSTRATION)):
        return {}
    paths = {"train": listed(config.train), "test": listed(config.test)}
    series = config.time != "none"
    return {
        name: fingerprint(listed_paths, stacked=config.stacked, series=series)
        for name, listed_paths in paths.items()
        if listed_paths
    }


PROGRAM = Program(
    "train",
    PRESETS,
    make_task,
    title="Your own data",
    command="opjax-train",
    data=data_files,
)
run, main = PROGRAM.run, PROGRAM.launch


if __name__ == "__main__":
    main()
