"""Programs: presets, a task, a command line and a run folder.

PROGRAM = learn.Program("elasticity", PRESETS, make_task)

if __name__ == "__main__":
    PROGRAM.launch()
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeGuard, TypeVar

import jax

from opjax.files.formats import OnePath
from opjax.learn import tables
from opjax.learn.cli import command_line, describe, help_models, study
from opjax.learn.cli.study import MakeTask
from opjax.learn.config import ModelOptions, RunOptions, fields
from opjax.learn.json_files import read_object
from opjax.learn.messages import say
from opjax.learn.named_types import Row
from opjax.learn.registry import operators
from opjax.learn.report import drawing
from opjax.learn.report.members import Finished, Report, write_report, write_tables
from opjax.learn.run import hosts
from opjax.learn.run.devices import Devices
from opjax.learn.run.folder import DataFiles, RunDirectory, run_once

_Config = TypeVar("_Config", bound=fields.Preset)


@dataclasses.dataclass(frozen=True)
class Program(Generic[_Config]):
    """Runs a configuration in a run folder, with a command line.

    Attributes:
      name: name of the program and of its folders.
      presets: configurations by name.
      make_task: `make_task(config, cache_dir)` builds the task, for a study of trained
        models.
      title: title of its tables; by default the capitalised name.
      report: `report(finished)` returns additions to the standard report of a study.
      work: `work(config, directory, cache_dir)`, which runs instead of a study.
      describe_work: `describe_work(config)` describes what `work` would do, as JSON
        values.
      command: command that starts the program; `python -m experiments.<name>` by
        default.
      grid_axes: number of grid axes of the samples, zero for none; or a function of the
        configuration. None if it is unknown before the samples are read.
      data: `data(config)` returns the user's files that the run is trained on; None if
        there are none.

    Examples:
      >>> from opjax import learn
      >>> presets = learn.quick(learn.FieldOptions())
      >>> program = learn.Program("sines", presets, title="Sines", grid_axes=2)
      >>> sorted(program.presets)  # program.launch() reads flags and runs one
      ['fast', 'quick']
    """

    name: str
    presets: Mapping[str, _Config]
    make_task: MakeTask | None = None
    title: str = ""
    report: Callable[[Finished], Report] | None = None
    work: Callable[[_Config, RunDirectory, str | None], Report] | None = None
    describe_work: Callable[[_Config], Row] | None = None
    command: str = ""
    grid_axes: Callable[[Any], int] | int | None = None
    data: Callable[[_Config], DataFiles] | None = None

    def run(
        self,
        config: _Config,
        *,
        workdir: OnePath | None = None,
        cache_dir: str | None = None,
        tensorboard: bool = False,
        devices: str = "",
    ) -> Row:
        """Runs or resumes a configuration, or reads the result of a finished run.

        Trains in float32 regardless of the caller's settings, and prints the result as
        one line of JSON. If there are several processes, see `hosts.joined`, each of
        them makes the same call.

        Args:
          config: everything that affects the numbers.
          workdir: folder of the run. The default is a folder in `runs`, named after
            program, preset and differences from the preset.
          cache_dir: folder of generated data.
          tensorboard: also write TensorBoard files.
          devices: devices that share points and samples, see `sharding.parse`; one if
            empty. They are not part of the configuration: a resumed run may use others.

        Returns:
          The content of the last line of output: the numbers of `Task.evaluate` for the
          first model, and as `<number>_<model>` for every model (medians over the seeds
          with their ranges); parameters, seconds and provenance.

        Raises:
          ImportError: if matplotlib is missing.
          OSError: if data cannot be read or a folder cannot be written.
          RuntimeError: if another process uses the folder.
          ValueError: if the folder contains another configuration, data are damaged, or
            the devices are missing or do not fit the batch or the model.
          opjax.training.NonFiniteError: if a loss diverges.
        """
        drawing.require_matplotlib()
        config, base = self._ready(config)
        workdir = os.path.abspath(workdir or self._default_workdir(config, base))
        config = _as_earlier(config, pathlib.Path(workdir))
        start = self.command or f"python -m experiments.{self.name}"
        command = fields.command(start, config, base)
        command += f" --devices={devices}" * bool(devices)
        title = self.title or self.name.replace("_", " ").capitalize()
        shared = self._devices(devices, config)

        def work(directory: RunDirectory) -> Row:
            if self.make_task is None:
                result = self._other_work(config, directory, title, cache_dir)
            else:
                assert isinstance(config, study.StudyOptions)
                finished = study.run(
                    config,
                    self.make_task,
                    directory.path,
                    shared=shared,
                    command=command,
                    cache_dir=cache_dir,
                    tensorboard=tensorboard,
                )
                result = hosts.tell(lambda: write_report(finished, title, self.report))
            device = jax.devices()[0]
            return {
                **result,
                "preset": config.preset,
                "device": f"{device.platform} ({device.device_kind})",
                **({"mesh": devices} if devices else {}),
            }

        if hosts.first():
            say(f"Folder: {workdir}")
        data = None if self.data is None else functools.partial(self.data, config)
        result = run_once(workdir, config, work, command=command, data=data)
        result["workdir"] = workdir  # where it is now; folders may be moved
        if hosts.first():
            page = pathlib.Path(workdir, "tables.md")
            tables.show(page.read_text() if page.is_file() else "")
            sys.stderr.flush()
            print(json.dumps(result, allow_nan=False), flush=True)
        return result

    def _other_work(
        self,
        config: _Config,
        directory: RunDirectory,
        title: str,
        cache_dir: str | None,
    ) -> Row:
        """What a program does that is no study."""
        assert self.work is not None
        begin = time.monotonic()
        report = self.work(config, directory, cache_dir)
        seconds = time.monotonic() - begin
        write_tables(directory.path, title, report.head, report.text or "", seconds)
        return {"seconds": seconds, **report.result}

    def _devices(self, devices: str, config: _Config) -> Devices:
        """Claims the devices that `--devices` names."""
        if devices and self.make_task is None:
            raise ValueError(f"{devices=} has no effect on {self.name}; omit it.")
        if hosts.count() > 1 and self.make_task is None:
            raise ValueError(
                f"{self.name} supports only one process; omit --coordinator."
            )
        points = _registered(config) and operators.splits_points(config)
        return Devices(devices, config, points=points)

    def describe(
        self,
        config: _Config,
        *,
        workdir: OnePath | None = None,
        cache_dir: str | None = None,
        devices: str = "",
    ) -> Row:
        """Describes what `run` would do, without training.

        Args:
          config: as for `run`.
          workdir: as for `run`.
          cache_dir: as for `run`.
          devices: as for `run`.

        Returns:
          JSON values, including `models`, `parameters`, `steps`, `data`, `memory_mib`
          and `seconds`.
        """
        config, base = self._ready(config)
        shared = self._devices(devices, config)
        if self.make_task is not None:
            assert isinstance(config, study.StudyOptions)
            content = describe.describe(config, self.make_task, cache_dir, shared)
        else:
            assert self.describe_work is not None
            content = self.describe_work(config)
        return {
            "program": self.name,
            "preset": config.preset,
            **content,
            "workdir": os.fspath(workdir or self._default_workdir(config, base)),
        }

    def launch(self) -> None:
        """Runs the program with the flags of the command line; does not return."""
        groups = command_line.define_flags(self.presets, program=self.name)

        def work() -> Row | None:
            config = command_line.read_flags(self.presets)
            run_flags = command_line.read_options(command_line.RunFlags)
            with hosts.joined(
                run_flags.coordinator, run_flags.num_processes, run_flags.process_id
            ):
                if run_flags.describe:
                    described = self.describe(
                        config,
                        workdir=run_flags.workdir,
                        cache_dir=run_flags.cache_dir,
                        devices=run_flags.devices,
                    )
                    return described if hosts.first() else None
                self.run(
                    config,
                    workdir=run_flags.workdir,
                    cache_dir=run_flags.cache_dir,
                    tensorboard=run_flags.tensorboard,
                    devices=run_flags.devices,
                )
            return None

        preset = next(iter(self.presets.values()))
        notes, within = "", list[str]()
        if _registered(preset):
            notes, within = help_models.sections(), help_models.of_few()
        doc = sys.modules[type(preset).__module__].__doc__
        command_line.start(work, groups, doc=doc, notes=notes, within=within)

    def _default_workdir(self, config: _Config, base: _Config) -> str:
        return f"runs/{fields.run_name(self.name, config, base)}"

    def _ready(self, config: _Config) -> tuple[_Config, _Config]:
        """The configuration with absolute paths, its models checked, and its preset."""
        base = fields.base_of(config, self.presets)
        fields.check_effects(config, base)
        axes = self.grid_axes(config) if callable(self.grid_axes) else self.grid_axes
        if _registered(config) and _registered(base):
            operators.check_options(config, base)
            if axes is not None:
                operators.check_mesh(config.models, axes)
        folder = getattr(config, "data_dir", "")
        if folder:
            absolute = os.path.abspath(os.path.expanduser(folder))
            config = dataclasses.replace(config, data_dir=absolute)
        return config, base


def _as_earlier(config: _Config, folder: pathlib.Path) -> _Config:
    """A configuration that goes on as the run in its folder began.

    An option that the run never had is as if it were not there, unless it is given. If
    the number of buckets is not given, it is that of the run.
    """
    stored = hosts.tell(lambda: _stored(folder))
    if not stored:
        return config
    changes = {
        field.name: before
        for field in dataclasses.fields(config)
        if field.name not in stored
        and getattr(config, field.name) == field.default
        and (before := field.metadata.get("before", field.default)) != field.default
    }
    buckets = stored.get("num_buckets", 0)
    if not getattr(config, "num_buckets", 1) and isinstance(buckets, int):
        changes["num_buckets"] = buckets
    return dataclasses.replace(config, **changes) if changes else config


def _stored(folder: pathlib.Path) -> dict[str, Any]:
    """The options of the run in a folder; none where there is no run."""
    with contextlib.suppress(OSError, ValueError):  # said where the folder is opened
        return read_object(folder / "config.json")
    return {}


def _registered(config: object) -> TypeGuard[RunOptions]:
    """Whether the models of a configuration are those of the registry."""
    if not (isinstance(config, RunOptions) and isinstance(config, ModelOptions)):
        return False
    (models,) = (f for f in dataclasses.fields(config) if f.name == "models")
    return models.metadata["choices"] is None
