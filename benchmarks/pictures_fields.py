"""Pictures of trained operators: predictions, learned bases, functional maps."""

import pathlib
from typing import Any

import numpy as np

from benchmarks import pictures_style as style
from opjax.learn.tasks import outcome

_SHOWN = 6  # functions of a basis


def _member(run: pathlib.Path) -> outcome.Outcome:
    """What functional attention of the first seed did."""
    return outcome.read(run / "functional-0")


def _values(array: Any) -> np.ndarray:
    return np.asarray(array, float)[:, 0]


def prediction(run: pathlib.Path) -> Any:
    """Darcy: permeability, pressure, prediction, difference of three test samples."""
    seen = _member(run)
    chosen = outcome.extremes(seen.errors)
    drawn = style.figure(4.5)
    axes = drawn.subplots(3, 4)
    triples = [_triple(seen, seen.rows.index(row), 1e3) for row in chosen.values()]
    largest = max(truth.max() for _, truth, _ in triples)
    limits = {"cmap": "viridis", "vmin": 0.0, "vmax": largest}
    errors = style.around_zero([p - t for _, t, p in triples])
    rows = zip(axes, chosen.items(), triples, strict=True)
    for row, (label, number), (sample, truth, predicted) in rows:
        points = sample.mesh_points
        given = style.field(row[0], points, _values(sample.features), cmap="cividis")
        image = style.field(row[1], points, truth, **limits)
        style.field(row[2], points, predicted, **limits)
        difference = style.field(row[3], points, predicted - truth, **errors)
        row[0].set_ylabel(f"{label}\nerror {100 * seen.errors[number]:.2g} %")
    titles = ("permeability", "pressure", "prediction", "difference")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title)
    bar = style.colour_bar(given, axes[:, 0], "permeability", aspect=9)
    bar.set_ticks([3, 12])
    style.colour_bar(image, axes[:, 1:3].ravel(), "pressure, in thousandths")
    style.colour_bar(difference, axes[:, 3], "thousandths", aspect=9)
    return drawn


def _triple(seen: outcome.Outcome, place: int, factor: float = 1.0) -> Any:
    """A sample that is kept, its truth and its prediction, times a factor."""
    sample = seen.samples[place]
    truth, predicted = _values(sample.target), _values(seen.predicted[place])
    return sample, factor * truth, factor * predicted


def learned(run: pathlib.Path) -> Any:
    """Functions of one head of the last layer, and the maps of its heads."""
    seen = _member(run)
    basis, maps = seen.arrays["basis"][-1], seen.arrays["maps"][-1]
    layer = int(seen.arrays["layers"][-1]) + 1
    drawn = style.figure(5.1)
    above, below = drawn.subfigures(2, 1, height_ratios=(3.5, 1.6))
    axes = above.subplots(2, 3)
    functions = basis[:, :_SHOWN].T
    limits = {"cmap": "viridis", "vmin": 0.0, "vmax": functions.max()}
    sample = seen.samples[0]
    for axis, values in zip(axes.flat, functions, strict=True):
        image = style.field(axis, sample.mesh_points, values, **limits)
        if sample.features is not None:
            _outline(axis, sample)
    above.suptitle(f"six learned functions of one head, layer {layer}")
    style.colour_bar(image, axes.ravel(), "value", orientation="vertical", aspect=25)
    axes = below.subplots(1, len(maps))
    colours = style.around_zero(maps, 0.995)
    for head, (axis, values) in enumerate(zip(axes, maps, strict=True)):
        image = axis.imshow(values, interpolation="nearest", **colours)
        axis.set(xticks=[], yticks=[], title=f"head {head + 1}")
    axes[0].set(ylabel="queries", xlabel="keys")
    size = "x".join(map(str, maps.shape[1:]))
    below.suptitle(f"functional maps of all heads, {size}")
    given = {"orientation": "vertical", "aspect": 12, "extend": "both", "shrink": 0.8}
    style.colour_bar(image, axes, "entry", **given)
    return drawn


def _outline(axis: Any, sample: Any) -> None:
    """Draws where a coefficient of two values on a grid jumps."""
    shape, values = sample.grid_shape, _values(sample.features)
    x, y, values = (a.reshape(shape) for a in (*sample.mesh_points.T, values))
    axis.contour(x, y, values, [values.mean()], colors="white", linewidths=0.7)


def at_a_glance(run: pathlib.Path) -> Any:
    """From a shape to its stress: points, learned functions, the map, the answer."""
    seen = _member(run)
    sample, truth, predicted = _triple(seen, 0)
    points = sample.mesh_points
    drawn = style.figure(4.1)
    axes = drawn.subplots(2, 3)
    style.field(axes[0, 0], points, 0 * truth, cmap="gray", vmin=0, vmax=1)
    axes[0, 0].set_title("1  a mesh")
    axes[0, 1].set_title("2  learned functions")
    axes[0, 1].set_axis_off()
    functions = seen.arrays["basis"][-1].T
    largest = np.argsort(-np.mean(functions**2, axis=1))[:4]
    for number, values in enumerate(functions[largest]):
        x, y = number % 2, number // 2
        small = axes[0, 1].inset_axes((0.52 * x, 0.52 * (1 - y), 0.48, 0.48))
        small.scatter(*points.T, c=values, s=1.6, linewidths=0, vmin=0)
        small.set(xticks=[], yticks=[], aspect="equal")
        small.spines[:].set_visible(False)
    one = seen.arrays["maps"][-1, 0]
    colours = style.around_zero(one, 0.99)
    axes[0, 2].imshow(one, interpolation="nearest", **colours)
    title = f"3  their map, {len(one)}x{len(one)}"
    axes[0, 2].set(xticks=[], yticks=[], title=title)
    limits = {"cmap": "viridis", "vmin": 0.0, "vmax": truth.max()}
    field = style.field(axes[1, 0], points, predicted, **limits)
    style.field(axes[1, 1], points, truth, **limits)
    gap = predicted - truth
    difference = style.field(axes[1, 2], points, gap, **style.around_zero(gap))
    error = 100 * seen.errors[seen.rows[0]]
    titles = ("4  stress, predicted", "stress, true", f"difference, {error:.2g} %")
    for axis, title in zip(axes[1], titles, strict=True):
        axis.set_title(title)
    style.colour_bar(field, axes[1, :2], "von Mises stress", aspect=30)
    style.colour_bar(difference, axes[1, 2:], "prediction - truth", aspect=14)
    return drawn
