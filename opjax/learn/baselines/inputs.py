"""Inputs that distinguish cases: scalars, and components of shape and features."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from opjax.learn.baselines.meshes import CommonMesh
from opjax.samples import Sample
from opjax.samples.mirror import original

_PROBES = 512  # of the box, from which distances to a mesh are measured
_ROUNDING = 1e-5  # of the largest singular value: components below are rounding


class Shape(NamedTuple):
    """Principal components of the point data of cases.

    Attributes:
      scale: scale of every column, `(d,)`; zero for constant columns.
      mean: mean of the scaled columns, `(d,)`.
      modes: principal directions of the scaled columns, `(k, d)`, largest first.
      deviations: standard deviations of the components in training, `(k,)`.
    """

    scale: np.ndarray
    mean: np.ndarray
    modes: np.ndarray
    deviations: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray, blocks: Sequence[int], most: int) -> "Shape":
        """Fits columns `(b, d)`, whose blocks have equal parts of the variance."""
        spread, size = columns.std(axis=0), np.abs(columns).max(axis=0)
        spread = np.where(spread > 1e-6 * size, spread, 0)
        ends = np.cumsum([0, *blocks])
        scale = np.zeros(len(spread))
        for begin, end in itertools.pairwise(ends):
            total = np.linalg.norm(spread[begin:end])
            scale[begin:end] = (spread[begin:end] > 0) / (total or 1)
        scaled = columns * scale
        mean = scaled.mean(axis=0)
        _, sizes, modes = np.linalg.svd(scaled - mean, full_matrices=False)
        kept = np.flatnonzero(sizes > _ROUNDING * max(sizes[0], 1e-12))[:most]
        return cls(scale, mean, modes[kept], sizes[kept] / np.sqrt(len(columns)))

    def components(self, columns: np.ndarray) -> np.ndarray:
        """Returns the components of columns, `(b, k)`."""
        return (columns * self.scale - self.mean) @ self.modes.T


def columns(mesh: CommonMesh, sample: Sample) -> tuple[np.ndarray, list[int]]:
    """Returns the point data of a case, `(d,)`, and the lengths of its blocks.

    If meshes correspond, the coordinates are one block. Otherwise a block consists of
    the corners of the bounding box and the distances from places in the common box to
    the nearest point, which reveal holes. Each channel of the features is one more
    block.
    """
    points = np.asarray(sample.mesh_points, float)
    if mesh.subset:
        box = np.concatenate([points.min(axis=0), points.max(axis=0)])
        blocks = [box, _distances(mesh, points)]
    else:
        blocks = [mesh.gathered(sample, points).ravel()]
    if sample.features is not None:
        blocks += list(mesh.gathered(sample, sample.features).T)
    return np.concatenate(blocks), [len(block) for block in blocks]


def _distances(mesh: CommonMesh, points: np.ndarray) -> np.ndarray:
    """Distances of places on a grid of the common box to the points of a case."""
    from scipy.spatial import KDTree

    dim = len(mesh.size)
    count = max(2, round(_PROBES ** (1 / dim)))
    axes = [np.linspace(0, width, count) for width in mesh.size]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dim)
    return np.asarray(KDTree(mesh.in_box(points)).query(places)[0])


class Inputs(NamedTuple):
    """Inputs of cases: scalars and components.

    Attributes:
      scalars: standardised scalars that vary in training, `(b, s)`.
      shape: principal components, `(b, k)`.
      deviations: standard deviations of these components in training, `(k,)`.
      origins: number of every case, `(b,)`, which its mirrored copies share.
    """

    scalars: np.ndarray
    shape: np.ndarray
    deviations: np.ndarray
    origins: np.ndarray

    def chosen(self, name: str, count: int, *, scaled: bool) -> np.ndarray:
        """Returns the inputs of one kind, `(b, k)`.

        Args:
          name: `"scalars"`, `"shape"`, or `"both"`.
          count: maximum number of shape components.
          scaled: divide each component by its standard deviation, instead of all by the
            largest.
        """
        parts: list[np.ndarray] = []
        if name != "shape":
            parts.append(self.scalars)
        if name != "scalars":
            size = self.deviations[:count] if scaled else self.deviations[0]
            parts.append(self.shape[:, :count] / size)
        return np.concatenate(parts, axis=1)

    def kinds(self) -> list[str]:
        """Returns the available kinds of inputs."""
        kinds = ["scalars"] * bool(self.scalars.shape[1])
        kinds += ["shape"] * bool(self.shape.shape[1])
        return [*kinds, "both"] if len(kinds) == 2 else kinds


class Reader:
    """Computes the inputs of new cases in the same way as for the training cases.

    Args:
      mean: mean of the scalars, `(s,)`.
      std: standard deviations of the scalars; zero for scalars that are constant or
        depend linearly on others.
      shape: the `Shape` of the training cases.
    """

    def __init__(self, mean: np.ndarray, std: np.ndarray, shape: Shape):
        self.mean, self.std, self.shape = mean, std, shape

    @classmethod
    def of(
        cls, mesh: CommonMesh, train: Sequence[Sample], most: int
    ) -> "tuple[Reader, Inputs]":
        """Fits a reader to the training cases, and returns their inputs too."""
        scalars = np.stack([_scalars(one) for one in train])
        mean, std = scalars.mean(axis=0), scalars.std(axis=0)
        std = np.where(std > 1e-6 * np.abs(scalars).max(axis=0, initial=0), std, 0)
        std = np.where(_independent((scalars - mean) / np.where(std, std, 1)), std, 0)
        found = [columns(mesh, one) for one in train]
        rows = np.stack([row for row, _ in found])
        shape = Shape.of(rows, found[0][1], most)
        reader = cls(mean, std, shape)
        return reader, reader._inputs(scalars, rows)._replace(origins=_origins(train))

    def read(self, mesh: CommonMesh, sample: Sample) -> Inputs:
        """Returns the inputs of one case, as one row."""
        row = np.zeros((1, len(self.shape.scale)))
        if len(self.shape.modes):
            row = columns(mesh, sample)[0][None]
        return self._inputs(_scalars(sample)[None], row)

    def _inputs(self, scalars: np.ndarray, rows: np.ndarray) -> Inputs:
        kept = self.std > 0
        standard = (scalars - self.mean)[:, kept] / self.std[kept]
        shape, origins = self.shape.components(rows), np.arange(len(rows))
        return Inputs(standard, shape, self.shape.deviations, origins)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays for `from_arrays`."""
        own = {"scalar_mean": self.mean, "scalar_std": self.std}
        return own | {f"shape_{k}": v for k, v in self.shape._asdict().items()}

    @classmethod
    def from_arrays(cls, stored: Mapping[str, np.ndarray]) -> "Reader":
        """Restores the reader from its arrays."""
        shape = Shape(*(stored[f"shape_{name}"] for name in Shape._fields))
        return cls(stored["scalar_mean"], stored["scalar_std"], shape)


def _independent(standard: np.ndarray) -> np.ndarray:
    """Whether each column is no linear function of those before it, `(s,)` booleans."""
    ranks = [
        np.linalg.matrix_rank(standard[:, :count], tol=1e-6 * len(standard))
        for count in range(standard.shape[1] + 1)
    ]
    return np.diff(ranks) > 0


def _origins(train: Sequence[Sample]) -> np.ndarray:
    """Numbers of cases, one for a case and its mirrored copies."""
    names = [original(one.name) or str(row) for row, one in enumerate(train)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])


def _scalars(sample: Sample) -> np.ndarray:
    return np.zeros(0) if sample.scalars is None else np.asarray(sample.scalars, float)
