"""Parity plots: predicted against true quantities of interest and scalars."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from opjax.learn.json_files import read_object
from opjax.learn.report import drawing
from opjax.learn.tasks.quantities import FILE

_MOST = 6  # panels
# Predicted and true values of the test samples, by the name of a quantity or scalar.
Values = dict[str, dict[str, Any]]


def values_of(folder: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> Values:
    """Returns the quantities and the predicted scalars of a member.

    Args:
      folder: folder of the member.
      arrays: arrays of its `predictions.npz`; empty if there is no such file.
    """
    values: Values = {}
    if (folder / FILE).is_file():
        values |= read_object(folder / FILE)["quantities"]
    if "predicted_scalars" in arrays:
        guess, true = arrays["predicted_scalars"].T, arrays["target_scalars"].T
        listed = arrays.get("target_scalars_names")
        names = [f"scalar {i}" for i in range(len(true))]
        names = names if listed is None else listed.tolist()
        for name, *both in zip(names, guess, true, strict=True):
            values[name] = dict(zip(("predicted", "true"), both, strict=True))
    return values


def parity(members: Mapping[str, Values]) -> Any:
    """Draws predicted against true values, one panel per quantity and scalar.

    Args:
      members: values by model name, from `values_of`.

    Returns:
      The figure; None if no member has values.
    """
    with_values = {name: values for name, values in members.items() if values}
    panels = list(
        dict.fromkeys(key for values in with_values.values() for key in values)
    )
    if not panels:
        return None
    panels = panels[:_MOST]
    figure = drawing.new_figure(3.6 * len(panels), 3.7, "constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, key in zip(axes, panels, strict=True):
        ends: list[float] = []
        for number, (name, values) in enumerate(with_values.items()):
            true, guess = (np.asarray(values[key][k]) for k in ("true", "predicted"))
            color = f"C{number % 10}"
            axis.plot(
                true, guess, "o", color=color, label=name, alpha=0.7, markersize=3.5
            )
            ends += [true.min(), true.max()]
        axis.plot([min(ends), max(ends)], [min(ends), max(ends)], "k-", linewidth=0.7)
        drawing.plain(axis)
        axis.set_title(key, fontsize=10)
        axis.set_xlabel("true")
    axes[0].set_ylabel("predicted")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
