import dataclasses
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from opjax import learn, training
from opjax.learn.cli import command_line
from opjax.learn.json_files import replacing, to_json
from opjax.learn.run import batches, metrics_file, stopping
from opjax.learn.run import folder as run_directory
from opjax.learn.run.metrics_file import MetricsWriter
from opjax.training import checkpoint
from tests.learn import resumable
from tests.refused import value_error
from tests.selection import by_day

ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Other:
    width: int = 5
    depth: int = 1


def assert_identical(a, b):
    def timeless(result):
        rows = [{**row, "seconds": 0.0} for row in result.history]
        return result._replace(seconds=0.0, compile_seconds=0.0, history=rows)

    a, b = timeless(a), timeless(b)
    assert a.history == b.history
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scan", "steps", "epochs"),
    by_day([(False, 12, 2), (False, 11, 4), (True, 11, 4)], [(False, 12, 2)]),
)
def test_a_run_resumed_anywhere_equals_the_uninterrupted_one(
    tmp_path, scan, steps, epochs
):
    class Stop(Exception):
        pass

    options = {"scan": scan, "quiet": True}
    # Always due: a checkpoint after every call, most of them inside an epoch. By day
    # all calls are of one length, which is one program to compile.
    options |= {"checkpoint_seconds": 0.0, "keep": 100, "num_epochs": epochs}
    options |= {"train": resumable.data(2 * steps)}
    whole = resumable.run(tmp_path / "whole", **options)
    stored = checkpoint.all_steps(tmp_path / "whole" / "checkpoints")
    assert len(stored) == 3 * epochs
    ends = [steps * (epoch + 1) for epoch in range(epochs)]
    assert [row["step"] for row in whole.history] == ends
    assert whole.best_metric < whole.history[0]["validation"]
    original, count = checkpoint.save, 0

    def stop(*args, **kwargs):
        nonlocal count
        original(*args, **kwargs)
        count += 1
        if count in (2, epochs + 3):
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", stop)
        for _ in range(2):
            with pytest.raises(Stop):
                resumable.run(tmp_path / "parts", **options)
    parts = resumable.run(tmp_path / "parts", **options)
    assert_identical(parts, whole)
    if not scan:  # once is enough: a finished run is only read back
        assert_identical(resumable.run(tmp_path / "parts", **options), parts)


def test_calls_of_a_long_epoch_are_short_and_of_few_lengths():
    for steps in range(1, 65):
        assert batches.call_length(steps) == steps  # compiled once
    for steps in (*range(65, 300), 1009):
        length = batches.call_length(steps)
        assert 9 <= length <= 16
        # XLA unrolls a loop of one step, which may round otherwise.
        assert steps % length != 1
        if any(steps % n == 0 for n in range(9, 17)):
            assert steps % length == 0


@pytest.mark.nightly
def test_calls_within_an_epoch_end_with_the_bits_of_one_call(tmp_path):
    class Stop(Exception):
        pass

    options = {"scan": True, "quiet": True, "train": resumable.data(138)}
    options |= {"num_epochs": 2, "steps_per_call": None}
    unbounded = resumable.run(tmp_path / "one", **options | {"steps_per_call": 69})
    # Always due: a checkpoint after every call.
    options |= {"checkpoint_seconds": 0.0, "keep": 100}
    bounded = resumable.run(tmp_path / "whole", **options)
    assert_identical(bounded, unbounded)
    steps = [14, 28, 42, 56, 69, 83, 97, 111, 125, 138]
    assert checkpoint.all_steps(tmp_path / "whole" / "checkpoints") == steps
    save = checkpoint.save

    def stop(folder, step, *args, **kwargs):
        save(folder, step, *args, **kwargs)
        if step == 42:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", stop)
        with pytest.raises(Stop):
            resumable.run(tmp_path / "parts", **options)
    assert_identical(resumable.run(tmp_path / "parts", **options), unbounded)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_killed_process_resumes_by_its_workdir_alone(tmp_path, capsys):
    strict = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "JAX_ENABLE_X64": "1",
        "JAX_NUMPY_DTYPE_PROMOTION": "strict",
        "JAX_NUMPY_RANK_PROMOTION": "raise",
    }
    command = [sys.executable, "-W", "error", resumable.__file__]
    killed = subprocess.run(
        [*command, str(tmp_path / "a"), "5"],
        cwd=ROOT,
        env=os.environ | strict,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -9, killed.stderr
    assert killed.stdout == ""
    assert len(metrics_file.read_metrics(tmp_path / "a")) == 5
    assert checkpoint.all_steps(tmp_path / "a" / "checkpoints") == [22, 44]
    resumed, whole = resumable.run(tmp_path / "a"), resumable.run(tmp_path / "b")
    assert_identical(resumed, whole)
    printed = capsys.readouterr()
    assert "step_0000000044" in printed.err
    assert len(set(printed.out.splitlines())) == 1
    environment = json.loads((tmp_path / "a" / "environment.json").read_text())
    assert len(environment["starts"]) == 2
    assert {"jax", "flax", "optax"} <= environment["packages"].keys()


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGINT],
)
def test_a_run_told_to_stop_saves_and_continues(number, tmp_path, monkeypatch):
    handler, write = signal.getsignal(number), MetricsWriter.write

    def write_and_tell(self, row):
        write(self, row)
        if self.rows == 3:
            os.kill(os.getpid(), number)

    def run(folder):
        return resumable.run(folder, num_epochs=4, steps_per_call=11)

    with monkeypatch.context() as context:
        context.setattr(MetricsWriter, "write", write_and_tell)
        with pytest.raises(
            learn.Stopped, match="Stopped and saved after step 33 of 44"
        ):
            run(tmp_path / "a")
    assert signal.getsignal(number) is handler
    assert checkpoint.all_steps(tmp_path / "a" / "checkpoints")[-1] == 33
    assert_identical(run(tmp_path / "a"), run(tmp_path / "b"))


