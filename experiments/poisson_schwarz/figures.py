"""Figures of the Poisson program, drawn from arrays and written to a path.

Values that are not finite come from runs that diverged; they are left out.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from opjax.learn.drawing import add_colorbar, new_figure, save

_MAX_STEPS = 500  # points of a curve; more are thinner than a pixel
_MAX_BLOCKS = 16
_Path = str | os.PathLike


def sweep(
    path: _Path,
    rates: Sequence[float],
    curves: Mapping[str, ndarray],
    *,
    paper: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draws training losses by learning rate, median and extremes of the seeds.

    `curves` are `(rates, seeds, steps)` by model, `paper` the paper's final values.
    """
    label = "weighted MSE of the batch"
    columns = 4 if len(rates) > 6 else 3
    figure, grid = _panels(len(rates), columns, (3.4, 2.5), "step", label, sharey=True)
    for i, (axis, rate) in enumerate(zip(grid.flat, rates, strict=False)):
        diverged = 0
        for k, (name, values) in enumerate(curves.items()):
            run, color = values[i], f"C{k}"
            steps = np.arange(run.shape[1])[:: -math.ceil(run.shape[1] / _MAX_STEPS)]
            low, median, high = _spread(run[:, steps].T)
            axis.plot(steps + 1, median, color=color, linewidth=1.2, label=name)
            axis.fill_between(steps + 1, low, high, color=color, alpha=0.25, lw=0)
            diverged += np.sum(~np.isfinite(run).all(axis=1))
        for name, finals in (paper or {}).items():
            color, step = f"C{list(curves).index(name)}", curves[name].shape[2]
            label = f"{name}: final value in the paper"
            axis.plot(step, finals[i], "D", color=color, mec="black", label=label)
        note = f" ({diverged} runs diverged)" if diverged else ""
        axis.set_title(f"learning rate {rate:g}{note}", fontsize=10)
        axis.set_yscale("log")
    _legend(figure, grid[0, 0], min(len(rates), 2))
    save(figure, path)


def solutions(
    path: _Path,
    mesh_points: ndarray,
    right_sides: ndarray,
    exact: ndarray,
    predicted: ndarray,
    *,
    title: str,
) -> None:
    """Draws solutions on a line `(n, b)` with their predictions, one to a panel."""
    figure, grid = _panels(exact.shape[1], 4, (2.5, 1.55), "$x$", "$10^3\\,u$")
    samples = zip(right_sides.T, exact.T, predicted.T, strict=True)
    for axis, (f, u, p) in zip(grid.flat, samples, strict=False):
        # In thousandths, so that no axis needs an exponent.
        lines = (1e3 / _limit(f) * _limit(u) * f, 1e3 * u, 1e3 * p)
        axis.plot(mesh_points, lines[0], color="#a3dba3", lw=1, label="rescaled $f$")
        axis.plot(mesh_points, lines[1], color="C0", lw=1.8, label="exact $u$")
        axis.plot(mesh_points, lines[2], "--", color="C1", label="prediction")
        axis.set_title(_relative(p, u), fontsize=8, pad=3)
        axis.tick_params(labelsize=8)
        axis.locator_params(axis="y", nbins=4)
        axis.set(xlim=(0, 1), xticks=[0, 0.5, 1])
    _legend(figure, grid[0, 0])
    figure.suptitle(title)
    save(figure, path)


def operator(
    path: _Path, local: ndarray, coarse: ndarray, exact: ndarray, hats: ndarray
) -> None:
    """Draws the levels of a learned operator, `(n, n)`, beside the exact inverse."""
    full, limit = local + coarse, _limit(exact)
    error = (full - exact) / limit
    # Local factors may exceed the inverse many times, where training leaves them free.
    panels: Any = (
        (local, "local $M_\\mathrm{loc}$", limit),
        (coarse, "coarse $M_0$", limit),
        (full, "learned $M = M_\\mathrm{loc} + M_0$", limit),
        (exact, "exact $A^{-1}$", limit),
        (error, "error $(M - A^{-1})\\,/\\,\\max|A^{-1}|$", _limit(error)),
    )
    figure = new_figure(10.5, 6.6)
    grid = figure.subplots(2, 3)
    for axis, panel in zip(grid.flat, panels, strict=False):
        add_colorbar(figure, _show(axis, *panel, extent=(0, 1, 1, 0)), axis)
        axis.set(xlabel="$y$", ylabel="$x$")
    _draw_hats(grid[1, 2], np.arange(1, len(hats) + 1) / (len(hats) + 1), hats)
    grid[1, 2].set_box_aspect(1)
    grid[1, 2].set_title("coarse functions $\\phi_j$", fontsize=10)
    figure.suptitle(
        "Colours end at the largest entry of $A^{-1}$, or of the error", fontsize=10
    )
    save(figure, path)


