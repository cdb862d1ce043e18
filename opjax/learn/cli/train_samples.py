"""`learn.train`: trains like `opjax-train`, on samples in memory.

samples = opjax.samples.from_arrays(mesh_points=x, features=f, target=u)
trained = learn.train(samples, preset="fast")
values = trained(points, features)
"""

import dataclasses
import hashlib
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from opjax.files import repeats
from opjax.files.formats import OnePath
from opjax.files.series import SeriesSplits
from opjax.learn import tables
from opjax.learn.cli import study
from opjax.learn.cli.train import (
    ARRAYS,
    OPERATOR,
    PRESETS,
    Config,
    refuse_baseline,
    start_of,
    task_of,
    tell,
)
from opjax.learn.messages import say
from opjax.learn.predict import trained as operator
from opjax.learn.predict.scaling import Scaling
from opjax.learn.predict.trained import Trained
from opjax.learn.registry import operators
from opjax.learn.report.members import comparison, write_report
from opjax.learn.run.devices import Devices
from opjax.learn.run.fitting import fit
from opjax.learn.run.folder import RunDirectory, open_run, run_once
from opjax.learn.run.stopping import Stopped
from opjax.learn.tasks.start import check_options
from opjax.learn.tasks.task import Task
from opjax.samples import (
    FIELDS,
    SCALARS,
    Sample,
    Series,
    Splits,
    check,
    columns,
    from_arrays,
    layout,
)
from opjax.samples import series as rules
from opjax.samples.base import arrays, converted, real
from opjax.samples.narrowing import narrow_samples
from opjax.training import tuning

Data = Sequence[Sample] | Splits | Sequence[Series] | SeriesSplits


def train(
    data: Data | Mapping[str, ArrayLike | Mapping[str, ArrayLike]],
    *,
    preset: str = "fast",
    model: str | None = None,
    num_epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    time: str | None = None,
    validation_fraction: float | None = None,
    test_fraction: float | None = None,
    scales: Mapping[str, str] | None = None,
    angles: Sequence[str] | None = None,
    mirror: str | None = None,
    config: Config | None = None,
    start_from: str | None = None,
    init_from: Trained | OnePath | None = None,
    workdir: OnePath | None = None,
) -> Trained:
    """Trains an operator on samples or arrays, like `opjax-train` on files.

    Args:
      data: samples; splits of samples; a dictionary of arrays, with the arguments of
        `samples.from_arrays` as keys, in which features, target and scalars may be
        dictionaries of named arrays, `{"U": u, "p": p}`; or, with `time`, series or
        splits of series.
      preset: preset of `opjax-train`, which provides all values that are not passed.
      model: name of a model, see `opjax-train --help`.
      num_epochs: number of epochs.
      batch_size: number of samples per batch.
      learning_rate: maximum of the learning-rate schedule.
      seed: seed of the initial parameters and of the sample order.
      time: training method for time series, see `opjax-train --help`.
      validation_fraction: fraction of the training samples that is used to select the
        best epoch.
      test_fraction: fraction of the samples that is held out for the test error.
        Neither fraction applies to `Splits`.
      scales: divisors of fields, scalars or coordinates, applied before training:
        formulas of the case's scalars and `numbers` by name, `{"U": "load / modulus"}`.
        Predictions are in physical units.
      angles: names of scalars that are angles in degrees, or `"alpha:rad"`. The model
        receives their cosine and sine.
      mirror: axis along which training cases are mirrored, `"y"`, or `"y: circulation"`
        with the names of fields that change sign, see `opjax-train --help`.
      config: all options, instead of a preset; the arguments above override it.
      start_from: `"baseline"` if the model learns the difference from the best
        baseline, see `opjax-train --help`.
      init_from: trained operator that provides the initial parameters and normalisers,
        or its folder or name, as for `load`; the model must have the same options.
      workdir: folder of the run and its report. A stopped run continues there if the
        same samples are passed. None writes nothing to disk.

    Returns:
      The operator of the best epoch with its normalisers, as from `learn.load`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if samples, options or the content of the folder do not match.
      opjax.learn.Stopped: after Ctrl-C. With a folder, the same call continues.
      opjax.training.NonFiniteError: if a loss diverges.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn
      >>> points = np.random.default_rng(0).uniform(size=(8, 9, 2))  # eight meshes
      >>> data = {"mesh_points": points, "target": points[..., 0]}
      >>> trained = learn.train(data, preset="smoke", num_epochs=1)
      >>> trained(points[0]).shape
      (9, 1)
    """
    named = (f'"{name}": {formula}' for name, formula in (scales or {}).items())
    changes = {
        "models": None if model is None else (model,),
        "seeds": None if seed is None else (seed,),
        "num_epochs": num_epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "time": time,
        "validation_fraction": validation_fraction,
        "test_fraction": test_fraction,
        "start_from": start_from,
        "scales": None if scales is None else "; ".join(named),
        "angles": None if angles is None else ", ".join(angles),
        "mirror": mirror,
    }
    chosen = {name: value for name, value in changes.items() if value is not None}
    base = _preset(preset) if config is None else config
    config = dataclasses.replace(base, **chosen, train="", test="")
    if len(config.models) != 1 or len(config.seeds) != 1:
        raise ValueError(
            f"learn.train trains one operator, but models={config.models} and "
            f"seeds={config.seeds}; pass one of each."
        )
    operators.check_options(config, _preset(config.preset))
    config = config.of_model(config.model)
    fractions = {"validation_fraction", "test_fraction"} & chosen.keys()
    if isinstance(data, Splits | SeriesSplits) and fractions:
        raise ValueError(
            f"{min(fractions)} has no effect on Splits, which are already split."
        )
    splits = _divided(data, config)
    if isinstance(splits, Splits):
        Scaling.of(vars(config), splits.channels or {})  # refuses unknown names
    config = dataclasses.replace(config, train=f"{ARRAYS}{_digest(splits)}")
    start, config = _start(init_from, config)
    if isinstance(splits, Splits) and len(splits.train) < config.batch_size:
        raise ValueError(
            f"{len(splits.train)} training samples remain, fewer than "
            f"batch_size={config.batch_size}; add samples or lower it."
        )
    with jax.enable_x64(False):
        if workdir is not None:
            folder = pathlib.Path(workdir).expanduser()
            return _in_folder(config, splits, start, folder)
        with tempfile.TemporaryDirectory() as folder:
            name = config.model.replace(":", "_")
            return _in_memory(config, splits, start, pathlib.Path(folder, name))


