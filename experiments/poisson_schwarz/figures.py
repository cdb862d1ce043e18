"""Figures of the Poisson program.

Values that are not finite come from runs that diverged; they are left out.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy import ndarray

from experiments.poisson_schwarz import figures_further, further
from experiments.poisson_schwarz.studies import build
from experiments.poisson_schwarz.tables import LABELS, PAPER, PAPER_FINAL, Row, Rows
from opjax import schwarz
from opjax.learn.report.drawing import add_colorbar, new_figure, plain, save
from opjax.learn.tasks import outcome
from opjax.schwarz.boxes import interval_starts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.poisson_schwarz import Config

_MAX_STEPS = 500  # points of a curve; more are thinner than a pixel
_MAX_BLOCKS = 16


def draw(folder: pathlib.Path, config: "Config", rows: Rows) -> None:
    """Writes the figures of the paper, numbered like there, to the folder of a run."""
    folder = folder / "figures"
    folder.mkdir(exist_ok=True)
    main = rows["main"]
    names = {"global": f"global, rank {config.global_rank}", "schwarz": "Schwarz"}
    names = {k: label for k, label in names.items() if k in main}
    curves = {label: main[name].losses for name, label in names.items()}
    paper = None
    if config.sweep and config.preset == "paper":
        paper = {label: [row[0] for row in PAPER[k]] for k, label in names.items()}
    rates = main["schwarz"].study.rates
    sweep(folder / "01_training.png", rates, curves, paper=paper)
    shown = {"02": "global", "03": "schwarz", "07": "global_matched"}
    if config.dim == 1:
        for number, name in shown.items():
            if name not in main:
                continue
            path = folder / f"{number}_solutions_{name}.png"
            _solutions(path, main[name], LABELS[name])
        _anatomy(folder, main["schwarz"])
    for number, size in (("09", 512), ("10", 1024)) if "growth" in rows else ():
        name = f"paper_{size}"
        row, path = rows["growth"][name], folder / f"08_training_{size}.png"
        paper, curves = {"Schwarz": [PAPER_FINAL[name]]}, {"Schwarz": row.losses}
        sweep(path, row.study.rates, curves, paper=paper)
        path = folder / f"{number}_solutions_{size}.png"
        _solutions(path, row, f"Schwarz, n = {size}")
    if rows.keys() & further.SECTIONS.keys():
        figures_further.draw(folder / "11_further.png", rows)


def _solutions(path: pathlib.Path, row: Row, title: str) -> None:
    """The 16 right-hand sides of the paper's figures, first seed."""
    seen = outcome.read(row.folder)
    columns = zip(*((s.features, s.target) for s in seen.samples), strict=True)
    columns = [np.concatenate(part, axis=1) for part in (*columns, seen.predicted)]
    solutions(path, seen.samples[0].mesh_points[:, 0], *columns, title=title)


def _anatomy(folder: pathlib.Path, row: Row) -> None:
    """Levels of the operator, blocks and hats of the first seed."""
    setup: Any = row.study.setup
    size = setup.domain.num_points
    if setup.coarse_space == "none" or size > 2048:
        return
    arrays = outcome.read(row.folder).arrays
    with jax.enable_x64(True):
        model = build(setup, row.study.start, jax.random.key(0))
        leaves, structure = jax.tree.flatten(model)
        stored = [arrays[f"leaf_{i}"].astype(float) for i in range(len(leaves))]
        model = jax.tree.unflatten(structure, map(jax.numpy.asarray, stored))
        query, key, cover = model.query[...], model.key[...], model.cover
        one_level = partial(schwarz.two_level_attention, query, key, cover=cover)
        local, full = (schwarz.matrix_of(f, size) for f in (one_level, model))
        count = model.coarse_space.num_subdomains
        prolong = partial(schwarz.coarse_prolong, coarse_space=model.coarse_space)
        phi, coarse = (schwarz.matrix_of(f, count) for f in (prolong, model.coarse))
        exact = jax.vmap(setup.domain.solver(), 1, 1)(np.eye(size))
        products = query @ key.swapaxes(1, 2)
    panels = map(np.asarray, (local, full - local, exact, phi))
    operator(folder / "04_operator.png", *panels)
    inside = np.asarray(cover.weights) > 0
    products = np.where(inside[:, :, None] & inside[:, None, :], products, np.nan)
    blocks(folder / "05_blocks.png", products, np.asarray(coarse))
    points = np.arange(1, size + 1) / (size + 1)
    borders = points[interval_starts(size, setup.num_boxes)[1:-1]]
    overlap = setup.overlap / (size + 1)
    hats(folder / "06_hats.png", points, np.asarray(phi), borders, overlap=overlap)


