"""Seconds until a first training shows progress, and until it ends, phase by phase.

    taskset -c 0 python -m benchmarks.start_up --output=results/start_up.md

Trains `opjax-train` with its default preset on 40 samples of 80 to 160 points, in fresh
processes: with an empty compilation cache (cold), with the cache that this run left
(warm), and with that cache and other epochs, learning rate and seed (numbers). The
phases of a process are timed from outside, by functions put around those of
`opjax.learn`, so that the same program measures other commits, with `--tree`.

Seconds are those of the processor: on one core that is free they are the seconds of a
clock, and on a busy one they are still about the same. The totals are given by the
clock, too.
"""

import dataclasses
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags

from benchmarks.provenance import provenance

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_OUTPUT = flags.DEFINE_string("output", "", "Markdown page to write. None if empty")
_TREE = flags.DEFINE_string("tree", str(_ROOT), "Working tree whose opjax is measured")
_ROUNDS = flags.DEFINE_integer("rounds", 1, "Number of processes of each kind")
_SAMPLES = flags.DEFINE_integer("samples", 40, "Number of samples")
_EPOCHS = flags.DEFINE_integer("epochs", 0, "Number of epochs. 0 takes the preset's")
_WORKER = flags.DEFINE_string("worker", "", "File of a single process (internal)")

# Cases and the flags of the program that differ.
CASES = {
    "cold": (),
    "warm": (),
    "numbers": ("--learning_rate=0.002", "--seed=3", "--weight_decay=1e-4"),
}
# Rows of the table: names of `Phases.seconds`, in the order in which they happen.
ROWS = {
    "imports": "imports",
    "data": "data: read, check, normalise, pad",
    "model": "model: initial parameters",
    "set-up": "set-up: optimizer, files; since 0.3 compilation of the steps",
    "first epoch": "first epoch, with its compilation",
    "first validation": "first validation, with its compilation",
    "other epochs": "other epochs",
    "other validations": "other validations",
    "checkpoints": "checkpoints",
    "evaluation": "evaluation on the test set",
    "figures": "figures",
    "rest": "rest",
    "total": "**total**",
    "silence": "**until the first line of progress**",
    "after": "**after the last epoch**",
    "silence clock": "until the first line of progress, by the clock",
    "total clock": "total, by the clock",
    "compiled": "programs compiled",
    "compilation": "XLA's compiler and cache, by the clock",
    "traced": "tracing and lowering, by the clock",
}
_COUNTS = ("compiled",)


@dataclasses.dataclass
class Phases:
    """What a process measures of itself.

    Attributes:
      calls: seconds of every call of a phase, by its name.
      compiled: seconds of every program that XLA compiled or found in the cache.
      hits: of these, how many were found.
      traced: seconds of tracing and lowering.
    """

    calls: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    compiled: list[float] = dataclasses.field(default_factory=list)
    hits: int = 0
    traced: float = 0.0

    def around(self, owner: Any, name: str, phase: str) -> None:
        """Times the calls of a function in place."""
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            begin = time.process_time()
            try:
                return function(*given, **named)
            finally:
                seconds = time.process_time() - begin
                self.calls.setdefault(phase, []).append(seconds)

        setattr(owner, name, timed)

    def on_duration(self, event: str, seconds: float, **_: Any) -> None:
        """Listens to JAX."""
        if event == "/jax/core/compile/backend_compile_duration":
            self.compiled.append(seconds)
        elif event.startswith("/jax/core/compile/jaxpr"):
            self.traced += seconds

    def on_event(self, event: str, **_: Any) -> None:
        """Listens to JAX."""
        self.hits += event == "/jax/compilation_cache/cache_hits"


def work(file: str, arguments: Sequence[str], begin: float) -> None:
    """Trains in this process, and writes what it measured."""
    phases = Phases()
    import jax

    from opjax.learn.cli import study, train
    from opjax.learn.run import loop

    phases.calls["imports"] = [time.process_time()]
    say = loop.say

    def shown(text: str) -> None:
        if " epoch " in text and " step " in text:
            phases.calls.setdefault("shown", []).append(time.process_time())
        say(text)

    loop.say = shown
    jax.monitoring.register_event_duration_secs_listener(phases.on_duration)
    jax.monitoring.register_event_listener(phases.on_event)
    phases.around(study.Tasks, "__call__", "data")
    phases.around(study, "build", "model")
    phases.around(loop.Loop, "__init__", "set-up")
    phases.around(loop.Loop, "advance", "epochs")
    phases.around(loop.Loop, "look_if_due", "validations")
    phases.around(loop.Loop, "save_if_due", "checkpoints")
    phases.around(study, "_finished", "finished")
    phases.around(study.figures, "draw", "figures")
    sys.argv = ["opjax-train", *arguments]
    flags.FLAGS.unparse_flags()
    for name in [n for n in flags.FLAGS if flags.FLAGS.find_module_defining_flag(n)]:
        if flags.FLAGS.find_module_defining_flag(name) in (__name__, "__main__"):
            delattr(flags.FLAGS, name)
    try:
        train.main()
    except SystemExit as end:
        if end.code:
            raise
    phases.calls["total"] = [time.process_time()]
    phases.calls["clock"] = [time.time() - begin]
    pathlib.Path(file).write_text(json.dumps(dataclasses.asdict(phases)))


