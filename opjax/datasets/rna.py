"""RNA surfaces with a class for every point: published meshes, or samples of them.

There are 683 surfaces of ribosomal RNA, most with about 15000 vertices. Every vertex
belongs to one of 259 functional categories, from 0 to 258, or to none, -1; here labels
are increased by one, which gives 260 classes. Many surfaces show the same molecule,
often in the same pose, so the published split measures less than it seems: the nearest
training point in centred coordinates has the class of 58 % of the test points, and in
principal axes of 75 %.
"""

import hashlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from opjax import _checks, point_clouds, samples
from opjax._files import OnePath
from opjax.datasets import _off, _rna_files, _rna_signatures
from opjax.datasets.cache import cached
from opjax.datasets.requests import Request, divide
from opjax.samples import Sample, Splits

NUM_CLASSES = _rna_files.NUM_CLASSES
with_signatures = _rna_signatures.with_signatures

_LOGGER = logging.getLogger(__name__)
_VERSION = 1  # raise it whenever the same meshes give other samples
_REGIONS = 12  # of synthetic surfaces
_BLOCK = 4096  # sizes of meshes are rounded up to multiples: one program for each


class Vertices(NamedTuple):
    """All vertices of a mesh, if its sample contains only some of them.

    Attributes:
      target: classes of the vertices, `(v,)`.
      nearest: index of the nearest point of the sample, `(v,)`.
    """

    target: np.ndarray
    nearest: np.ndarray


def splits(request: Request, *, num_points: int = 4096) -> Splits:
    """Returns the surfaces of a benchmark, see `requests.Request`, or bumpy spheres.

    RNA surfaces have at most `num_points` points, spheres have 256.
    """
    if request.data_dir:
        return request.read(
            partial(load, num_points=num_points, cache_dir=request.cache_dir),
            f"RNA surfaces, {request.data_dir}",
        )
    molecules = generate(sum(request.sizes), seed=request.seed)
    source = f"synthetic bumpy spheres, no RNA, seed {request.seed}"
    return divide(molecules, request.sizes, source)


