"""Drawings and their pressures, for the operator of the page "Try it".

    python docs/scripts/try_data.py FOLDER
    python -m experiments.darcy --preset=fast --data_dir=FOLDER --num_points=29 \
        --stride=1 --num_train=1800 --num_validation=200 --workdir=RUN

Half of the drawings are signs of Gaussian fields, as in the Darcy benchmark, and half
are brush strokes. Pressures are solved at 87 x 87 cell centres. The operator sees the
means of the permeability over blocks of 3 x 3 cells, and the pressures at their
centres. The test file holds 200 test samples and then 800 for calibration.
"""

import sys
from pathlib import Path

import jax
import numpy as np

from opjax.datasets import darcy as dataset
from opjax.problems import darcy, random_fields

CELLS, BLOCK = 87, 3  # cells of the drawing and of a block of them, per side
LOW, HIGH = 3.0, 12.0
SIZES = {"smooth1": 2000, "smooth2": 1000}


def strokes(rng: np.random.Generator) -> np.ndarray:
    """Returns a drawing of one to eight strokes; true where a cell is permeable."""
    centres = (np.arange(CELLS) + 0.5) / CELLS
    points = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1)
    permeable = np.full((CELLS, CELLS), rng.random() < 0.5)
    main = not permeable[0, 0]
    for _ in range(rng.integers(1, 9)):
        corners = rng.uniform(-0.05, 1.05, (rng.integers(1, 4), 2))
        radius = rng.uniform(0.03, 0.16 if len(corners) == 1 else 0.09)
        ends = corners[1:] if len(corners) > 1 else corners
        distance = np.min(
            [_distance(points, *pair) for pair in zip(corners, ends, strict=False)],
            axis=0,
        )
        permeable[distance < radius] = main if rng.random() < 0.8 else not main
    uniform = permeable.all() or not permeable.any()
    return strokes(rng) if uniform else permeable


def _distance(points: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Distance of points from a segment."""
    along = end - start
    share = (points - start) @ along / max(along @ along, 1e-12)
    nearest = start + np.clip(share, 0, 1)[..., None] * along
    return np.linalg.norm(points - nearest, axis=-1)


def drawing(seed: int, index: int) -> np.ndarray:
    """Permeability of a drawing at the cells, `(CELLS, CELLS)` in double precision."""
    if index % 2:
        permeable = strokes(np.random.default_rng([seed, index]))
    else:
        key = jax.random.fold_in(jax.random.key(seed), index)
        permeable = random_fields.gaussian_random_field(key, num_points=CELLS) >= 0
    return np.where(permeable, HIGH, LOW)


def coarse(cells: np.ndarray, *, centres: bool = False) -> np.ndarray:
    """Means over blocks of cells, or values at the centres of the blocks."""
    shape = CELLS // BLOCK, BLOCK
    blocks = cells.reshape(*shape, *shape)
    return blocks[:, BLOCK // 2, :, BLOCK // 2] if centres else blocks.mean((1, 3))


def sample(seed: int, index: int) -> tuple[np.ndarray, np.ndarray]:
    """Permeability and pressure on the grid of the operator."""
    cells = drawing(seed, index)
    solved = darcy.solve(cells)
    if not solved.residual < 1e-8:
        raise ValueError(
            f"The solver reached the residual {solved.residual:.1e} for drawing {index}"
            f" of seed {seed}, expected 1e-8."
        )
    return coarse(cells), coarse(np.asarray(solved.solution), centres=True)


def main(folder: str) -> None:
    """Writes both files in the layout of the Darcy benchmark."""
    points = CELLS // BLOCK
    for seed, (name, size) in enumerate(SIZES.items()):
        pairs = [sample(seed, index) for index in range(size)]
        path = Path(folder) / f"piececonst_r{points}_N1024_{name}.npz"
        arrays = (np.stack(each) for each in zip(*pairs, strict=True))
        dataset.save(path, dataset.to_samples(*arrays))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1])