def sweep(
    path: pathlib.Path,
    rates: Sequence[float],
    curves: Mapping[str, ndarray],
    *,
    paper: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draws training losses by learning rate, median and extremes of the seeds.

    `curves` are `(rates, seeds, steps)` by model, `paper` the paper's final values.
    """
    columns = 4 if len(rates) > 6 else 3
    label = "weighted MSE of the batch"
    figure, axes = _panels(len(rates), columns, (3.4, 2.5), "step", label, sharey=True)
    for i, (axis, rate) in enumerate(zip(axes, rates, strict=True)):
        diverged = 0
        for k, (name, values) in enumerate(curves.items()):
            run, color = values[i], f"C{k}"
            steps = np.arange(run.shape[1])[:: -math.ceil(run.shape[1] / _MAX_STEPS)]
            low, median, high = _spread(run[:, steps].T)
            axis.plot(steps + 1, median, color=color, linewidth=1.2, label=name)
            axis.fill_between(steps + 1, low, high, color=color, alpha=0.25, lw=0)
            diverged += np.sum(~np.isfinite(run).all(axis=1))
            if paper and name in paper:
                end, label = run.shape[1], f"{name}: final value in the paper"
                axis.plot(end, paper[name][i], "D", c=color, mec="black", label=label)
        note = f" ({diverged} runs diverged)" if diverged else ""
        axis.set_title(f"learning rate {rate:g}{note}", fontsize=10)
        axis.set_yscale("log")
    _finish(figure, axes[0], path, min(len(rates), 2))


def solutions(
    path: pathlib.Path,
    mesh_points: ndarray,
    right_sides: ndarray,
    exact: ndarray,
    predicted: ndarray,
    *,
    title: str,
) -> None:
    """Draws solutions on a line `(n, b)` with their predictions, one to a panel."""
    figure, axes = _panels(exact.shape[1], 4, (2.5, 1.55), "$x$", "$10^3\\,u$")
    columns = right_sides.T, exact.T, predicted.T
    for axis, f, u, p in zip(axes, *columns, strict=True):
        # In thousandths, so that no axis needs an exponent.
        f = 1e3 / _limit(f) * _limit(u) * f
        axis.plot(mesh_points, f, color="#a3dba3", lw=1, label="rescaled $f$")
        axis.plot(mesh_points, 1e3 * u, color="C0", lw=1.8, label="exact $u$")
        axis.plot(mesh_points, 1e3 * p, "--", color="C1", label="prediction")
        error = np.linalg.norm(p - u) / np.linalg.norm(u)
        axis.set_title(f"relative $L^2$ {error:.2e}", fontsize=8, pad=3)
        axis.tick_params(labelsize=8)
        axis.locator_params(axis="y", nbins=4)
        axis.set(xlim=(0, 1), xticks=[0, 0.5, 1])
    figure.suptitle(title)
    _finish(figure, axes[0], path)


def operator(
    path: pathlib.Path, local: ndarray, coarse: ndarray, exact: ndarray, hats: ndarray
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
    *axes, last = figure.subplots(2, 3).flat
    for axis, panel in zip(axes, panels, strict=True):
        add_colorbar(figure, _show(axis, *panel, extent=(0, 1, 1, 0)), axis)
        axis.set(xlabel="$y$", ylabel="$x$")
    _draw_hats(last, np.arange(1, len(hats) + 1) / (len(hats) + 1), hats)
    last.set_box_aspect(1)
    last.set_title("coarse functions $\\phi_j$", fontsize=10)
    note = "Colours end at the largest entry of $A^{-1}$, or of the error"
    figure.suptitle(note, fontsize=10)
    save(figure, path)


def blocks(path: pathlib.Path, local_blocks: ndarray, coarse_block: ndarray) -> None:
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
    limit = _limit(local_blocks[shown])
    for i, axis in zip(shown, grid.flat, strict=False):
        title = f"$Q_{{{i + 1}}} K_{{{i + 1}}}^T$"
        image = _show(axis, local_blocks[i], title, limit)
    add_colorbar(left, image, grid)
    for axis in grid.flat[count:]:
        axis.set_visible(False)
    save(figure, path)


def hats(
    path: pathlib.Path,
    mesh_points: ndarray,
    hats: ndarray,
    boundaries: Sequence[float] | ndarray,
    *,
    overlap: float = 0.0,
) -> None:
    """Draws coarse functions `(n, n0)`, and where subdomains meet and overlap."""
    figure, (axis,) = _panels(1, 1, (7.4, 2.0), "$x$", "$\\phi_j(x)$")
    for k, border in enumerate(boundaries):
        ends = border - overlap, border + overlap
        if overlap > 0:
            axis.axvspan(*ends, color="0.87", lw=0, label="_" if k else "overlap")
        label = "_" if k else "border of subdomains"
        axis.axvline(border, color="0.45", ls="--", lw=0.8, label=label)
    _draw_hats(axis, mesh_points, hats)
    _finish(figure, axis, path)


def _panels(
    count: int,
    columns: int,
    size: tuple[float, float],
    x: str,
    y: str,
    *,
    sharey: bool = False,
) -> tuple[Any, list[Any]]:
    """Returns a figure and its panels, with labels on the rim."""
    rows, columns = math.ceil(count / columns), min(columns, count)
    width, height = columns * size[0] + 0.6, rows * size[1] + 0.8
    figure = new_figure(width, height, "constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=sharey)
    for number, axis in enumerate(grid.flat):
        axis.set_visible(number < count)
        axis.set_ylabel(y if number % columns == 0 else "")
        # The last row may have holes, with the rim above them.
        axis.set_xlabel(x if number >= count - columns else "")
        axis.tick_params(labelbottom=number >= count - columns)
        plain(axis)
    figure.align_ylabels(grid[:, 0])
    return figure, list(grid.flat[:count])


def _finish(
    figure: "Figure", axis: "Axes", path: pathlib.Path, columns: int = 3
) -> None:
    """Puts the legend of an axis below its figure and saves it."""
    entries = axis.get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=columns, frameon=False)
    save(figure, path)


def _spread(values: ndarray) -> ndarray:
    """Minimum, median and maximum of what is finite along the last axis, or NaN."""
    rows = [row[np.isfinite(row)] for row in values]
    rows = [row if row.size else np.full(1, np.nan) for row in rows]
    return np.transpose([(row.min(), np.median(row), row.max()) for row in rows])


def _show(
    axis: "Axes",
    values: ndarray,
    title: str,
    limit: float,
    extent: tuple[float, float, float, float] | None = None,
) -> Any:
    axis.set_title(title, fontsize=10)
    axis.locator_params(nbins=4 if extent is None else 2, integer=extent is None)
    return axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=extent)


def _draw_hats(axis: "Axes", mesh_points: ndarray, hats: ndarray) -> None:
    for hat in hats.T:
        support = np.convolve(hat > 0, np.ones(3), "same") > 0
        axis.plot(mesh_points[support], hat[support], linewidth=1.3)
    axis.set(xlim=(0, 1), ylim=(0, 1.05), xlabel="$x$")


def _limit(values: ndarray) -> float:
    """Largest finite absolute value, or one."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
