"""Figures of latents and eigenfunctions of the operator."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opjax.learn.report import drawing
from opjax.learn.report.drawing import Axes

_SHOWN = 4  # modes of a layer


def latents(name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """Draws the content of `latents.npz`: modes, eigenfunctions and their angles."""
    modes, functions = arrays["modes"], arrays["eigenfunctions"]
    last = len(modes) - 1
    chosen = sorted({0, 1, (last + 1) // 2, last})
    rows = {_layer(number): modes[number] for number in chosen}
    rows["eigenfunctions"] = functions
    columns = min(_SHOWN, functions.shape[1])
    figure = drawing.new_figure(
        1.7 * columns + 3.6, 1.7 * len(rows) + 0.4, "constrained"
    )
    left, right = figure.subfigures(1, 2, width_ratios=[1.7 * columns, 3.4])
    axes = left.subplots(len(rows), columns, squeeze=False)
    for line, (label, values) in zip(axes, rows.items(), strict=True):
        for axis, one in zip(line, values.T, strict=False):
            _draw(axis, one, arrays["grid_shape"])
        line[0].set_ylabel(label, fontsize=9)
    left.suptitle(f"{name}: leading modes of its latents", fontsize=10)
    above, below = right.subplots(2, 1)
    _numbers(above, arrays["angles"], chosen, functions.shape[1])
    above.set_title("angle between the spans, degrees", fontsize=9)
    above.set(ylim=(0, 92), xlabel="principal angle, number")
    _numbers(below, arrays["shares"], chosen, functions.shape[1])
    below.axhline(arrays["chance"][-1], color="0.5", linestyle="--", label="chance")
    below.set_title("share of an eigenfunction in all channels", fontsize=9)
    below.set(ylim=(0, 1.02), xlabel="eigenfunction, number")
    below.legend(frameon=False, fontsize=7)
    return figure


def _layer(number: int) -> str:
    return f"layer {number}" if number else "input"


def _draw(axis: Axes, values: np.ndarray, grid_shape: np.ndarray) -> None:
    axis.set(xticks=[], yticks=[])
    if len(grid_shape) == 1:
        axis.plot(np.arange(len(values)) / len(values), values, linewidth=1.2)
        axis.axhline(0, color="0.8", linewidth=0.6)
        return
    limit = float(np.abs(values).max()) or 1.0
    axis.imshow(
        values.reshape(grid_shape).T,
        origin="lower",
        interpolation="bilinear",
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
    )


def _numbers(axis: Axes, values: np.ndarray, chosen: list[int], count: int) -> None:
    for place, number in enumerate(chosen):
        axis.plot(
            np.arange(1, count + 1),
            values[number],
            ".-",
            color=f"C{place}",
            label=_layer(number),
            linewidth=1.2,
        )
    drawing.plain(axis)
