"""The part of --help on models and model-specific options."""

import dataclasses
import textwrap

from opjax.learn.cli import help_page
from opjax.learn.config import ModelOptions, model_options
from opjax.learn.registry.entries import Entry
from opjax.learn.registry.operators import BASES, MIXERS, REGISTRY


def of_few() -> list[str]:
    """Returns the options that are set with --model_options and have no flag."""
    options = dataclasses.fields(ModelOptions)
    return [f.name for f in options if f.metadata["within"] == model_options.FLAG]


def sections() -> str:
    """Returns the models by category, and the model-specific options."""
    kinds = {_kind(registered): list[str]() for registered in REGISTRY.values()}
    for name, registered in REGISTRY.items():
        kinds[_kind(registered)].append(name)
    rows = {kind: ", ".join(names) for kind, names in kinds.items()}
    rows["Composed, basis:mixer"] = f"{', '.join(BASES)} : {', '.join(MIXERS)}"
    rows["Your own"] = "package.module:function"
    defaults = ModelOptions()
    options = {
        field.name: f"{field.metadata['text']} ("
        + "; ".join(
            filter(
                None,
                [f"default {getattr(defaults, field.name)}", _readers(field.name)],
            )
        )
        + ")"
        for field in dataclasses.fields(defaults)
        if field.name in of_few()
    }
    return "\n\n".join(
        [
            help_page.listed("Models (--models)", rows),
            help_page.listed("Options of single models (--model_options)", options),
        ]
    )


def _kind(found: Entry) -> str:
    if found.grid_axes:
        return "On one grid"
    if found.model is not None:
        return "Whole models"
    return "Attention in a basis" if found.basis else "Attention between points"


def _readers(option: str) -> str:
    """The models that have an option."""
    names = [
        name
        for name, registered in REGISTRY.items()
        if option in (registered.options or ())
    ]
    return textwrap.shorten(", ".join(names), 60, placeholder=" and others")