def _preset(name: str) -> Config:
    if name not in PRESETS:
        raise ValueError(
            f"preset={name!r} is unknown; choose from {', '.join(PRESETS)}."
        )
    return PRESETS[name]


def _divided(data: Data | Mapping[str, Any], config: Config) -> Splits | SeriesSplits:
    if isinstance(data, SeriesSplits):
        data = data.mapped(_single_series)
        return _divided_series(
            [*data.train, *data.validation, *data.test], data, config
        )
    if not isinstance(data, Splits | Mapping) and data and isinstance(data[0], Series):
        series: Any = data  # a sequence has one kind of elements
        return _divided_series(_single_series(series), None, config)
    if config.time != "none":
        raise ValueError(
            f"time={config.time} needs opjax.samples.Series; pass series, or omit it."
        )
    if isinstance(data, Splits):
        single = data.mapped(_single)
        return single._replace(source=data.source or "own samples")
    if isinstance(data, Sample):
        raise ValueError(
            "One sample is not enough for training; pass a list of samples."
        )
    listed: Any = data
    channels: dict[str, tuple[str, ...]] = {}
    if isinstance(data, Mapping):
        arrays = dict(data)
        for role in ("features", "target", *SCALARS):
            if isinstance(one := arrays.get(role), Mapping):
                arrays[role], channels[role] = _joined(role, one, data)
        listed = _stacked(arrays)
    samples = _single(listed)
    check(samples)
    repeats.warn(map(repeats.seen, samples))
    grids = [
        (one.name, layout.sense(one.mesh_points, one.grid_shape)) for one in samples
    ]
    layout.check_axes(grids)
    splits = Splits.divide(samples, shares=config.shares)
    return splits._replace(channels=channels) if channels else splits


def _divided_series(
    series: Sequence[Series], splits: SeriesSplits | None, config: Config
) -> SeriesSplits:
    """Checks series and divides them, unless they are divided already."""
    if config.time == "none":
        raise ValueError("Series need the argument time, such as time='unrolled'.")
    rules.check(series, min_frames=config.history + 1)
    rules.warn_of_still(series)
    if splits is not None:
        return splits
    return SeriesSplits.divide(series, shares=config.shares)


