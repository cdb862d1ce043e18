r"""Writes a trained operator to a folder that can be shared, with a model card.

    opjax-publish --workdir=runs/mine --output=mine --input=data/test --licence=mit

The folder contains `model.safetensors` (parameters and normalisers), `config.json`
(description, checksums, provenance), `README.md` (the model card), and, if there are
test cases, `example.npz` and `picture.png`. `learn.load("mine")` and `opjax-predict
--workdir=mine` read it. `hf upload OWNER/NAME mine` uploads it, and
`learn.load("hf://OWNER/NAME")` reads it from there.

Of several seeds, the one with the smallest validation error is published; the folder of
one seed, `--workdir=runs/mine/functional-1`, publishes that one. Parameters are stored
in half precision if no error on the test cases changes by more than 1 %.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from opjax._trees import Json
from opjax.files.formats import OnePath, Paths, listed
from opjax.learn.cli import command_line, shared
from opjax.learn.config import Options, option
from opjax.learn.config.fields import required
from opjax.learn.json_files import read_object, to_json, write_text
from opjax.learn.messages import say
from opjax.learn.predict import calibration, published, trained
from opjax.learn.predict.field_errors import error_of, joined
from opjax.learn.predict.trained import Trained
from opjax.learn.report import card, drawing, figures_fields
from opjax.learn.tasks import outcome, scalars
from opjax.samples import Sample

PRECISIONS = ("auto", "half", "single")
_CHANGE = 0.01  # of an error, by rounding to half precision
_MAX_PICTURE = 40_000  # bytes
_PATHS = ("train", "test", "init_from", "data_dir")  # options with local paths


@dataclasses.dataclass(frozen=True)
class PublishOptions(Options):
    """What to publish, and what the model card says of it."""

    workdir: OnePath = required(
        "Folder of a finished run, or of one of its seeds to publish that seed"
    )
    output: OnePath = required("New or empty folder for the published operator")
    input: Paths | None = option(
        None,
        "Folder, files or patterns of test cases with targets, separated by commas. "
        "They decide on half precision, and the first one becomes the example. By "
        "default, the test cases that the run stored, if they are complete",
    )
    title: str = option(
        "", "Name of the operator in the model card. By default, that of the folder"
    )
    summary: str = option("", "One sentence for the model card: what is predicted")
    licence: str = option(
        "", "Licence, as the identifier of huggingface: mit, cc-by-4.0. Empty: none"
    )
    not_for: str = option("", "Sentence for the model card: what not to use it for")
    precision: str = option(
        "auto",
        "Precision of the stored parameters: half, single, or auto, which is half if "
        "no error on the test cases changes by more than 1 %",
        choices=PRECISIONS,
    )
    own_model: str | None = shared.own_model()


def run(
    options: PublishOptions, cases: Sequence[Sample] | None = None
) -> dict[str, Any]:
    """Publishes an operator.

    Args:
      options: the options.
      cases: test cases, instead of those of `options.input`.

    Returns:
      The content of the last line of output.

    Raises:
      FileExistsError: if the output is not empty.
      FileNotFoundError: if there is no finished run, or no case.
      ValueError: if the operator is published already, or half precision is asked for
        but has no cases to be checked on.
    """
    output = pathlib.Path(options.output).expanduser()
    if output.exists() and any(output.iterdir()):
        raise FileExistsError(f"{output} is not empty; choose a new folder.")
    with jax.enable_x64(False):
        operator = trained.load(options.workdir, own_model=options.own_model)
        if published.is_published(operator.folder):
            raise ValueError(
                f"{operator.folder} is published already; copy the folder instead."
            )
        if cases is None:
            cases = _cases(operator, options.input)
        operator, half, precision = _rounded(operator, options.precision, cases)
        output.mkdir(parents=True, exist_ok=True)
        if operator.start is not None:
            operator.start.save(output)
        made = _provenance(operator)
        example = cases[0] if cases else None
        errors = {
            **_errors_of_run(operator, made),
            "precision": precision,
            "example": errors_of(operator, cases[:1]),
        }
        name = options.title or output.name
        names = dict(operator.description.training["names"])  # of the ranges
        config = {
            "name": name,
            "summary": options.summary,
            "licence": options.licence,
            "not_for": options.not_for,
            "fixed_points": operator.fixed_points,
            "channels": names | {"target": operator.component_names},
            "operator": _without_paths(operator),
            "errors": errors,
            "provenance": made,
        }
        payload = {"model": operator.model, "normalizers": operator.normalizers}
        written = published.write(output, payload, config, half=half, example=example)
        drawn = _draw(operator.folder, output / published.PICTURE)
        text = card.of(written, picture=drawn, loaded_as=output.name)
        write_text(output / published.CARD, text)
        again = trained.load(output, own_model=options.own_model)
        assert calibration.identity(again) == calibration.identity(operator)
    say(f"Published {operator.folder}: {made['chosen']}.")
    stored = "half" if half else "single"
    size = sum(file.stat().st_size for file in output.iterdir())
    return {
        "output": str(output),
        "operator": str(operator.folder),
        "precision": stored,
        "bytes": size,
        **errors["example"],
    }


def errors_of(operator: Trained, cases: Sequence[Sample]) -> dict[str, float]:
    """Returns the mean errors of fields and scalars of an operator on cases."""
    fields, predicted, true = [], [], []
    for case in cases:
        both = operator.both(case)
        if both.values.shape[1] and case.target is not None:
            pair = case.target, case.quadrature_weights
            fields.append(error_of(operator.fields_of(case), both.values, *pair))
        if both.scalars is not None and case.target_scalars is not None:
            predicted.append(both.scalars)
            true.append(case.target_scalars)
    numbers = joined(fields).numbers() if fields else {}
    numbers = {key: value for key, value in numbers.items() if "worst" not in key}
    if predicted:
        names = operator.channel_names.get("target_scalars")
        of_scalars = scalars.errors(np.stack(predicted), np.stack(true), names)
        numbers |= {k: v for k, v in of_scalars.items() if k.endswith("_error")}
    return numbers


def _cases(operator: Trained, paths: Paths | None) -> Sequence[Sample]:
    """The test cases: those asked for, or those that the run has stored whole."""
    if paths is not None:
        return calibration.read_cases(operator, shared.divided(paths))
    description = operator.description
    channels = description.channels
    lacking = channels.scalars or channels.target_scalars or description.weighted
    if lacking or description.numbers or description.time is not None:
        return []
    try:
        stored = outcome.read(operator.folder)
    except FileNotFoundError:
        return []
    return stored.samples


def _rounded(
    operator: Trained, precision: str, cases: Sequence[Sample]
) -> tuple[Trained, bool, Json]:
    """The operator as it will be stored, and how much its errors change."""
    if precision == "single":
        return operator, False, {}
    before = errors_of(operator, cases)
    if not before:
        if precision == "half":
            raise ValueError(
                "precision=half needs test cases with targets to check the errors on; "
                "pass --input, or omit it."
            )
        say("Without test cases with targets, parameters are in single precision.")
        return operator, False, {}
    rounded = operator._replace(model=published.halved(operator.model))
    try:
        after = errors_of(rounded, cases)
    except ValueError:  # not finite
        after = dict.fromkeys(before, float("inf"))
    change = max(
        (abs(after[k] - v) / max(v, 1e-30) for k, v in before.items()), default=0.0
    )
    facts = {"cases": len(cases), "largest_change": change}
    if change <= _CHANGE:
        return rounded, True, facts
    said = f"Half precision changes an error by {100 * change:.3g} %"
    if precision == "half":
        raise ValueError(f"{said}, more than 1 %; pass --precision=single.")
    say(f"{said}, so parameters are stored in single precision.")
    return operator, False, {}


def _study(folder: pathlib.Path) -> pathlib.Path:
    """The folder of the study that a member belongs to; else its own."""
    return folder.parent if (folder.parent / "members.json").is_file() else folder


def _errors_of_run(operator: Trained, made: Json) -> Json:
    """The errors of all seeds and of the baselines, as the run has stored them."""
    study, rows = _study(operator.folder), list[Any]()
    if (study / "members.json").is_file():
        rows = read_object(study / "members.json").get(operator.name, [])
    elif (operator.folder / "result.json").is_file():
        rows = [read_object(operator.folder / "result.json")]
    result = read_object(study / "result.json")
    kept = [
        {"seed": seed, **{k: v for k, v in row.items() if isinstance(v, int | float)}}
        for seed, row in zip(made["seeds"], rows, strict=False)
        if "diverged" not in row
    ]
    return {
        "seeds": [row for row in kept if len(row) > 1],
        "baselines": result.get("baselines", {}),
        "baseline_wins": result.get("baseline_wins", {}),
    }


def _provenance(operator: Trained) -> Json:
    study, config = _study(operator.folder), operator.config
    made, result = dict[str, Any](), read_object(study / "result.json")
    for place in (study, operator.folder):  # of a seed, when and where it was trained
        if (place / "environment.json").is_file():
            made = read_object(place / "environment.json")
    seeds = config.get("seeds", (0,))
    if (study / "config.json").is_file():
        seeds = read_object(study / "config.json").get("seeds", seeds)
    packages = made.get("packages", {})
    versions = [f"{k} {packages[k]}" for k in ("opjax", "jax", "flax") if k in packages]
    if "python" in made:
        versions.insert(0, f"Python {made['python']}")
    chosen = "the only seed"
    if len(seeds) > 1:
        measured = "validation" in read_object(operator.folder / "result.json")
        chosen = (
            "the smallest validation error of all seeds" if measured else "the first"
        )
        if operator.folder != trained.load(study, own_model=operator.name).folder:
            chosen = "as asked for"
    leaves = jax.tree.leaves(operator.model)
    facts = {
        "data": result.get("data", ""),
        "command": made.get("command", ""),
        "commit": made.get("git_commit"),
        "modified": made.get("git_modified", False),
        "date": made["starts"][-1][:10] if made.get("starts") else "",
        "hardware": made.get("processor", "") or made.get("device_kind", ""),
        "software": ", ".join(versions),
        "seeds": list(seeds),
        "seed": next(iter(config.get("seeds", (0,)))),
        "chosen": chosen,
        "parameters": sum(int(np.size(leaf)) for leaf in leaves),
    }
    return {
        k: _public(v, config) if isinstance(v, str) else v for k, v in facts.items()
    }


def _without_paths(operator: Trained) -> Json:
    """The description as it is stored, without the local paths of its data."""
    config = operator.config
    changed = {k: _public(config[k], config) for k in _PATHS if k in config}
    return trained.described(
        operator.description, operator.normalizers, to_json(config | changed)
    )


def _public(text: str, config: Json) -> str:
    """A text with the last part of each local path of the run only."""
    paths = [path for name in _PATHS for path in listed(str(config.get(name, "")))]
    for path in sorted({p for p in paths if os.path.isabs(p)}, key=len, reverse=True):
        text = text.replace(path, pathlib.Path(path).name)
    before = r"(^|[=,:;|@<({\[\s'\"`])"
    return re.sub(before + r"(?:~|\.{1,2})?/(?:[\w.+-]+/)+", r"\1", text)


def _draw(folder: pathlib.Path, path: pathlib.Path) -> bool:
    """Draws the median test sample in at most 40 kB, if the run has stored it."""
    try:
        seen = outcome.read(folder)
        drawing.require_matplotlib()
    except (FileNotFoundError, ModuleNotFoundError):
        return False
    figure = figures_fields.fields({"prediction": seen}, shown=("median",))
    if figure is None:
        return False
    for dpi in (80, 64, 52, 44):
        drawing.save_lines(figure, path, dpi=dpi)
        if path.stat().st_size <= _MAX_PICTURE:
            return True
    path.unlink()
    return False


def main() -> None:
    """Publishes according to the flags."""
    command_line.launch(PublishOptions, run, doc=__doc__)


if __name__ == "__main__":
    main()