def measure(tree: str, folder: pathlib.Path, arguments: Sequence[str]) -> dict:
    """Trains in a fresh process; returns seconds by the names of `ROWS`."""
    file = folder / "phases.json"
    path = os.pathsep.join([tree, str(_ROOT), *filter(None, [os.getenv("PYTHONPATH")])])
    environment = os.environ | {
        "PYTHONPATH": path,
        "OPJAX_CACHE": str(folder / "cache"),
        "JAX_PLATFORMS": "cpu",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    code = (
        "import sys, time; from benchmarks import start_up; "
        f"start_up.work({str(file)!r}, sys.argv[2:], float(sys.argv[1]))"
    )
    begin = time.time()
    command = [sys.executable, "-c", code, str(begin), *arguments]
    child = subprocess.Popen(
        command, cwd=tree, env=environment, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stderr is not None
    shown, silence = [], 0.0
    for line in child.stderr:
        shown.append(line)
        if not silence and " epoch " in line and " step " in line:
            silence = time.time() - begin
    if child.wait():
        raise RuntimeError(f"{command} failed:\n{''.join(shown)}")
    return _rows(json.loads(file.read_text()), silence)


def _rows(found: dict[str, Any], silence: float) -> dict:
    calls = found["calls"]
    total, first = calls["total"][0], calls["shown"][0]
    rows = {k: sum(calls[k]) for k in ("imports", "data", "model", "set-up")}
    for many, one in (("epochs", "epoch"), ("validations", "validation")):
        rows[f"first {one}"] = calls[many][0]
        rows[f"other {many}"] = sum(calls[many][1:])
    rows["checkpoints"] = sum(calls["checkpoints"])
    rows["figures"] = sum(calls["figures"])
    rows["evaluation"] = sum(calls["finished"]) - calls["figures"][0]
    rows["rest"] = total - sum(rows.values())
    rows |= {"total": total, "silence": first, "after": total - calls["shown"][-1]}
    rows |= {"silence clock": silence, "total clock": calls["clock"][0]}
    rows["compiled"] = len(found["compiled"]) - found["hits"]
    rows["compilation"] = sum(found["compiled"])
    return rows | {"traced": found["traced"]}


def run(tree: str, *, rounds: int, samples: int, epochs: int) -> dict[str, dict]:
    """Measures all cases; returns medians by case and row."""
    found: dict[str, list[dict]] = {name: [] for name in CASES}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_samples(tree, folder / "data", samples)
            for case, changes in CASES.items():
                arguments = [f"--train={folder / 'data'}", *changes]
                number = epochs + 2 * (case == "numbers")
                if epochs:
                    arguments.append(f"--num_epochs={number}")
                arguments.append(f"--workdir={folder / case}")
                found[case].append(measure(tree, folder, arguments))
                print(case, found[case][-1], file=sys.stderr, flush=True)
    return {
        case: {row: statistics.median(one[row] for one in every) for row in ROWS}
        for case, every in found.items()
    }


def write_samples(tree: str, folder: pathlib.Path, count: int) -> None:
    """Writes samples of 80 to 160 points to a folder."""
    code = (
        "from opjax.datasets import heat; "
        f"heat.write({str(folder)!r}, {count}, num_points=(80, 160))"
    )
    path = {"PYTHONPATH": tree, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], env=os.environ | path, check=True)


def table(found: dict[str, dict]) -> str:
    """Returns a Markdown table, a column for each case."""
    lines = [
        "| phase, seconds | " + " | ".join(found) + " |",
        "|---" * (len(found) + 1) + "|",
    ]
    for row, name in ROWS.items():
        style = ".0f" if row in _COUNTS else ".1f"
        cells = [format(one[row], style) for one in found.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Prints the table, and what it was measured with."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    origin = provenance(("jax", "jaxlib", "flax", "optax", "numpy"))
    origin["tree"] = subprocess.run(
        ["git", "-C", _TREE.value, "log", "-1", "--format=%h %s"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    found = run(
        _TREE.value,
        rounds=_ROUNDS.value,
        samples=_SAMPLES.value,
        epochs=_EPOCHS.value,
    )
    lines = [f"- {key}: `{value}`" for key, value in origin.items()]
    page = "\n".join([*lines, "", table(found), ""])
    print(page)
    if _OUTPUT.value:
        pathlib.Path(_OUTPUT.value).write_text(page)
    print(json.dumps({"results": found, "provenance": origin}))


if __name__ == "__main__":
    app.run(main)
