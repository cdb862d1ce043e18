"""Commit, hardware and versions of a benchmark; imports nothing that takes memory."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def provenance(packages: Sequence[str]) -> dict[str, str]:
    """Returns what is needed to repeat the measurement and to judge it."""
    sha = _git("rev-parse", "--short=12", "HEAD") or "none"
    changes = " (with uncommitted changes)" if _git("status", "--porcelain") else ""
    cpu = platform.processor() or platform.machine()
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        models = [s for s in info.read_text().splitlines() if "model name" in s]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    versions = [f"{name} {_version(name)}" for name in packages]
    module = pathlib.Path(sys.argv[0]).stem
    return {
        "command": shlex.join(["python", "-m", f"benchmarks.{module}", *sys.argv[1:]]),
        "commit": sha + changes,
        "hardware": f"{cpu}, {num_cores()} cores",
        "load average before": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def num_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def _git(*arguments: str) -> str:
    """What git prints; nothing where it, or the repository, is missing."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True
        )
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
