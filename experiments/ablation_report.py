"""Tables and figures of the ablations."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments import (
    ablation_cost,
    ablation_figures,
    ablation_ridge,
    ablation_start,
    studies,
)
from experiments.ablation_figures import Results
from opjax import learn
from opjax.learn.json_files import write_json
from opjax.learn.report import drawing, members

_WITH_CONDITIONS = ("projection", "ridge", "adaptive")
_WITH_STARTS = ("choice", "projection")
_CONDITION = (
    "Condition number of the small systems after the last epoch, mean over layers and "
    "heads, on one validation sample.\n"
)


def report(
    finished: learn.Finished,
    *,
    titles: Mapping[str, str],
    variants: Callable[[Any, str], dict[str, Any]],
) -> learn.Report:
    """A table of every study, its cost or condition numbers, and figures.

    Args:
      finished: with results by `<study>/<variant>`.
      titles: of the studies.
      variants: `variants(config, study)`, configurations by what they vary.
    """
    config, parts, medians = finished.config, [], {}
    by_study = {study: _results(finished, study) for study in config.studies}
    for study, results in by_study.items():
        medians |= members.summary(results, ["error"])
        problem = "burgers" if study == "initialization" else config.problem
        parts.append(f"## {titles[study]}, {problem.capitalize()}\n")
        parts += _tables(study, results, problem)
        if study in _WITH_STARTS and problem == "darcy":
            shown = variants(config, study)
            parts.append(ablation_start.text(shown, config.seeds))
    boundary = ablation_ridge.boundary() if "ridge" in by_study else []
    if boundary:
        parts.append(ablation_ridge.text(boundary))
    write_json(finished.folder / "studies.json", {**by_study, "boundary": boundary})
    _draw(finished, by_study, titles)
    return studies.report(finished, parts, medians, _head(finished))


def _results(finished: learn.Finished, study: str) -> Results:
    """Results of a study by its variants."""
    labels = {name: name.partition(f"{study}/")[2] for name in finished.results}
    return {label: finished.results[k] for k, label in labels.items() if label}


def _tables(study: str, results: Results, problem: str) -> list[str]:
    columns = {"error": ("error, x 100", 100.0)}
    if study in _WITH_CONDITIONS:
        columns["condition"] = ("condition number", 1.0)
    columns["seconds"] = ("seconds", 1.0)
    parts = [members.comparison(results, columns)]
    if study in _WITH_CONDITIONS:
        parts.append(_CONDITION)
    if study == "bases":
        parts.append(ablation_cost.text(results, problem))
    return parts


def _draw(
    finished: learn.Finished,
    studies: Mapping[str, Results],
    titles: Mapping[str, str],
) -> None:
    """Errors of all studies in one figure, and a figure of condition numbers each."""
    folder, config = finished.folder / "figures", finished.config
    folder.mkdir(exist_ok=True)
    short = {study: title.replace(": ", "\n") for study, title in titles.items()}
    drawing.save(ablation_figures.errors(studies, short), folder / "errors.png")
    for study in _WITH_CONDITIONS:
        if study in studies:
            members_of = {
                name: [finished.folder / study / f"{name}-{s}" for s in config.seeds]
                for name in studies[study]
            }
            title = f"{study}, {config.problem}"
            figure = ablation_figures.conditions(members_of, title)
            if figure is not None:
                drawing.save(figure, folder / f"condition_{study}.png")


def _head(finished: learn.Finished) -> str:
    config = finished.config
    return (
        "Relative L2 error on test samples, median [smallest, largest] over the seeds "
        f"{','.join(map(str, config.seeds))}. A seed that diverged has no part in "
        f"them; it is counted. {config.num_train} training samples, "
        f"{config.num_epochs} epochs, {config.width} channels, {config.num_layers} "
        f"layers. Data: {finished.source}. Where models are smaller than the published "
        "ones or trained for less, orders and ratios compare, values do not."
    )
