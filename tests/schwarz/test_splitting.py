"""Covers split over devices: the operators of one device, and what is exchanged."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_array_equal

from opjax import nn, schwarz
from tests import refused

ROOT = pathlib.Path(__file__).parents[2]


def by_hand(cover, values):
    """What devices have of the values of each subdomain, without any device."""
    own, exchange = cover.num_points, cover.exchange
    devices = len(values) // own
    parts = values.reshape(devices, own)
    local = cover.indices.reshape(devices, -1, cover.indices.shape[1])
    found = []
    for i in range(devices):
        known = [parts[i]]
        for sends, offset in zip(exchange.sends, exchange.offsets, strict=True):
            rows = sends.reshape(devices, -1)
            j = i - offset
            there = 0 <= j < devices
            known.append(parts[j][rows[j]] if there else np.zeros(rows.shape[1]))
        found.append(np.concatenate(known)[local[i]])
    return np.concatenate(found)


# The second one has subdomains that reach beyond neighbouring devices.
COVERS = {
    "boxes": lambda: schwarz.box_cover(31, 6, overlap=2),
    "wide": lambda: schwarz.cover([range(25), range(8, 31), [30, 0]], num_points=31),
}


@pytest.mark.parametrize("name", COVERS)
@pytest.mark.parametrize("devices", [2, 3, 5])
def test_every_device_gets_the_values_on_its_subdomains(devices, name):
    cover = COVERS[name]()
    split = schwarz.split_cover(cover, devices)
    values = np.arange(devices * split.cover.num_points) + 100.0
    found = by_hand(split.cover, values)
    expected = values[split.arrange(cover.indices)]
    there = split.cover.weights > 0
    assert_array_equal(there, split.arrange(cover.weights) > 0)
    assert_array_equal(found[there], expected[there])


def test_every_subdomain_is_on_one_device():
    cover = schwarz.box_cover((6, 7), (3, 2), overlap=1)
    split = schwarz.split_cover(cover, 4)
    assert sorted(split.subdomains[split.subdomains >= 0]) == list(range(6))
    assert len(split.subdomains) == len(split.cover.indices)
    arranged = split.arrange(np.arange(1, 7))
    assert arranged.sum() == 21


def test_points_sorted_by_subdomain_leave_the_overlap_to_send():
    n, overlap = 64, 3
    box = schwarz.box_cover(n, 8, overlap=overlap)
    shuffled = np.random.default_rng(0).permutation(n)
    sets = [shuffled[i[w > 0]] for i, w in zip(box.indices, box.weights, strict=True)]
    cover = schwarz.cover(sets, num_points=n)
    place = np.argsort(schwarz.order_by_subdomain(cover))
    ordered = schwarz.cover([place[s] for s in sets], num_points=n)

    def sent(cover):
        sends = schwarz.split_cover(cover, 4).cover.exchange.sends
        return sum(points.size for points in sends) / 4

    # To either side; a subdomain begins with the overlap of the one before.
    assert sent(ordered) <= 4 * overlap < sent(cover)


def test_functions_at_the_points_of_devices_are_those_of_the_whole():
    space = schwarz.partition_hats(23, 5)
    split = schwarz.split_coarse_space(space, 4)
    shape = (4, 5, -1)
    dense = np.zeros((24, 5))
    indices, weights = split.indices.reshape(shape), split.weights.reshape(shape)
    for device in range(4):
        for number in range(5):
            rows = 6 * device + indices[device, number]
            np.add.at(dense[:, number], rows, weights[device, number])
    expected = np.zeros((24, 5))
    for number in range(5):
        np.add.at(expected[:, number], space.indices[number], space.weights[number])
    assert_array_equal(dense, expected)


def test_one_device_sends_nothing():
    split = schwarz.split_cover(schwarz.box_cover(10, 2, overlap=1), 1)
    assert split.cover.exchange is None
    assert_array_equal(split.subdomains, [0, 1])


@pytest.mark.parametrize("split", [schwarz.split_cover, schwarz.split_coarse_space])
def test_what_cannot_be_split_is_refused(split):
    cover = schwarz.box_cover(10, 2, overlap=1)
    refused.each(
        (lambda: split(cover, 11), "11 devices cannot share 10 points"),
        (lambda: split(cover, 0), "num_devices"),
    )
    once = schwarz.split_cover(cover, 2).cover
    with pytest.raises(ValueError, match="already split over 'points'"):
        split(once, 2)


def test_modules_are_built_for_all_subdomains():
    cover = schwarz.split_cover(schwarz.box_cover(10, 2, overlap=1), 2).cover
    with pytest.raises(ValueError, match="split over 'points'"):
        nn.SchwarzAttention(cover, rank=1, rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """All that `tests.schwarz.sharded` finds, with eight devices."""
    file = tmp_path_factory.mktemp("sharded") / "found.json"
    env = dict(os.environ, JAX_NUM_CPU_DEVICES="8", JAX_PLATFORMS="cpu")
    command = [sys.executable, "-m", "tests.schwarz.sharded", str(file)]
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(file.read_text())


@pytest.mark.nightly
def test_operators_and_gradients_are_those_of_one_device(found):
    for name, (images, gradients) in found["operators"].items():
        bar = 1e-12 if name.startswith("float64") else 1e-6
        assert images < bar, name
        assert gradients < bar, name


@pytest.mark.nightly
def test_a_module_of_three_levels_with_split_factors_is_that_of_one_device(found):
    assert found["module"] < 1e-12


@pytest.mark.nightly
def test_attention_in_a_basis_on_subdomains_is_that_of_one_device(found):
    assert found["layer"] < 1e-12


@pytest.mark.nightly
def test_layers_of_a_grid_split_their_own_boxes(found):
    assert len(found["grid_layer"]) == 5
    assert max(found["grid_layer"].values()) < 1e-12


@pytest.mark.nightly
def test_devices_exchange_overlaps_and_coarse_values(found):
    few, many, wide = found["communication"]
    assert few == many
    # Two columns in single precision, to two neighbours, there and back; the sum of
    # nine coarse values.
    coarse = 9 * 2 * 4
    assert few["bytes_exchanged"] == coarse + 2 * 2 * 2 * 2 * 4
    assert wide["bytes_exchanged"] == coarse + 2 * 2 * 4 * 2 * 4
