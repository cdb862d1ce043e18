"""Pictures of what operators cost: points, seconds and memory."""

import json
import pathlib
from typing import Any

import numpy as np

from benchmarks import pictures_style as style
from benchmarks.recipe_table import one_recipe
from benchmarks.scale_page import measured
from opjax.learn.report import drawing
from opjax.learn.run.metrics_file import read_metrics

_C = style.COLOURS
# Attentions of the picture of costs: colour, line.
_LAYERS = {
    "functional": (_C["blue"], "-"),
    "transolver": (_C["vermilion"], "-"),
    "orthogonal": (_C["purple"], "-"),
    "flare": (_C["orange"], "-"),
    "galerkin": (_C["green"], "-"),
    "softmax": (_C["black"], "--"),
    "fourier": (_C["grey"], "--"),
}
_MODELS = {
    "functional": _C["blue"],
    "transolver": _C["vermilion"],
    "galerkin": _C["green"],
    "flare": _C["orange"],
}
_MODES = {
    "dense": ("all points at once", _C["black"], "s"),
    "chunked": ("512 points at a time", _C["orange"], "o"),
    "sharded, 2 devices": ("the same, two devices", _C["blue"], "^"),
    "streamed, bfloat16": ("streamed from disk", _C["vermilion"], "D"),
}


_PROBLEMS = ("Darcy flow", "elasticity", "airfoil", "pipe", "plasticity")


def errors_by_one_recipe(_: None) -> Any:
    """Test errors of five models on five problems, from the table of `recipes.md`."""
    errors = one_recipe()
    colours = {"functional": _C["blue"], "Transolver": _C["vermilion"]}
    colours |= {"Galerkin": _C["green"], "FLARE": _C["orange"], "FNO": _C["purple"]}
    drawn = style.figure(2.9)
    axis = drawn.subplots()
    for i, (model, colour) in enumerate(colours.items()):
        for j, problem in enumerate(_PROBLEMS):
            if model not in errors[problem]:
                continue
            median, *ends = errors[problem][model]
            y = j + 0.13 * (i - 2)
            axis.plot(ends, [y, y], color=colour, linewidth=2)
            label = model if j == 0 else None
            axis.plot(median, y, "o", color=colour, markersize=4.5, label=label)
    axis.set(xscale="log", xlabel="relative L2 error on unseen samples")
    axis.set_xticks([0.01, 0.03, 0.1, 0.3], ["1 %", "3 %", "10 %", "30 %"])
    axis.set_xticks([], minor=True)
    axis.set_yticks(range(len(_PROBLEMS)), _PROBLEMS)
    axis.invert_yaxis()
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    drawing.plain(axis)
    return drawn


def cost(run: pathlib.Path) -> Any:
    """Time and memory of a layer with its gradient over the number of points."""
    rows = json.loads((run / "measurements.json").read_text())["rows"]
    drawn = style.figure(5.2)
    axes = drawn.subplots(2, 1, sharex=True)
    numbers = {
        "milliseconds, median of five": lambda part: np.median(part["ms"]),
        "temporary memory, MiB": lambda part: part["bytes"] / 2**20,
    }
    for axis, (label, number) in zip(axes, numbers.items(), strict=True):
        ends = {}
        for name, (colour, line) in _LAYERS.items():
            found = [r for r in rows if r["attention"] == name and r["heads"] == 8]
            x = [row["points"] for row in found]
            y = [number(row["gradient"]) for row in found]
            look = {"color": colour, "linestyle": line, "linewidth": 1.4}
            axis.plot(x, y, marker="o", markersize=3, **look)
            ends[name] = (x[-1], y[-1], colour)
        axis.set(xscale="log", yscale="log", ylabel=label)
        drawing.plain(axis)
        style.name_ends(axis, ends)
    axes[0].set_xscale("log", base=2)
    axes[-1].set_xlabel("points")
    return drawn


def error_over_time(run: pathlib.Path) -> Any:
    """Validation error of four models over the seconds of training."""
    drawn = style.figure(3.3)
    axis, lines = drawn.subplots(), {}
    for name, colour in _MODELS.items():
        folders = sorted(run.glob(f"{name}-[0-9]*"))
        histories = [read_metrics(folder) for folder in folders]
        seconds = np.median([[r["seconds"] for r in h] for h in histories], axis=0)
        errors = np.asarray([[r["validation"] for r in h] for h in histories])
        lines[name] = (seconds, errors, {"color": colour})
    style.curves(axis, lines)
    axis.set(yscale="log", xlabel="seconds of training on one core")
    axis.set(ylabel="relative L2 error, validation")
    axis.set_yticks([0.05, 0.1, 0.2, 0.4, 0.8], ["0.05", "0.1", "0.2", "0.4", "0.8"])
    axis.set_yticks([], minor=True)
    axis.set_xlim(0, None)
    axis.legend(ncols=2)
    return drawn


def scale(run: pathlib.Path) -> Any:
    """Time and memory of a training step of a large model, per point."""
    rows = measured((run / "scale.jsonl").read_text().splitlines())
    drawn = style.figure(7.0)
    axes = drawn.subplots(3, 1, sharex=True)
    panels = {
        "microseconds_per_point": ("microseconds per point", 1.0),
        "bytes_per_point": ("temporary kB per point", 1e3),
        "peak_mib": ("peak of the process, MiB", 1.0),
    }
    for axis, (key, (label, unit)) in zip(axes, panels.items(), strict=True):
        for mode, (name, colour, marker) in _MODES.items():
            line = [
                (row["points"], row[key] / unit) for row in rows if row["mode"] == mode
            ]
            look = {"color": colour, "marker": marker, "markersize": 4}
            axis.plot(*np.transpose(line), linewidth=1.4, label=name, **look)
        axis.set_ylabel(label)
        drawing.plain(axis)
        if key == "peak_mib":
            axis.set_yscale("log")
            axis.set_yticks([1000, 2000, 4000], ["1000", "2000", "4000"])
            axis.set_yticks([], minor=True)
        else:
            axis.set_ylim(0, None)
    axes[0].set_xscale("log", base=2)
    axes[0].legend()
    axes[-1].set_xlabel("points of the mesh")
    return drawn
