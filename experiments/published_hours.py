"""How long the published set-ups take on two cores, from their first steps.

    taskset -c 0 python -m experiments.published_hours --setups=burgers/linear

Runs a few steps of every set-up at its published size, on generated data or, with
--data_dir, on published files where there are some, and adds the hours of the whole
training to `results/published_hours.json`, from which `experiments.published` reads
them. Pin the program to one core: the hours on two are
taken as half of its processor time. Compilation, validation and tests are not counted.
Set-ups that differ in noise, normalisation or test grids alone share their hours. A
set-up that has hours is not measured again, unless it is named.
"""

import dataclasses
import importlib
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

from experiments.published import SETUPS, Setup, read_stored
from opjax.learn import Options, option
from opjax.learn.cli import describe, study
from opjax.learn.cli.command_line import launch
from opjax.learn.json_files import write_json
from opjax.learn.messages import say
from opjax.learn.run.sources import make_batches

FILE = pathlib.Path(__file__).parents[1] / "results" / "published_hours.json"
_CORES = 2
_NO_COST = ("noises", "test_points", "test_noises", "normalization")
_NO_COST += ("outer_norm", "model_options")
_CALLS = 3  # steps that are timed, after one that warms up
_ENOUGH = 120.0  # seconds of steps after which no other one is begun


def hours(
    setup: Setup, cache_dir: str | None = None, data_dir: str | None = None
) -> dict[str, Any]:
    """Times steps of the first member of a set-up, with as few samples as a batch.

    Args:
      setup: the set-up.
      cache_dir: folder of generated data.
      data_dir: folder with one of published files for each program, for those that
        cannot generate samples of the published size.

    Returns:
      "hours" of all its trainings on two cores, "step_seconds" of
      processor time, "steps" of all trainings, and "source", "timed".
    """
    config = setup.config()
    member, *_ = config.members().values()
    seconds = step_seconds(setup, member, cache_dir, data_dir)
    steps = len(config.members()) * num_steps(member)
    return {
        "hours": seconds * steps / 3600 / _CORES,
        "step_seconds": seconds,
        "steps": steps,
        "source": "timed",
    }


def num_steps(member: Any) -> int:
    """Returns the steps of the training of a member."""
    if hasattr(member, "num_steps"):
        return member.num_steps
    return member.num_epochs * (member.num_train // member.batch_size)


def step_seconds(
    setup: Setup, member: Any, cache_dir: str | None, data_dir: str | None
) -> float:
    """Returns the median processor time of a step of a member, without compilation.

    Other jobs on the core add to the time on the wall, not to this one.
    """
    program = importlib.import_module(f"experiments.{setup.module}").PROGRAM
    few = describe.fewest(member)
    if setup.module == "airfrans":  # its preset `paper` refuses generated flows
        few = dataclasses.replace(few, preset="quick")
    if published := setup.data(data_dir):
        few = dataclasses.replace(few, data_dir=str(published))
    with jax.enable_x64(False):
        task = program.make_task(few, cache_dir)
        settings = dataclasses.replace(task.settings(few), steps_per_call=1)
        lowered, state, arguments = make_batches(task, settings).one_step(
            study.build(few, task)
        )
        call = lowered.compile()

        def step() -> None:
            nonlocal state
            state = jax.block_until_ready(call(state, *arguments)[0])

        return pace(step)


def pace(step: Callable[[], object]) -> float:
    """Returns the median processor time of calls, in seconds, but for the first one.

    Calls end after four, or after the one that ends later than two minutes. If that is
    the first, it counts.
    """
    times: list[float] = []
    while len(times) <= _CALLS and sum(times) < _ENOUGH:
        begin = time.process_time()
        step()
        times.append(time.process_time() - begin)
    return statistics.median(times[1:] or times)


def cost_of(setup: Setup) -> tuple[str, ...]:
    """Returns what the time of a step depends on, equal for set-ups that share it."""
    values = vars(setup.config()).items()
    kept = (f"{name}={value}" for name, value in values if name not in _NO_COST)
    return (setup.module, *kept)


@dataclasses.dataclass(frozen=True)
class HoursOptions(Options):
    """What to measure."""

    setups: tuple[str, ...] = option((), "Names of set-ups. All without hours if empty")
    cache_dir: str | None = option(None, "Folder of generated data")
    data_dir: str | None = option(
        None, "Folder of the published files, with one folder per program"
    )


def work(options: HoursOptions) -> dict[str, Any]:
    """Measures the set-ups that the options name, or all that have no hours."""
    measured_before = read_stored(FILE)
    named = options.setups
    setups = [
        s
        for s in SETUPS
        if (s.name in named if named else s.name not in measured_before)
    ]
    costs = {setup.name: cost_of(setup) for setup in SETUPS}
    done: set[tuple[str, ...]] = set()
    for setup in setups:
        cost = costs[setup.name]
        if cost in done:
            continue
        done.add(cost)
        measured = hours(setup, options.cache_dir, options.data_dir)
        say(f"{setup.name}: {measured}")
        measured_before |= {name: measured for name in costs if costs[name] == cost}
        write_json(FILE, measured_before)
    return {"measured": len(done), "known": len(measured_before)}


def main() -> None:
    """Measures what the flags ask for."""
    launch(HoursOptions, work, doc=__doc__, continues=True)


if __name__ == "__main__":
    main()
