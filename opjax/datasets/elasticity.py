"""The elasticity data set: unit cells with a void, generated or read from files.

A sample is a point cloud with the von Mises stress at its points (not the displacement,
as some papers state). The points are the only input. Generated cells follow the
published constitutive law, forces and distribution of voids
(`opjax.problems.elasticity`), on the 972 Gauss points of a different mesh. Models
trained on one set are therefore not accurate on the other.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np

from opjax._files import OnePath
from opjax.datasets import _arrays, _generated
from opjax.datasets.requests import Request
from opjax.files import variables
from opjax.problems import elasticity
from opjax.samples import Sample, Splits

_POINTS, _STRESS = "Random_UnitCell_XY_10.npy", "Random_UnitCell_sigma_10.npy"
_FOLDERS = ("elasticity/Meshes", "Meshes", "elasticity", ".")


def splits(
    request: Request,
    *,
    num_around: int = 36,
    num_across: int = 3,
) -> Splits:
    """Returns the samples of a benchmark (`requests.Request`), see `generate`."""
    if request.data_dir:
        return request.read(load, f"published files in {request.data_dir}")
    source = f"own solver on {num_around} x {num_across} elements"
    return request.generate_together(
        partial(generate, num_around=num_around, num_across=num_across), source
    )


def generate(
    num_samples: int,
    *,
    seed: int,
    num_around: int = 36,
    num_across: int = 3,
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Generates unit cells with random voids, or reads them from the cache.

    Sample `i` depends only on `seed` and `i`, so a smaller data set is the start of a
    larger one. A sample takes about 50 ms.

    Args:
      num_samples: number of cells.
      seed: seed of the data set; use different seeds for training and test data.
      num_around: number of elements around the void, a multiple of four.
      num_across: number of elements between the void and the sides.
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Samples with `9 num_around num_across` points: `mesh_points` `(n, 2)` in units of
      the cell's side, `target` `(n, 1)` in the units of the traction, 100.

    Raises:
      ImportError: if scikit-fem is missing and the cells are not in the cache.
      ValueError: if a number is not positive, `seed` is negative, or `num_around` is
        not a multiple of four.
    """
    arrays = _build(
        num_samples, seed, cache_dir, num_around=num_around, num_across=num_across
    )
    return _to_samples(arrays["points"], arrays["stress"])


def load(
    data_dir: OnePath, *, num_train: int = 1000, num_test: int = 200
) -> tuple[list[Sample], list[Sample]]:
    """Reads the published files, or files of the same layout made by `save`.

    The files are `Random_UnitCell_XY_10.npy`, `(points, 2, samples)`, and
    `Random_UnitCell_sigma_10.npy`, `(points, samples)`, published with 972 points and
    2000 samples, in `data_dir` or its subfolders `elasticity/Meshes`, `Meshes` or
    `elasticity`. The first samples are the training set, the last ones the test set, as
    in all later papers.

    Args:
      data_dir: folder of the files.
      num_train: number of training samples.
      num_test: number of test samples.

    Returns:
      Training and test samples.

    Raises:
      FileNotFoundError: if a file is missing. The message lists the searched paths.
      ValueError: if a file is damaged, has another shape, its axes in another order,
        too few samples or non-finite values.

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.1.
    """
    points_path, stress_path = (
        _arrays.find(
            data_dir,
            [f"{folder}/{name}" for folder in _FOLDERS],
            source=_arrays.GEO_FNO,
        )
        for name in (_POINTS, _STRESS)
    )
    points = _arrays.read(points_path, shape=(None, 2, None), source=_arrays.GEO_FNO)
    num_points, _, num_samples = points.shape
    # Points differ more within a cell than the same point does between cells.
    if points.std(axis=0).mean() < points.std(axis=2).mean():
        raise ValueError(
            f"{points_path} has shape {points.shape}, expected (points, 2, samples), "
            "but axis 0 seems to hold the samples: swap axes 0 and 2."
        )
    stress = _arrays.read(
        stress_path, shape=(num_points, num_samples), source=_arrays.GEO_FNO
    )
    parts = _arrays.split(
        num_samples, num_train, num_test, test="last", what=str(points_path)
    )
    points, stress = points.transpose(2, 0, 1), stress.T
    train, test = (_to_samples(points[part], stress[part]) for part in parts)
    return train, test


def save(data_dir: OnePath, samples: Sequence[Sample]) -> None:
    """Writes samples in the published layout, so that `load` reads them.

    Args:
      data_dir: folder, created if missing; files are written to its subfolder
        `elasticity/Meshes`.
      samples: samples with one channel, all with the same number of points.

    Raises:
      ValueError: if there is no sample, the numbers of points differ, or a target is
        missing.
      OSError: if a file cannot be written.
    """
    shapes = {(s.mesh_points.shape, np.shape(_target(s))) for s in samples}
    if len(shapes) != 1 or not all(
        points == (target[0], 2) and target[1:] == (1,) for points, target in shapes
    ):
        raise ValueError(
            "samples have mesh_points and target with the shapes "
            f"{sorted(shapes)}, expected (n, 2) and (n, 1), equal for all samples."
        )
    points = np.stack([s.mesh_points for s in samples], axis=-1)
    stress = np.concatenate([_target(s) for s in samples], axis=1)
    folder = Path(data_dir).expanduser() / _FOLDERS[0]
    variables.save(folder, {_POINTS: points, _STRESS: stress})


def _target(sample: Sample) -> np.ndarray:
    if sample.target is None:
        raise ValueError("A sample has no target to save.")
    return sample.target


def _to_samples(points: np.ndarray, stress: np.ndarray) -> list[Sample]:
    return [
        Sample(np.ascontiguousarray(p), np.ascontiguousarray(s)[:, None])
        for p, s in zip(points, stress, strict=True)
    ]


# The version is raised whenever the same arguments give other numbers.
@_generated.cached_build("elasticity", version=1)
def _build(
    *, num_samples: int, seed: int, num_around: int, num_across: int
) -> dict[str, np.ndarray]:
    mesh = elasticity.reference_mesh(num_around=num_around, num_across=num_across)

    def draw(key: jax.Array, _: int) -> dict[str, np.ndarray]:
        modes = np.asarray(elasticity.void_modes(key))
        solution = elasticity.solve(elasticity.morphed_mesh(mesh, modes))
        stress = elasticity.von_mises(solution.stress)
        return {"points": solution.points, "stress": stress}

    return _generated.draw(draw, num_samples=num_samples, seed=seed, name="Elasticity")