def blocks(path: _Path, local_blocks: ndarray, coarse_block: ndarray) -> None:
    """Draws at most 16 local blocks `(s, m, m)`, NaN on padding, and the coarse one."""
    count = min(len(local_blocks), _MAX_BLOCKS)
    shown = np.linspace(0, len(local_blocks) - 1, count).round().astype(int)
    rows, columns = math.ceil(count / 4), min(count, 4)
    figure = new_figure(1.7 * columns + 4.0, max(1.8 * rows, 2.6), "constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.7 * columns + 0.8, 3.2])
    grid, axis = left.subplots(rows, columns, squeeze=False), right.subplots()
    image = _show(axis, coarse_block, "coarse $Q_0 K_0^T$", _limit(coarse_block))
    bar: Any = right.colorbar(image, cax=axis.inset_axes((1.05, 0, 0.06, 1)))
    bar.formatter.set_powerlimits((-2, 3))
    for i, axis in zip(shown, grid.flat, strict=False):
        title = f"$Q_{{{i + 1}}} K_{{{i + 1}}}^T$"
        image = _show(axis, local_blocks[i], title, _limit(local_blocks[shown]))
    add_colorbar(left, image, grid)
    for axis in grid.flat[count:]:
        axis.set_visible(False)
    save(figure, path)


def hats(
    path: _Path,
    mesh_points: ndarray,
    hats: ndarray,
    boundaries: Sequence[float] | ndarray,
    *,
    overlap: float = 0.0,
) -> None:
    """Draws coarse functions `(n, n0)`, and where subdomains meet and overlap."""
    figure, grid = _panels(1, 1, (7.4, 2.0), "$x$", "$\\phi_j(x)$")
    axis = grid[0, 0]
    for k, border in enumerate(boundaries):
        ends = border - overlap, border + overlap
        if overlap > 0:
            axis.axvspan(*ends, color="0.87", lw=0, label="_" if k else "overlap")
        label = "_" if k else "border of subdomains"
        axis.axvline(border, color="0.45", ls="--", lw=0.8, label=label)
    _draw_hats(axis, mesh_points, hats)
    _legend(figure, axis)
    save(figure, path)


def _panels(
    count: int,
    columns: int,
    size: tuple[float, float],
    x: str,
    y: str = "",
    **axes: Any,
) -> tuple[Any, ndarray]:
    """Returns a figure and its panels, with labels on the rim."""
    rows, columns = math.ceil(count / columns), min(columns, count)
    width, height = columns * size[0] + 0.6, rows * size[1] + 0.8
    figure = new_figure(width, height, "constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, **axes)
    for number, axis in enumerate(grid.flat):
        axis.set_visible(number < count)
        axis.set_ylabel(y if number % columns == 0 else "")
        # The last row may have holes, with the rim above them.
        axis.set_xlabel(x if number >= count - columns else "")
        axis.tick_params(labelbottom=number >= count - columns)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels(grid[:, 0])
    return figure, grid


def _legend(figure: Any, axis: Any, columns: int = 3) -> None:
    entries = axis.get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=columns, frameon=False)


def _spread(values: ndarray) -> ndarray:
    """Minimum, median and maximum of what is finite along the last axis, or NaN."""
    rows = [row[np.isfinite(row)] for row in values]
    rows = [row if row.size else np.full(1, np.nan) for row in rows]
    return np.transpose([(row.min(), np.median(row), row.max()) for row in rows])


def _show(axis: Any, values: ndarray, title: str, limit: float, **options: Any) -> Any:
    axis.set_title(title, fontsize=10)
    axis.locator_params(nbins=2 if options else 4, integer=not options)
    return axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, **options)


def _draw_hats(axis: Any, mesh_points: ndarray, hats: ndarray) -> None:
    for hat in hats.T:
        support = np.convolve(hat > 0, np.ones(3), "same") > 0
        axis.plot(mesh_points[support], hat[support], linewidth=1.3)
    axis.set(xlim=(0, 1), ylim=(0, 1.05), xlabel="$x$")


def _limit(values: ndarray) -> float:
    """Largest finite absolute value, or one."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0


def _relative(predicted: ndarray, exact: ndarray) -> str:
    error = np.linalg.norm(predicted - exact) / np.linalg.norm(exact)
    return f"relative $L^2$ {error:.2e}"