def _joined(
    role: str, fields: Mapping[str, ArrayLike], data: Mapping[str, Any]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Fields by their names side by side, and the name of each channel."""
    if role in SCALARS:
        return _columns(role, fields)
    # A scalar field has samples and points, or samples and the two axes of a grid.
    axes = 2 if "mesh_points" in data else 3
    columns: list[np.ndarray] = []
    names: list[str] = []
    for name, values in fields.items():
        array = np.asarray(values)
        if array.ndim not in (axes, axes + 1):
            raise ValueError(
                f"The field {name} of the {role} has shape {array.shape}, expected "
                + (
                    "(b, n) or (b, n, c)."
                    if axes == 2
                    else "(b, h, w) or (b, h, w, c)."
                )
            )
        columns.append(array[..., None] if array.ndim == axes else array)
        names += [name] * columns[-1].shape[-1]
    shapes = {name: one.shape[:-1] for name, one in zip(fields, columns, strict=True)}
    if len(set(shapes.values())) != 1:
        raise ValueError(
            f"The fields of the {role} have the shapes {shapes} without channels; all "
            "must have the same samples and points."
        )
    return np.concatenate(columns, axis=-1), tuple(names)


def _columns(
    role: str, fields: Mapping[str, ArrayLike]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Scalars by their names side by side, and their names."""
    arrays = {name: np.asarray(values) for name, values in fields.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) != 1 or any(len(s) != 1 for s in shapes.values()):
        raise ValueError(
            f"The {role} have the shapes {shapes}, expected (b,): one number per "
            "sample."
        )
    return np.stack(list(arrays.values()), axis=1), tuple(arrays)


def _stacked(data: Mapping[str, Any]) -> list[Sample]:
    """Samples of arrays by name, see `samples.from_arrays`."""
    if unknown := data.keys() - {*FIELDS, *SCALARS, "numbers"}:
        raise ValueError(
            f"{sorted(unknown)} are unknown; choose from "
            f"{[*FIELDS, *SCALARS, 'numbers']}."
        )
    if not {"target", "target_scalars"} & data.keys():
        raise ValueError(f"{sorted(data)} contain no target; add the array to predict.")
    samples = from_arrays(
        target=data.get("target"),
        features=data.get("features"),
        mesh_points=data.get("mesh_points"),
        quadrature_weights=data.get("quadrature_weights"),
        scalars=data.get("scalars"),
        target_scalars=data.get("target_scalars"),
        numbers=data.get("numbers"),
    )
    if data.get("mesh_points") is None:
        _say_grid(samples)
    return samples


def _say_grid(samples: Sequence[Sample]) -> None:
    """Says how arrays without points are understood."""
    first = samples[0]
    points = " x ".join(map(str, first.grid_shape or ()))
    counts = ", ".join(
        f"{name} of {array.shape[1]} channels"
        for name, array in arrays(first, ("features", "target")).items()
    )
    say(f"{len(samples)} samples on a grid of {points} points, {counts}.")


def _single(samples: Sequence[Sample]) -> list[Sample]:
    """The same samples as files are read: no half precision, values in columns."""

    def floating(sample: Sample) -> Sample:
        place = sample.name or "sample"
        return converted(sample, lambda name, array: real(f"{place}: {name}", array))

    return narrow_samples([columns(floating(sample)) for sample in samples])


def _single_series(several: Sequence[Series]) -> list[Series]:
    """Series whose arrays in memory are of single or double precision."""
    names = ("mesh_points", "times", "values", "features", "quadrature_weights")
    return [
        series._replace(
            **{
                name: real(f"{series.name or 'series'}: {name}", array)
                for name in names
                if isinstance(array := getattr(series, name), np.ndarray)
            }
        )
        for series in several
    ]


def _digest(splits: Splits | SeriesSplits) -> str:
    """Twelve letters that change with the samples."""
    hashed = hashlib.sha256()
    for part in (splits.train, splits.validation, splits.test):
        for sample in part:
            for name, array in _arrays(sample).items():
                hashed.update(f"{name}{np.shape(array)}".encode())
                if array is not None:
                    hashed.update(np.ascontiguousarray(array).tobytes())
            # Nothing is added without: folders of samples without scalars stay theirs.
            for name, array in _scalars(sample).items():
                if array is not None:
                    hashed.update(f"{name}{array.shape}".encode() + array.tobytes())
            if isinstance(sample, Sample) and sample.numbers:
                hashed.update(repr(sorted(sample.numbers.items())).encode())
    return hashed.hexdigest()[:12]


def _scalars(sample: Sample | Series) -> dict[str, np.ndarray | None]:
    """Numbers of a case, by role of a sample and by name of a series."""
    if isinstance(sample, Sample):
        return {name: getattr(sample, name) for name in SCALARS}
    scalars = sample.scalars or {}
    return {name: np.asarray(scalars[name], np.float64) for name in sample.scalar_names}


def _arrays(sample: Sample | Series) -> dict[str, Any]:
    """What of a sample or series a training depends on."""
    if isinstance(sample, Sample):
        return {name: getattr(sample, name) for name in FIELDS}
    values = [sample.values[frame] for frame in range(sample.num_frames)]
    arrays: dict[str, Any] = {"mesh_points": sample.mesh_points, "times": sample.times}
    arrays |= {"values": np.stack(values), "constants": sample.features}
    return arrays | {"quadrature_weights": sample.quadrature_weights}


def _start(
    operator_or_folder: Trained | OnePath | None, config: Config
) -> tuple[Trained | None, Config]:
    """The operator to start with, and the configuration that says so."""
    if operator_or_folder is None:
        return start_of(config), config
    if config.init_from:
        raise ValueError(
            f"config also has init_from={config.init_from}; omit one of them."
        )
    if not isinstance(operator_or_folder, Trained):
        config = dataclasses.replace(config, init_from=os.fspath(operator_or_folder))
        return start_of(config), config
    check_options(operator_or_folder, config)
    refuse_baseline(operator_or_folder)
    tell(operator_or_folder, config)
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves(
        (operator_or_folder.model, operator_or_folder.normalizers)
    ):
        hashed.update(np.asarray(leaf).tobytes())
    name = f"{OPERATOR}{hashed.hexdigest()[:12]}"
    return operator_or_folder, dataclasses.replace(config, init_from=name)


def _task(config: Config, splits: Splits | SeriesSplits, start: Trained | None) -> Task:
    channels = splits.channels if isinstance(splits, Splits) else None
    return task_of(config, splits, dict(channels or {}), start)


def _in_memory(
    config: Config,
    splits: Splits | SeriesSplits,
    start: Trained | None,
    folder: pathlib.Path,
) -> Trained:
    """Trains without a report; the folder is not needed afterwards."""
    task = _task(config, splits, start)
    assert task.evaluate is not None
    with open_run(folder, config, command="learn.train(...)") as directory:
        model = study.build(config, task)
        try:
            fitted = fit(task, model, task.settings(config), folder=directory)
        except Stopped as stopped:
            raise Stopped(
                "Stopped without saving: pass workdir= for a run that can be resumed."
            ) from stopped
        numbers = task.evaluate(fitted.best_model, directory.path)
        operator.finish(directory.path, {"validation": fitted.best_metric, **numbers})
        parameters = tuning.num_parameters(model)
    shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    say(f"Test samples: {shown}")
    compared = task.baselines() if task.baselines else None
    if compared is not None and compared.numbers:
        columns = {key: (key.replace("_", " "), 1.0) for key in numbers}
        member = {**numbers, "parameters": parameters}
        tables.show(comparison({config.model: [member]}, columns, compared.numbers))
    trained = operator.load(folder, own_model=config.model)
    return trained._replace(folder=pathlib.Path("memory"))


def _in_folder(
    config: Config,
    splits: Splits | SeriesSplits,
    start: Trained | None,
    folder: pathlib.Path,
) -> Trained:
    """Trains as the program does, with its report."""
    say(f"Folder: {folder.absolute()}")

    def work(directory: RunDirectory) -> dict[str, Any]:
        finished = study.run(
            config,
            lambda member, _: _task(member, splits, start),
            directory.path,
            shared=Devices("", config, points=operators.splits_points(config)),
            command="learn.train(...)",
        )
        return write_report(finished, "Your own data", None)

    run_once(folder, config, work, command="learn.train(...)")
    tables.show((folder / "tables.md").read_text())
    return operator.load(folder, own_model=config.model)
