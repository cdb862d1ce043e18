"""Predicts on your own meshes with a trained operator.

    opjax-predict --workdir=runs/mine --input=new --output=predicted

Writes a copy of every input file to the output folder, with the prediction added.
`report.json` reports for every sample its distance from the training data, its input
scalars, its predicted scalars and, if it has a target, the relative L2 error. The last
line printed is a summary. Predicted scalars are also written to `scalars.csv`. An
operator that predicts only scalars writes no copies.

An operator that was trained on series, with `--time`, takes the first frames of every
series and needs `--steps=50`. For every case it writes a `.pvd` file with `.vtu` files,
which ParaView animates, and an `.npz` file with `times` and the predicted frames.

After `opjax-calibrate`, lower and upper fields are written too, `prediction_lower` and
`prediction_upper`. The last line contains the width of this band and, if targets are
known, its coverage. The report contains intervals for scalars and quantities. Every
case is tested against the calibration cases. An out-of-distribution case ("unlike")
causes a warning, or an error with `--strict`. Passing the test does not prove that a
case is in distribution: the smallest detectable shifts are printed first.
`--band_figures=3` plots the first three cases with targets, with band and error.

If targets are known, the errors of the run's baselines are reported too: mean field,
nearest case and, if it applies, proper orthogonal decomposition with radial basis
functions. `--baseline=pod_rbf` predicts with a baseline.

`--rank=12` orders candidates without targets instead, and writes the twelve to solve
next to `ranking.csv`: uncertain ones that are far from solved cases and each other.

With `--stream`, `.vtu` and `.h5` files of any size are read and written in slices of
points. `--export=FILE` writes the operator to a file that runs without opjax, see
`opjax.export`.
"""

import contextlib
import dataclasses
import math
import pathlib
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import numpy as np

from opjax import export, files, onnx_files
from opjax._files import remove_leftovers
from opjax.files import folders
from opjax.files.building import time_of
from opjax.files.formats import OnePath, Paths, written_name
from opjax.learn import tables
from opjax.learn.baselines.fitted import NAMES
from opjax.learn.cli import command_line, predict_rank, predict_series, shared
from opjax.learn.cli.calibrate import Bands, bands_of
from opjax.learn.config import Options, option
from opjax.learn.config.quantities import Quantity, parse
from opjax.learn.json_files import to_json, write_json
from opjax.learn.messages import say
from opjax.learn.named_types import Numbers, Row
from opjax.learn.predict import (
    beside,
    calibration,
    case_table,
    in_slices,
    sensitivity,
    trained,
)
from opjax.learn.predict.exportable import Exportable
from opjax.learn.predict.field_errors import error_of, numbers_of
from opjax.learn.predict.prediction import Limits, check_finite_output
from opjax.learn.predict.quantities import measure
from opjax.learn.predict.sensitivity import Sensitivity
from opjax.learn.report.figures_bands import Pictures
from opjax.learn.tasks import scalars
from opjax.samples import Sample, ranges

# Options that have no effect without another one.
_NEEDS = {
    "input": ("band", "strict", "band_figures", "sensitivity", "rank"),
    "export": ("derivatives", "batched"),
    "rank": ("ranges", "solved"),
    "steps": ("time_step", "gif"),
}


