"""Covers of points by overlapping subdomains, and functions supported on them."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax._jitted import jitted, pytree


@pytree
@dataclasses.dataclass(frozen=True, eq=False)
class Exchange:
    """Points that the devices of an axis send to each other, see `split_cover`.

    Attributes:
      sends: for every offset, the points that a device sends to the device at this
        offset, shape `(m_o,)`; padding repeats a point.
      offsets: the offsets; negative ones are previous devices.

    Examples:
      >>> from opjax import schwarz
      >>> cover = schwarz.box_cover(8, 2, overlap=1)
      >>> split = schwarz.split_cover(cover, 2)
      >>> split.cover.exchange.offsets  # devices send to both neighbours
      (-1, 1)
    """

    sends: tuple[Int[ArrayLike, " m"], ...]
    offsets: tuple[int, ...] = dataclasses.field(metadata={"static": True})


@pytree
@dataclasses.dataclass(frozen=True, eq=False)
class Cover:
    """Subdomains `I_i` of `n` points, padded to one size, with weights on them.

    The functions of this package build covers once, outside `jax.jit`. A cover is a
    pytree: pass it to compiled functions like any array, and stack covers of equal
    shapes for `jax.vmap`.

    Attributes:
      indices: indices of the points of the subdomains, shape `(s, m)`; padding repeats
        a point.
      weights: positive weights of these points, zero for padding, shape `(s, m)`: the
        partition of unity `D_i` of a cover, or the values of the functions of a coarse
        space.
      num_points: number `n` of all points, or of the points of a device if they are
        split.
      exchange: points that the devices send to each other, if they are split.
      axis_name: axis of `jax.shard_map` over whose devices the points are split, if
        any.

    Examples:
      >>> from opjax import schwarz
      >>> cover = schwarz.box_cover(8, 2, overlap=1)
      >>> cover.num_subdomains, cover.num_points
      (2, 8)
      >>> cover.weights.tolist()
      [[1.0, 1.0, 1.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0, 1.0]]
    """

    indices: Int[ArrayLike, "s m"]
    weights: Float[ArrayLike, "s m"]
    num_points: int = dataclasses.field(metadata={"static": True})
    exchange: Exchange | None = None
    axis_name: str | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def num_subdomains(self) -> int:
        """Number `s` of subdomains, or of functions of a coarse space."""
        return jnp.shape(self.indices)[0]

    @property
    def sizes(self) -> np.ndarray:
        """Number of points of each subdomain, without padding, shape `(s,)`."""
        return np.count_nonzero(self.weights, axis=1)

    def weights_as(self, dtype: DTypeLike) -> Array:
        """Returns the weights in a given precision."""
        weights = self.weights
        if isinstance(weights, np.ndarray):
            # Rounded by NumPy: JAX may keep what it made of an array in another one.
            weights = weights.astype(dtype)
        return jnp.asarray(weights).astype(dtype)


def cover(subdomains: Sequence[ArrayLike], *, num_points: int) -> Cover:
    r"""Builds a cover with its partition of unity from lists of points.

        D_i = diag(1 / m_j : j in I_i),    sum_i R_i^T D_i R_i = I,

    where `m_j` is the number of subdomains that contain point `j`.

    Args:
      subdomains: indices of the points of each subdomain; sizes may differ.
      num_points: number of all points.

    Returns:
      The cover.

    Raises:
      TypeError: if indices are not integers.
      ValueError: if there is no subdomain, one is empty, repeats a point or contains a
        point that does not exist, or a point is in no subdomain.

    Examples:
      >>> from opjax import schwarz
      >>> cover = schwarz.cover([[0, 1, 2], [2, 3]], num_points=4)
      >>> cover.sizes.tolist()
      [3, 2]
      >>> cover.weights.tolist()
      [[1.0, 1.0, 0.5], [0.5, 1.0, 0.0]]

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      Eq. 10 and 11.
    """
    sets = [np.asarray(indices) for indices in subdomains]
    _check_subdomains(sets, num_points)
    multiplicity = np.bincount(np.concatenate(sets), minlength=num_points)
    if not multiplicity.all():
        missing = np.flatnonzero(multiplicity == 0)
        raise ValueError(
            f"{missing.size} of {num_points} points are not in any subdomain, the "
            f"first ones are {missing[:8].tolist()}; every point needs one."
        )
    return padded(
        sets, [1 / multiplicity[indices] for indices in sets], num_points=num_points
    )


def padded(
    supports: Sequence[np.ndarray], values: Sequence[np.ndarray], *, num_points: int
) -> Cover:
    """Stacks supports and the values on them, padded to the largest support."""
    width = max(map(len, supports))
    # Padding repeats the last point, so that it is always one that exists.
    indices = np.stack([np.pad(i, (0, width - len(i)), mode="edge") for i in supports])
    weights = np.stack([np.pad(v, (0, width - len(v))) for v in values])
    return Cover(indices.astype(np.int32), weights.astype(float), num_points)


@jitted()
def restrict(values: Float[ArrayLike, "n c"], cover: Cover) -> Float[Array, "s m c"]:
    """Returns the values on every subdomain, `R_i u`, zero on padding.

    Args:
      values: values at all points, shape `(n, c)`.
      cover: the cover.

    Returns:
      Local values, shape `(s, m, c)`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if the number of values is not `n`.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> cover = schwarz.box_cover(8, 2, overlap=1)
      >>> local = schwarz.restrict(np.arange(8.0)[:, None], cover)
      >>> local.shape, local[1, :, 0].tolist()
      ((2, 5, 1), [3.0, 4.0, 5.0, 6.0, 7.0])
    """
    values = checked_values(cover, values)
    inside = cover.weights_as(values.dtype)[..., None] > 0
    return jnp.where(inside, gather(values, cover), 0)


@jitted()
def prolong(local: Float[ArrayLike, "s m c"], cover: Cover) -> Float[Array, "n c"]:
    """Returns the sum of local values extended by zero, `sum_i R_i^T u_i`.

    It is the exact adjoint of `restrict`: values on padding are ignored.

    Args:
      local: values on every subdomain, shape `(s, m, c)`.
      cover: the cover.

    Returns:
      Values at all points, shape `(n, c)`.

    Raises:
      TypeError: if `local` is not floating point.
      ValueError: if its shape does not match the cover.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> cover = schwarz.box_cover(8, 2, overlap=1)
      >>> local = schwarz.restrict(np.ones((8, 1)), cover)
      >>> schwarz.prolong(local, cover)[:, 0].tolist()  # twice in the overlap
      [1.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0]
    """
    (local,) = _checks.arrays(3, local=local)
    if local.shape[:2] != jnp.shape(cover.indices):
        raise ValueError(
            f"local {local.shape} does not fit the cover's subdomains "
            f"{jnp.shape(cover.indices)}; expected shape (s, m, c)."
        )
    inside = cover.weights_as(local.dtype)[..., None] > 0
    return sum_to_points(jnp.where(inside, local, 0), cover)


def sum_to_points(local: Float[Array, "s m c"], cover: Cover) -> Float[Array, "n c"]:
    """`prolong` for values that are zero on padding."""
    indices = jnp.asarray(cover.indices).reshape(-1)
    flat, count = local.reshape(-1, local.shape[-1]), cover.num_points
    sends, offsets = _exchange(cover)
    extended = count + sum(points.size for points in sends)
    sums = jax.ops.segment_sum(flat, indices, num_segments=extended)
    total, start = sums[:count], count
    for points, offset in zip(sends, offsets, strict=True):
        part = sums[start : start + points.size]
        total = total.at[points].add(_shifted(part, -offset, cover.axis_name))
        start += points.size
    return total


def gather(values: Float[Array, "n c"], cover: Cover) -> Float[Array, "s m c"]:
    """`restrict` with arbitrary values on padding."""
    parts = [values]
    for points, offset in zip(*_exchange(cover), strict=True):
        parts.append(_shifted(values[points], offset, cover.axis_name))
    extended = jnp.concatenate(parts) if len(parts) > 1 else values
    return extended[jnp.asarray(cover.indices)]


def _exchange(cover: Cover) -> tuple[list[Array], tuple[int, ...]]:
    if cover.exchange is None:
        return [], ()
    return [jnp.asarray(points) for points in cover.exchange.sends], (
        cover.exchange.offsets
    )


def _shifted(values: Array, offset: int, axis_name: str | None) -> Array:
    """Sends values so many devices on; zeros come from where there is none."""
    assert axis_name is not None
    devices = lax.axis_size(axis_name)
    pairs = [(i, i + offset) for i in range(devices) if 0 <= i + offset < devices]
    return lax.ppermute(values, axis_name, pairs)


def checked_values(cover: Cover, values: ArrayLike) -> Float[Array, "n c"]:
    """Checks values at the points of a cover and returns them as an array."""
    (array,) = _checks.arrays(2, values=values)
    if array.shape[0] != cover.num_points:
        raise ValueError(
            f"values {array.shape} must have one row for each of the "
            f"{cover.num_points} points of the cover."
        )
    return array


def _check_subdomains(sets: Sequence[np.ndarray], num_points: int) -> None:
    if not sets:
        raise ValueError("A cover needs at least one subdomain.")
    for number, indices in enumerate(sets):
        if indices.ndim != 1 or indices.size == 0:
            raise ValueError(
                f"Subdomain {number} has shape {indices.shape}; expected at least one "
                "point. Merge empty subdomains with others or remove them."
            )
        if not np.issubdtype(indices.dtype, np.integer):
            raise TypeError(
                f"Subdomain {number} has dtype {indices.dtype}; expected integer "
                "indices."
            )
        if indices.min() < 0 or indices.max() >= num_points:
            raise ValueError(
                f"Subdomain {number} contains point "
                f"{indices.min() if indices.min() < 0 else indices.max()}, but points "
                f"are numbered from 0 to {num_points - 1}."
            )
        if np.unique(indices).size < indices.size:
            raise ValueError(f"Subdomain {number} contains a point twice.")
