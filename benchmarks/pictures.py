"""Draws the pictures of README and site.

    python -m benchmarks.pictures --runs=runs/pictures --only=darcy_prediction

Each picture is drawn from a run in its own folder inside `--runs`. If the run does not
exist, its command is printed and executed first, which takes minutes to an hour on two
cores. The commit of the run is printed with the picture.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import pictures_curves as curves
from benchmarks import pictures_fields as fields
from benchmarks import pictures_schwarz, pictures_style

FOLDER = pathlib.Path(__file__).parents[1] / "results" / "pictures"
_FUNCTIONAL = ("--preset=fast", "--models=functional", "--seeds=0,1,2")
# Folders of --runs, and the commands that fill them.
RUNS = {
    "darcy": ("experiments.darcy", *_FUNCTIONAL),
    "elasticity": ("experiments.elasticity", *_FUNCTIONAL),
    "models": (
        "experiments.elasticity",
        "--preset=fast",
        "--models=functional,transolver,galerkin,flare",
        "--seeds=0,1,2",
    ),
    "layers": ("experiments.scaling", "--preset=quick"),
}
_FEW = ("--modes=dense,chunked,sharded", "--steps=3")
_STREAMED = ("--modes=streamed", "--steps=1", "--storage_dtype=bfloat16")
_STREAMED += ("--chunk_size=2048",)
# Of `benchmarks.scale`; the last ones take 40 minutes and 21 GB of disk.
_SCALE = {
    **{points: [_FEW] for points in (1024, 4096, 16384, 65536)},
    2**20: [("--modes=chunked", "--steps=1"), _STREAMED],
    10 * 2**20: [_STREAMED],
}


class Picture(NamedTuple):
    """How a picture is drawn, and the run it is drawn from, if any.

    Attributes:
      draw: function of the folder of the run.
      run: name of the run.
      lines: whether it is a drawing of lines, which a few colours suffice for.
    """

    draw: Callable[[Any], Any]
    run: str = ""
    lines: bool = False


PICTURES = {
    "at_a_glance": Picture(fields.at_a_glance, "elasticity"),
    "darcy_prediction": Picture(fields.prediction, "darcy"),
    "darcy_learned": Picture(fields.learned, "darcy"),
    "elasticity_learned": Picture(fields.learned, "elasticity"),
    "schwarz_operator": Picture(pictures_schwarz.operator),
    "one_recipe": Picture(curves.errors_by_one_recipe, lines=True),
    "cost": Picture(curves.cost, "layers", lines=True),
    "scale": Picture(curves.scale, "scale", lines=True),
    "error_over_time": Picture(curves.error_over_time, "models", lines=True),
}


def define_flags() -> None:
    """Defines the flags; not on import, since names are those of other benchmarks."""
    flags.DEFINE_string("runs", "runs/pictures", "Folder of the runs to draw from")
    flags.DEFINE_list("only", [], "Names of the pictures to draw. All if empty")
    flags.DEFINE_string("folder", str(FOLDER), "Folder to write the pictures to")


def chosen(only: Sequence[str]) -> dict[str, Picture]:
    """Returns the pictures of some names, of all if there are none.

    Raises:
      ValueError: if there is no picture of a name.
    """
    unknown = set(only) - PICTURES.keys()
    if unknown:
        raise ValueError(
            f"--only={','.join(sorted(unknown))} is unknown; choose from "
            f"{', '.join(PICTURES)}."
        )
    return {name: PICTURES[name] for name in only or PICTURES}


def made(name: str, runs: pathlib.Path) -> pathlib.Path:
    """Returns the folder of a run, which is made if it is not there."""
    folder = runs / name
    if name == "scale":
        _measure_scale(folder / "scale.jsonl")
    elif not (folder / "result.json").exists():
        module, *options = RUNS[name]
        _call(module, *options, f"--workdir={folder}")
    return folder


def _measure_scale(lines: pathlib.Path) -> None:
    if lines.exists():
        return
    found = [
        _call("benchmarks.scale", f"--points={points}", *options).splitlines()[-1]
        for points, runs in _SCALE.items()
        for options in runs
    ]
    lines.parent.mkdir(parents=True, exist_ok=True)
    lines.write_text("\n".join(found) + "\n")


def _call(module: str, *options: str) -> str:
    command = [sys.executable, "-m", module, *options]
    print("python", *command[1:], flush=True)
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def commit(folder: pathlib.Path | None) -> str:
    """The commit that a run was made at, as far as it is known."""
    path = folder / "environment.json" if folder else None
    if path is None or not path.exists():
        return ""
    return str(json.loads(path.read_text()).get("git_commit", ""))[:12]


def main(argv: Sequence[str]) -> None:
    """Draws the pictures."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    given = flags.FLAGS
    for name, picture in chosen(given.only).items():
        folder = made(picture.run, pathlib.Path(given.runs)) if picture.run else None
        path = pathlib.Path(given.folder) / f"{name}.png"
        with pictures_style.style():
            pictures_style.save(picture.draw(folder), path, lines=picture.lines)
        print(
            f"{path}: {path.stat().st_size / 1e3:.0f} kB {commit(folder)}", flush=True
        )


if __name__ == "__main__":
    define_flags()
    app.run(main)