def generate(num_samples: int, *, seed: int, num_points: int = 256) -> list[Sample]:
    """Generates bumpy spheres in random poses; classes are regions around directions.

    Args:
      num_samples: number of surfaces.
      seed: seed of the set; surface `i` depends only on seed and `i`.
      num_points: number of evenly spread points of every surface.

    Returns:
      Surfaces in the form of `load`, for tests and to try a program; not RNA.
    """
    steps = np.arange(num_points) + 0.5
    height, angle = 1 - 2 * steps / num_points, np.pi * (1 + 5**0.5) * steps
    radius = np.sqrt(1 - height**2)
    sphere = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], 1)
    directions = np.random.default_rng(0).normal(size=(_REGIONS, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    classes = np.argmax(sphere @ directions.T, axis=1).astype(np.int32)
    bumps = np.exp(3 * (sphere @ directions.T - 1))
    molecules = []
    for index in range(num_samples):
        rng = np.random.default_rng([seed, index])
        heights = np.linspace(-0.3, 0.5, _REGIONS) + 0.05 * rng.normal(size=_REGIONS)
        points = 30 * (1 + bumps @ heights)[:, None] * sphere
        pose, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        points = points @ (pose * np.linalg.det(pose)) + 100 * rng.normal(size=3)
        order = rng.permutation(num_points)
        name = f"synthetic {index}"
        molecules.append(
            Sample(points[order].astype(np.float32), classes[order], name=name)
        )
    samples.check(molecules, num_classes=NUM_CLASSES)
    return molecules


def load(
    data_dir: OnePath,
    *,
    num_points: int = 4096,
    num_train: int | None = None,
    num_test: int | None = None,
    replace: bool = False,
    cache_dir: OnePath | None = None,
) -> tuple[list[Sample], list[Sample]]:
    """Reads the surfaces as point clouds of at most `num_points` points.

    `data_dir` is the published folder, with `off/*.off`, `labels/*.txt`, `train.txt`
    and `test.txt`; or it contains samples of the surfaces, `rna_train_4096.npz` and
    `rna_test_4096.npz`, with `points` `(samples, n, 3)`, `labels` `(samples, n)` from
    -1 to 258 and `names`. Meshes are sampled by `point_clouds.farthest_points`; from
    samples, the first `num_points` are used, so a smaller sample is the start of a
    larger one. The selection is cached, because sampling all meshes takes minutes.

    Args:
      data_dir: folder of the files.
      num_points: maximum number of points of a sample.
      num_train: maximum number of training surfaces, the first ones.
      num_test: maximum number of test surfaces.
      replace: repeat vertices, drawn at random with a fixed seed, if a mesh has fewer
        than `num_points`. Otherwise it keeps its size, and is padded with points of
        zero weight (`samples.stack`).
      cache_dir: folder of the cache; by default `$OPJAX_CACHE` or `~/.cache/opjax`.

    Returns:
      Training and test surfaces: `mesh_points` in angstrom, in the published pose, and
      `target`, classes from 0 to 259.

    Raises:
      FileNotFoundError: if files are missing. The message names them and the download
        address.
      ValueError: if a file is damaged, a mesh and its labels differ in size, labels are
        out of range, the lists share a surface, or there are too few surfaces.

    References:
      Poulenard et al., "Effective rotation-invariant point CNN with spherical harmonics
      kernels", 3DV 2019.
      Xiao et al., "Functional Attention", 2026, section 5.3.
    """
    _checks.positive(num_points=num_points)
    root = Path(data_dir).expanduser()
    limits = {"train": num_train, "test": num_test}
    loaded = []
    for split, limit in limits.items():
        if has_meshes(root):
            meshes = read_meshes(root, split, limit=limit)
            molecules = sample_meshes(
                meshes, num_points=num_points, replace=replace, cache_dir=cache_dir
            )
        else:
            molecules = _rna_files.read_samples(root, split, num_points, limit)
        loaded.append(molecules)
    train, test = loaded
    _check_disjoint(root, train, test)
    return train, test


def has_meshes(data_dir: OnePath) -> bool:
    """Whether a folder is the published one, with `train.txt` or `test.txt`."""
    root = Path(data_dir).expanduser()
    return any((root / f"{split}.txt").is_file() for split in _rna_files.PUBLISHED)


def read_meshes(
    data_dir: OnePath, split: str, *, limit: int | None = None
) -> list[Sample]:
    """Reads all vertices of the published meshes.

    Args:
      data_dir: the published folder.
      split: `"train"` or `"test"`.
      limit: maximum number of surfaces, the first ones.

    Returns:
      Surfaces as from `load`, at all vertices. Coinciding vertices are kept; their
      number is logged.

    Raises:
      FileNotFoundError: if the list or files that it names are missing.
      ValueError: as for `load`.
    """
    _checks.option("split", split, _rna_files.PUBLISHED)
    root = Path(data_dir).expanduser()
    names = _rna_files.names(root, split)
    _rna_files.take(names, limit, root / f"{split}.txt")
    names = names[:limit]
    _rna_files.check_files(root, split, names)
    meshes = [_rna_files.read_mesh(root, name) for name in names]
    samples.check(meshes, num_classes=NUM_CLASSES)
    repeated = [m.num_points - len(np.unique(m.mesh_points, axis=0)) for m in meshes]
    if any(repeated):
        _LOGGER.info(
            "%s: %d of %d meshes have coinciding vertices, %d in all; they are kept.",
            root / f"{split}.txt",
            np.count_nonzero(repeated),
            len(meshes),
            sum(repeated),
        )
    return meshes


def with_vertices(
    data_dir: OnePath, tests: Sequence[Sample], *, num_points: int
) -> list[Sample]:
    """Adds the `Vertices` of their meshes to test surfaces, as `details`.

    Args:
      data_dir: as for `load`; without meshes, no details are added.
      tests: the first test surfaces, as from `load`.
      num_points: maximum number of points of a surface among which the nearest is
        searched.
    """
    if not has_meshes(data_dir):
        return list(tests)
    meshes = read_meshes(data_dir, "test", limit=len(tests))
    several = []
    for sample, mesh in zip(tests, meshes, strict=True):
        assert mesh.target is not None
        points = sample.mesh_points[:num_points]
        nearest = np.asarray(point_clouds.nearest_points(mesh.mesh_points, points))
        several.append(sample._replace(details=Vertices(mesh.target, nearest)))
    return several


def untrained(
    train: Sequence[Sample], test: Sequence[Sample], *, num_points: int = 256
) -> dict[str, float]:
    """Returns accuracies on test points without any learning.

    Args:
      train: training surfaces, in any pose.
      test: test surfaces, in any pose.
      num_points: number of first points of every surface among which the nearest
        training point is searched.

    Returns:
      `most_frequent`, the accuracy of the most frequent class, over all points; and
      `nearest_neighbour`, the accuracy of the class of the nearest training point.
    """

    def classes(surfaces: Sequence[Sample], count: int | None = None) -> np.ndarray:
        return np.concatenate([np.asarray(s.target)[:count] for s in surfaces])

    of_training, asked = (
        np.concatenate([s.mesh_points[:num_points] for s in surfaces])
        for surfaces in (train, test)
    )
    nearest = np.asarray(point_clouds.nearest_points(asked, of_training))
    predicted = classes(train, num_points)[nearest]
    most = np.bincount(classes(train)).argmax()
    return {
        "most_frequent": float(np.mean(classes(test) == most)),
        "nearest_neighbour": float(np.mean(predicted == classes(test, num_points))),
    }


def sample_meshes(
    meshes: Sequence[Sample],
    *,
    num_points: int,
    replace: bool = False,
    cache_dir: OnePath | None = None,
) -> list[Sample]:
    """Selects points of meshes, with the arguments and result of `load`.

    It computes in float64, so that the points are the same on every machine.
    """
    _checks.positive(num_points=num_points)
    large = [mesh for mesh in meshes if mesh.num_points > num_points]
    digest = hashlib.sha256()
    for mesh in large:
        digest.update(f"{mesh.mesh_points.shape};".encode())
        digest.update(np.ascontiguousarray(mesh.mesh_points).data)
    recipe = {
        "version": _VERSION,
        "num_points": int(num_points),
        "meshes": digest.hexdigest(),
    }
    chosen = iter(())
    if large:
        arrays = cached(
            lambda: {"indices": np.stack([_choose(m, num_points) for m in large])},
            name="rna",
            recipe=recipe,
            cache_dir=cache_dir,
        )
        chosen = iter(arrays["indices"])
    rng = np.random.default_rng(0)
    sampled = []
    for mesh in meshes:
        if mesh.num_points > num_points:
            mesh = _rows(mesh, next(chosen))
        elif replace and mesh.num_points < num_points:
            more = rng.integers(mesh.num_points, size=num_points - mesh.num_points)
            mesh = _rows(mesh, np.r_[: mesh.num_points, more])
        sampled.append(mesh)
    return sampled


def save(data_dir: OnePath, train: Sequence[Sample], test: Sequence[Sample]) -> None:
    """Writes surfaces without faces in the published layout, so that `load` reads it.

    Args:
      data_dir: folder; created if missing.
      train: surfaces with names, as from `load`.
      test: test surfaces, in any pose.

    Raises:
      OSError: if a file cannot be written.
      ValueError: if there is no sample, one is invalid, or names repeat.
    """
    root = Path(data_dir).expanduser()
    samples.check([*train, *test], num_classes=NUM_CLASSES)
    _check_disjoint(root, train, test)
    for folder in ("off", "labels"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for split, surfaces in (("train", train), ("test", test)):
        for surface in surfaces:
            assert surface.target is not None
            _off.write(root / "off" / f"{surface.name}.off", surface.mesh_points)
            labels = "".join(f"{label - 1}\n" for label in surface.target.tolist())
            (root / "labels" / f"{surface.name}.txt").write_text(labels)
        lines = "".join(f"{surface.name}.off\n" for surface in surfaces)
        (root / f"{split}.txt").write_text(lines)


def _check_disjoint(
    root: Path, train: Sequence[Sample], test: Sequence[Sample]
) -> None:
    twice = sorted({one.name for one in train} & {one.name for one in test})
    if twice:
        raise ValueError(
            f"{root} has {len(twice)} surfaces in both the training and the test "
            f"set: {', '.join(twice[:8])}."
        )


def _choose(mesh: Sample, num_points: int) -> np.ndarray:
    size = -(-mesh.num_points // _BLOCK) * _BLOCK
    padded = samples.pad(mesh, size)
    with jax.enable_x64(True):
        chosen = point_clouds.farthest_points(
            padded["mesh_points"].astype(np.float64),
            num_samples=num_points,
            quadrature_weights=padded["quadrature_weights"].astype(np.float64),
        )
        return np.asarray(chosen)


def _rows(mesh: Sample, rows: np.ndarray) -> Sample:
    assert mesh.target is not None
    return mesh._replace(mesh_points=mesh.mesh_points[rows], target=mesh.target[rows])
