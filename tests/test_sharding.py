"""Points and samples over eight virtual devices: the numbers of one."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from numpy.testing import assert_allclose

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[1]


def compute(name, folder):
    """All that `tests.sharded` finds, in one process with eight devices."""
    file = folder / f"{name}.json"
    env = dict(os.environ, JAX_NUM_CPU_DEVICES="8", JAX_PLATFORMS="cpu")
    command = [sys.executable, "-m", "tests.sharded", name, str(file)]
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return compute("by_day", tmp_path_factory.mktemp("sharded"))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return compute("by_night", tmp_path_factory.mktemp("sharded"))


@pytest.mark.nightly
def test_loss_and_gradients_are_those_of_one_device(found):
    for several in ("attentions", "two devices"):
        for name, distance in found[several].items():
            assert distance < 1e-12, name


@pytest.mark.nightly
def test_fifty_steps_end_where_one_device_does(found):
    for name, tolerance in (("steps_64", 1e-12), ("steps_32", 1e-6)):
        losses, model = found[name]
        assert losses < tolerance
        assert model < tolerance


@pytest.mark.nightly
def test_rows_of_a_grid_have_the_numbers_of_one_device(found):
    for name, tolerance in (
        ("rows_64", 1e-12),
        ("boxes_64", 1e-12),
        ("rows_32", 1e-6),
    ):
        losses, model = found[name]
        assert losses < tolerance
        assert model < tolerance
    for name, distance in found["grids"].items():
        assert distance < 1e-12, name


@pytest.mark.nightly
def test_devices_exchange_two_rows_of_a_grid_in_every_layer_and_direction(found):
    few, many, wide = found["halo"]
    assert few == many
    assert wide["collectives"] == few["collectives"]
    # Two layers, there and back, two rows of five points more, eight channels.
    more = wide["bytes_exchanged"] - few["bytes_exchanged"]
    assert more == 2 * 2 * 2 * 5 * 8 * 4


@pytest.mark.nightly
def test_devices_exchange_as_much_for_any_number_of_points(found):
    few, many, whole = found["communication"]
    for name in ("collectives", "bytes_exchanged"):
        assert few[name] == many[name] > whole[name] == 0
    # Two layers, forward and backward; weights, errors and the sum of the gradients.
    assert few["collectives"] <= 12
    assert_allclose(few["loss"], whole["loss"], rtol=1e-6)


def test_moments_of_all_devices_are_those_of_the_mesh(quick):
    assert quick["pooled"] < 1e-12


@pytest.mark.parametrize("weights", ["weighted", "equal"])
def test_scalars_read_off_shared_points_are_those_of_the_mesh(quick, weights):
    assert quick["head"][weights] < 1e-12


def test_metrics_of_samples_are_those_of_one_device(quick):
    assert quick["evaluation"] < 1e-12


def test_functions_on_explicit_meshes_find_the_numbers_of_one_device(quick):
    assert quick["explicit"]
    for case, distance in quick["explicit"].items():
        assert distance < 1e-9, case


@pytest.mark.nightly
def test_runs_continue_bit_for_bit_or_on_other_devices(found):
    runs = found["runs"]
    assert runs["two_two"] == runs["two"]
    for name in ("two", "two_none", "none_four"):
        assert_allclose(runs[name], runs["whole"], rtol=1e-12)
    assert_allclose(runs["fresh_two"], runs["fresh_none"], rtol=1e-12)


MESSAGES = {
    "devices": "needs 16 devices, but there are 8",
    "text": "such as points:4,batch:2",
    "twice": "such as points:4,batch:2",
    "batch": "batch:4 of the device mesh must divide the 2 samples",
    "microbatch": "microbatch=4 must divide 2, the number",
    "points": "points:4 of the device mesh must divide the number of points, axis 1",
    "names": "which axis of surface contains the points",
    "loss": "points:4 of the device mesh: the loss of this program does not add up",
    "mean": "batch:2 of the device mesh: the loss of this program is not a sum over",
    "attention": "points:4 of the device mesh: FourierAttention knows more of points",
    "rows": "25 points of a device must be whole rows of 10",
    "few rows": "has 1 rows of the grid, but its neighbour needs 2",
    "memory": "rematerialize has no effect",
    "other": "needs all points of a sample together",
    "call": "axis_name='points': FourierAttention knows more of points than sums",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_does_not_fit_says_why(quick, name):
    assert MESSAGES[name] in quick["refusals"][name]
