"""RNA surfaces with a class for every point: the published meshes, or samples of them.

683 surfaces of ribosomal RNA, most with about 15000 vertices. Every vertex belongs to
one of 259 functional categories, from 0 to 258, or to none, -1; here labels are raised
by one, so that there are 260 classes. Many surfaces show the same molecule, often in
the same pose, so the published split measures less than it seems: the nearest training
point in the published coordinates, moved to the mean, has the class of 58 % of the test
points, and in principal axes 75 %.
"""

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from opjax import _checks, point_clouds
from opjax.datasets import _arrays, _files, _off, samples
from opjax.datasets.cache import cached
from opjax.datasets.samples import Request, Sample, Splits, benchmark

NUM_CLASSES = 260

_LOGGER = logging.getLogger(__name__)
_VERSION = 1  # raise it whenever the same meshes give other samples
_LABELS = (-1, NUM_CLASSES - 2)
_PUBLISHED = {"train": 547, "test": 136}
_SOURCE = "github.com/nmwsharp/RNA-Surface-Segmentation-Dataset"
_REGIONS = 12  # of synthetic surfaces
_BLOCK = 4096  # sizes of meshes are rounded up to multiples: one program for each


@benchmark
def splits(
    request: Request,
    *,
    num_points: int = 4096,
) -> Splits:
    """The surfaces of a benchmark, see `samples.benchmark`, or bumpy spheres instead.

    RNA surfaces have `num_points` points at most, spheres have 256.
    """
    if request.data_dir:
        return request.read(
            load,
            f"RNA surfaces, {request.data_dir}",
            num_points=num_points,
            cache_dir=request.cache_dir,
        )
    found = generate(sum(request.sizes), seed=request.seed)
    source = f"synthetic bumpy spheres, no RNA, seed {request.seed}"
    return samples.divide(found, request.sizes, source)


