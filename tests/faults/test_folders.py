"""Folders of runs: who may use them, and what around them means nothing."""

import base64
import contextlib
import dataclasses
import datetime
import errno
import io
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import types
from typing import Any

import h5py
import numpy as np
import pytest

from opjax import learn
from opjax.datasets import cache, heat
from opjax.files import ReadOptions
from opjax.learn.cli import predict, report, train
from opjax.learn.predict.prediction import Predicted
from opjax.learn.report import members
from opjax.learn.run import folder, metrics_file, stopping
from opjax.learn.run.metrics_file import MetricsWriter
from tests.learn import resumable
from tests.learn.test_fitting import assert_identical

OWNER = """
    import fcntl, os, sys
    lock = open(sys.argv[1] + "/.lock", "ab+", buffering=0)
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.truncate(0)
    lock.write(str(os.getpid()).encode())
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_one_is_dead(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as owner:
        assert owner.stdout.readline() == b"locked\n"
        for _ in range(2):
            with (
                pytest.raises(RuntimeError, match=f"{owner.pid} is already running"),
                folder.open_run(tmp_path, resumable.Config()),
            ):
                pass
        owner.kill()
    with folder.open_run(tmp_path, resumable.Config()):
        pass


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in (".result.12.0123abcd.json", "figures/.curves.12.0123abcd.png"):
        (tmp_path / name).write_text("half")
    with folder.open_run(tmp_path, resumable.Config()):
        pass
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]


@pytest.mark.parametrize("damage", ["", '{"error": 0.', "[1]"])
def test_a_damaged_result_is_said_and_made_anew(tmp_path, capsys, damage):
    def once():
        return folder.run_once(tmp_path, resumable.Config(), lambda _: {"error": 0.5})

    once()
    (tmp_path / "result.json").write_text(damage)
    assert once() == {"error": 0.5}
    assert "damaged result.json" in capsys.readouterr().err
    assert once() == {"error": 0.5}
    assert "contains a finished run" in capsys.readouterr().err


class Full(io.StringIO):
    """A log on a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


fsync = os.fsync


