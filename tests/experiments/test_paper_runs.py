import functools
import json
import signal
import subprocess
import sys
import time

import pytest

from experiments import paper_runs, published
from experiments.published import SETUPS
from opjax.learn.cli import report
from opjax.learn.run.stopping import STATUS, Stopped

SOME = [s for s in SETUPS if s.module == "elasticity"][:3]
FINISH = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "member").mkdir(parents=True, exist_ok=True)
result = {"relative_l2": 0.5, "seeds": [0], "data": "D", "seconds": 7.0}
(folder / "result.json").write_text(json.dumps(result))
made = {"device_kind": "H200", "git_commit": "0123456789"}
(folder / "environment.json").write_text(json.dumps(made))
row = {"epoch": 5, "step": 10, "seconds": 7.0}
(folder / "member" / "metrics.jsonl").write_text(json.dumps(row) + "\\n")
for step in 1, 2:
    kept = folder / "member" / "checkpoints" / f"step_{step:010d}"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "opjax_manifest.json").write_text("{}")
(folder / "member" / "operator").mkdir(exist_ok=True)
"""
STOP = (
    FINISH
    + f"""
import signal, time
(folder / "result.json").unlink()
signal.signal(signal.SIGTERM, lambda *_: sys.exit({STATUS}))
time.sleep(60)
"""
)
FAIL = "raise SystemExit(1)"


@pytest.fixture
def programs(monkeypatch):
    """Scripts in place of programs, by the name of the set-up, and no long waits."""
    monkeypatch.setattr(paper_runs, "_GRACE", 4.0)
    monkeypatch.setattr(paper_runs, "_LEAST", 0.1)
    scripts: dict[str, str] = {}
    monkeypatch.setattr(
        paper_runs,
        "_command",
        lambda setup, folder, _: [
            *(sys.executable, "-S", "-c", scripts[setup.name]),
            str(folder),
        ],
    )
    return scripts


@pytest.mark.nightly
def test_a_queue_goes_on_where_it_was_stopped(tmp_path, programs):
    first, second, third = (setup.name for setup in SOME)
    programs.update({first: FINISH, second: STOP, third: FINISH})
    found = paper_runs.run(SOME, tmp_path, 7.0)
    assert (found["done"], found["under_way"], found["failed"]) == (1, [second], [])
    # At its pace, 7 s for 5 epochs, the rest of the epochs takes:
    left = (SOME[1].config().num_epochs - 5) * 7 / 5
    assert found["seconds_left_of_these"] == pytest.approx(left)
    kept = sorted(path.name for path in tmp_path.rglob("step_*"))
    assert kept == ["step_0000000002"]  # the newest one of what is under way

    programs.update({first: FAIL, second: FINISH})
    found = paper_runs.run(SOME, tmp_path, 60.0)
    assert (found["done"], found["under_way"], found["failed"]) == (3, [], [])
    assert not list(tmp_path.rglob("step_*"))
    table = paper_runs.page(SOME, tmp_path)
    assert f"| {third} | done | 7 | 0 | 50 % | {100 * SOME[2].error:.4g} % |" in table

    row = "50 %; seed 0; data: D; H200; 7 s; commit 0123456"
    reached = paper_runs.reached(SETUPS, tmp_path)
    assert reached == dict.fromkeys((first, second, third), row)

    # What is reached is added to what is known, and shown in the page.
    (tmp_path / "published.json").write_text(json.dumps({first: row}))
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "published.json").write_text(json.dumps({"x/y": "old"}))
    (tmp_path / "page" / "published.md").write_text(f"Head\n{report.MARK}\nold")
    published.write(tmp_path, tmp_path / "page")
    text = (tmp_path / "page" / "published.md").read_text()
    assert text.startswith("Head\n")
    assert row in text
    assert "\nold" not in text
    kept = json.loads((tmp_path / "page" / "published.json").read_text())
    assert kept == {"x/y": "old", first: row}


def test_the_last_checkpoint_stays_where_no_operator_is_saved(tmp_path, programs):
    setup = SOME[0]
    programs[setup.name] = FINISH.replace('"operator"', '"figures"')
    assert paper_runs.run([setup], tmp_path, 60.0)["done"] == 1
    assert [path.name for path in tmp_path.rglob("step_*")] == ["step_0000000002"]


def test_numbers_of_finished_programs_are_kept_when_the_queue_is_stopped(
    tmp_path, programs, monkeypatch
):
    programs[SOME[0].name] = FINISH
    paper_runs.run(SOME[:1], tmp_path, 60.0)

    def stopped(*_, **__):
        raise Stopped("by a signal")

    monkeypatch.setattr(paper_runs, "run", stopped)
    with pytest.raises(Stopped):
        paper_runs.work(paper_runs.QueueOptions(str(tmp_path), minutes=1.0))
    kept = json.loads((tmp_path / "published.json").read_text())
    assert kept[SOME[0].name].startswith("50 %; seed 0; data: D; H200; 7 s")


def test_several_seeds_are_written_with_their_range():
    setup = next(s for s in SETUPS if s.name == "sinusoid/transolver")
    result = {"mse": 0.2, "models": ["transolver"]}
    assert paper_runs._written(setup, result) == "MSE 0.2"
    result["mse_transolver_range"] = [0.125, 0.25]
    assert paper_runs._written(setup, result) == "MSE 0.2 [0.125, 0.25]"


def test_what_fails_is_named_and_does_not_hold_up_the_rest(tmp_path, programs, capfd):
    programs.update(dict.fromkeys((setup.name for setup in SOME), FINISH))
    programs[SOME[0].name] = FAIL
    found = paper_runs.run(SOME, tmp_path, 60.0, max_mib=1e-6)
    assert (found["done"], found["failed"]) == (2, [SOME[0].name])
    assert "more than max_mib=1e-06" in capfd.readouterr().err


def test_the_commands_are_those_of_the_published_setups(tmp_path):
    (tmp_path / "darcy").mkdir()
    setups = {setup.name: setup for setup in SETUPS}
    folder, data = tmp_path / "run", str(tmp_path)
    command = paper_runs._command(setups["darcy/functional"], folder, data)
    assert command[1:3] == ["-m", "experiments.darcy"]
    assert f"--data_dir={tmp_path / 'darcy'}" in command
    command = paper_runs._command(setups["sinusoid/functional"], folder, data)
    assert not [word for word in command if "data_dir" in word]


def test_drawn_batches_have_steps_in_place_of_epochs(tmp_path):
    (setup,) = (s for s in SETUPS if s.name == "sinusoid/functional")
    folder = tmp_path / "sinusoid_functional" / "functional-0"
    folder.mkdir(parents=True)
    row = {"epoch": 1, "step": 5_000, "seconds": 10.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert paper_runs._left(tmp_path, setup) == pytest.approx(90.0)
    assert setup.written(9.45e-5) == "MSE 9.45e-05"


# A program that saves when it is told to stop, and is slow otherwise.
SLOW = (
    FINISH
    + """