def generate(num_samples: int, *, seed: int, num_points: int = 256) -> list[Sample]:
    """Makes bumpy spheres in random poses whose classes are regions around directions.

    Args:
      num_samples: number of surfaces.
      seed: of the set; surface `i` depends on seed and `i` only.
      num_points: of every surface, evenly spread.

    Returns:
      Surfaces like those of `load`, for tests and for trying a program out; not RNA.
    """
    steps = np.arange(num_points) + 0.5
    height, angle = 1 - 2 * steps / num_points, np.pi * (1 + 5**0.5) * steps
    radius = np.sqrt(1 - height**2)
    sphere = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], 1)
    directions = np.random.default_rng(0).normal(size=(_REGIONS, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    classes = np.argmax(sphere @ directions.T, axis=1).astype(np.int32)
    bumps = np.exp(3 * (sphere @ directions.T - 1))
    found = []
    for index in range(num_samples):
        rng = np.random.default_rng([seed, index])
        heights = np.linspace(-0.3, 0.5, _REGIONS) + 0.05 * rng.normal(size=_REGIONS)
        points = 30 * (1 + bumps @ heights)[:, None] * sphere
        pose, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        points = points @ (pose * np.linalg.det(pose)) + 100 * rng.normal(size=3)
        order = rng.permutation(num_points)
        name = f"synthetic {index}"
        found.append(
            Sample(points[order].astype(np.float32), classes[order], name=name)
        )
    samples.check(found, num_classes=NUM_CLASSES)
    return found


def load(
    data_dir: str | os.PathLike,
    *,
    num_points: int = 4096,
    num_train: int | None = None,
    num_test: int | None = None,
    replace: bool = False,
    cache_dir: str | os.PathLike | None = None,
) -> tuple[list[Sample], list[Sample]]:
    """Reads the surfaces as point clouds of at most `num_points` points.

    `data_dir` is the published folder, with `off/*.off`, `labels/*.txt`, `train.txt`
    and `test.txt`, or holds samples of the surfaces, `rna_train_4096.npz` and
    `rna_test_4096.npz`, with `points` `(samples, n, 3)`, `labels` `(samples, n)` from
    -1 to 258 and `names`. Meshes are sampled by `point_clouds.farthest_points`, the
    first `num_points` of samples are kept: a smaller sample is the start of a larger
    one. The choice is cached, since sampling all meshes takes minutes.

    Args:
      data_dir: folder of the files.
      num_points: points of a sample.
      num_train: read only so many training surfaces, the first ones.
      num_test: read only so many test surfaces.
      replace: repeat vertices, drawn at random from a fixed seed, where a mesh has
        fewer than `num_points`; otherwise it keeps its size, to be padded with points
        of zero weight (`samples.stack`).
      cache_dir: folder of the cache; `$OPJAX_CACHE` or else `~/.cache/opjax`.

    Returns:
      Training and test surfaces: `mesh_points` in angstrom, in the published pose, and
      `target`, classes from 0 to 259.

    Raises:
      FileNotFoundError: if files are missing; names them and says where to get them.
      ValueError: if a file is damaged, a mesh and its labels differ in size, labels are
        out of range, the lists have a surface in common, or there are too few.

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
            found = sample_meshes(
                meshes, num_points=num_points, replace=replace, cache_dir=cache_dir
            )
        else:
            found = _read_samples(root, split, num_points, limit)
        loaded.append(found)
    train, test = loaded
    _check_disjoint(root, [s.name for s in train], [s.name for s in test])
    return train, test


def has_meshes(data_dir: str | os.PathLike) -> bool:
    """Whether a folder is the published one: it has `train.txt` or `test.txt`."""
    root = Path(data_dir).expanduser()
    return any((root / f"{split}.txt").is_file() for split in _PUBLISHED)


def read_meshes(
    data_dir: str | os.PathLike, split: str, *, limit: int | None = None
) -> list[Sample]:
    """Reads all vertices of the published meshes.

    Args:
      data_dir: the published folder.
      split: `"train"` or `"test"`.
      limit: read only so many surfaces, the first ones.

    Returns:
      Surfaces as from `load`, at all vertices. Vertices that coincide are kept; their
      number is logged.

    Raises:
      FileNotFoundError: if the list or files that it names are missing.
      ValueError: as for `load`.
    """
    _checks.option("split", split, _PUBLISHED)
    root = Path(data_dir).expanduser()
    names = _names(root, split)
    _take(names, limit, root / f"{split}.txt")
    names = names[:limit]
    _check_files(root, split, names)
    meshes = [_read_mesh(root, name) for name in names]
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


def sample_meshes(
    meshes: Sequence[Sample],
    *,
    num_points: int,
    replace: bool = False,
    cache_dir: str | os.PathLike | None = None,
) -> list[Sample]:
    """Chooses points of meshes; arguments and result as for `load`.

    In float64, so that the points are the same on every machine.
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


def save(
    data_dir: str | os.PathLike, train: Sequence[Sample], test: Sequence[Sample]
) -> None:
    """Writes surfaces without faces in the published layout, so that `load` reads it.

    Args:
      data_dir: folder, made if missing.
      train: surfaces with names, as from `load`.
      test: likewise.

    Raises:
      OSError: if a file cannot be written.
      ValueError: if there is no sample, one is not valid, or names repeat.
    """
    root = Path(data_dir).expanduser()
    samples.check([*train, *test], num_classes=NUM_CLASSES)
    _check_disjoint(root, [s.name for s in train], [s.name for s in test])
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


def _names(root: Path, split: str) -> list[str]:
    """Names of the surfaces of a list, without `.off`."""
    path = _arrays.find(root, [f"{split}.txt"], source=_SOURCE)
    lines = [line.strip() for line in path.read_text().splitlines()]
    names = [line.removesuffix(".off") for line in lines if line]
    bad = [name for name in names if Path(name).name != name]
    if bad or len(set(names)) < len(names) or not names:
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"{path} must list names of files, each once; it has {len(names)} lines, "
            f"twice {twice[:8]}, and with folders {bad[:8]}."
        )
    if len(names) != _PUBLISHED[split]:
        _LOGGER.warning(
            "%s names %d surfaces, %d were published: results are not comparable.",
            path,
            len(names),
            _PUBLISHED[split],
        )
    return names


def _check_files(root: Path, split: str, names: Sequence[str]) -> None:
    paths = [p for name in names for p in _paths(root, name)]
    missing = [str(path.relative_to(root)) for path in paths if not path.is_file()]
    if missing:
        listed = "".join(f"\n  {path}" for path in missing[:8])
        more = f"\n  and {len(missing) - 8} others" if len(missing) > 8 else ""
        raise FileNotFoundError(
            f"{root} lacks {len(missing)} files of the {len(names)} surfaces that "
            f"{split}.txt names:{listed}{more}\nGet them from {_SOURCE}, or take their "
            "lines out of the list."
        )


def _paths(root: Path, name: str) -> tuple[Path, Path]:
    return root / "off" / f"{name}.off", root / "labels" / f"{name}.txt"


def _read_mesh(root: Path, name: str) -> Sample:
    surface, text = _paths(root, name)
    vertices = _off.read_vertices(surface)
    labels = _off.read_labels(text, lowest=_LABELS[0], highest=_LABELS[1])
    if len(labels) != len(vertices):
        raise ValueError(
            f"{surface} has {len(vertices)} vertices, but {text} has {len(labels)} "
            f"labels; get both again from {_SOURCE}."
        )
    return Sample(vertices.astype(np.float32), labels + np.int32(1), name=name)


def _read_samples(
    root: Path, split: str, num_points: int, limit: int | None
) -> list[Sample]:
    try:
        path = _arrays.find(root, [f"rna_{split}_4096.npz"], source=_SOURCE)
    except FileNotFoundError as error:
        lists = f"\nNor is there {root / 'train.txt'}, of the published folder."
        raise FileNotFoundError(f"{error}{lists}") from None
    points = _arrays.read(path, "points", shape=(None, None, 3), source=_SOURCE)
    shape = points.shape[:2]
    labels = _arrays.read(path, "labels", shape=shape, source=_SOURCE, dtype=np.int32)
    names = _files.read_variable(path, "names", source=_SOURCE)
    if names.shape != shape[:1] or names.dtype.kind != "U":
        raise ValueError(
            f"names in {path} has shape {names.shape} and dtype {names.dtype}, "
            f"expected {shape[:1]} strings: points has shape {points.shape}."
        )
    if num_points > shape[1]:
        raise ValueError(
            f"{path} has {shape[1]} points of each surface, {num_points=} were asked "
            "for; take fewer, or read the published meshes."
        )
    _take(names, limit, path)
    found = [
        Sample(
            points[row, :num_points],
            labels[row, :num_points] + np.int32(1),
            name=str(names[row]).removesuffix(".off"),
        )
        for row in range(len(points) if limit is None else limit)
    ]
    samples.check(found, num_classes=NUM_CLASSES)
    return found


def _take(found: Sequence[str] | np.ndarray, limit: int | None, path: Path) -> None:
    if limit is not None and not 1 <= limit <= len(found):
        raise ValueError(
            f"{path} has {len(found)} surfaces, {limit} were asked for (validation "
            "surfaces are training surfaces and count too)."
        )


def _check_disjoint(root: Path, train: Sequence[str], test: Sequence[str]) -> None:
    twice = sorted(set(train) & set(test))
    if twice:
        raise ValueError(
            f"{root} has {len(twice)} surfaces both for training and for tests: "
            f"{', '.join(twice[:8])}."
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
