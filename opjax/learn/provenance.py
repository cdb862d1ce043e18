"""Where the numbers of a run come from: software, hardware, commit and command."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
from typing import Any

import jax

_PACKAGES = ("opjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def provenance(folder: pathlib.Path, *, seconds: float) -> str:
    """Returns a Markdown list of what `environment.json` in the folder of a run says.

    Args:
      folder: of the run.
      seconds: wall time of the last process.
    """
    found = json.loads((folder / "environment.json").read_text())
    modified = " with uncommitted changes" if found["git_modified"] else ""
    packages = ", ".join(
        f"{k} {found['packages'][k]}" for k in ("jax", "flax", "optax")
    )
    return (
        f"- command: `{found['command']}`\n"
        f"- commit {found['git_commit']}{modified}, {found['starts'][-1][:10]}\n"
        f"- {found['cpu_count']} cores, {found['device_kind']}; {found['platform']}\n"
        f"- Python {found['python']}, {packages}\n"
        f"- {seconds:.0f} s for all studies of the last process, with compilation\n"
    )


def environment(path: pathlib.Path, command: str) -> dict[str, Any]:
    """What a run in a folder is made with; its earlier starts are kept."""
    versions, starts = {}, []
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    with contextlib.suppress(OSError, ValueError, KeyError):
        starts = json.loads((path / "environment.json").read_text())["starts"]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        "devices": [str(device) for device in jax.devices()],
        "device_kind": jax.devices()[0].device_kind,
        "x64": jax.dtypes.canonicalize_dtype("float64") == "float64",
        "cpu_count": os.cpu_count(),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "command": command or " ".join(sys.argv),
        "starts": [*starts, now],
    }


def _git(*arguments: str) -> str | None:
    """What git says of this package, if it is a clone."""
    command = ["git", "-C", str(pathlib.Path(__file__).parent), *arguments]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()
    return None
