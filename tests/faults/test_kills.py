"""Programs that are killed at random moments continue as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from opjax import learn
from tests.faults import server
from tests.faults.__main__ import bad

FINE = {"kills": 3, "identical": 3, "sigterms": 1, "sigterms_identical": 1}
FINE |= {"files": 9, "escapes": 0, "problems": []}


@pytest.mark.nightly
def test_killed_programs_end_with_the_bits_of_the_uninterrupted_one():
    command = [sys.executable, "-m", "tests.faults", "--seed=4", "--kills=10"]
    command += ["--minutes=20", "--share=1"]
    done = subprocess.run(command, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert result["kills"] == result["identical"] >= 10
    assert result["sigterms"] == result["sigterms_identical"]
    assert len(result["phases"]) > 2


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_killed_unrolled_run_ends_with_the_bits_of_the_whole_one(tmp_path, rows):
    """Before, at and after the change from one unrolled step to two."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(_unrolled(whole), check=True, capture_output=True)
    program = subprocess.Popen(_unrolled(killed), stderr=subprocess.DEVNULL)
    while program.poll() is None:
        found = list(killed.glob("*/metrics.jsonl"))
        if found and len(found[0].read_text().splitlines()) >= rows:
            program.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    assert program.wait() == -signal.SIGKILL
    assert not list(killed.glob("*/result.json"))
    subprocess.run(_unrolled(killed), check=True, capture_output=True)
    found = [learn.load(run / "functional-0") for run in (whole, killed)]
    for one, other in zip(*(jax.tree.leaves(t.model) for t in found), strict=True):
        np.testing.assert_array_equal(one, other)
    one, other = (run / "functional-0" / "predictions.npz" for run in (whole, killed))
    assert one.read_bytes() == other.read_bytes()
    assert _losses(whole) == _losses(killed)


def _losses(run):
    """Of every epoch, in training and validation."""
    (file,) = run.glob("*/metrics.jsonl")
    rows = map(json.loads, file.read_text().splitlines())
    return [(row["train_loss"], row["validation"]) for row in rows]


def _unrolled(folder):
    """A run that unrolls one step, then two."""
    command = [sys.executable, "-m", "opjax.learn.cli.train", "--preset=smoke"]
    command += ["--train=demonstration", "--time=unrolled", "--unroll_schedule=1,2"]
    return [
        *command,
        "--num_epochs=4",
        "--checkpoint_every=1",
        f"--workdir={folder}",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"identical": 2},
        {"kills": 0, "identical": 0},
        {"sigterms_identical": 0},
        {"files": 0},
        {"escapes": 1},
        {"problems": ["a status"]},
    ],
)
def test_whatever_is_bad_shows_in_the_status(change):
    assert not bad(FINE, files=True)
    assert bad(FINE | change, files=True)


@pytest.mark.parametrize(
    ("answer", "event", "signals"),
    [
        (b'["start", "data"]', 9, 0),  # the event did not happen
        (b'!["start", "data"]', 1, 1),
        (b'!!["start", "data"]', 1, 1),  # in two threads at once
        (b'["start", "data"]', None, 1),  # by the clock alone
        (b"!", 1, 1),  # killed
        (b"", 1, 0),  # failed before
    ],
)
def test_a_program_without_the_event_is_left_alone(monkeypatch, answer, event, signals):
    sent = []
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    reading, writing = os.pipe()
    os.write(writing, answer)
    os.close(writing)
    found = server._followed(77, reading, server.Moment(event, 0.001))
    os.close(reading)
    assert found == (["start", "data"] if b"[" in answer else [])
    assert sent == [(77, signal.SIGKILL)] * signals
