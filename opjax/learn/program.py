"""A program: presets, a task, and everything around them.

PROGRAM = learn.Program("elasticity", PRESETS, make_task)

if __name__ == "__main__":
PROGRAM.launch()
"""

import dataclasses
import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
from absl import flags
from jax.sharding import Mesh

from opjax.learn import (
    describe,
    devices,
    drawing,
    fields,
    hosts,
    operators,
    options,
    study,
    tables,
)
from opjax.learn.config import ModelOptions
from opjax.learn.folder import RunDirectory, run_once
from opjax.learn.members import Finished, Report, write_report, write_tables
from opjax.learn.messages import say
from opjax.learn.study import MakeTask


@dataclasses.dataclass(frozen=True)
class Program:
    """What runs a configuration in its folder, and its command line.

    Attributes:
      name: of the program and of its folders.
      presets: configurations by name.
      make_task: `make_task(config, cache_dir)`, for a study of trained models.
      title: of its tables; the name with a capital letter by default.
      report: `report(finished)`, what it adds to the standard report of a study.
      work: `work(config, directory, cache_dir)`, in place of a study.
      describe_work: `describe_work(config)`, what that would do, as JSON values.
      command: how it is started; `python -m experiments.<name>` by default.
      grid_axes: axes of the grid that samples are on, zero for none; or a function of
        the configuration. None where it is not known before they are read.
      over_points: whether its tasks are, see `Task`, or a function of the
        configuration: then `--mesh=auto` may split points.
    """

    name: str
    presets: Mapping[str, Any]
    make_task: MakeTask | None = None
    title: str = ""
    report: Callable[[Finished], Report] | None = None
    work: Callable[[Any, RunDirectory, str | None], Report] | None = None
    describe_work: Callable[[Any], dict[str, Any]] | None = None
    command: str = ""
    grid_axes: Callable[[Any], int] | int | None = None
    over_points: Callable[[Any], bool] | bool = False

    def run(
        self,
        config: Any,
        *,
        workdir: str | os.PathLike | None = None,
        cache_dir: str | None = None,
        tensorboard: bool = False,
        mesh: str = "",
    ) -> dict[str, Any]:
        """Runs a configuration, or continues, or reads a finished run.

        Trains in float32 whatever the caller's settings, and prints the result as one
        line of JSON. Several processes, see `hosts.joined`, call it alike.

        Args:
          config: all that the numbers depend on.
          workdir: folder of the run; by default one in `runs` with the name of program
            and preset and of what differs from the preset.
          cache_dir: folder of generated data.
          tensorboard: write TensorBoard files too.
          mesh: devices that share points and samples, see `sharding.parse`; one, if
            empty. No part of the configuration: a run may go on with another.

        Returns:
          What the last line of the program says: the numbers of `Task.evaluate`, of the
          first model by their own names, of every model as `<number>_<model>`, medians
          over the seeds with their ranges; parameters, seconds, and how they came
          about.

        Raises:
          ImportError: if matplotlib is missing.
          OSError: if data cannot be read or a folder cannot be written.
          RuntimeError: if another process works in the folder.
          ValueError: if the folder holds another configuration, data are damaged or
            the mesh fits neither devices nor batch nor model.
          opjax.training.NonFiniteError: if a loss diverges.
        """
        drawing.require_matplotlib()
        config, base = self._ready(config), fields.base_of(config, self.presets)
        start = self.command or f"python -m experiments.{self.name}"
        command = fields.command(start, config, base)
        command += f" --mesh={mesh}" * bool(mesh)
        shared = self._devices(mesh, config)

        def work(directory: RunDirectory) -> dict[str, Any]:
            device = jax.devices()[0]
            given: dict[str, Any] = {"cache_dir": cache_dir, "tensorboard": tensorboard}
            given["mesh"] = shared
            return {
                **self._work(config, directory, command=command, **given),
                "preset": config.preset,
                "device": f"{device.platform} ({device.device_kind})",
                **({"mesh": mesh} if mesh else {}),
            }

        workdir = os.path.abspath(workdir or self._default_workdir(config))
        if hosts.first():
            say(f"Folder: {workdir}")
        result = run_once(workdir, config, work, command=command)
        result["workdir"] = workdir  # where it is now; folders may be moved
        if hosts.first():
            _show(pathlib.Path(workdir, "tables.md"))
            sys.stderr.flush()
            print(json.dumps(result, allow_nan=False), flush=True)
        return result

    def _work(
        self, config: Any, directory: RunDirectory, **given: Any
    ) -> dict[str, Any]:
        title = self.title or self.name.replace("_", " ").capitalize()
        if self.make_task is not None:
            finished = study.run(config, self.make_task, directory.path, **given)
            return hosts.tell(lambda: write_report(finished, title, self.report))
        assert self.work is not None
        begin = time.monotonic()
        report = self.work(config, directory, given["cache_dir"])
        seconds = time.monotonic() - begin
        write_tables(directory.path, title, report.head, report.text or "", seconds)
        return {"seconds": seconds, **report.result}

    def _devices(self, mesh: str, config: Any) -> Mesh | None:
        if mesh and self.make_task is None:
            raise ValueError(f"{mesh=} means nothing for {self.name}; leave it out.")
        if hosts.count() > 1 and self.make_task is None:
            raise ValueError(
                f"{self.name} is for one process; leave --coordinator out."
            )
        points: Any = self.over_points
        points = points(config) if callable(points) else points
        points = points and operators.splits_points(config)
        return devices.start(mesh, config, points=points)

    def describe(
        self, config: Any, *, cache_dir: str | None = None, mesh: str = ""
    ) -> dict[str, Any]:
        """Says what `run` would do, without training.

        Args:
          config: as for `run`.
          cache_dir: as for `run`.
          mesh: as for `run`.

        Returns:
          JSON values, `models`, `parameters`, `steps`, `data`, `memory_mib` and
          `seconds` among them.
        """
        config = self._ready(config)
        shared = self._devices(mesh, config)
        if self.make_task is not None:
            found = describe.describe(config, self.make_task, cache_dir, shared)
        else:
            assert self.describe_work is not None
            found = self.describe_work(config)
        return {
            "program": self.name,
            "preset": config.preset,
            **found,
            "workdir": self._default_workdir(config),
        }

    def launch(self) -> None:
        """Runs the program on its flags; does not return."""
        given, names = flags.FLAGS, ("workdir", "cache_dir", "tensorboard", "mesh")
        groups = options.define_flags(self.presets, program=self.name)
        processes = ("coordinator", "num_processes", "process_id")

        def work() -> dict[str, Any] | None:
            config = options.read_flags(self.presets)
            joined: Any = [given[name].value for name in processes]
            with hosts.joined(*joined):
                if given.describe:
                    where: Any = {"cache_dir": given.cache_dir, "mesh": given.mesh}
                    found = self.describe(config, **where)
                    return found if hosts.first() else None
                wanted: Any = {name: given[name].value for name in names}
                self.run(config, **wanted)
            return None

        options.start(work, groups)

    def _default_workdir(self, config: Any) -> str:
        base = fields.base_of(config, self.presets)
        return f"runs/{fields.run_name(self.name, config, base)}"

    def _ready(self, config: Any) -> Any:
        """The configuration with absolute paths, its models checked."""
        declared = {field.name: field.metadata for field in dataclasses.fields(config)}
        registered = isinstance(config, ModelOptions)
        if registered and declared["models"]["choices"] is None:
            operators.check_options(config, fields.base_of(config, self.presets))
            axes = self.grid_axes
            axes = axes(config) if callable(axes) else axes
            if axes is not None:
                operators.check_mesh(config.models, axes)  # pyright: ignore
        if getattr(config, "data_dir", ""):
            absolute = os.path.abspath(os.path.expanduser(config.data_dir))
            config = dataclasses.replace(config, data_dir=absolute)
        return config


def _show(page: pathlib.Path) -> None:
    """Shows the tables of a finished run on the terminal."""
    if page.is_file():
        shown = tables.plain(page.read_text(), shutil.get_terminal_size().columns)
        if shown:
            say(f"\n{shown}\n")
