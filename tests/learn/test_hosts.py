"""Several processes on the loopback interface: the numbers of one, and its endings."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tests.hosts as told
from opjax.learn.run import hosts
from opjax.learn.run.metrics_file import read_metrics
from opjax.training import checkpoint, sharding
from tests.learn import test_buckets

ROOT = pathlib.Path(__file__).parents[2]
# Until a process has noticed that another died: JAX's heartbeats, and then some.
BOUND = hosts.HEARTBEAT_SECONDS + 15


def address():
    """A free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


def started(*arguments, **env):
    """A process of a run."""
    env = dict(os.environ, JAX_PLATFORMS="cpu", **env)
    command = [sys.executable, "-m", "tests.hosts", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=env, cwd=ROOT, **pipes)


def outputs(processes, seconds=150):
    """What processes print until they end; none is left."""
    try:
        return [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()


def programs(count, workdir, *arguments, ending=None, number=None):
    """Starts the program in several processes, of which one may end early."""
    given = [f"--coordinator={address()}", f"--num_processes={count}", *arguments]
    given += [f"--workdir={workdir}", f"--devices=batch:{count}"]
    ends = {number: {"END": ending}} if ending else {}
    return [
        started(*given, f"--process_id={i}", **ends.get(i, {})) for i in range(count)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run that one process has begun."""
    folder = tmp_path_factory.mktemp("hosts")
    test_buckets.write(folder / "data", (6,) * 12)
    with jax.enable_x64(False), told.seen() as states:
        told.interrupted(None, folder / "one_two")
    return folder, states


@pytest.fixture(scope="module")
def found(folder):
    """All that two processes find, and the states that one had."""
    path, states = folder
    place = address()
    processes = [started("session", path / "found", place, 2, i) for i in range(2)]
    for process, (_, text) in zip(processes, outputs(processes), strict=True):
        assert process.returncode == 0, text
    return *(json.loads((path / f"found.{i}").read_text()) for i in range(2)), states


@pytest.mark.nightly
def test_processes_find_the_same_but_for_times(found):
    first, second, _ = found
    for name in ("whole", "one_two", "drawn", "points", "keyed", "two", "one"):
        assert first[name] == second[name]


def close(actual, expected):
    for name in ("model", "losses"):
        a, b = np.float64(actual[name]), np.float64(expected[name])
        assert np.linalg.norm(a - b) < 1e-6 * np.linalg.norm(b), name


@pytest.mark.nightly
def test_two_processes_end_where_one_does(found, tmp_path):
    first, task = found[0], told.drawn()
    with jax.enable_x64(False):
        expected = told.finished(
            told.TASK, told.start(), told.SETTINGS, None, tmp_path / "whole"
        )
        close(first["whole"], expected)
        close(first["one_two"], expected)  # begun by one, ended by two
        drawn = told.finished(task[0], told.start(), task[1], None, tmp_path / "drawn")
        close(first["drawn"], drawn)
        close(first["points"], told.finished(*told.meshes(), None, tmp_path / "points"))


@pytest.mark.nightly
def test_each_process_puts_its_points_on_its_devices_and_reads_its_samples(
    found, folder, tmp_path
):
    with jax.enable_x64(False):
        given, patch, reads = told.stored(folder[0] / "data")
        with patch:
            whole = told.finished(*given, None, tmp_path / "stored")
    for of_process in found[:2]:
        assert of_process["parts"] == [12]  # half of 23, padded
        close(of_process["stored"], whole)
        assert of_process["reads"] == len(reads) // 2 > 0


@pytest.mark.nightly
def test_checkpoints_of_one_layout_are_restored_bit_for_bit_on_another(found, folder):
    first, _, states = found
    assert first["one"][0] == states[-1]  # one process saved, two begin
    step, saved = first["two"][-1]
    with jax.enable_x64(False), told.seen() as begun:
        end = told.finished(
            told.TASK, told.start(), told.SETTINGS, None, folder[0] / "two_one"
        )
    assert begun[0] == [step, saved]
    assert step == 4  # the second process was told to stop after an epoch, both did
    close(end, first["whole"])


@pytest.mark.nightly
def test_the_first_process_alone_has_the_folder(found, folder):
    assert not (folder[0] / "elsewhere").exists()
    rows = read_metrics(folder[0] / "whole")
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    environment = json.loads((folder[0] / "whole" / "environment.json").read_text())
    assert environment["processes"] == len(environment["devices"]) == 2


@pytest.mark.nightly
def test_values_are_those_of_the_first_process(found):
    special = np.float32([-0.0, np.nan, np.inf, 1e-45, 1])
    for one in (of_process["copies"] for of_process in found[:2]):
        assert one["gathered"] == [{"index": i, "pair": [1, 2.0]} for i in range(2)]
        assert one["told"] == [0]
        assert one["copied"] == special.tobytes().hex()
        assert one["count"] == 0
        assert_array_equal(
            np.uint32(one["key"]), jax.random.key_data(jax.random.key(0))
        )


@pytest.mark.nightly
def test_what_processes_cannot_share_is_refused(found):
    first, second = (of_process["refusals"] for of_process in found[:2])
    for said in (first, second):
        assert (
            "2 processes would do the same work; split it with --devices"
            in said["nothing"]
        )
        assert "needs 3 devices, but there are 2" in said["three"]
        assert (
            "the same number from each of the 2 processes, which have [1, 1]"
            in said["one"]
        )
        assert "needs 4 devices, but there are 2" in said["many"]
        assert "Processes 0 and 1 differ in their configuration" in said["length"]
        assert "Processes 0 and 1 differ in their samples" in said["samples"]
    assert first["folder"].startswith("Cannot write to the run folder")
    assert second["folder"] == f"The first process stops: OSError: {first['folder']}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("localhost:1", 2, None), "also needs num_processes and process_id"),
        (("localhost:1", None, 0), "also needs num_processes and process_id"),
        (("", 2, 0), "num_processes and process_id need the coordinator's"),
        (("auto", 2, None), "num_processes need the coordinator's HOST:PORT"),
        (("localhost", 2, 0), "must be HOST:PORT or auto"),
        (("localhost:http", 2, 0), "must be HOST:PORT or auto"),
        (
            ("localhost:1", 2, 2),
            "process_id=2 must be at least 0 and below num_processes=2",
        ),
        (
            ("localhost:1", 2, -1),
            "process_id=-1 must be at least 0 and below num_processes=2",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(ValueError, match=message), hosts.joined(*given):
        pass


def test_one_process_asks_nobody():
    with hosts.joined("", None, None):
        assert (hosts.count(), hosts.first()) == (1, True)
        value = object()
        assert hosts.gather(value) == [value]
        assert hosts.tell(lambda: value) is value


def resumed(folder):
    """Numbers of a run that one process ends, and of one that it makes alone."""
    quick = told.PRESETS["quick"]
    runs = [told.PROGRAM.run(quick, workdir=folder / name) for name in ("run", "one")]
    return [[run[name] for name in ("error", "validation")] for run in runs]


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ([[0, 0]], [0, 1, 2, 3, 4, 5, 6, 7]),
        ([[0, 1]], [0, 1, 2, 3]),
        ([[1, 0]], [4, 5, 6, 7]),
        ([[0], [1]], [0, 1, 2, 3, 4, 5, 6, 7]),
        ([[0, 0, 1, 1], [2, 2, 3, 3]], [0, 1, 2, 3]),
        ([[1, 0, 0, 1], [2, 2, 3, 3]], [2, 3, 4, 5]),
    ],
)
def test_own_samples_are_those_of_the_columns_with_own_devices(layout, expected):
    make = np.vectorize(lambda process: SimpleNamespace(process_index=process))
    names = ("points", "batch")
    shape = dict(zip(names, np.shape(layout), strict=True))
    mesh = SimpleNamespace(devices=make(layout), axis_names=names, shape=shape)
    assert sharding.own_samples(mesh, 8).tolist() == expected


def test_a_batch_is_placed_and_fetched():
    mesh, data = sharding.device_mesh(), {"x": np.arange(6.0).reshape(3, 2)}
    placed = sharding.place_batch(data, mesh, samples=3)
    assert placed["x"].sharding.spec == jax.P("batch")
    fetched = sharding.fetch(sharding.replicate(data, mesh))
    for found in (placed, fetched):
        assert_array_equal(found["x"], data["x"])


def test_arrays_of_a_payload_are_mapped_with_their_types():
    payload = {"key": jax.random.key(1), "count": 3, "x": jnp.arange(2.0)}

    def twice(arrays):
        assert set(arrays) == {"['key']", "['count']", "['x']"}
        return {name: 2 * array for name, array in arrays.items()}

    found = checkpoint.mapped(twice, payload)
    assert found["count"] == 6
    assert isinstance(found["count"], int)
    assert_array_equal(found["x"], [0, 2])
    data = jax.random.key_data(found["key"])
    assert_array_equal(data, 2 * jax.random.key_data(payload["key"]))


@pytest.mark.nightly
def test_after_kill_9_the_other_process_stops_and_one_continues(tmp_path):
    ending = f"{signal.SIGKILL.value}:2"
    processes = programs(2, tmp_path / "run", ending=ending, number=1)
    processes[1].wait(100)
    begin = time.monotonic()
    said = outputs(processes, BOUND)
    assert time.monotonic() - begin < BOUND
    assert [process.returncode for process in processes] == [hosts.LOST, -9]
    assert "Another process of this run has ended" in said[0][1]
    steps = sorted((tmp_path / "run").glob("*/checkpoints/*/opjax_manifest.json"))
    assert json.loads(steps[-1].read_text())["step"] == 8
    assert_allclose(*resumed(tmp_path), rtol=1e-6)


@pytest.mark.nightly
def test_four_processes_stop_together_and_one_continues(tmp_path):
    ending = f"{signal.SIGTERM.value}:2"
    processes = programs(4, tmp_path / "run", ending=ending, number=2)
    for process, (_, text) in zip(processes, outputs(processes), strict=True):
        assert process.returncode == 75, text
        assert "Stopped and saved after step 12 of 24." in text
    assert_allclose(*resumed(tmp_path), rtol=1e-6)


@pytest.mark.nightly
def test_the_first_process_alone_prints_the_result(tmp_path):
    processes = programs(2, tmp_path / "run")
    said = outputs(processes)
    assert [process.returncode for process in processes] == [0, 0], said
    result = json.loads(said[0][0].strip().splitlines()[-1])
    assert result["mesh"] == "batch:2"
    assert "error" not in said[1][0]
    run, one = resumed(tmp_path)
    assert_allclose(run, one, rtol=1e-6)
    assert run == [result["error"], result["validation"]]
