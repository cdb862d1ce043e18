"""Long runs: memory, compilations, disk and reading of one that goes on for days.

    python -m tests.faults.long --steps=10000 --checkpoints=1000 --rows=1000000

The last line is JSON. `growth` is that of the resident memory after the first hundred
steps, over what it was there; `compilations` are those after them; `kib` what the
folder takes after the first, the middle and the last checkpoint.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np

from opjax.learn.cli import arenas
from opjax.learn.run import metrics_file
from opjax.learn.run.folder import RunDirectory
from opjax.learn.run.loop import Loop
from opjax.training import checkpoint
from tests.learn import resumable

_FIRST = 100
_COMPILED = "/jax/core/compile/backend_compile_duration"


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def training(
    folder: pathlib.Path, steps: int, *, checkpoint_every: int = 8
) -> dict[str, Any]:
    """Trains a model with noise and averaged weights, eleven steps an epoch.

    The first checkpoint is among the first steps, by default.
    """
    sizes: list[tuple[int, int]] = []
    compiled: list[int] = []
    advance = Loop.advance

    def watched(self: Loop) -> None:
        advance(self)
        sizes.append((self.step, resident()))

    def listen(name: str, *_: Any, **__: Any) -> None:
        if name == _COMPILED:
            compiled.append(sizes[-1][0] if sizes else 0)

    jax.monitoring.register_event_duration_secs_listener(listen)
    epochs = -(-steps // 11)
    try:
        with jax.enable_x64(False), mock.patch.object(Loop, "advance", watched):
            begin = time.monotonic()
            found = resumable.run(
                folder,
                num_epochs=epochs,
                checkpoint_every=checkpoint_every,
                quiet=True,
                checkpoint_seconds=1e9,
            )
            seconds = time.monotonic() - begin
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(found.history) == epochs
    at_first = next(size for step, size in sizes if step >= _FIRST)
    most = max(size for step, size in sizes if step >= _FIRST)
    return {
        "steps": sizes[-1][0],
        "resident_mib": round(sizes[-1][1] / 2**20, 1),
        "growth": round(sizes[-1][1] / at_first - 1, 5),
        "growth_most": round(most / at_first - 1, 5),
        "compilations_before": sum(step < _FIRST for step in compiled),
        "compilations": sum(step >= _FIRST for step in compiled),
        "seconds": round(seconds, 1),
    }


def saving(folder: pathlib.Path, count: int) -> dict[str, Any]:
    """Saves so many checkpoints."""
    payload = {"w": np.zeros(10**5, np.float32), "step": 0}
    taken, memory, opened, begin = [], [], [], time.monotonic()
    for step in range(count):
        payload["w"][step % 10**5] = step
        checkpoint.save(folder, step, payload | {"step": step})
        taken.append(sum(size for size in _sizes(folder)))
        memory.append(resident())
        opened.append(len(list(pathlib.Path("/proc/self/fd").iterdir())))
    files = sum(1 for _ in _sizes(folder))
    few = memory[min(_FIRST, count // 2)]
    return {
        "checkpoints": count,
        "kept": checkpoint.all_steps(folder),
        "kib": [taken[at] // 1024 for at in (1, count // 2, -1)],
        "kib_most": max(taken) // 1024,
        "files": files,
        "descriptors": opened[-1],
        "descriptors_more": opened[-1] - opened[1],
        "save_growth": round(memory[-1] / few - 1, 5),
        "save_ms": round(1e3 * (time.monotonic() - begin) / count, 1),
    }


def _sizes(folder: pathlib.Path) -> Iterator[int]:
    return (path.stat().st_size for path in folder.rglob("*") if path.is_file())


def reading(folder: pathlib.Path, rows: int) -> dict[str, Any]:
    """Reads metrics of so many rows, and goes on behind them."""
    folder.mkdir()
    row = '{"epoch": %d, "step": %d, "learning_rate": 0.00099, "train_loss": 0.0123456'
    row += ', "grad_norm": 0.98765, "validation": 0.0123, "seconds": 1234.5}\n'
    with open(folder / "metrics.jsonl", "w") as file:
        file.writelines(row % (i, 11 * i) for i in range(rows))
    begin = time.monotonic()
    found = metrics_file.read_metrics(folder)
    read = time.monotonic() - begin
    assert (len(found), found[-1]["epoch"]) == (rows, rows - 1)
    del found
    begin = time.monotonic()
    writer = metrics_file.MetricsWriter(RunDirectory(folder, {}, True), rows=rows - 1)
    writer.write({"step": 1})
    writer.close()
    opened = time.monotonic() - begin
    return {
        "rows": rows,
        "mib": round((folder / "metrics.jsonl").stat().st_size / 2**20, 1),
        "read_seconds": round(read, 2),
        "open_seconds": round(opened, 2),
    }


def main() -> int:
    """Runs on the flags; the status is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--checkpoints", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    arenas.limit()  # as programs do
    with tempfile.TemporaryDirectory(prefix="opjax-long-") as place:
        folder = pathlib.Path(place)
        result = training(folder / "run", given.steps)
        result |= saving(folder / "checkpoints", given.checkpoints)
        result |= reading(folder / "metrics", given.rows)
    print(json.dumps(result))
    return int(bool(missed(result)))


def missed(result: dict[str, Any]) -> list[str]:
    """Names of the bars that are missed."""
    bars = {
        "growth": result["growth"] <= 0.01,
        "compilations": result["compilations"] == 0,
        "compilations_before": result["compilations_before"] > 0,
        "kept": len(result["kept"]) == 2,
        "kib": result["kib"][2] <= 1.5 * result["kib"][0],
        "save_growth": result["save_growth"] <= 0.01,
        "read_seconds": result["read_seconds"] <= 20e-6 * result["rows"] + 1,
    }
    return [name for name, reached in bars.items() if not reached]


if __name__ == "__main__":
    sys.exit(main())
