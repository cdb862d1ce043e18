"""Derivatives through an operator, chunk by chunk, in physical units.

`opjax.streaming.input_cotangents` between encoded arrays; here are the normalisers,
scales and scalars around it.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import streaming
from opjax._trees import Columns
from opjax.learn.predict import functions, prediction
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.prediction import Encoded, Limits
from opjax.samples import Sample
from opjax.samples.sliced import Rows
from opjax.streaming import plan


class Slopes(NamedTuple):
    """Derivatives by the inputs at the points of a chunk.

    Attributes:
      points: by the coordinates, `(m, p)`.
      features: by the features, `(m, c)`; None of an operator without.
    """

    points: np.ndarray
    features: np.ndarray | None


class Pulled:
    """Derivatives of a number of a whole mesh by the inputs of an operator.

    Args:
      trained: the operator.
      arrays: of the mesh in physical units, of any kind that can be sliced.
      of_values: derivatives of the number by the values `(n, q)` of the operator, that
        can be sliced; those of points of weight zero do not count.
      limits: bounds of the memory.
      values: of the operator, `(n, q)`; only with `case`.
      case: the mesh as a sample, of an operator with scales; None without.

    Raises:
      ValueError: if the operator cannot be evaluated in chunks, or memory is too small.
    """

    def __init__(
        self,
        trained: Learned,
        arrays: Columns,
        of_values: Rows,
        limits: Limits,
        *,
        values: np.ndarray | None = None,
        case: Sample | None = None,
    ):
        if reason := prediction.obstacle(trained):
            raise ValueError(
                f"{trained.name} in {trained.folder} cannot be differentiated in "
                f"chunks: {reason}."
            )
        self._trained, self._arrays, self._of_values = trained, arrays, of_values
        self._values, self._case = values, case
        self._factors: dict[str, np.ndarray] = {}
        if trained.scaling is not None:
            assert case is not None
            self._factors = trained.scaling.factors(case)
        self._model = prediction.of_function(trained.model)
        self._chunks = chunks_of(self._model, len(arrays["mesh_points"]), limits)
        # Sums over points: of scalars as the model sees them, and of array times slope.
        self._of_scalars: Any = 0.0
        self._moments: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Slopes]:
        """Yields derivatives chunk by chunk, in the order of the points."""
        trained, arrays = self._trained, self._arrays
        reduced: dict[str, Any] = dict(arrays)
        for role in self._factors.keys() & arrays.keys():
            reduced[role] = Encoded(arrays[role], partial(self._over, role))
        if self._case is not None:
            reduced["scalars"] = trained.reduced(self._case).scalars
            if reduced["scalars"] is None:
                del reduced["scalars"]
        source = prediction.encoded(trained, reduced)
        source["target"] = Encoded(self._of_values, self._encoded_slopes)
        start, inputs = 0, trained.channels.features
        parts = streaming.input_cotangents(self._model, source, self._chunks)
        for part in parts:
            rows = slice(start, start + len(part.mesh_points))
            points = self._physical("mesh_points", part.mesh_points, rows)
            features = None
            if part.features is not None:
                own, constant = np.split(part.features, [inputs], axis=1)
                self._of_scalars = self._of_scalars + constant.sum(0, dtype=np.float64)
                if inputs:
                    features = self._physical("features", own, rows)
            if self._values is not None:
                self._add("target", np.asarray(self._of_values[rows]), rows)
            yield Slopes(points, features)
            start = rows.stop

    @property
    def scalars(self) -> np.ndarray | None:
        """By the scalars of `functions.scalars_of`, `(s,)`, when all is iterated.

        None of an operator that takes none.
        """
        trained, names = self._trained, functions.scalars_of(self._trained)
        count = len(names) or trained.channels.scalars
        if not count:
            return None
        std = self._deviation("scalars")
        of_reduced = self._of_scalars / std if np.size(self._of_scalars) else None
        scaling, case = trained.scaling, self._case
        if scaling is None or case is None:
            return of_reduced
        own = trained.channels.scalars
        channels = trained.channels._asdict()

        def whole(row: jax.Array) -> jax.Array:
            factors = scaling.traced_factors(
                dict(zip(names, row, strict=True)), channels
            )
            total = jnp.zeros((), row.dtype)
            for role, moment in self._moments.items():
                moments, factor = jnp.asarray(moment), factors[role]
                ratio = factor if role == "target" else 1 / factor
                total += jnp.sum(moments * ratio)
            if of_reduced is not None:
                scalars = row[:own]
                if "scalars" in factors:
                    scalars = scalars / factors["scalars"]
                total += jnp.sum(jnp.asarray(of_reduced) * scaling.turned(scalars))
            return total

        with jax.enable_x64(True):
            row = scaling.values(case)
            slopes = jax.grad(whole)(jnp.asarray([row[name] for name in names], float))
        return np.asarray(slopes)

    def _deviation(self, role: str) -> np.ndarray:
        """What a normaliser divides by, in double precision; inf of constants."""
        if role not in self._trained.normalizers:
            return np.ones(1)
        std = np.asarray(self._trained.normalizers[role].std, np.float64)
        return np.where(std == 0, np.inf, std)

    def _over(self, role: str, values: np.ndarray) -> np.ndarray:
        return (np.asarray(values, np.float64) / self._factors[role]).astype(
            values.dtype
        )

    def _physical(self, role: str, slopes: np.ndarray, rows: slice) -> np.ndarray:
        """Derivatives by an input, of those by what the model sees."""
        slopes = (slopes / self._deviation(role)).astype(slopes.dtype)
        return self._add(role, slopes, rows)

    def _add(self, role: str, slopes: np.ndarray, rows: slice) -> np.ndarray:
        """Derivatives by an array, of those by it over its scale; sums are kept."""
        if role not in self._factors:
            return slopes
        source = self._values if role == "target" else self._arrays[role]
        assert source is not None
        array = np.asarray(source[rows], np.float64)
        # Of `f` in `f v` and of `1 / f` in `x / f`.
        if role == "target":
            array = array / self._factors[role]
        moment = np.sum(slopes * array, axis=0)
        self._moments[role] = self._moments.get(role, 0.0) + moment
        return (slopes / self._factors[role]).astype(slopes.dtype)

    def _encoded_slopes(self, slopes: np.ndarray) -> np.ndarray:
        """Derivatives by all channels of the model, of those by physical values."""
        scale = self._factors.get("target", np.ones(1))
        if "target" in self._trained.normalizers:
            std = np.asarray(self._trained.normalizers["target"].std, np.float64)
            scale = scale * std
        more = self._model.decoder.kernel[...].shape[1] - slopes.shape[1]
        return np.pad(slopes * scale, [(0, 0), (0, more)])


def chunks_of(model: Any, num_points: int, limits: Limits) -> streaming.Chunks:
    """Returns how derivatives go over a mesh within bounds of memory.

    Inputs of all layers are stored in memory if they take little of it, in the folder
    `limits.scratch` if there is one, and are else computed again.

    Raises:
      ValueError: if memory is too small.
    """
    limit, size = limits.memory_gib * 2**30, limits.chunk_size
    needed = partial(plan.needed_bytes, model, num_points, chunk_size=size)
    if needed(store_every=0) > limit:
        text = plan.advice(model, num_points, memory_limit=limit, chunk_size=size)
        raise ValueError(f"memory_gib={limits.memory_gib:g} is too small: {text}")
    if needed(store_every=1) - needed(store_every=0) <= limit / 16:
        return streaming.Chunks(size, 1)
    if limits.scratch is not None:
        return streaming.Chunks(size, 1, storage=limits.scratch)
    return streaming.Chunks(size, 0)
