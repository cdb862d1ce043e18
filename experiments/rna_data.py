"""The surfaces of the RNA experiment: read, divided, centred, scaled and turned.

Without --data_dir there is no RNA: only the smoke preset and tests run, on a synthetic
set of bumpy spheres with regions, which says nothing about RNA.
"""

from typing import Any, NamedTuple

import numpy as np

from opjax import point_clouds
from opjax.datasets import rna, samples
from opjax.datasets.samples import Sample

# How surfaces are turned before the model sees their coordinates.
ORIENTATIONS = ("random", "published", "principal")
_REGIONS = 12  # of the synthetic surfaces
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
    num_train = config.num_train + config.num_validation
    vertices = []
    if config.data_dir:
        train, test = rna.load(
            config.data_dir,
            num_points=_AVAILABLE,
            num_train=num_train,
            num_test=config.num_test,
            cache_dir=cache_dir,
        )
        if rna.has_meshes(config.data_dir):
            meshes = rna.read_meshes(config.data_dir, "test", limit=config.num_test)
            points = [s.mesh_points[: config.test_points] for s in test]
            vertices = list(map(_nearest, meshes, points))
        source = f"RNA surfaces, {config.data_dir}"
    elif config.preset == "smoke":
        found = synthetic(num_train + config.num_test, seed=config.data_seed)
        train, test = found[:num_train], found[num_train:]
        source = f"synthetic bumpy spheres, no RNA, seed {config.data_seed}"
    else:
        raise ValueError(
            f"preset={config.preset!r} needs --data_dir, the folder of the RNA "
            "surfaces (see opjax.datasets.rna); without, only the smoke preset runs, "
            "on synthetic surfaces."
        )
    train = [_place(s, config) for s in train]
    test = [_start(_place(s, config), config.test_points) for s in test]
    validation = [_start(s, config.test_points) for s in train[config.num_train :]]
    return Data(train[: config.num_train], validation, test, vertices, source)


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


def synthetic(count: int, *, seed: int, num_points: int = 256) -> list[Sample]:
    """Makes bumpy spheres in random poses whose classes are regions around directions.

    Args:
      count: number of surfaces.
      seed: of the set; surface `i` depends on seed and `i` only.
      num_points: of every surface, evenly spread.

    Returns:
      Surfaces like those of `rna.load`; not RNA.
    """
    steps = np.arange(num_points) + 0.5
    height, angle = 1 - 2 * steps / num_points, np.pi * (1 + 5**0.5) * steps
    radius = np.sqrt(1 - height**2)
    sphere = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], 1)
    directions = np.random.default_rng(0).normal(size=(_REGIONS, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    classes = np.argmax(sphere @ directions.T, axis=1).astype(np.int32)
    found = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        bumps = np.exp(3 * (sphere @ directions.T - 1))
        heights = np.linspace(-0.3, 0.5, _REGIONS) + 0.05 * rng.normal(size=_REGIONS)
        points = 30 * (1 + bumps @ heights)[:, None] * sphere
        pose, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        points = points @ (pose * np.linalg.det(pose)) + 100 * rng.normal(size=3)
        order = rng.permutation(num_points)
        found.append(
            Sample(
                points[order].astype(np.float32),
                classes[order],
                name=f"synthetic {index}",
            )
        )
    samples.check(found, num_classes=rna.NUM_CLASSES)
    return found


def _target(sample: Sample) -> np.ndarray:
    assert sample.target is not None
    return sample.target
