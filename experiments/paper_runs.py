"""Runs the published set-ups one after another, within a time limit.

    python -m experiments.paper_runs --minutes=9 --state=runs/published

Continues the set-up that was interrupted, then takes the next one of
`experiments.published`, and stops in time. Repeating the command continues, also on
another machine to which the state folder was copied, with the same bits as without
interruption. Of a finished set-up the numbers are kept, in `published.json` for
`experiments.published`, and the trained operator for `opjax.learn.load`. Of programs
that save no operator, as that of sine waves, the last checkpoint is kept. The last line
of output is JSON.

SIGTERM and Ctrl-C stop the program under way as well, which saves. After SIGKILL that
program goes on alone; the next queue stops it, and continues from what it saved.
"""

import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from experiments.published import SETUPS, Setup
from opjax.learn import Options, option
from opjax.learn.cli.command_line import launch
from opjax.learn.config.fields import required
from opjax.learn.json_files import read_object, write_json
from opjax.learn.messages import say
from opjax.learn.predict import trained
from opjax.learn.run.metrics_file import read_metrics
from opjax.learn.run.stopping import STATUS, Stopped, put_off
from opjax.learn.tables import table
from opjax.training import checkpoint

_GRACE = 45.0  # seconds to end the batches under way and to save
_LEAST = 30.0  # seconds that are worth a start
_LOOK = 0.2  # seconds between looks at the program under way
_UNDER_WAY = "under_way.json"  # the process of the program under way
_MIB = 2**20


@dataclasses.dataclass(frozen=True)
class QueueOptions(Options):
    """What to run, and for how long."""

    state: str = required("Folder that keeps everything needed to continue")
    minutes: float = option(9.0, "Time limit, in minutes", minimum=0.1)
    setups: tuple[str, ...] = option(
        (), "Names of the set-ups to run, in this order. If empty, all"
    )
    data_dir: str | None = option(
        None, "Folder of the published files, with one folder per program"
    )
    list: bool = option(False, "Print the state of all set-ups without running any")
    max_mib: float = option(
        60.0, "Maximum size of the state folder at the end, in MiB", minimum=1.0
    )


def run(
    setups: Sequence[Setup],
    state: pathlib.Path,
    seconds: float,
    *,
    data_dir: str | None = None,
    max_mib: float = 60.0,
) -> dict[str, Any]:
    """Runs set-ups until the time is up.

    Args:
      setups: in the order to run them.
      state: folder of all that has to be kept between calls.
      seconds: time to use, the time to stop and to save included.
      data_dir: folder with one of published files for each program; otherwise, and for
        programs without, data of our own solvers.
      max_mib: what the state may hold afterwards.

    Returns:
      JSON values, see `summary`.
    """
    end = time.monotonic() + seconds
    _stop_orphan(state)
    failed: set[str] = set()
    while (left := end - time.monotonic()) > _LEAST + _GRACE:
        waiting = [s for s in setups if _status(state, s) != "done"]
        waiting = [s for s in waiting if s.name not in failed]
        if not waiting:
            break
        setup = min(waiting, key=lambda s: _status(state, s) != "under way")
        status = _run_one(setup, state, left - _GRACE, data_dir)
        _prune(setup, state)
        if status == STATUS:  # it was told to stop, so the time is up
            break
        if status:
            failed.add(setup.name)
    return summary(setups, state, max_mib=max_mib) | {"failed": sorted(failed)}


def summary(
    setups: Sequence[Setup], state: pathlib.Path, *, max_mib: float = 60.0
) -> dict[str, Any]:
    """What is done, what is left, and how large the state is.

    The seconds that are left are of the set-ups under way, at their own pace, None
    before one has a pace; of those that have not begun nothing is known.
    """
    status = [_status(state, setup) for setup in setups]
    size = sum(f.stat().st_size for f in state.rglob("*") if f.is_file()) / _MIB
    if size > max_mib:
        say(
            f"{state} holds {size:.0f} MiB, more than max_mib={max_mib:g}: finish what "
            "is under way before you carry it."
        )
    begun = [s for s, now in zip(setups, status, strict=True) if now == "under way"]
    left = [_left(state, setup) for setup in begun]
    return {
        "done": status.count("done"),
        "setups": len(setups),
        "under_way": [setup.name for setup in begun],
        "seconds_left_of_these": None if None in left else sum(filter(None, left)),
        "state_mib": size,
    }


def page(setups: Sequence[Setup], state: pathlib.Path) -> str:
    """A table of the set-ups: status, time, our number and the published one."""
    rows = []
    for setup in setups:
        status, metrics = _status(state, setup), _metrics(state, setup)
        spent = f"{metrics[-1]['seconds']:.0f}" if metrics else "–"
        left, ours = _left(state, setup), "–"
        if status == "done":
            result = read_object(_folder(state, setup) / "result.json")
            ours, left = setup.written(result[setup.metric]), 0.0
        remains = "?" if left is None else f"{left:.0f}"
        published = setup.written(setup.error)
        rows.append([setup.name, status, spent, remains, ours, published])
    columns = ["set-up", "status", "seconds", "seconds left", "ours", "published"]
    return table(columns, rows)


def reached(setups: Sequence[Setup], state: pathlib.Path) -> dict[str, str]:
    """What finished set-ups reached, by name: number, seed, data, device, commit."""
    lines = {}
    for setup in setups:
        if _status(state, setup) != "done":
            continue
        folder = _folder(state, setup)
        result, made = (
            read_object(folder / f"{name}.json") for name in ("result", "environment")
        )
        seconds = result.get("seconds")
        parts = [
            _written(setup, result),
            "seed " + ", ".join(map(str, result.get("seeds", [0]))),
            f"data: {result.get('data', 'unknown')}",
            made["device_kind"],
            *([] if seconds is None else [f"{seconds:.0f} s"]),
            f"commit {(made['git_commit'] or 'unknown')[:7]}",
        ]
        lines[setup.name] = "; ".join(parts)
    return lines


