"""Measures opjax on an accelerator in at most eight minutes.

    python -m benchmarks.device --output=DIR             # measures, and goes on
    python -m benchmarks.device --output=DIR --small     # everything, small, on a CPU
    python -m benchmarks.device --output=DIR --page      # writes results/device.md

Every case is a line of `DIR/device.jsonl`, written when it ends: training steps beside
PyTorch's, pure functions beside plain JAX, precision, gradients of many points, what a
published run takes, tiles, and values against the CPU. Cases are measured in other
processes, which are ended when they take too long: what fails costs one case. A case
that has a line without an error is not measured again.
"""

import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from absl import app, flags

from benchmarks import device_cases
from benchmarks.device_cases import SMALL, Case, Sizes
from benchmarks.provenance import provenance

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PAGE = _ROOT / "results" / "device.md"
_START = 40  # seconds in which a process imports and finds its device
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "triton")
_ENVIRONMENT = {
    # PyTorch and JAX are on the card in turn.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",
    "PYTHONUNBUFFERED": "1",
}
_TEXTS = {
    "output": ("results/device", "Folder of device.jsonl and of the log"),
    "commit": ("", "Commit that is measured, where there is no repository"),
}
_SWITCHES = {
    "small": "Small sizes, to try everything on a CPU",
    "page": f"Write {_PAGE.name} from the lines, and measure nothing",
    "list": "Print the names of the cases, and measure nothing",
    "worker": "Measure in this process (internal)",
}


def define_flags() -> None:
    """Defines the flags; not on import, since names are those of other benchmarks."""
    for name, (default, text) in _TEXTS.items():
        flags.DEFINE_string(name, default, text)
    for name, text in _SWITCHES.items():
        flags.DEFINE_bool(name, False, text)
    text = "Beginnings of the names of cases to measure. All if empty"
    flags.DEFINE_list("cases", [], text)
    text = "Seconds after which no case goes on"
    flags.DEFINE_float("seconds", 480.0, text, lower_bound=1.0)


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the lines of a file, none if there is none."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(cases: Sequence[Case], path: pathlib.Path, seconds: float, small: bool) -> None:
    """Measures cases that have no line without an error, until the time is over.

    Args:
      cases: in their order; those of a group follow each other.
      path: of the lines.
      seconds: after which the case that is being measured is given up.
      small: whether sizes are small.
    """
    end = time.monotonic() + seconds
    latest = {row["case"]: "error" in row for row in read(path)}
    left = [case for case in cases if latest.get(case.name, True)]
    left.sort(key=lambda case: case.name in latest)  # what has failed comes last
    while left and time.monotonic() < end:
        group = [case for case in left if case.group == left[0].group]
        for row in _measured(group, path.with_suffix(".log"), end, small):
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            told = {key: _short(value) for key, value in row.items()}
            print(told, flush=True)
            left = [case for case in left if case.name != row["case"]]


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value[-300:] if isinstance(value, str) else value


def _measured(
    group: Sequence[Case], log: pathlib.Path, end: float, small: bool
) -> Iterator[dict[str, Any]]:
    """Yields the lines of a process, and one of the case that ended it."""
    command = _command(group, small)
    with log.open("a") as errors:
        worker = subprocess.Popen(
            command,
            env=_ENVIRONMENT | os.environ,
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_pump, args=(worker.stdout, lines))
    reader.start()
    try:
        for case, allowed in zip(group, [_START] + [0] * len(group), strict=False):
            limit, rest = case.seconds + allowed, max(end - time.monotonic(), 0)
            try:
                line = lines.get(timeout=min(limit, rest))
            except queue.Empty:
                if limit < rest:  # or the time is over, and the case will be next
                    yield {"case": case.name, "error": f"no answer in {limit} s"}
                return
            if line is None:
                last = log.read_text().splitlines()[-3:]
                text = f"ended with status {worker.wait()}: {' '.join(last)}"
                yield {"case": case.name, "error": text}
                return
            yield json.loads(line)
    finally:
        _end(worker)
        reader.join()


def _command(group: Sequence[Case], small: bool) -> list[str]:
    names = ",".join(case.name for case in group)
    command = [sys.executable, "-m", "benchmarks.device", "--worker"]
    return [*command, f"--cases={names}", *(["--small"] if small else [])]


def _pump(stream: Any, lines: "queue.Queue[str | None]") -> None:
    """Passes lines of cases on, then None."""
    with stream:
        for line in stream:
            if line.startswith('{"case"'):
                lines.put(line)
    lines.put(None)


def _end(worker: "subprocess.Popen[str]") -> None:
    """Ends a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def measure(cases: Sequence[Case]) -> None:
    """Measures cases in this process, and prints a line of each."""
    for case in cases:
        begin = time.perf_counter()
        try:
            row = case.measure()
        except Exception as error:  # one case, not all
            traceback.print_exc()
            row = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
        seconds = round(time.perf_counter() - begin, 2)
        print(json.dumps({"case": case.name, **row, "seconds": seconds}), flush=True)


def machine(commit: str) -> dict[str, Any]:
    """Returns the line of commit, hardware and versions."""
    ask = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep=', ')"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env=_ENVIRONMENT | os.environ,
        capture_output=True,
        check=True,
        text=True,
    )
    origin = provenance(_PACKAGES)
    origin["commit"] = commit or origin["commit"]
    return {"case": "machine", "device": done.stdout.strip(), **origin}


def main(argv: Sequence[str]) -> None:
    """Measures, or writes the page."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    given = flags.FLAGS
    chosen = device_cases.cases(SMALL if given.small else Sizes())
    if given.worker:
        by_name = {case.name: case for case in chosen}
        return measure([by_name[name] for name in given.cases])
    if given.cases:
        chosen = [case for case in chosen if case.name.startswith(tuple(given.cases))]
    if given.list:
        print("\n".join(f"{case.group}: {case.name}" for case in chosen))
        return None
    folder = pathlib.Path(given.output)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "device.jsonl"
    if given.page:
        from benchmarks import device_page

        _PAGE.write_text(device_page.page(read(path)))
        return None
    origin = machine(given.commit)
    print(origin, flush=True)
    if origin["device"].startswith("cpu") and not given.small:
        raise app.UsageError("JAX finds no accelerator; try --small on a CPU.")
    with path.open("a") as file:
        file.write(json.dumps(origin) + "\n")
    return run(chosen, path, given.seconds, given.small)


if __name__ == "__main__":
    define_flags()
    app.run(main)
