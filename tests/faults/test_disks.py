"""Disks that are full, read-only, out of quota, or rot, while checkpoints are saved."""

import errno
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from opjax import _files
from opjax.learn import messages
from opjax.learn.run import board
from opjax.training import checkpoint

ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def payload(value: float) -> dict[str, Any]:
    rng = np.random.default_rng(int(value))
    return {"w": rng.normal(size=(40, 500)).astype(np.float32), "best": float(value)}


def restored(directory, value):
    """Whether the checkpoint of a value is what is restored, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = checkpoint.restore(directory, payload(0.0))
    assert found is not None
    assert found.step == value
    assert found.metadata == {"value": value}
    np.testing.assert_array_equal(found.payload["w"], payload(value)["w"])
    return True


def save(directory, value, **given):
    given["metadata"] = {"value": value}
    return checkpoint.save(directory, value, payload(value), **given)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def fill(place):
    """Leaves 20 KiB."""
    free = os.statvfs(place)
    size = free.f_bavail * free.f_frsize - 20 * 2**10
    (place / "filler").write_bytes(bytes(max(size, 0)))


def test_a_full_disk_leaves_the_previous_checkpoint(small):
    folder = small / "checkpoints"
    save(folder, 1)
    fill(small)
    with pytest.raises(checkpoint.CheckpointError, match="No space left.*Free disk"):
        save(folder, 2)
    assert names(folder) == ["step_0000000001"]
    assert restored(folder, 1)
    (small / "filler").unlink()
    save(folder, 2)
    assert restored(folder, 2)


def test_a_read_only_disk_leaves_the_previous_checkpoint(small):
    folder = small / "checkpoints"
    save(folder, 1)
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(checkpoint.CheckpointError, match="Read-only file system"):
        save(folder, 2)
    assert restored(folder, 1)


def failing(patch, owner, name, number, at):
    """Lets the call `at` of a function fail; gives the calls that there were."""
    usual, calls = getattr(owner, name), []

    def call(*given, **more):
        calls.append(given)
        if len(calls) == at + 1:
            raise OSError(number, os.strerror(number))
        return usual(*given, **more)

    patch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize("name", ["fsync", "rename", "mkdir", "open"])
def test_a_call_that_fails_while_saving_leaves_the_previous_checkpoint(
    tmp_path, monkeypatch, name
):
    with monkeypatch.context() as patch:
        calls = failing(patch, os, name, 0, 10**6)
        save(tmp_path, 1)
    assert name != "fsync" or len(calls) >= 3  # files, folders, the manifest
    value, failed = 1, 0
    for at in range(len(calls)):
        number = ERRORS[at % len(ERRORS)]
        with monkeypatch.context() as patch:
            failing(patch, os, name, number, at)
            try:
                save(tmp_path, value + 1, keep=1)
                value += 1  # some failures mean nothing
            except checkpoint.CheckpointError as error:
                assert os.strerror(number) in str(error)  # noqa: PT017
                failed += 1
        assert names(tmp_path) == [f"step_{value:010d}"]
        assert restored(tmp_path, value)
    assert failed >= len(calls) / 2
    save(tmp_path, value + 1)
    assert restored(tmp_path, value + 1)


def test_a_file_system_that_cannot_sync_is_good_enough(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        calls = failing(patch, os, "fsync", errno.EINVAL, 0)
        _files.sync(tmp_path)
        failing(patch, os, "fsync", errno.EIO, 0)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            _files.sync(tmp_path)
    assert calls


def test_a_file_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("old")
    with monkeypatch.context() as patch:
        failing(patch, os, "fsync", errno.EIO, 0)
        with pytest.raises(OSError), _files.replacing(path) as temporary:  # noqa: PT011
            temporary.write_text("new")
    assert (names(tmp_path), path.read_text()) == (["a.json"], "old")
    (tmp_path / ".a.77.0123abcd.json").write_text("killed")
    (tmp_path / ".b.77.0123abcd").write_text("killed")
    (tmp_path / ".mine.json").write_text("no temporary file")
    _files.remove_leftovers(tmp_path, "a")
    assert names(tmp_path) == [".b.77.0123abcd", ".mine.json", "a.json"]
    _files.remove_leftovers(tmp_path)
    assert names(tmp_path) == [".mine.json", "a.json"]


def test_whatever_bit_flips_or_end_is_missing_nothing_wrong_is_restored(tmp_path):
    for value in (1, 2):
        path = save(tmp_path, value)
    rng, outcomes = np.random.default_rng(0), set()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    assert len(files) > 3
    for file in files:
        content = file.read_bytes()
        for trial in range(12 if content else 0):
            place = int(rng.integers(len(content)))
            flipped = content[place] ^ (1 << int(rng.integers(8)))
            rest = b"" if trial % 3 == 0 else content[place + 1 :]
            file.write_bytes(content[:place] + bytes([flipped]) * bool(rest) + rest)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = checkpoint.restore(tmp_path, payload(0.0))
            assert found is not None
            message = "".join(str(one.message) for one in said)
            assert (found.step == 1) == ("Continuing from step 1" in message)
            np.testing.assert_array_equal(found.payload["w"], payload(found.step)["w"])
            assert found.payload["best"] == found.metadata["value"] == found.step
            outcomes.add((file.name, found.step))
        file.write_bytes(content)
    assert {name for name, step in outcomes if step == 2} <= {path.name, _MANIFEST}
    assert len({name for name, step in outcomes if step == 1}) > 3


_MANIFEST = "opjax_manifest.json"  # spaces and line breaks in it mean nothing


def test_a_run_that_went_back_keeps_what_it_saves_there(tmp_path):
    for value in (2, 5):
        path = save(tmp_path, value)
    (path / "arrays" / "manifest.ocdbt").write_bytes(b"")
    save(tmp_path, 3, keep=1)
    assert checkpoint.all_steps(tmp_path) == [3]
    assert restored(tmp_path, 3)


def test_what_a_killed_save_had_no_time_to_delete_is_deleted(tmp_path):
    for value in (1, 2, 3, 5):
        path = save(tmp_path, value, keep=9)
    (tmp_path / "step_0000000004" / "arrays").mkdir(parents=True)
    checkpoint.tidy(tmp_path, 3, keep=2)
    assert checkpoint.all_steps(tmp_path) == [2, 3, 5]
    assert names(tmp_path) == [f"step_{step:010d}" for step in (2, 3, 5)]
    (path / "arrays" / "manifest.ocdbt").write_bytes(b"")
    save(tmp_path, 4, keep=2)
    assert checkpoint.all_steps(tmp_path) == [3, 4]
    assert restored(tmp_path, 4)


def test_a_manifest_of_before_has_no_checksum_of_its_own(tmp_path):
    path = save(tmp_path, 1) / _MANIFEST
    text = path.read_text()
    start = text.index(',\n "own"')
    path.write_text(text[:start] + text[text.index("\n}", start) :])
    assert restored(tmp_path, 1)
    for old, new in (('"own"', '"owl"'), ('"value": 1', '"value": 3')):
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        with pytest.raises(checkpoint.CheckpointError, match="manifest has changed"):
            checkpoint.restore(tmp_path, payload(0.0))
    with pytest.raises(checkpoint.CheckpointError, match="has changed.*from a copy"):
        checkpoint.read_metadata(tmp_path, 1)


def test_tensorboard_on_a_full_disk_ends_and_does_not_wait(small):
    pytest.importorskip("tensorboardX")
    shown = board.Board(small, step=0, suffix="")
    shown.add({"step": 0, "loss": 1.0})
    fill(small)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(500):
            shown.add({"step": step, "loss": 0.5, "more": 1.0})
        shown.close()
    (one,) = [one for one in said if one.category is UserWarning]
    assert "No space left" in str(one.message)
    assert "metrics.jsonl continues" in str(one.message)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_what_cannot_be_said_is_no_reason_to_stop(monkeypatch):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        messages.say("Progress.")
        with pytest.raises(OSError, match="No space"):
            print("Progress.", file=sys.stderr)
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
