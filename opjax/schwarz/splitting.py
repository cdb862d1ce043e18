"""Covers whose points and subdomains are split over devices."""

import dataclasses
from typing import NamedTuple

import numpy as np

from opjax import _checks
from opjax.schwarz.covers import Cover, Exchange


class Split(NamedTuple):
    """A cover for the devices of an axis.

    Attributes:
      cover: arrays of all devices, one after the other along their first axis, for
        `jax.shard_map` with `PartitionSpec(axis_name)`. Inside, it is the cover of the
        points of a device.
      subdomains: which subdomain of the whole cover each one is, shape `(d s,)`; -1
        where a device has fewer than others.
    """

    cover: Cover
    subdomains: np.ndarray

    def arrange(self, array: np.ndarray) -> np.ndarray:
        """Brings an array with a slice for each subdomain into the order of devices.

        Slices of subdomains that are not there are zero.
        """
        array = np.asarray(array)
        there = (self.subdomains >= 0).reshape(-1, *(1,) * (array.ndim - 1))
        return np.where(there, array[np.maximum(self.subdomains, 0)], 0)


def split(cover: Cover, num_devices: int, *, axis_name: str = "points") -> Split:
    r"""Splits subdomains over devices that have consecutive points.

    Of `n` points, device `i` of `d` has those from `i ceil(n / d)` on, as
    `sharding.place` puts them, and every subdomain that most of its points are in.
    Values at the others are sent to it, and what it adds there sent back: of every
    operator on the cover twice the overlap, if the points are sorted by subdomain, see
    `order`. Operators on it and gradients through them are those on the whole cover.

    Args:
      cover: subdomains of all points, with their partition of unity.
      num_devices: number `d`.
      axis_name: of the axis of `jax.shard_map`.

    Returns:
      The cover of the devices, and the order of its subdomains.

    Raises:
      ValueError: if the cover is split already or there are more devices than points.
    """
    own = _points_of_a_device(cover, num_devices)
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
    return Split(found, order.reshape(-1))


def split_space(
    coarse_space: Cover, num_devices: int, *, axis_name: str = "points"
) -> Cover:
    """Splits the supports of coarse functions over devices, see `split`.

    Every device has all functions, at its own points; `coarse_restrict` adds inner
    products up over the devices, which exchange coarse values, whatever the number of
    points.

    Args:
      coarse_space: functions on all points.
      num_devices: of the axis.
      axis_name: of the axis of `jax.shard_map`.

    Returns:
      The functions, arrays of all devices one after the other.

    Raises:
      ValueError: if the functions are split already or there are more devices than
        points.
    """
    own = _points_of_a_device(coarse_space, num_devices)
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


def order(cover: Cover) -> np.ndarray:
    """Returns points in the order of the first subdomain that each one is in.

    `values[order(cover)]` splits along subdomains, so that devices send each other no
    more than overlaps, if subdomains with neighbouring numbers are neighbours.
    """
    indices, weights = map(np.asarray, (cover.indices, cover.weights))
    first = np.full(cover.num_points, len(indices))
    for number in reversed(range(len(indices))):
        first[indices[number][weights[number] > 0]] = number
    return np.argsort(first, kind="stable")


def _points_of_a_device(cover: Cover, num_devices: int) -> int:
    _checks.positive(num_devices=num_devices)
    if cover.axis_name is not None:
        raise ValueError(f"The cover is split over {cover.axis_name!r} already.")
    if num_devices > cover.num_points:
        raise ValueError(
            f"{num_devices} devices cannot share {cover.num_points} points: take fewer."
        )
    return -(-cover.num_points // num_devices)


def _stacked(points: list[np.ndarray]) -> np.ndarray:
    width = max(map(len, points))
    return np.stack([np.pad(p, (0, width - len(p))) for p in points]).astype(np.int32)