@dataclasses.dataclass(frozen=True)
class PredictOptions(Options):
    """What to predict, and how."""

    workdir: OnePath = shared.workdir()
    input: Paths = option(
        (), "Folder, files or patterns of the input, separated by commas"
    )
    output: OnePath | None = option(
        None, "Folder for the files with predictions and for report.json"
    )
    own_model: str | None = shared.own_model()
    export: OnePath | None = option(
        None,
        "File to write the exported operator to: for ONNX Runtime if it ends in .onnx, "
        "for JAX otherwise",
    )
    derivatives: int = option(
        0, "How often the exported operator can be differentiated, with --export"
    )
    batched: bool = option(
        False, "Calls of the exported operator take a batch of meshes, with --export"
    )
    point_dim: int | None = shared.point_dim()
    quantities: str | None = option(
        None,
        "Quantities of interest of the predicted fields, written into report.json, "
        "as in opjax-train. By default, the quantities of the training run. With "
        "--export, the exported operator returns those that this option lists",
    )
    sensitivity: str | None = option(
        None,
        "Quantity whose derivatives are written: with respect to coordinates (also "
        "along the normal) and input fields as fields, with respect to scalars into "
        "sensitivity.csv",
    )
    rank: int = option(
        0,
        "Number of cases to solve next: writes ranking.csv with the candidates of the "
        "input that are uncertain and far from solved cases, instead of predictions",
        minimum=0,
    )
    ranges: str | None = option(
        None,
        "Ranges of scalars, with --rank, as in 'angle: 0..10, mach: 0.3..0.6': "
        "candidates are drawn from them, on the meshes of the input",
    )
    solved: Paths = option(
        (),
        "Folder, files or patterns of solved cases, with --rank. By default, the "
        "files of the training run",
    )
    steps: int = option(
        0,
        "Number of steps of a rollout from the first frames in the input, by an "
        "operator that was trained with --time",
        minimum=0,
    )
    time_step: float | None = option(
        None,
        "Time of a step, with --steps. By default, steps end at the input's own later "
        "frames if there are enough and training used time_conditional or one_shot; "
        "otherwise, the interval of the training frames",
        minimum=0,
    )
    gif: bool = option(False, "Draw an animation of every rollout, with --steps")
    band: str | None = option(
        None,
        "Band to write after opjax-calibrate: whole_field covers the whole field in "
        "the chosen fraction of cases, pointwise covers this fraction of the points. "
        "By default whole_field",
        choices=calibration.BANDS,
    )
    strict: bool = option(
        False,
        "Exit with an error, after all predictions are written, if a case is out of "
        "distribution (unlike the calibration cases)",
    )
    band_figures: int = option(
        0,
        "Number of cases with targets to plot with band and error into the folder "
        "figures of the output, after opjax-calibrate",
        minimum=0,
    )
    baseline: str | None = option(
        None,
        "Baseline that predicts instead of the operator: mean_field, nearest_case or "
        "pod_rbf. If targets are known, the report and the last line contain the "
        "errors of all baselines",
        choices=tuple(NAMES),
    )
    mean_of_seeds: bool = option(
        False,
        "Predict the mean over all seeds of the model in --workdir, which usually "
        "reduces the error. No bands are written, since they belong to one seed",
    )
    stream: bool = option(
        False,
        "Read and write .vtu or .h5 files in slices of points. A mesh then need not "
        "fit into memory",
    )
    chunk_size: int = shared.chunk_size()
    memory_gib: float = shared.memory_gib()
    scratch: OnePath | None = shared.scratch()

    def __post_init__(self):
        """Refuses options that mean nothing together."""
        super().__post_init__()
        if not self.input and not self.export:
            raise ValueError("Pass --input and --output, or --export.")
        for needed, names in _NEEDS.items():
            for name in names:
                if getattr(self, name) and not getattr(self, needed):
                    raise ValueError(f"--{name} has no effect without --{needed}.")
        if self.derivatives and self.exports_onnx:
            raise ValueError(
                f"--derivatives={self.derivatives} has no effect on the ONNX file "
                f"{self.export}: ONNX has no derivatives. Export to a file that ends "
                "in .jax."
            )
        if self.derivatives < 0:
            raise ValueError(f"--derivatives={self.derivatives} must not be negative.")
        if self.input and self.output is None:
            raise ValueError("Name a folder for the predictions, --output=...")
        instead = f"--baseline={self.baseline}" if self.baseline else ""
        if self.mean_of_seeds and self.baseline:
            raise ValueError(f"--mean_of_seeds has no effect with {instead}.")
        instead = instead or ("--mean_of_seeds" if self.mean_of_seeds else "")
        if self.sensitivity is not None and len(parse(self.sensitivity)) != 1:
            raise ValueError(
                f"--sensitivity={self.sensitivity!r} must be one quantity, as in max:S."
            )
        if self.sensitivity and self.steps:
            raise ValueError("--sensitivity has no effect on series; omit --steps.")
        predicting = (
            "stream",
            "steps",
            "band",
            "strict",
            "band_figures",
            "sensitivity",
        )
        if instead:
            what = f"{instead}, which replaces the operator"
            self._refuse(what, (*predicting, "export", "rank"))
        if self.rank:
            what = "--rank, which writes no predictions"
            self._refuse(what, (*predicting, "quantities"))
            if self.ranges is not None:
                predict_rank.parse_ranges(self.ranges)

    def _refuse(self, what: str, names: Sequence[str]) -> None:
        """Raises ValueError for options that have no effect with another one."""
        for name in names:
            if getattr(self, name):
                raise ValueError(
                    f"--{name} has no effect with {what}; omit one of them."
                )

    @property
    def exports_onnx(self) -> bool:
        """Whether the exported operator is an ONNX file."""
        return pathlib.Path(self.export or "").suffix == ".onnx"

    @property
    def limits(self) -> Limits:
        """Memory limits of the evaluation."""
        return Limits(self.chunk_size, self.memory_gib, self.scratch)