def test_a_second_interrupt_does_not_wait():
    with stopping.put_off() as told:
        signal.raise_signal(signal.SIGINT)
        assert told()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_stopped_program_has_a_status_of_its_own(capsys):
    with pytest.raises(SystemExit) as ended, command_line.console():
        raise learn.Stopped("Stopped and saved after step 2 of 4.")
    assert ended.value.code == stopping.STATUS == 75
    assert capsys.readouterr().err == (
        "Stopped and saved after step 2 of 4. The same command continues.\n"
    )


def test_a_nan_stops_the_run_and_names_step_samples_and_checkpoint(tmp_path):
    train = resumable.data()
    train["y"] = train["y"].at[3].set(jnp.nan)
    with pytest.raises(training.NonFiniteError) as caught:
        resumable.run(tmp_path, train=train)
    order = np.asarray(training.sample_order(0, 0, 22, 2))
    step = int(np.flatnonzero((order == 3).any(1))[0])
    assert f"Step {step} " in str(caught.value)
    assert str(order[step].tolist()) in str(caught.value)
    assert "none yet" in str(caught.value)


@pytest.mark.nightly
def test_a_late_nan_names_the_last_good_checkpoint(tmp_path):
    train = resumable.data()
    resumable.run(tmp_path / "a", num_epochs=1, quiet=True)
    path = checkpoint.all_steps(tmp_path / "a" / "checkpoints")
    assert path == [11]
    train["x"] = train["x"].at[:].set(jnp.inf)
    with pytest.raises(training.NonFiniteError, match=r"Step 11 .*step_0000000011"):
        resumable.run(tmp_path / "a", train=train, num_epochs=2)


def test_a_nan_in_validation_names_step_samples_and_checkpoint(tmp_path):
    resumable.run(tmp_path, num_epochs=1, quiet=True)
    bad = resumable.data(7)
    bad["y"] = bad["y"].at[jnp.array([2, 5])].set(jnp.nan)
    with pytest.raises(
        training.NonFiniteError,
        match=r"step 22 .*2 validation samples.*\[2, 5\].*step_0000000011",
    ):
        resumable.run(tmp_path, validation=bad, num_epochs=2)


def test_a_second_run_in_the_same_folder_names_the_first(tmp_path):
    with (
        run_directory.open_run(tmp_path, resumable.Config()),
        pytest.raises(RuntimeError, match=f"{os.getpid()} is already running.*workdir"),
        run_directory.open_run(tmp_path, resumable.Config()),
    ):
        pass
    with run_directory.open_run(tmp_path, resumable.Config()):
        pass


def test_another_configuration_is_refused_field_by_field(tmp_path):
    with run_directory.open_run(tmp_path, resumable.Config()) as run:
        assert not run.resumed
        metrics_file.MetricsWriter(run).close()
    message = r"shape.*unknown.*width: 4 there, 5 now.*U"
    with (
        value_error(message),
        run_directory.open_run(tmp_path, Other()),
    ):
        pass
    with run_directory.open_run(tmp_path, resumable.Config()) as run:
        assert run.resumed
    stored = run_directory.read_config(tmp_path, resumable.Config)
    assert stored == resumable.Config()
    assert run_directory.read_config(tmp_path / "none", resumable.Config) is None


def test_a_folder_of_another_program_is_refused_field_by_field(tmp_path):
    with run_directory.open_run(tmp_path, resumable.Config()):
        pass
    with value_error(r"unknown fields \['shape'\].*--workdir"):
        run_directory.read_config(tmp_path, Other)
    (tmp_path / "config.json").write_text('{"width": 4, "sh')
    with value_error(r"damaged config.json.*--workdir"):
        run_directory.read_config(tmp_path, resumable.Config)


