"""Covers whose points and subdomains are split over devices.

    parts = split_cover(cover, 4)
    functions = split_coarse_space(coarse_space, 4)
    query, key = parts.arrange(model.query[...]), parts.arrange(model.key[...])

With these four objects, `two_level_attention` inside `jax.shard_map` computes the same
as the module `model`, on points that `sharding.place` has distributed over four
devices. Every device has the whole coarse block.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import _checks
from opjax.schwarz.covers import Cover, Exchange


class SplitCover(NamedTuple):
    """A cover whose subdomains are split over the devices of an axis.

    Attributes:
      cover: arrays of all devices, concatenated along their first axis, for
        `jax.shard_map` with `PartitionSpec(axis_name)`. Inside `jax.shard_map`, it is
        the cover of the points of one device.
      subdomains: indices of the subdomains in the whole cover, shape `(d s,)`; -1 for
        padding, on devices with fewer subdomains than others.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> split = schwarz.split_cover(schwarz.box_cover(12, 3, overlap=1), 2)
      >>> split.subdomains.tolist()  # two for each device; -1 is padding
      [0, 1, 2, -1]
      >>> split.arrange(np.array([10.0, 20, 30])).tolist()
      [10.0, 20.0, 30.0, 0.0]
    """

    cover: Cover
    subdomains: np.ndarray

    def arrange(self, array: ArrayLike) -> jax.Array:
        """Reorders an array with one slice per subdomain for the devices.

        Args:
          array: array in the order of the whole cover, shape `(s, ...)`.

        Returns:
          The array in the order of `subdomains`, shape `(d s, ...)`, zero for padding.
          Gradients have the order of the whole cover.
        """
        array = jnp.asarray(array)
        there = (self.subdomains >= 0).reshape(-1, *(1,) * (array.ndim - 1))
        return jnp.where(there, array[np.maximum(self.subdomains, 0)], 0)


def split_cover(
    cover: Cover,
    num_devices: int,
    *,
    axis_name: str = "points",
    points_of_device: int | None = None,
) -> SplitCover:
    r"""Splits subdomains over devices that have consecutive points.

    Device `i` of `d` has `ceil(n / d)` of the `n` points, from `i ceil(n / d)` on, as
    `sharding.place` distributes them. On grids, where devices have whole rows,
    `points_of_device` is the number of points of a device. A subdomain belongs to the
    device that has most of its points. The other devices send it their values at the
    remaining points and receive the contributions to these. If points are sorted by
    `order_by_subdomain`, every operator sends twice the overlap. Operators and their
    gradients are the same as for the whole cover.

    Args:
      cover: subdomains of all points, with their partition of unity.
      num_devices: number `d` of devices.
      axis_name: name of the axis of `jax.shard_map`.
      points_of_device: number of points of each device, `ceil(n / d)` by default.

    Returns:
      The cover for the devices, and the order of its subdomains.

    Raises:
      ValueError: if the cover is already split, there are more devices than points, or
        the devices together have fewer points than the cover.

    Examples:
      >>> from opjax import schwarz
      >>> cover = schwarz.box_cover(8, 2, overlap=1)
      >>> split = schwarz.split_cover(cover, 2)
      >>> split.cover.num_points, split.cover.indices.shape
      (4, (2, 5))
    """
    own = _points_of_a_device(cover, num_devices, points_of_device)
    indices, weights = np.asarray(cover.indices), np.asarray(cover.weights)
    inside, owner = weights > 0, indices // own
    counts = [np.sum(inside & (owner == i), axis=1) for i in range(num_devices)]
    home = np.argmax(counts, axis=0)
    members = [np.flatnonzero(home == i) for i in range(num_devices)]
    rows = max(map(len, members))
    order = np.stack(
        [np.pad(m, (0, rows - len(m)), constant_values=-1) for m in members]
    )

    # By offset, and by sending device: points that the receiving one needs.
    needed: dict[int, list[np.ndarray]] = {}
    for i, own_subdomains in enumerate(members):
        foreign = inside[own_subdomains] & (owner[own_subdomains] != i)
        points = np.unique(indices[own_subdomains][foreign])
        for j in np.unique(points // own):
            lists = needed.setdefault(int(i - j), [np.zeros(0, int)] * num_devices)
            lists[j] = points[points // own == j]
    offsets = tuple(sorted(needed))
    sends = [_stacked([p % own for p in needed[o]]) for o in offsets]

    local = np.zeros((num_devices, rows, indices.shape[1]), np.int32)
    place = np.zeros(num_devices * own, np.int32)  # of a point, where the device has it
    for i, own_subdomains in enumerate(members):
        place[i * own : (i + 1) * own] = np.arange(own)
        start = own
        for offset, sent in zip(offsets, sends, strict=True):
            if 0 <= i - offset < num_devices:
                points = needed[offset][i - offset]
                place[points] = start + np.arange(len(points))
            start += sent.shape[1]
        local[i, : len(own_subdomains)] = place[indices[own_subdomains]]
    there = (order >= 0)[..., None]
    parts = np.where(there, weights[np.maximum(order, 0)], 0)
    exchange = Exchange(tuple(s.reshape(-1) for s in sends), offsets)
    found = Cover(
        local.reshape(-1, local.shape[2]),
        parts.reshape(-1, parts.shape[2]),
        own,
        exchange=exchange if offsets else None,
        axis_name=axis_name,
    )
    return SplitCover(found, order.reshape(-1))


def split_coarse_space(
    coarse_space: Cover,
    num_devices: int,
    *,
    axis_name: str = "points",
    points_of_device: int | None = None,
) -> Cover:
    """Splits the supports of coarse functions over devices, like `split_cover`.

    Every device has the values of all functions at its own points. `coarse_restrict`
    adds up inner products over the devices, so they exchange only coarse values, for
    any number of points.

    Args:
      coarse_space: functions on all points.
      num_devices: number of devices.
      axis_name: name of the axis of `jax.shard_map`.
      points_of_device: as for `split_cover`.

    Returns:
      The functions; arrays of all devices are concatenated along their first axis.

    Raises:
      ValueError: as from `split_cover`.

    Examples:
      >>> from opjax import schwarz
      >>> hats = schwarz.interface_hats(8, 2)
      >>> schwarz.split_coarse_space(hats, 2).indices.shape  # for both devices
      (2, 4)
    """
    own = _points_of_a_device(coarse_space, num_devices, points_of_device)
    indices, weights = map(np.asarray, (coarse_space.indices, coarse_space.weights))
    found_indices, found_weights = [], []
    for i in range(num_devices):
        here = (weights > 0) & (indices // own == i)
        supports = [
            row[keep] - i * own for row, keep in zip(indices, here, strict=True)
        ]
        found_indices.append(supports)
        found_weights.append(
            [row[keep] for row, keep in zip(weights, here, strict=True)]
        )
    width = max(1, *(len(row) for rows in found_indices for row in rows))

    def stacked(rows: list[np.ndarray], dtype: type) -> np.ndarray:
        padded = [np.pad(row, (0, width - len(row))) for row in rows]
        return np.stack(padded).astype(dtype)

    return dataclasses.replace(
        coarse_space,
        indices=np.concatenate([stacked(rows, np.int32) for rows in found_indices]),
        weights=np.concatenate([stacked(rows, float) for rows in found_weights]),
        num_points=own,
        axis_name=axis_name,
    )


def order_by_subdomain(cover: Cover) -> np.ndarray:
    """Sorts points by the first subdomain that contains them.

    If subdomains with successive numbers are neighbours, devices that share
    `values[order_by_subdomain(cover)]` exchange only the overlaps.

    Args:
      cover: subdomains of all points.

    Returns:
      Indices of the points, shape `(n,)`.

    Examples:
      >>> from opjax import schwarz
      >>> cover = schwarz.cover([[0, 2], [1, 2, 3]], num_points=4)
      >>> schwarz.order_by_subdomain(cover).tolist()
      [0, 2, 1, 3]
    """
    indices, weights = map(np.asarray, (cover.indices, cover.weights))
    first = np.full(cover.num_points, len(indices))
    for number in reversed(range(len(indices))):
        first[indices[number][weights[number] > 0]] = number
    return np.argsort(first, kind="stable")


def _points_of_a_device(cover: Cover, num_devices: int, given: int | None) -> int:
    _checks.positive(num_devices=num_devices)
    if cover.axis_name is not None:
        raise ValueError(f"The cover is already split over {cover.axis_name!r}.")
    if num_devices > cover.num_points:
        raise ValueError(
            f"{num_devices} devices cannot share {cover.num_points} points: use "
            "fewer devices."
        )
    if given is not None and given * num_devices < cover.num_points:
        raise ValueError(
            f"{num_devices} devices with {given} points each cannot hold the "
            f"{cover.num_points} points of the cover; use more devices, or more "
            "points per device."
        )
    return -(-cover.num_points // num_devices) if given is None else given


def _stacked(points: list[np.ndarray]) -> np.ndarray:
    width = max(map(len, points))
    return np.stack([np.pad(p, (0, width - len(p))) for p in points]).astype(np.int32)
