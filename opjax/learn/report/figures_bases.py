"""Figures of basis functions and functional maps of trained models."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from opjax.learn.report import drawing
from opjax.learn.report.drawing import Axes, Colours
from opjax.learn.tasks.outcome import Outcome

_COMPARED = 5  # functions of a model in the comparison of several


def compared(found: Mapping[str, Outcome]) -> Any:
    """Draws bases and maps of several models on one mesh, one row per model.

    They belong to the last layer that `outcome.inspect` returned: the functions of the
    first head with the largest variation, and its functional map.
    """
    columns = min(
        _COMPARED, *(seen.arrays["basis"].shape[2] for seen in found.values())
    )
    figure = drawing.new_figure(1.9 * (columns + 1) + 0.6, 1.9 * len(found) + 0.4)
    axes = figure.subplots(len(found), columns + 1, squeeze=False)
    for row, (name, seen) in zip(axes, found.items(), strict=True):
        functions, layer = seen.arrays["basis"][-1], seen.arrays["layers"][-1]
        for axis, one in zip(row[:-1], functions.T, strict=False):
            _function(axis, seen, one)
        row[0].set_ylabel(f"{name}\nlayer {layer + 1}", fontsize=9)
        one = seen.arrays["maps"][-1, 0]
        image = _around_zero(one).image(row[-1], one)
        row[-1].set(xticks=[], yticks=[])
        row[-1].set_title(f"its map, {one.shape[0]} x {one.shape[1]}", fontsize=8)
        figure.colorbar(image, ax=row[-1], shrink=0.8, pad=0.02, extend="both")
    title = "basis functions of one head that vary most, each in its own colours"
    figure.suptitle(title, fontsize=10)
    return figure


def _function(axis: Axes, seen: Outcome, values: np.ndarray) -> None:
    """Draws one basis function on the mesh of the first sample, with its range there.

    The range and the colours are those of the points in the window, if there is one.
    """
    sample, window = seen.samples[0], seen.arrays.get("window")
    axis.set(xticks=[], yticks=[])
    visible = values
    if window is not None:
        low, high = window[[0, 2]], window[[1, 3]]
        points = sample.mesh_points[:, :2]
        inside = ((points >= low) & (points <= high)).all(axis=1)
        visible = values[inside] if inside.any() else values
        axis.set(xlim=window[:2], ylim=window[2:])
    colours = Colours(low=visible.min(), high=visible.max())
    points, shape = sample.mesh_points, sample.grid_shape
    drawing.field(axis, points, values, grid_shape=shape, colours=colours)
    axis.set_title(f"{visible.min():.2g} to {visible.max():.2g}", fontsize=8)


def _around_zero(values: np.ndarray) -> Colours:
    """Colours that leave zero white; a few largest entries would leave all blank."""
    limit = float(np.quantile(np.abs(values), 0.995)) or 1.0
    return Colours("RdBu_r", -limit, limit)


def basis(name: str, seen: Outcome) -> Any:
    """Draws basis functions of the layers that `outcome.inspect` returned."""
    functions, layers = seen.arrays["basis"], seen.arrays["layers"]
    columns = functions.shape[2]
    figure = drawing.new_figure(1.6 * columns + 0.3, 1.75 * len(layers) + 0.4)
    axes = figure.subplots(len(layers), columns, squeeze=False)
    for row, layer, values in zip(axes, layers, functions, strict=True):
        for axis, one in zip(row, values.T, strict=True):
            _function(axis, seen, one)
        row[0].set_ylabel(f"layer {layer + 1}")
    title = "basis functions of the first head that vary most, each in its own colours"
    figure.suptitle(f"{name}: {title}", fontsize=10)
    return figure


def maps(name: str, seen: Outcome) -> Any:
    """Draws functional maps of the layers that `outcome.inspect` returned."""
    functional_maps, layers = seen.arrays["maps"], seen.arrays["layers"]
    columns = functional_maps.shape[1]
    figure = drawing.new_figure(2.3 * columns + 1.0, 2.3 * len(layers) + 0.5)
    axes = figure.subplots(len(layers), columns, squeeze=False)
    for row, layer, values in zip(axes, layers, functional_maps, strict=True):
        # The largest entries of one head would leave the others blank.
        colours = _around_zero(values)
        images: list[Any] = []
        for head, (axis, one) in enumerate(zip(row, values, strict=True)):
            images.append(colours.image(axis, one))
            axis.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel("query basis")
        figure.colorbar(images[-1], ax=list(row), shrink=0.9, pad=0.01, extend="both")
    for axis in axes[-1]:
        axis.set_xlabel("key basis")
    figure.suptitle(f"{name}: functional maps of one test sample", fontsize=10)
    return figure