def no_metrics(descriptor):
    """A full disk for rows of metrics alone."""
    if os.readlink(f"/proc/self/fd/{descriptor}").endswith("metrics.jsonl"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    fsync(descriptor)


class Elsewhere(datetime.datetime):
    """A clock that jumps by years, both ways."""

    jumps = itertools.cycle([0, 4e8, -9e8, 1e5])

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(1.7e9 + next(cls.jumps), tz)


@pytest.mark.nightly
@pytest.mark.slow
def test_another_place_time_and_full_disks_around_it_change_nothing(
    tmp_path, small, monkeypatch
):
    class Stop(Exception):
        pass

    def stop(self, row):
        write(self, row)
        if self.rows == 3:
            raise Stop

    options = {"quiet": True, "checkpoint_every": 1}
    whole = resumable.run(tmp_path / "whole", **options)
    write = MetricsWriter.write
    with monkeypatch.context() as patch:
        patch.setattr(MetricsWriter, "write", stop)
        with pytest.raises(Stop):
            resumable.run(tmp_path / "here", **options)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")

    real = time.time
    jumps = np.random.default_rng(0).uniform(-4e8, 4e8, 10**4)  # years
    numbers = itertools.cycle(jumps.tolist())
    with contextlib.suppress(OSError), open(small / "filler", "wb", 0) as file:
        while file.write(bytes(4096)):
            pass
    monkeypatch.setattr(time, "time", lambda: real() + next(numbers))
    monkeypatch.setattr(folder.datetime, "datetime", Elsewhere)
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    monkeypatch.setenv("TMPDIR", str(small))
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    monkeypatch.setattr(sys, "stderr", Full())
    monkeypatch.setattr(os, "fsync", no_metrics)
    with pytest.warns(UserWarning, match=r"metrics.jsonl|lacks its last") as said:
        moved = resumable.run(tmp_path / "there", **options)
    monkeypatch.undo()
    time.tzset()
    assert_identical(moved, whole)
    # Others are of what is deleted by chance meanwhile.
    texts = [str(one.message) for one in said if one.category is UserWarning]
    assert ["Rows wait" in texts[0], "lacks its last 4" in texts[-1]] == [True, True]
    assert len(texts) == 2
    assert len(metrics_file.read_metrics(tmp_path / "there")) == 2
    assert_identical(resumable.run(tmp_path / "there", **options), whole)
    assert len(metrics_file.read_metrics(tmp_path / "there")) == 6


def test_outside_of_training_sigterm_ends_with_the_same_status():
    script = """
        import sys
        from opjax.learn.run import stopping
        with stopping.at_once():
            print("ready", flush=True)
            while True:
                try:
                    sys.stdin.read()
                except BaseException:
                    pass
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    pipes |= {"stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(60) == stopping.STATUS
        assert b"The same command continues" in process.stderr.read()


def test_a_file_of_several_predictions_appears_when_all_are_made(tmp_path, monkeypatch):
    class Trained:
        folder = tmp_path / "run"
        description = types.SimpleNamespace(training={"ranges": {}, "names": {}})
        channel_names, written_names = types.MappingProxyType({}), ("prediction",)

        def read_options(self, *, point_dim):
            return ReadOptions(point_dim=point_dim, need_target=False)

        def reduced(self, sample):
            return sample

        def both(self, sample, **limits):
            if sample.name.endswith("2"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return Predicted(np.zeros((3, 1)), None)

    source = tmp_path / "new.h5"
    with h5py.File(source, "w") as file:
        for i in range(3):
            file[f"{i}/mesh_points"] = np.arange(6.0).reshape(3, 2)
    monkeypatch.setattr(predict, "_row", lambda *given: {})
    output = tmp_path / "predicted"
    options = predict.PredictOptions(tmp_path, input=(str(source),), output=output)
    found: Any = Trained()
    given: Any = found, options.input, output, options, (), None, [found]
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        predict._predict_all(*given)
    assert list(output.iterdir()) == []
    ones = Predicted(np.ones((3, 1)), None)
    monkeypatch.setattr(Trained, "both", lambda *_, **__: ones)
    assert len(predict._predict_all(*given)) == 3
    with h5py.File(output / "new.h5") as file:
        assert [file[f"{i}/prediction"][0] for i in range(3)] == [1, 1, 1]
    with pytest.raises(ValueError, match="is the input itself"):
        predict._predict_all(found, options.input, tmp_path, options, (), None, [found])


def test_pages_and_training_need_no_temporary_folder(tmp_path, monkeypatch):
    samples = heat.write(tmp_path / "data", 10, num_points=(5, 9))
    run = tmp_path / "run"
    (run / "figures").mkdir(parents=True)
    (run / "tables.md").write_text("# Title\n\n| a |\n| --- |\n| 1 |\n")
    (run / "figures" / "curves.png").write_bytes(b"a figure")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    (tmp_path / "page-figures").mkdir()
    left = (".page.12.0123abcd.md", "page-figures/.1-run.12.0123abcd.png")
    for name in left:  # of a process that was killed
        (tmp_path / name).write_text("half")
    report.report(tmp_path / "page.md", [run], html=True, figures=True)
    assert not any((tmp_path / name).exists() for name in left)
    encoded = base64.b64encode(b"a figure").decode()
    assert encoded in (tmp_path / "page.html").read_text()
    config = dataclasses.replace(
        train.PRESETS["quick"], train=str(samples), batch_size=2
    )
    assert len(train.load(config)[0].train) == 7


def test_a_killed_generator_leaves_nothing_in_the_cache(tmp_path):
    given = {"name": "waves", "recipe": {"version": 1}, "cache_dir": tmp_path}
    path = cache.cache_path(**given)
    (tmp_path / f".{path.stem}.12.0123abcd.npz").write_bytes(b"half")
    (tmp_path / ".other-0.12.0123abcd.npz").write_bytes(b"half")  # maybe being written
    assert cache.cached(lambda: {"x": np.ones(3)}, **given)["x"].sum() == 3
    assert sorted(found.name for found in tmp_path.glob(".*")) == [
        ".other-0.12.0123abcd.npz"
    ]


def test_the_result_of_a_moved_folder_names_its_new_place(tmp_path, monkeypatch):
    made = learn.Program(
        "line",
        {"quick": resumable_options},
        work=lambda *_: members.Report(result={"error": 0.5}),
    )
    assert made.run(resumable_options, workdir=tmp_path / "a")["error"] == 0.5
    shutil.move(tmp_path / "a", tmp_path / "b")
    found = made.run(resumable_options, workdir=tmp_path / "b")
    assert found["workdir"] == str(tmp_path / "b")


resumable_options = learn.RunOptions()
