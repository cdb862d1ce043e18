"""Reading a mesh from its source in chunks, any number of times."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from opjax import _checks
from opjax._trees import Columns, Model, PyTree

NAMES = ("mesh_points", "features", "target", "quadrature_weights", "basis_functions")
# Named arrays of all points that can be sliced, or what yields those of some points.
Source = Mapping[str, Any] | Iterable[Mapping[str, Any]]


class Chunk(NamedTuple):
    """Points that are processed together, on the host.

    Attributes:
      number: index of the chunk.
      size: number of points of the mesh; padding repeats the last one.
      arrays: arrays by the names of the source, `(m, ...)`, without the weights.
      weights: `(m,)`, ones for a mesh without weights, zero for padding.
    """

    number: int
    size: int
    arrays: dict[str, np.ndarray]
    weights: np.ndarray

    @property
    def given(self) -> dict[str, np.ndarray]:
        """Returns the arguments of the calls of a basis."""
        names = ("mesh_points", "basis_functions")
        return {name: self.arrays[name] for name in names if name in self.arrays}


class Reader:
    """Passes over a source.

    Args:
      source: named arrays `(n, ...)` of all points, of any type that supports slicing,
        such as `np.memmap` or an HDF5 data set; or an object whose every iterator
        yields named arrays of the next points, any number at a time. Names are `NAMES`.
      chunk_size: number of points of a chunk; all if there are fewer.
      dtype: dtype of the arrays of chunks.
      names: required arrays; other arrays of the source are ignored. Weights are used
        if they exist.

    Raises:
      TypeError: if the source is of neither type, or an array is not real-valued.
      ValueError: if the chunk size is not positive, an array is missing or unknown,
        lengths differ, there is no point, or a weight is negative or not finite.
    """

    def __init__(
        self, source: Source, *, chunk_size: int, dtype: np.dtype, names: Iterable[str]
    ):
        _checks.positive(chunk_size=chunk_size)
        if not isinstance(source, Mapping) and iter(source) is source:
            raise TypeError(
                f"A {type(source).__name__} can be read only once; pass an object "
                "whose method __iter__ returns a new iterator for every pass."
            )
        self._source: Any = source
        self._dtype, self._names = np.dtype(dtype), tuple(names)
        self._checked, self.weighted = False, False
        pieces = [self._count(piece) for piece in self._weights_of_pieces()]
        self.num_points = sum(n for n, _, _ in pieces)
        if not self.num_points:
            raise ValueError("The source has no points.")
        self.weight = sum(weight for _, weight, _ in pieces)
        self.num_active = sum(positive for _, _, positive in pieces)
        self.size = min(chunk_size, self.num_points)
        self.num_chunks = -(-self.num_points // self.size)

    def __iter__(self) -> Iterator[Chunk]:
        """Yields the chunks, and reads the next one meanwhile.

        Raises:
          ValueError: in the first pass if a value is not finite; in any, if the number
            of points is another one than before.
        """
        with ThreadPoolExecutor(1) as pool:
            chunks = self._chunks()
            ahead = pool.submit(next, chunks, None)
            while (chunk := ahead.result()) is not None:
                ahead = pool.submit(next, chunks, None)
                yield chunk
        self._checked = True

    def _chunks(self) -> Iterator[Chunk]:
        seen = 0
        for number, arrays in enumerate(self._cut()):
            size = len(arrays["mesh_points"])
            first, seen = seen, seen + size
            if seen > self.num_points:
                raise self._changed(f"{seen} or more")
            if not self._checked:
                self._check_finite(arrays, first)
            weights = arrays.pop("quadrature_weights", None)
            weights = np.ones(size, self._dtype) if weights is None else weights
            if "target" in arrays:  # nobody looks at those of masked points
                column = (weights > 0).reshape(-1, *[1] * (arrays["target"].ndim - 1))
                arrays["target"] = np.where(column, arrays["target"], 0)
            missing = self.size - size
            padded = {
                name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
                for name, array in arrays.items()
            }
            yield Chunk(number, size, padded, np.pad(weights, (0, missing)))
        if seen != self.num_points:
            raise self._changed(seen)

    def _cut(self) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of so many points as a chunk has."""
        if isinstance(self._source, Mapping):
            arrays = self._chosen(self._source)
            n = _length(arrays)
            if n != self.num_points:
                raise self._changed(n)
            for start in range(0, n, self.size):
                stop = min(start + self.size, n)
                yield {k: self._array(k, a[start:stop]) for k, a in arrays.items()}
            return
        waiting: dict[str, np.ndarray] = {}
        for piece in self._source:
            chosen = self._chosen(piece)
            _length(chosen)
            new = {k: self._array(k, a[:]) for k, a in chosen.items()}
            if waiting and set(waiting) != set(new):
                raise ValueError(
                    f"One chunk of the source has the arrays {sorted(waiting)}, "
                    f"another one {sorted(new)}; all must have the same arrays."
                )
            waiting = {
                k: np.concatenate([waiting[k], a]) if waiting else a
                for k, a in new.items()
            }
            while len(waiting["mesh_points"]) >= self.size:
                yield {k: a[: self.size] for k, a in waiting.items()}
                waiting = {k: a[self.size :] for k, a in waiting.items()}
        if waiting and len(waiting["mesh_points"]):
            yield waiting

    def _chosen(self, piece: Columns) -> dict[str, Any]:
        if unknown := sorted(set(piece) - set(NAMES)):
            raise ValueError(
                f"The source has unknown arrays {unknown}; expected {NAMES}."
            )
        if missing := sorted(set(self._names) - set(piece)):
            raise ValueError(f"The source has no {', '.join(missing)}.")
        names = (*self._names, "quadrature_weights")
        return {k: piece[k] for k in names if piece.get(k) is not None}

    def _array(self, name: str, column: ArrayLike) -> np.ndarray:
        values = np.asarray(column)
        if not np.issubdtype(values.dtype, np.floating):
            raise TypeError(f"{name} has dtype {values.dtype}, expected real numbers.")
        if values.ndim != (1 if name == "quadrature_weights" else 2):
            raise ValueError(
                f"{name} has chunks of shape {values.shape}; expected one axis for "
                "quadrature_weights and two for all others."
            )
        return values.astype(self._dtype, copy=False)

    def _weights_of_pieces(self) -> Iterator[tuple[int, Any]]:
        """Number of points and weights of parts of the source."""
        if not isinstance(self._source, Mapping):
            for piece in self._source:
                arrays = self._chosen(piece)
                yield _length(arrays), arrays.get("quadrature_weights")
            return
        arrays = self._chosen(self._source)
        n, weights = _length(arrays), arrays.get("quadrature_weights")
        if weights is None:
            yield n, None
            return
        for start in range(0, n, 2**20):
            part = weights[start : start + 2**20]
            yield len(part), part

    def _count(self, piece: tuple[int, Any]) -> tuple[int, float, int]:
        n, weights = piece
        if weights is None:
            return n, float(n), n
        self.weighted = True
        weights = self._array("quadrature_weights", weights)
        _checks.non_negative(quadrature_weights=weights)
        return n, float(np.sum(weights, dtype=np.float64)), int(np.sum(weights > 0))

    def _check_finite(self, arrays: dict[str, np.ndarray], first: int) -> None:
        masked = arrays.get("quadrature_weights", np.ones(1)) <= 0
        for name, array in arrays.items():
            bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
            if name == "target":
                bad &= ~masked
            if bad.any():
                rows = first + np.flatnonzero(bad)
                shown = ", ".join(map(str, rows[:5]))
                raise ValueError(
                    f"{name} is not finite at {len(rows)} of the points {first} to "
                    f"{first + len(array) - 1}: {shown}"
                    + (", ..." if len(rows) > 5 else "")
                    + ". Only the target at a point with weight zero may be "
                    "non-finite."
                )

    def _changed(self, found: PyTree) -> ValueError:
        return ValueError(
            f"The source had {self.num_points} points, and {found} in a later pass; "
            "leave it alone while it is read."
        )


def _length(arrays: Columns) -> int:
    """Number of points of arrays."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise ValueError(f"Different numbers of points: {listed}.")
    return next(iter(lengths.values()))


def dtype_of(model: Model) -> np.dtype:
    """Returns the dtype of the parameters of a model.

    Raises:
      TypeError: if they have different dtypes, or are not real.
    """
    types = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(model)}
    if len(types) != 1 or not np.issubdtype(min(types, key=str), np.floating):
        raise TypeError(
            f"Parameters have the dtypes {sorted(map(str, types))}; streaming "
            "needs real parameters of one dtype."
        )
    return types.pop()