def run(options: PredictOptions) -> dict[str, Any]:
    """Predicts on all samples of the input, and exports the operator if asked.

    Returns:
      The content of the last line of output.
    """
    begin = time.monotonic()
    with jax.enable_x64(False):
        operator = trained.load(options.workdir, own_model=options.own_model)
        result: Row = {"model": str(operator.folder)}
        whole = not (options.steps or options.stream)
        asked = _quantities(operator, options.quantities, whole=whole)
        if options.export is not None:
            result |= _export(operator, options, parse(options.quantities or ""))
        if options.input:
            result |= _predict(operator, options, asked)
    return to_json(result | {"seconds": time.monotonic() - begin})


def _predict(
    operator: trained.Trained, options: PredictOptions, asked: tuple[Quantity, ...]
) -> Row:
    """Predicts on the input; returns what the last line says of it."""
    assert options.output is not None  # checked by the options
    place = pathlib.Path(options.output)
    inputs = shared.divided(options.input)
    if options.rank:
        return predict_rank.rank(
            operator,
            inputs,
            place,
            count=options.rank,
            ranges=options.ranges,
            solved=shared.divided(options.solved),
            own_model=options.own_model,
            point_dim=options.point_dim,
        )
    bands = None
    if not (options.baseline or options.mean_of_seeds):  # for the operator alone
        bands = bands_of(
            operator,
            options.band,
            strict=options.strict,
            stream=options.stream,
            own_model=options.own_model,
            figures=options.band_figures,
        )
    if options.steps or operator.description.time is not None:
        if not options.steps or options.stream:
            raise ValueError(
                f"The operator in {operator.folder} was trained on series; pass the "
                "number of --steps, and omit --stream."
            )
        rows = predict_series.predict(
            operator,
            inputs,
            place,
            steps=options.steps,
            time_step=options.time_step,
            gif=options.gif,
            point_dim=options.point_dim,
        )
        return _summary(rows) | {"output": str(options.output)}
    if bands is not None and options.band_figures:
        pictures = Pictures(place / "figures", options.band_figures)
        bands = bands._replace(pictures=pictures)
    others = None
    if not options.stream:
        others = beside.Beside.of(operator, options.baseline or "")
    _remove_former(place, inputs)
    seeds = _seeds(operator, options)
    if options.stream:
        rows = _stream_all(operator, inputs, place, options)
    else:
        rows = _predict_all(
            operator, inputs, place, options, asked, bands, seeds, others
        )
    result = _summary(rows) | {"output": str(options.output)}
    if of_baselines := beside.summary(rows).get(beside.ROW):
        label = NAMES.get(options.baseline or "", operator.name)
        page = beside.shown(numbers_of(rows), of_baselines, label)
        say("\n" + tables.plain(page, shutil.get_terminal_size().columns))
    if options.baseline:
        result["baseline"] = options.baseline
    if options.mean_of_seeds:
        result["seeds"] = len(seeds)
    if bands is not None and bands.pictures is not None:
        result["figures"] = len(bands.pictures.drawn)
    if options.strict:
        _refuse_unlike(rows, place)
    return result


