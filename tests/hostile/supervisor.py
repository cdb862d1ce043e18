"""Runs workers, and counts what became of the files."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_BATCH = 40  # files of a format, before it is the turn of the next


@dataclasses.dataclass
class Tally:
    """What became of the files of a format."""

    name: str
    files: int = 0
    ok: int = 0
    refused: int = 0
    slowest: float = 0.0
    peak: int = 0
    escapes: list[str] = dataclasses.field(default_factory=list)

    def add(self, row: dict[str, Any]) -> None:
        """Counts a file."""
        self.files += 1
        self.ok += row["outcome"] == "ok"
        self.refused += row["outcome"] == "refused"
        self.slowest = max(self.slowest, row["seconds"])
        self.peak = max(self.peak, row["peak"])
        if row["outcome"] == "escape":
            self.escapes.append(f"{row['index']}: {row['reason']}")


def run(
    seed: int,
    *,
    files: int | None = None,
    deadline: float = math.inf,
    names: Sequence[str] | None = None,
) -> list[Tally]:
    """Reads so many files of each format, or until the deadline of `time.monotonic`."""
    from tests.hostile import readers

    tallies = {name: Tally(name) for name in names or readers.FORMATS}
    first = 0
    while time.monotonic() < deadline and (files is None or first < files):
        last = first + (_BATCH if files is None else files)
        jobs = [[name, first, last] for name in tallies]
        given = {"seed": seed, "jobs": jobs}
        if deadline < math.inf:
            given["deadline"] = deadline
        for row in _rows(given):
            tallies[row["format"]].add(row)
        first = last
    return list(tallies.values())


def _rows(given: dict[str, Any]):
    command = [sys.executable, "-m", "tests.hostile.worker", json.dumps(given)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    # One thread for arithmetic: a forked process has no others.
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NPROC": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise RuntimeError(f"the worker ended with status {process.returncode}")
