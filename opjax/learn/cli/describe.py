"""Describes a run before it starts: data, models, parameters, steps, memory, time."""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from opjax.learn.cli import study
from opjax.learn.cli.study import MakeTask, StudyOptions
from opjax.learn.config import fields
from opjax.learn.run import batches, buckets, devices, hosts, noise, points
from opjax.learn.run.devices import Devices
from opjax.learn.run.sources import make_batches
from opjax.learn.tasks.task import BaseTask
from opjax.training import tuning

_Config = TypeVar("_Config", bound=fields.Configuration)


class Cost(NamedTuple):
    """Cost of the training of one model.

    Attributes:
      parameters: number of parameters.
      steps: number of training steps.
      memory_mib: memory of a step and of the samples on the device.
      compile_seconds: time to compile a step. The evaluation is compiled while the
        first epoch runs.
      step_seconds: time of a step.
      seconds: total time of the compilation, all steps, validations and the test.
    """

    parameters: int
    steps: int
    memory_mib: float
    compile_seconds: float
    step_seconds: float
    seconds: float


def describe(
    config: StudyOptions,
    make_task: MakeTask,
    cache_dir: str | None,
    shared: Devices,
) -> dict[str, Any]:
    """Builds every model and measures one training step.

    If samples are generated, only one batch of them is.

    Args:
      config: configuration of a study.
      make_task: builds the task of a member.
      cache_dir: folder of generated data.
      shared: devices that the training would use.

    Returns:
      JSON values. `parameters` and `steps` belong to the first model, `memory_mib` is
      the maximum over the models, and `seconds` is the total time of compilation,
      steps, validations and test, without figures. `samples` is a count.
    """
    tasks, source = study.Tasks(make_task, cache_dir), ""
    costs: dict[str, Cost] = {}
    counts: dict[str, int] = {}
    seeds: dict[str, int] = {}
    members = {key: (one, fewest(one)) for key, one in config.members().items()}
    with jax.enable_x64(False):
        few_of_all = [few for _, few in members.values()]
        mesh = shared.mesh(lambda: study.share_points(few_of_all, tasks))
        for (name, _), (member, few) in members.items():
            seeds[name] = seeds.get(name, 0) + 1
            if name not in costs:
                task = tasks(few)
                costs[name] = _cost(member, few, task, mesh)
                source = source or task.source
                counts = counts or _samples(member, few, task)
                said = costs[name]._asdict().items()
                if hosts.first():
                    shown = ", ".join(f"{key} {value:.4g}" for key, value in said)
                    print(f"{name}: {shown}", file=sys.stderr, flush=True)
    first, device = next(iter(costs.values())), jax.devices()[0]
    return {
        "data": source,
        "samples": counts,
        "models": list(costs),
        "seeds": list(getattr(config, "seeds", ())),
        "parameters": first.parameters,
        "steps": first.steps,
        "memory_mib": max(cost.memory_mib for cost in costs.values()),
        "seconds": sum(cost.seconds * seeds[name] for name, cost in costs.items()),
        "members": {name: cost._asdict() for name, cost in costs.items()},
        "device": f"{device.platform} ({device.device_kind})",
    }


def fewest(config: _Config) -> _Config:
    """Returns a configuration with only as many generated samples as a batch needs."""
    options = {field.name: field.metadata for field in dataclasses.fields(config)}
    if getattr(config, "data_dir", "") or "data_dir" not in options:
        return config
    wanted = {
        "num_train": max(getattr(config, "batch_size", 1), 2),
        "num_validation": min(getattr(config, "num_validation", 0), 1),
        "num_test": 1,
    }
    changes = {
        name: int(max(size, options[name]["limits"]["at least"]))
        for name, size in wanted.items()
        if name in options
    }
    return dataclasses.replace(config, **changes)


def _samples(config: Any, few: Any, task: BaseTask) -> dict[str, int]:
    """Samples of training, validation and test; `few` is what `task` was made of."""
    names = ("train", "validation", "test")
    # A few are generated in place of all, as many as the configuration asks for.
    counted = task if few is config else config
    return {name: getattr(counted, f"num_{name}") for name in names}