def _seeds(operator: trained.Trained, options: PredictOptions) -> list[trained.Trained]:
    """The operators whose mean is the prediction: one, or all seeds of the run.

    Raises:
      ValueError: if the mean of several is asked for, and there is one.
    """
    if not options.mean_of_seeds:
        return [operator]
    others = calibration.siblings(operator, own_model=options.own_model)
    if not others:
        raise ValueError(
            f"--mean_of_seeds: {operator.folder} is the only seed of its run; train "
            "with --seeds=0,1,2, or omit it."
        )
    return [operator, *others]


def _remove_former(place: pathlib.Path, inputs: Sequence[str]) -> None:
    """Removes what a run that was stopped has left in the output."""
    remove_leftovers(place, "report", "scalars", "sensitivity")
    names = _places(inputs).values()
    for folder in {name.parent for name in names}:
        stems = [name.stem for name in names if name.parent == folder]
        remove_leftovers(place / folder, *stems)


def _refuse_unlike(rows: Sequence[Row], output: pathlib.Path) -> None:
    """Raises ValueError if a case is unlike the calibration cases."""
    names = [row["name"] for row in rows if row["unlike"]]
    if names:
        raise ValueError(
            f"{len(names)} of {len(rows)} cases are out of distribution, for example "
            f"{names[0]}. Their predictions are in {output}, but bands are not valid "
            "for them. Calibrate or train again with such cases, or omit --strict."
        )


def _quantities(
    operator: trained.Trained, asked: str | None, *, whole: bool
) -> tuple[Quantity, ...]:
    """The quantities that are asked for, by default those of training."""
    if asked and not whole:
        raise ValueError(
            "Quantities need whole meshes; omit --stream and --steps, or omit "
            "--quantities."
        )
    if asked and not operator.channels.target:
        raise ValueError(
            f"Quantities need predicted fields, but the operator in {operator.folder} "
            "predicts only scalars; omit --quantities."
        )
    if asked is not None:
        return parse(asked)
    of_training = parse(operator.config.get("quantities", ""))
    if of_training and not whole:
        say("The quantities of the training run need whole meshes; they are omitted.")
        return ()
    return of_training


def _places(inputs: Sequence[str]) -> dict[pathlib.Path, pathlib.Path]:
    """Files of the input, and what the output calls them.

    Those of cases in folders, and where several have one name, are in folders too.
    """
    paths = files.find(inputs)
    roots = [pathlib.Path(path).expanduser() for path in inputs]
    of_cases = folders.places(roots, paths)
    return {file: of_cases[file] / written_name(file) for file in paths}


def _stream_all(
    operator: trained.Trained,
    inputs: Sequence[str],
    output: pathlib.Path,
    options: PredictOptions,
) -> list[Row]:
    rows, names = [], operator.written_names
    for file, name in _places(inputs).items():
        place = output / name.with_name(file.name)
        rows += in_slices.predict_file(
            operator,
            file,
            place,
            names,
            options.limits,
            point_dim=options.point_dim,
            slopes_of=options.sensitivity,
        )
    for row in rows:
        if note := ranges.sentence(row):
            say(f"{row['name']}: {note}.")
    _write_report(output, rows, options)
    return [to_json(row) for row in rows]


def _write_report(
    output: pathlib.Path, rows: Sequence[Row], options: PredictOptions
) -> None:
    output.mkdir(parents=True, exist_ok=True)
    write_json(output / "report.json", rows)
    case_table.write(output / case_table.FILE, rows)
    if options.sensitivity:
        sensitivity.write(output / sensitivity.FILE, rows)


