"""What the figures of the Poisson program show."""

import pathlib
from typing import Any

import jax
import numpy as np

from experiments.poisson_schwarz import figures
from experiments.poisson_schwarz.models import build
from experiments.poisson_schwarz.tables import LABELS, PAPER, PAPER_FINAL, Row, Rows
from opjax import schwarz
from opjax.learn import outcome
from opjax.problems import poisson
from opjax.schwarz.boxes import interval_starts


def draw(folder: pathlib.Path, config: Any, rows: Rows) -> None:
    """Writes the figures of the paper, numbered like there.

    Args:
      folder: of the run.
      config: of the run.
      rows: finished studies by section and label.
    """
    folder = folder / "figures"
    folder.mkdir(exist_ok=True)
    main = rows["main"]
    ours, baseline = main["schwarz"], main["global"]
    name = f"global, rank {config.global_rank}"
    curves = {name: baseline.losses, "Schwarz": ours.losses}
    paper = None
    if config.sweep and config.preset == "paper":
        finals = (PAPER["global"], PAPER["schwarz"])
        paper = {
            k: [v[0] for v in part] for k, part in zip(curves, finals, strict=True)
        }
    figures.sweep(folder / "01_training.png", ours.study.rates, curves, paper=paper)
    shown = {"02": "global", "03": "schwarz", "07": "global_matched"}
    if config.dim == 1:
        for number, name in shown.items():
            path = folder / f"{number}_solutions_{name}.png"
            _solutions(path, main[name], LABELS[name])
        _anatomy(folder, ours)
    if "growth" in rows:
        for number, size in (("09", 512), ("10", 1024)):
            row = rows["growth"][f"paper_{size}"]
            figures.sweep(
                folder / f"08_training_{size}.png",
                row.study.rates,
                {"Schwarz": row.losses},
                paper={"Schwarz": [PAPER_FINAL[f"paper_{size}"]]},
            )
            path = folder / f"{number}_solutions_{size}.png"
            _solutions(path, row, f"Schwarz, n = {size}")


def _solutions(path: pathlib.Path, row: Row, title: str) -> None:
    """The 16 right-hand sides of the paper's figures, first seed."""
    found = outcome.read(row.folder)
    arrays = zip(*((s.features, s.target) for s in found.samples), strict=True)
    right_sides, exact = (np.concatenate(part, axis=1) for part in arrays)
    points = found.samples[0].mesh_points[:, 0]
    predicted = np.concatenate(found.predicted, axis=1)
    figures.solutions(path, points, right_sides, exact, predicted, title=title)


def _model(row: Row) -> Any:
    """The model of the first seed, in float64."""
    study, arrays = row.study, outcome.read(row.folder).arrays
    model = build(study.setup, study.start, jax.random.key(0))
    leaves, structure = jax.tree.flatten(model)
    stored = [arrays[f"leaf_{i}"].astype(float) for i in range(len(leaves))]
    return jax.tree.unflatten(structure, stored)


def _anatomy(folder: pathlib.Path, row: Row) -> None:
    """Levels of the operator, blocks and hats of the first seed."""
    size, setup = row.study.setup.num_points, row.study.setup
    if setup.coarse_space == "none" or size > 2048:
        return
    with jax.enable_x64(True):
        model = jax.tree.map(jax.numpy.asarray, _model(row))
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
    points = np.arange(1, size + 1) / (size + 1)
    figures.hats(
        folder / "06_hats.png",
        points,
        np.asarray(hats),
        points[interval_starts(size, setup.num_boxes)[1:-1]],
        overlap=setup.overlap / (size + 1),
    )
