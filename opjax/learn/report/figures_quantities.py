"""Parity plots: quantities of interest, predicted against true."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from opjax.learn.json_files import read_object
from opjax.learn.report import drawing
from opjax.learn.tasks.quantities import FILE

_MOST = 6  # panels


def parity(folders: Mapping[str, pathlib.Path]) -> Any:
    """Draws predicted against true values, a panel for each quantity.

    Args:
      folders: of members by the name of their model.

    Returns:
      The figure; None where no member has quantities.
    """
    known = {
        name: read_object(folder / FILE)["quantities"]
        for name, folder in folders.items()
        if (folder / FILE).is_file()
    }
    panels = list(dict.fromkeys(key for found in known.values() for key in found))
    if not panels:
        return None
    panels = panels[:_MOST]
    figure = drawing.new_figure(3.6 * len(panels), 3.7, "constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, key in zip(axes, panels, strict=True):
        ends: list[float] = []
        for number, (name, found) in enumerate(known.items()):
            true, guess = (np.asarray(found[key][k]) for k in ("true", "predicted"))
            style = {"color": f"C{number % 10}", "label": name, "alpha": 0.7}
            axis.plot(true, guess, "o", markersize=3.5, **style)
            ends += [true.min(), true.max()]
        axis.plot([min(ends), max(ends)], [min(ends), max(ends)], "k-", linewidth=0.7)
        drawing.plain(axis)
        axis.set_title(key, fontsize=10)
        axis.set_xlabel("true")
    axes[0].set_ylabel("predicted")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