def _predict_all(
    operator: trained.Trained,
    inputs: Sequence[str],
    output: pathlib.Path,
    options: PredictOptions,
    asked: tuple[Quantity, ...],
    bands: Bands | None,
    seeds: Sequence[trained.Trained],
    others: beside.Beside | None = None,
) -> list[Row]:
    rows, names = [], operator.written_names
    slopes = None
    if options.sensitivity:
        slopes = Sensitivity(operator, options.sensitivity, options.limits)
    reduced: list[Sample] = []
    output.mkdir(parents=True, exist_ok=True)
    of_slopes = parse(options.sensitivity or "")
    early: list[str] = []  # at time 0, with fields that are taken for true ones
    partial: dict[str, list[str]] = {}  # the true fields of samples without others
    for file, name in _places(inputs).items():
        place = output / name
        if place.exists() and place.samefile(file):
            raise ValueError(f"{place} is the input itself; pass another --output.")
        how = dataclasses.replace(
            operator.read_options(point_dim=options.point_dim),
            facets=any(one.is_over_facets for one in (*asked, *of_slopes)),
        )
        with _opened(file, place, how, copied=bool(names)) as several:
            for sample, add, when, known in several:
                if others is not None and others.instead:
                    both = others.predicted(operator, sample)
                else:
                    both = trained.mean_of(seeds, sample, limits=options.limits)
                values = both.values
                check_finite_output(sample.name, values)
                row = _row(operator, sample, values, asked)
                row |= {} if others is None else others.row(operator, sample)
                row |= case_table.row_of(operator.channel_names, sample, both.scalars)
                fields = values, names
                if bands is not None:
                    fields, of_band = bands.beside(sample, values, names)
                    of_fields = row.get("fields", {})
                    for name, one in of_band.get("fields", {}).items():
                        one |= of_fields.get(name, {})
                    row |= of_band | bands.intervals(row)
                if slopes is not None:
                    more, its_names, its_row = slopes.of(sample)
                    fields = np.hstack([fields[0], more]), [*fields[1], *its_names]
                    row |= its_row
                add(*fields)
                rows.append(row)
                reduced.append(ranges.ends(operator.reduced(sample)))
                early += [sample.name] * (when == 0 and "relative_l2" in row)
                if known and sample.target is None:
                    partial[sample.name] = known
    if early:
        warnings.warn(
            f"{len(early)} of {len(rows)} samples are at time 0, for example "
            f"{early[0]}: if their fields are initial values instead of solutions, "
            "their errors are meaningless.",
            stacklevel=2,
        )
    if partial:
        name, known = next(iter(partial.items()))
        say(
            f"{len(partial)} of {len(rows)} samples, for example {name}, have only "
            f"{', '.join(known)} of the predicted fields, so there are no errors, "
            "which need all of them."
        )
    for note in ranges.other_units(
        operator.description.training, reduced, operator.description.training["names"]
    ):
        warnings.warn(note, stacklevel=2)
    _write_report(output, rows, options)
    return rows


# A sample, what adds fields to its copy, its time, and the true fields that it has.
_Opened = tuple[Sample, Callable[[np.ndarray, list[str]], None], float, list[str]]


@contextlib.contextmanager
def _opened(
    file: pathlib.Path, place: pathlib.Path, options: files.ReadOptions, *, copied: bool
) -> Generator[list[_Opened]]:
    """Opens the samples of a file.

    Not copied, nothing is added: there are no fields to add.
    """
    if copied:
        with files.extended(file, place, options) as several:
            yield [
                (e.sample, e.add, time_of(e.arrays), e.known(options.target))
                for e in several
            ]
    else:
        samples = files.read(file, options)
        yield [(sample, lambda *_: None, math.nan, []) for sample in samples]


