"""The surfaces of the RNA experiment: read, divided, centred, scaled and turned.

Without --data_dir there is no RNA: only the smoke preset and tests run, on a synthetic
set of bumpy spheres with regions, which says nothing about RNA.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from opjax import point_clouds
from opjax.datasets import rna
from opjax.datasets.samples import Sample
from opjax.learn.benchmark import load as load_splits

# How surfaces are turned before the model sees their coordinates.
ORIENTATIONS = ("random", "published", "principal")
_AVAILABLE = 4096  # points of a surface to draw from in training


class Data(NamedTuple):
    """The surfaces as the models see them, with classes as targets.

    Attributes:
      train: of up to 4096 points, of which training draws some.
      validation: of the first `test_points` points, which are spread over the surface.
      test: likewise.
      vertices: of every test mesh the classes of all vertices and the nearest of the
        test points; empty if the meshes are not there.
      source: where the surfaces come from.
    """

    train: list[Sample]
    validation: list[Sample]
    test: list[Sample]
    vertices: list[tuple[np.ndarray, np.ndarray]]
    source: str


def load(config: Any, *, cache_dir: str | None = None) -> Data:
    """Reads the surfaces; validation surfaces are the last ones of those for training.

    Args:
      config: has the data fields of `experiments.rna.Config`.
      cache_dir: folder of the cache of chosen points.

    Returns:
      The surfaces, centred, scaled and, if asked for, turned.

    Raises:
      OSError: if files are missing or cannot be read.
      ValueError: if they are damaged or hold too few surfaces, or there is no data_dir
        and the preset is not smoke.
    """
    if not config.data_dir and config.preset != "smoke":
        raise ValueError(
            f"preset={config.preset!r} needs --data_dir, the folder of the RNA "
            "surfaces (see opjax.datasets.rna); without, only the smoke preset runs, "
            "on synthetic surfaces."
        )
    splits = partial(rna.splits, num_points=_AVAILABLE)
    found = load_splits(config, splits, cache_dir=cache_dir)
    vertices = []
    if config.data_dir and rna.has_meshes(config.data_dir):
        meshes = rna.read_meshes(config.data_dir, "test", limit=config.num_test)
        points = [s.mesh_points[: config.test_points] for s in found.test]
        vertices = list(map(_nearest, meshes, points))
    train, validation, test = ([_place(s, config) for s in part] for part in found[:3])
    validation, test = (
        [_start(s, config.test_points) for s in part] for part in (validation, test)
    )
    return Data(train, validation, test, vertices, found.source)


def _place(sample: Sample, config: Any) -> Sample:
    points = point_clouds.centre_and_scale(
        sample.mesh_points, length=config.length or None
    )
    if config.orientation == "principal":
        points = points @ point_clouds.principal_axes(points)
    return sample._replace(mesh_points=np.asarray(points, np.float32))


def _start(sample: Sample, num_points: int) -> Sample:
    """The first points of a surface."""
    return sample._replace(
        mesh_points=sample.mesh_points[:num_points],
        target=_target(sample)[:num_points],
    )


def _nearest(mesh: Sample, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nearest = point_clouds.nearest_points(mesh.mesh_points, points)
    return _target(mesh), np.asarray(nearest)


def most_frequent(data: Data) -> float:
    """Accuracy, on test points, of the most frequent class of the training points."""
    classes = np.concatenate([_target(s) for s in data.train])
    most = int(np.bincount(classes).argmax())
    return float(np.mean(np.concatenate([_target(s) for s in data.test]) == most))


def nearest_neighbour(data: Data, *, num_points: int = 256) -> float:
    """Accuracy of the class of the nearest training point, without any learning.

    Args:
      data: the surfaces.
      num_points: points of every surface.
    """
    train = [_start(s, num_points) for s in data.train]
    test = [_start(s, num_points) for s in data.test]
    known = np.concatenate([s.mesh_points for s in train])
    classes = np.concatenate([_target(s) for s in train])
    queries = np.concatenate([s.mesh_points for s in test])
    found = classes[np.asarray(point_clouds.nearest_points(queries, known))]
    return float(np.mean(found == np.concatenate([_target(s) for s in test])))


def _target(sample: Sample) -> np.ndarray:
    assert sample.target is not None
    return sample.target