(folder / "result.json").unlink()
import signal, time
def end(*_):
    (folder / "saved").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, end)
(folder / "ready").touch()
time.sleep(60)
"""
)
QUEUE = """
import sys, pathlib
from experiments import paper_runs
from experiments.published import SETUPS
from opjax.learn import Stopped
paper_runs._command = lambda setup, folder, _: [
    sys.executable, "-S", "-c", sys.argv[2], str(folder)]
try:
    paper_runs.run(SETUPS[:1], pathlib.Path(sys.argv[1]), 100.0)
except Stopped:
    sys.exit(75)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_queue_leaves_no_program_behind(how, tmp_path, programs):
    command = [sys.executable, "-c", QUEUE, str(tmp_path), SLOW]
    queue = subprocess.Popen(command)
    folder = paper_runs._folder(tmp_path, SETUPS[0])
    wait_for((folder / "ready").exists)
    under_way = json.loads((tmp_path / "under_way.json").read_text())
    queue.send_signal(how)
    assert queue.wait(60) == (75 if how == signal.SIGTERM else -how)
    is_running = functools.partial(
        paper_runs._is_running, under_way["pid"], under_way["folder"]
    )
    assert is_running() == (how == signal.SIGKILL)  # nobody could tell it to stop
    programs[SETUPS[0].name] = FINISH
    found = paper_runs.run(SETUPS[:1], tmp_path, 60.0)
    assert found["done"] == 1
    assert not is_running()
    assert (folder / "saved").exists()
    assert not (tmp_path / "under_way.json").exists()


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