def _row(
    operator: trained.Trained,
    sample: Sample,
    values: np.ndarray,
    asked: tuple[Quantity, ...],
) -> Row:
    """What the report says of a sample; what is unusual about it is printed."""
    row: Row = {"name": sample.name, "num_points": sample.num_points}
    reduced = operator.reduced(sample)
    row |= ranges.compare(operator.description.training, reduced)
    if crowding := ranges.crowding(operator.description.training, reduced):
        row["points_crowding"] = crowding
    if sample.target is not None and values.shape[1]:
        pair = sample.target, sample.quadrature_weights
        row |= error_of(operator.fields_of(sample), values, *pair).row()
    if note := ranges.sentence(to_json(row)):
        say(f"{sample.name}: {note}.")
    if asked:
        fields = [values] if sample.target is None else [values, sample.target]
        measured = measure(asked, sample, fields, operator.channel_names)
        row |= dict(zip(("quantities", "true_quantities"), measured, strict=False))
    return to_json(row)


def _summary(rows: list[Row]) -> Row:
    own = ("name", "num_points", "relative_l2", "errors", "steps", "last_time")
    own += ("fields", "error_over_spread", *case_table.ROW)
    own += ("quantities", "true_quantities", ranges.BEYOND)
    own += (*calibration.ROW, beside.ROW, sensitivity.ROW)
    keys = dict.fromkeys(key for row in rows for key in row if key not in own)
    return {
        **numbers_of(rows),  # of those whose targets are known
        **beside.summary(rows),
        "samples": len(rows),
        "num_points": sum(row["num_points"] for row in rows),
        **{f"{key}_worst": max(row.get(key, 0) for row in rows) for key in keys},
        **_of_scalars(rows),
        **_beyond(rows),
        **calibration.summary(rows),
    }


def _beyond(rows: list[Row]) -> dict[str, dict[str, int]]:
    """In how many cases each given scalar lies outside the training range."""
    counts = Counter(name for row in rows for name in row.get(ranges.BEYOND, {}))
    return {ranges.BEYOND: dict(counts)} if counts else {}


def _of_scalars(rows: list[Row]) -> Numbers:
    """What the last line says of predicted scalars whose true values are known."""
    names = [list(row["target_scalars"]) for row in rows if "target_scalars" in row]
    return scalars.errors(*case_table.known(rows), names[0]) if names else {}


def _export(
    operator: trained.Trained, options: PredictOptions, quantities: Sequence[Quantity]
) -> Row:
    """Writes the exported operator; returns what the last line says of it."""
    assert options.export is not None
    exportable = Exportable(operator, quantities)
    inputs = exportable.inputs._replace(batched=options.batched)
    path = pathlib.Path(options.export).expanduser()
    if options.exports_onnx:
        try:
            text = onnx_files.save(
                path,
                exportable,
                inputs,
                about=exportable.about,
                provenance=exportable.provenance,
            )
        except ValueError as error:
            raise ValueError(f"Model {operator.name!r}: {error}") from error
        size = path.stat().st_size
        say(_of_file(options.export, text))
        say(f"It has {size / 1e6:.1f} MB.")
        return {"export": str(options.export), "export_bytes": size}
    exported = export.save(
        path,
        exportable,
        inputs,
        derivatives=options.derivatives,
        about=exportable.about,
    )
    size = path.stat().st_size
    num_points = operator.description.num_points[1]
    seconds = export.compile_seconds(
        exported, num_points, derivatives=options.derivatives > 0
    )
    say(_of_file(options.export, exported.fun_name))
    say(
        f"It has {size / 1e6:.1f} MB. Compiling it here for {num_points} points took "
        f"{seconds:.1f} s" + (" with derivatives." if options.derivatives else ".")
    )
    return {
        "export": str(options.export),
        "export_bytes": size,
        "export_compile_seconds": seconds,
    }


def _of_file(path: OnePath, signature: str) -> str:
    return f"{path} takes and returns, in the units of the training data:\n{signature}"


def main() -> None:
    """Runs the program with the flags of the command line."""
    command_line.launch(PredictOptions, run, doc=__doc__)


if __name__ == "__main__":
    main()