def _written(setup: Setup, result: dict[str, Any]) -> str:
    """The number of a result, and its range over the seeds where it has several."""
    number = setup.written(result[setup.metric])
    ends = result.get(f"{setup.metric}_{result.get('models', [''])[0]}_range")
    if ends is None:
        return number
    low, high = (setup.written(end).removeprefix("MSE ") for end in ends)
    return f"{number} [{low}, {high}]"


def _run_one(
    setup: Setup, state: pathlib.Path, seconds: float, data_dir: str | None
) -> int:
    """Runs one program, tells it to stop when the time is up; returns its status."""
    folder = _folder(state, setup)
    command = _command(setup, folder, data_dir)
    say(f"{setup.name}: {' '.join(command[1:])}")
    root = str(pathlib.Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    begin = time.monotonic()
    with (
        put_off() as told,
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path}
        ) as program,
    ):
        write_json(state / _UNDER_WAY, {"pid": program.pid, "folder": folder})
        while (status := program.poll()) is None:
            if told() or time.monotonic() - begin > seconds:
                _end(program)
                status = STATUS
                break
            time.sleep(_LOOK)
        (state / _UNDER_WAY).unlink()
        if told():
            raise Stopped(f"{setup.name} was stopped, and saved.")
    return status


def _end(program: subprocess.Popen[bytes]) -> None:
    """Tells a program to save and stop; kills it when it does not."""
    program.send_signal(signal.SIGTERM)
    try:
        program.wait(_GRACE / 2)
    except subprocess.TimeoutExpired:  # its last checkpoint is what is left
        program.kill()


def _stop_orphan(state: pathlib.Path) -> None:
    """Stops the program of a queue that was killed, once it has saved."""
    record = state / _UNDER_WAY
    if not record.exists():
        return
    orphan = read_object(record)
    end = time.monotonic() + _GRACE
    while _is_running(orphan["pid"], orphan["folder"]):
        late = time.monotonic() > end
        os.kill(orphan["pid"], signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(_LOOK)
    record.unlink()


def _is_running(pid: int, folder: str) -> bool:
    """Whether a process works in that folder, and is no later one of its number."""
    asked = ["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)]
    shown = subprocess.run(asked, capture_output=True, text=True).stdout
    return folder in shown and not shown.startswith("Z")


def _command(setup: Setup, folder: pathlib.Path, data_dir: str | None) -> list[str]:
    command = [sys.executable, "-m", f"experiments.{setup.module}", *setup.flags]
    command += [f"--workdir={folder}"]
    if published := setup.data(data_dir):
        command += [f"--data_dir={published}"]
    return command


def _prune(setup: Setup, state: pathlib.Path) -> None:
    """Leaves the newest checkpoint of each member, none where it saved its operator."""
    done = _status(state, setup) == "done"
    for folder in sorted(_folder(state, setup).rglob("checkpoints")):
        has_operator = done and (folder.parent / trained.FOLDER).is_dir()
        for step in checkpoint.all_steps(folder)[: None if has_operator else -1]:
            shutil.rmtree(folder / f"step_{step:010d}")


def _folder(state: pathlib.Path, setup: Setup) -> pathlib.Path:
    return state / setup.name.replace("/", "_").replace(" ", "_")


def _status(state: pathlib.Path, setup: Setup) -> str:
    folder = _folder(state, setup)
    if (folder / "result.json").exists():
        return "done"
    return "under way" if folder.exists() else "waiting"


def _metrics(state: pathlib.Path, setup: Setup) -> list[dict[str, Any]]:
    """The rows of the newest member of a study."""
    files = list(_folder(state, setup).rglob("metrics.jsonl"))
    newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
    return read_metrics(newest.parent) if newest else []


def _left(state: pathlib.Path, setup: Setup) -> float | None:
    """Seconds that a set-up under way has left, at its pace so far."""
    rows, config = _metrics(state, setup), setup.config()
    if not rows:
        return None
    has_epochs = hasattr(config, "num_epochs")
    key, total = ("epoch", "num_epochs") if has_epochs else ("step", "num_steps")
    done = rows[-1][key]
    return rows[-1]["seconds"] / done * (getattr(config, total) - done)


def work(options: QueueOptions) -> dict[str, Any]:
    """Runs what the options name."""
    by_name = {setup.name: setup for setup in SETUPS}
    for name in options.setups:
        if name not in by_name:
            raise ValueError(f"setups={name!r} is none of {', '.join(by_name)}.")
    setups = [by_name[name] for name in options.setups] or SETUPS
    state = pathlib.Path(options.state).absolute()
    state.mkdir(parents=True, exist_ok=True)
    try:
        if options.list:
            result = summary(setups, state, max_mib=options.max_mib)
        else:
            result = run(
                setups,
                state,
                60 * options.minutes,
                data_dir=options.data_dir,
                max_mib=options.max_mib,
            )
    finally:  # also of what finished before a signal
        write_json(state / "published.json", reached(SETUPS, state))
    print(page(setups, state))
    write_json(state / "queue.json", result)
    return result


def main() -> None:
    """Runs what the flags ask for."""
    launch(QueueOptions, work, doc=__doc__, continues=True)


if __name__ == "__main__":
    main()