def _cost(config: Any, few: Any, task: BaseTask, mesh: Mesh | None) -> Cost:
    """What one model takes; `few` is its configuration with the samples of `task`."""
    model = study.build(few, task)
    devices.check(mesh, task, model)
    task = noise.prepared(task, model)
    settings = dataclasses.replace(task.settings(few, mesh=mesh), steps_per_call=1)
    how = make_batches(task, settings)
    steps, data = how.total, how.data_bytes
    if data:
        data += batches.num_bytes(task.validation)
    if few is not config:
        data *= config.num_train / few.num_train
        steps = config.num_epochs * (config.num_train // config.batch_size)
    lowered, state, arguments = how.one_step(model)
    size = tuning.num_parameters(model)
    size //= how.shape[0] if how.shape else 1
    counts = _samples(config, few, task)
    # The step that is timed has the largest share.
    most = max(map(buckets.num_points, task.known), default=0)
    work = steps * points.mean_of_largest(settings, most or 1)
    if hosts.first():
        _say_soon(counts, size, steps, work * estimated_seconds(lowered))
    begin = time.perf_counter()
    call = lowered.compile()
    compiling = time.perf_counter() - begin
    state = jax.block_until_ready(call(state, *arguments)[0])  # to warm up
    begin = time.perf_counter()
    jax.block_until_ready(call(state, *arguments)[0])
    seconds = time.perf_counter() - begin
    looks = settings.num_epochs // settings.eval_every
    evaluated = looks * counts["validation"] + counts["test"]
    # A forward pass takes about a third of a step.
    evaluation = seconds / 3 * evaluated / settings.batch_size
    return Cost(
        parameters=size,
        steps=steps,
        memory_mib=memory_mib(call) + data / 2**20,
        compile_seconds=compiling,
        step_seconds=seconds,
        seconds=compiling + seconds * work + evaluation,
    )


def _say_soon(
    counts: dict[str, int], parameters: int, steps: int, seconds: float
) -> None:
    """Answers what is known before anything is compiled."""
    samples = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    print(
        f"Samples: {samples}. {parameters:,} parameters. {steps:,} steps, by their "
        f"operations at least about {seconds:.2g} s. Compiling a step to "
        "measure it.",
        file=sys.stderr,
        flush=True,
    )


def estimated_seconds(lowered: jax.stages.Lowered) -> float:
    """Estimates the run time of a program without compiling it.

    seconds = operations / rate + bytes / bandwidth. XLA counts operations and bytes
    before fusion. The rates of the device are measured with a matrix product and a sum
    of arrays.

    Args:
      lowered: the program.

    Returns:
      Seconds, usually an underestimate: small operations and convolutions run below
      these rates. NaN if XLA does not count operations.
    """
    counted = lowered.cost_analysis() or {}
    operations, moved = counted.get("flops"), counted.get("bytes accessed")
    if operations is None or moved is None:
        return float("nan")
    rate, bandwidth = _rates()
    return operations / rate + moved / bandwidth


@functools.cache
def _rates() -> tuple[float, float]:
    """Operations and bytes a second of the device."""
    size, length = 512, 2**22
    matrix, array = jnp.ones((size, size)), jnp.ones(length)
    rate = 2 * size**3 / _best_seconds(jax.jit(jnp.matmul), matrix)
    return rate, 3 * array.nbytes / _best_seconds(jax.jit(jnp.add), array)


def _best_seconds(
    call: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array
) -> float:
    """The shortest of three times of a call, compiled before."""
    jax.block_until_ready(call(x, x))
    seconds: list[float] = []
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(call(x, x))
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def memory_mib(call: jax.stages.Compiled) -> float:
    """Memory of arguments, outputs and temporary arrays of a program; 0 if unknown."""
    sizes = call.memory_analysis()
    if sizes is None:
        return 0.0
    total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    total += sizes.temp_size_in_bytes - sizes.alias_size_in_bytes
    return total / 2**20
