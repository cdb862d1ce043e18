"""What the figures of the Poisson program show."""

import pathlib
from typing import Any

import jax
import numpy as np

from experiments import poisson_figures as figures
from experiments.poisson_evaluation import Problem, problem
from experiments.poisson_rows import LABELS, PAPER, PAPER_FINAL, Row
from opjax import schwarz
from opjax.problems import poisson
from opjax.schwarz.boxes import interval_starts


def draw(
    folder: pathlib.Path, config: Any, rows: dict[str, dict[str, Row]], data: Problem
) -> None:
    """Writes the figures of the paper, numbered like there, and two more.

    Args:
      folder: of the figures.
      config: of the run.
      rows: finished studies by section and label.
      data: problem of the main study.
    """
    folder.mkdir(exist_ok=True)
    main = rows["main"]
    ours, baseline = main["schwarz"], main["global"]
    curves = {
        f"global, rank {config.global_rank}": baseline.outcome.losses,
        "Schwarz": ours.outcome.losses,
    }
    paper = None
    if config.sweep and config.preset == "paper":
        paper = {
            name: [values[0] for values in PAPER[key]]
            for name, key in zip(curves, ("global", "schwarz"), strict=True)
        }
    figures.sweep(folder / "01_training.png", ours.study.rates, curves, paper=paper)
    names = {"global": "02", "schwarz": "03", "global_matched": "07"}
    for name, number in names.items():
        path = folder / f"{number}_solutions_{name}.png"
        _solutions(path, main[name], config.rate, data, LABELS[name])
    if config.dim == 1:
        _anatomy(folder, ours, config.rate, data)
    if "growth" in rows:
        for number, size in (("09", 512), ("10", 1024)):
            row = rows["growth"][f"paper_{size}"]
            rate = row.study.rates[0]
            figures.sweep(
                folder / f"08_training_{size}.png",
                row.study.rates,
                {"Schwarz": row.outcome.losses},
                paper={"Schwarz": [PAPER_FINAL[f"paper_{size}"]]},
            )
            path = folder / f"{number}_solutions_{size}.png"
            _solutions(path, row, rate, problem(row.study), f"Schwarz, n = {size}")
        _studies(folder, rows)


def _solutions(
    path: pathlib.Path, row: Row, rate: float, data: Problem, title: str
) -> None:
    """The 16 right-hand sides of the paper's figures, first seed."""
    model = row.model(rate)
    predicted = np.asarray(model(np.asarray(data.shown.right_sides, np.float32)))
    right_sides, exact = map(np.asarray, data.shown)
    if len(data.shape) == 1:
        points = _points(data.shape[0])
        figures.solutions(path, points, right_sides, exact, predicted, title=title)
    elif len(data.shape) == 2:
        right_sides, exact, predicted = (
            array.reshape(*data.shape, -1) for array in (right_sides, exact, predicted)
        )
        figures.solutions_2d(path, right_sides, exact, predicted, title=title)


def _anatomy(folder: pathlib.Path, row: Row, rate: float, data: Problem) -> None:
    """Levels of the operator, blocks and hats of the first seed."""
    model, (size,) = row.model(rate), data.shape
    if model.coarse_space is None or size > 2048:
        return
    with jax.enable_x64(True):
        model = jax.tree.map(lambda leaf: leaf.astype(float), model)
        cover, space, coarse = model.cover, model.coarse_space, model.coarse
        local = schwarz.assemble(
            lambda f: schwarz.two_level_attention(
                model.query[...], model.key[...], f, cover
            ),
            size,
        )
        full = schwarz.assemble(model, size)
        hats = schwarz.assemble(
            lambda c: schwarz.coarse_prolong(space, c), space.num_subdomains
        )
        exact = jax.vmap(poisson.solve, 1, 1)(np.eye(size))
        coarse_block = schwarz.assemble(coarse, space.num_subdomains)
        blocks = model.query[...] @ model.key[...].swapaxes(1, 2)
    figures.operator(
        folder / "04_operator.png",
        *(np.asarray(a) for a in (local, full - local, exact, hats)),
    )
    inside = np.asarray(cover.weights) > 0
    blocks = np.where(inside[:, :, None] & inside[:, None, :], blocks, np.nan)
    figures.blocks(folder / "05_blocks.png", blocks, np.asarray(coarse_block))
    setup = row.study.setup
    figures.hats(
        folder / "06_hats.png",
        _points(size),
        np.asarray(hats),
        _points(size)[interval_starts(size, setup.num_boxes)[1:-1]],
        overlap=setup.overlap / (size + 1),
    )


def _studies(folder: pathlib.Path, rows: dict[str, dict[str, Row]]) -> None:
    sized = {"default_256": rows["ablation"]["default"], **rows["growth"]}
    sizes = sorted(
        {row.study.setup.num_points for name, row in sized.items() if "default" in name}
    )
    num_seeds = max(len(row.study.seeds) for row in sized.values())

    def errors(start: str) -> np.ndarray:
        # Studies that are missing, or have fewer seeds, leave gaps.
        found = np.full((len(sizes), num_seeds), np.nan)
        for values, size in zip(found, sizes, strict=True):
            if row := sized.get(f"{start}_{size}"):
                errors = row.values("weighted_mse", row.study.rates[0])
                values[: len(errors)] = errors
        return found

    sized["paper_256"] = rows["ablation"]["the paper's start and constant rate"]
    found = {"paper's start": errors("paper"), "our default": errors("default")}
    floors = [sized[f"default_{size}"].closed_form for size in sizes]
    figures.growth(
        folder / "11_growth.png",
        sizes,
        found,
        floors=[None if floor is None else floor["weighted_mse"] for floor in floors],
    )
    figures.ablation(
        folder / "12_ablation.png",
        list(rows["ablation"]),
        [r.values("weighted_mse", r.study.rates[0]) for r in rows["ablation"].values()],
    )


def _points(size: int) -> np.ndarray:
    return np.arange(1, size + 1) / (size + 1)