@pytest.mark.parametrize("error", [None, OSError(errno.ENOLCK, "No locks available")])
def test_a_system_without_locks_is_good_enough(tmp_path, monkeypatch, error, caplog):
    def refuse(*args):
        raise error

    if error is None:
        monkeypatch.setattr(run_directory, "fcntl", None)
    else:
        monkeypatch.setattr(run_directory.fcntl, "flock", refuse)
    with run_directory.open_run(tmp_path, resumable.Config()):
        pass
    assert (error is None) or "No locks available" in caplog.text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_rows_wait_while_the_disk_is_full(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with run_directory.open_run(tmp_path, resumable.Config()) as run:
        writer = metrics_file.MetricsWriter(run)
        writer.write({"step": 1})
        usual = writer._file
        writer._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
        with pytest.warns(UserWarning, match=r"metrics.jsonl: No space.*continues"):
            writer.write({"step": 2})
        writer.write({"step": 3})  # once is enough
        assert writer.waiting == [{"step": 2}, {"step": 3}]
        with pytest.warns(UserWarning, match="lacks its last 2 rows"):
            writer.close()
        writer._file = usual
        writer.write({"step": 4})
        writer.close()
        again = metrics_file.MetricsWriter(run, rows=1, waiting=[{"step": 2}])
        again.write({"step": 3})
        again.close()
        assert [row["step"] for row in metrics_file.read_metrics(tmp_path)] == [1, 2, 3]
        assert (again.rows, again.waiting) == (3, [])
        path.write_text('{"step": 1}\n')
        with pytest.warns(UserWarning, match="has 1 rows of 3; the others are gone"):
            metrics_file.MetricsWriter(run, rows=3).close()
        path.write_text('{"step": 1}\n{"st"\n')
        with value_error(r"metrics.jsonl is damaged in line 2"):
            metrics_file.read_metrics(tmp_path)


def test_a_full_disk_names_the_file_and_the_way_out(tmp_path):
    with (
        pytest.raises(OSError, match=r"a.json: No space.*same --workdir"),
        replacing(tmp_path / "a.json"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_unwritable_workdir_names_the_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OSError, match=r"Not a directory.*another --workdir"),
        run_directory.open_run(tmp_path / "file" / "run", resumable.Config()),
    ):
        pass


def test_metrics_drop_the_rows_after_the_checkpoint(tmp_path):
    with run_directory.open_run(tmp_path, resumable.Config()) as run:
        writer = metrics_file.MetricsWriter(run)
        for step in range(4):
            writer.write({"step": step, "loss": np.float32(np.nan)})
        writer.close()
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write('{"step": 4, "lo')  # killed while writing
        assert len(metrics_file.read_metrics(tmp_path)) == 4
        writer = metrics_file.MetricsWriter(run, rows=2)
        writer.write({"step": 9, "loss": 1.0})
        writer.close()
    rows = metrics_file.read_metrics(tmp_path)
    assert rows == [
        {"step": 0, "loss": None},
        {"step": 1, "loss": None},
        {"step": 9, "loss": 1.0},
    ]


def test_a_result_is_made_of_json_values():
    result = {"error": jnp.float32(0.5), "n": (1, 2), "x": np.inf}
    assert to_json(result) == {"error": 0.5, "n": [1, 2], "x": None}


def test_missing_tensorboard_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with (
        run_directory.open_run(tmp_path, resumable.Config()) as run,
        pytest.raises(ModuleNotFoundError, match=r"opjax\[tensorboard\]"),
    ):
        metrics_file.MetricsWriter(run, tensorboard=True)


def test_tensorboard_gets_every_number(tmp_path):
    pytest.importorskip("tensorboardX")
    with run_directory.open_run(tmp_path, resumable.Config()) as run:
        for rows in (0, 1):  # the second one continues
            writer = metrics_file.MetricsWriter(run, rows=rows, tensorboard=True)
            writer.write({"step": 3 + rows, "loss": 0.5, "none": np.nan})
            writer.close()
    content = b"".join(f.read_bytes() for f in (tmp_path / "tensorboard").iterdir())
    assert content.count(b"loss") == 2
    assert b"none" not in content


def test_unequal_numbers_of_samples_are_refused(tmp_path):
    train = resumable.data() | {"y": jnp.ones(3)}
    with value_error(r"train contain \[3, 22\] samples"):
        resumable.run(tmp_path, train=train)


def test_the_model_of_the_smallest_validation_error_is_kept(tmp_path):
    def growing(model, batch):
        return -jnp.sum(model["w"]) * jnp.mean(batch["x"])

    def metric(model, sample):
        return model["w"] * sample["x"]

    ones = {"x": jnp.ones(2, jnp.float32)}
    task = learn.Task(train=(ones,), validation=(ones,), loss=growing, metric=metric)
    settings = learn.Settings(
        num_epochs=3, batch_size=2, optimizer=lambda total: optax.sgd(0.1)
    )
    start = {"w": jnp.zeros((), jnp.float32)}
    found = learn.fit(task, start, settings, folder=tmp_path)
    np.testing.assert_allclose(found.best_model["w"], 0.1, rtol=1e-5)
    assert found.best_step == 1
