"""Figures of a run, written as PNG files without touching matplotlib's global state."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from opjax.learn.folder import replacing

_DPI = 110


def require_matplotlib() -> None:
    """Raises ModuleNotFoundError, naming the extra, if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ModuleNotFoundError(
            "Figures need matplotlib: pip install 'opjax[experiments]'."
        ) from None


def predictions(
    path: str | os.PathLike,
    *,
    coefficient: ArrayLike,
    solution: ArrayLike,
    prediction: ArrayLike,
    errors: Sequence[float] | np.ndarray,
    names: Sequence[str],
) -> None:
    """Draws input, truth, prediction and error of some samples, one to a row.

    Args:
      path: file to write.
      coefficient: inputs on a grid of the unit square, shape `(samples, h, w)`.
      solution: true outputs, same shape.
      prediction: predicted outputs, same shape.
      errors: relative L2 errors, for the titles.
      names: what to call the samples.
    """
    coefficient, solution, prediction = map(
        np.asarray, (coefficient, solution, prediction)
    )
    rows = len(solution)
    figure = new_figure(11.0, 2.7 * rows)
    axes = figure.subplots(rows, 4, squeeze=False, sharex=True, sharey=True)
    for row, name, error, a, u, p in zip(
        axes, names, errors, coefficient, solution, prediction, strict=True
    ):
        # Truth and prediction share their colours, so they can be compared by eye.
        shared = {"cmap": "viridis", "vmin": u.min(), "vmax": u.max()}
        add_colorbar(figure, _image(row[0], a, cmap="cividis"), row[0])
        _image(row[1], u, **shared)
        add_colorbar(figure, _image(row[2], p, **shared), row[1:3])
        difference = _image(row[3], np.abs(p - u), cmap="magma", vmin=0.0)
        add_colorbar(figure, difference, row[3])
        row[0].set_ylabel(f"{name} sample\n$x_2$")
        row[0].set_title("input: permeability $a$", fontsize=10)
        row[1].set_title("truth: pressure $u$", fontsize=10)
        row[2].set_title("prediction $p$", fontsize=10)
        row[3].set_title(f"$|p - u|$, relative $L^2$ {error:.2e}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("$x_1$")
    save(figure, path)


def curves(
    path: str | os.PathLike,
    history: Sequence[dict[str, Any]],
    *,
    batch_size: int,
    test_error: float,
) -> None:
    """Draws training loss, validation error and learning rate over the epochs.

    Args:
      path: file to write.
      history: rows of metrics.jsonl.
      batch_size: samples the training loss is summed over.
      test_error: mean test error, drawn as a line.
    """
    figure = new_figure(9.0, 3.4, "constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    column = {
        name: np.asarray([row[name] for row in history], float)
        for name in ("epoch", "train_loss", "validation", "learning_rate")
    }
    marker = "." if len(history) < 20 else ""
    draw = {"marker": marker, "linewidth": 1.4}
    loss = column["train_loss"] / batch_size
    left.plot(column["epoch"], loss, label="training loss per sample", **draw)
    validation = column["validation"]
    left.plot(column["epoch"], validation, label="relative $L^2$, validation", **draw)
    best = int(np.argmin(validation))
    left.plot(column["epoch"][best], validation[best], "o", color="C1", label="best")
    left.axhline(
        test_error,
        color="0.4",
        linestyle="--",
        linewidth=1,
        label=f"relative $L^2$, test = {test_error:.2e}",
    )
    left.set(yscale="log", xlabel="epoch", ylabel="loss, relative error")
    left.legend(frameon=False)
    right.plot(column["epoch"], column["learning_rate"], color="C2", **draw)
    right.set(xlabel="epoch", ylabel="learning rate")
    right.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for axis in (left, right):
        axis.grid(alpha=0.25, which="both", linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.locator_params(axis="x", integer=True)
    save(figure, path)


def basis_functions(
    path: str | os.PathLike, bases: np.ndarray, *, head: int = 0, columns: int = 8
) -> None:
    """Draws basis functions of the first, a middle and the last layer.

    Args:
      path: file to write.
      bases: values on a grid, shape `(layers, heads, h, w, k)`.
      head: which head to draw.
      columns: functions per layer; those that vary most over the grid are taken.
    """
    layers = _layers(len(bases))
    columns = min(columns, bases.shape[-1])
    figure = new_figure(1.45 * columns + 0.3, 1.75 * len(layers) + 0.4)
    axes = figure.subplots(len(layers), columns, squeeze=False)
    for row, layer in zip(axes, layers, strict=True):
        functions = np.moveaxis(bases[layer, head], -1, 0)
        spread = np.std(functions, axis=(1, 2))
        chosen = np.sort(np.argsort(-spread, kind="stable")[:columns])
        for axis, k in zip(row, chosen, strict=True):
            _image(axis, functions[k], cmap="viridis")
            low, high = functions[k].min(), functions[k].max()
            title = f"$\\phi_{{{k + 1}}}$: {low:.2f} to {high:.2f}"
            axis.set_title(title, fontsize=8)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"layer {layer + 1}")
    figure.suptitle(
        f"Basis functions of head {head + 1} that vary most, each in its own colours",
        fontsize=10,
    )
    save(figure, path)


def functional_maps(
    path: str | os.PathLike, maps: np.ndarray, *, columns: int = 4
) -> None:
    """Draws functional maps of the first, a middle and the last layer.

    Args:
      path: file to write.
      maps: shape `(layers, heads, kq, kk)`.
      columns: heads per layer, the first ones.
    """
    layers, columns = _layers(len(maps)), min(columns, maps.shape[1])
    figure = new_figure(2.3 * columns + 1.0, 2.3 * len(layers) + 0.5)
    axes = figure.subplots(len(layers), columns, squeeze=False)
    for row, layer in zip(axes, layers, strict=True):
        # The largest entries of one head would leave the others blank.
        limit = float(np.quantile(np.abs(maps[layer, :columns]), 0.995))
        for head, axis in enumerate(row):
            image = axis.imshow(
                maps[layer, head],
                cmap="RdBu_r",
                vmin=-limit,
                vmax=limit,
                interpolation="nearest",
            )
            axis.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel("query basis")
        figure.colorbar(image, ax=list(row), shrink=0.9, pad=0.01, extend="both")
    for axis in axes[-1]:
        axis.set_xlabel("key basis")
    figure.suptitle("Functional maps of one test sample", fontsize=10)
    save(figure, path)


def _layers(count: int) -> list[int]:
    return sorted({0, count // 2, count - 1})


def new_figure(width: float, height: float, layout: Any = "compressed") -> Any:
    """Returns an empty figure of so many inches, outside of matplotlib's state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def add_colorbar(figure: Any, image: Any, axes: Any) -> None:
    """Draws the colours of an image beside its axes."""
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=15)
    bar.formatter.set_powerlimits((-2, 3))


def _image(axis: Any, values: np.ndarray, **colours: Any) -> Any:
    """Shows node values (i, j) at the points (x_1, x_2) of the unit square."""
    half = [0.5 / max(size - 1, 1) for size in values.shape]
    extent = (-half[0], 1 + half[0], -half[1], 1 + half[1])
    axis.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    return axis.imshow(values.T, origin="lower", extent=extent, **colours)


def save(figure: Any, path: str | os.PathLike) -> None:
    """Writes the file in one piece, without metadata that changes from run to run."""
    with replacing(path) as temporary:
        figure.savefig(
            temporary,
            dpi=_DPI,
            format="png",
            bbox_inches="tight",
            metadata={"Software": None},
        )
