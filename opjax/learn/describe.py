"""What a run would do: data, models, parameters, steps, memory and time."""

import dataclasses
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from opjax import training
from opjax.learn import batches, devices, hosts, noise, study
from opjax.learn.task import Task


def describe(
    config: Any,
    make_task: study.MakeTask,
    cache_dir: str | None,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Builds every model and times one step of its training.

    Where samples are generated, only a few are: as many as a batch.

    `parameters` and `steps` are those of the first model, `memory_mib` is the most that
    one takes, `seconds` those of all steps, without validation, evaluation and figures.
    """
    tasks, source = study.Tasks(make_task, cache_dir), ""
    rows, seeds = {}, {}
    with jax.enable_x64(False):
        for (name, _), member in config.members().items():
            seeds[name] = seeds.get(name, 0) + 1
            if name not in rows:
                few = fewest(member)
                task = tasks(few)
                rows[name] = _row(member, few, task, mesh)
                source = source or task.source
                said = [f"{key} {value:.4g}" for key, value in rows[name].items()]
                if hosts.first():
                    print(f"{name}: {', '.join(said)}", file=sys.stderr, flush=True)
    first, device = next(iter(rows.values())), jax.devices()[0]
    sizes = ("num_train", "num_validation", "num_test")
    return {
        "data": source,
        "samples": {n[4:]: getattr(config, n) for n in sizes if hasattr(config, n)},
        "models": list(rows),
        "seeds": list(getattr(config, "seeds", ())),
        "parameters": first["parameters"],
        "steps": first["steps"],
        "memory_mib": max(row["memory_mib"] for row in rows.values()),
        "seconds": sum(row["seconds"] * seeds[name] for name, row in rows.items()),
        "members": rows,
        "device": f"{device.platform} ({device.device_kind})",
    }


def fewest(config: Any) -> Any:
    """Returns a configuration with just enough generated samples for one batch."""
    names = {field.name: field.metadata for field in dataclasses.fields(config)}
    if getattr(config, "data_dir", "") or "data_dir" not in names:
        return config
    wanted = {"num_train": max(config.batch_size, 2)}
    wanted["num_validation"] = min(getattr(config, "num_validation", 0), 1)
    changes = {
        name: int(max(size, names[name]["limits"]["at least"]))
        for name, size in (wanted | {"num_test": 1}).items()
        if name in names
    }
    return dataclasses.replace(config, **changes)


def _row(config: Any, few: Any, task: Task, mesh: Mesh | None) -> dict[str, Any]:
    """What one model takes; `few` is its configuration with the samples of `task`."""
    assert task.build is not None
    model = task.build(few, nnx.Rngs(config.seed))
    devices.check(mesh, task, model)
    task = noise.prepared(task, model)
    settings = study.settings(few, task, mesh=mesh)
    if callable(task.train):
        settings = dataclasses.replace(settings, steps_per_call=1)
    found = batches.make(task, settings)
    steps, data = found.total, 0.0
    if isinstance(found, batches.ArrayBatches):
        data = _mib(task.train) + _mib(task.validation)
        if few is not config:
            data *= config.num_train / few.num_train
            steps = config.num_epochs * (config.num_train // config.batch_size)
    call, state, given = compiled_step(task, settings, found, model)
    state = jax.block_until_ready(call(state, *given)[0])  # to warm up
    begin = time.perf_counter()
    jax.block_until_ready(call(state, *given)[0])
    seconds, memory = time.perf_counter() - begin, memory_mib(call)
    size = sum(leaf.size for leaf in jax.tree.leaves(model))
    return {
        "parameters": size // (found.shape[0] if found.shape else 1),
        "steps": steps,
        "memory_mib": memory + data,
        "step_seconds": seconds,
        "seconds": seconds * steps,
    }


def compiled_step(
    task: Task, settings: Any, found: Any, model: Any
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Compiles a step of training on the largest batch.

    Args:
      task: what is to be learned.
      settings: of the training, as from `study.settings`.
      found: batches, as from `batches.make`.
      model: at its start.

    Returns:
      The program, the first state, which a call overwrites, and the other arguments;
      `state, history = call(state, *given)`.
    """
    state = found.start(model)
    if isinstance(found, batches.ArrayBatches):
        bucket = max(found.train, key=_mib)
        rows = jnp.arange(settings.batch_size)
        batch = jax.tree.map(lambda x: jnp.take(x, rows, axis=0), bucket)
        step = training.make_step(
            task.loss,
            found.optimizer,
            microbatch=settings.microbatch,
            mesh=settings.mesh,
        )
        given = batch, found.key
        call = jax.jit(step, donate_argnums=0).lower(state, *given).compile()
    else:
        found.prepare(state, found.total - 1)
        given = jnp.ones(found.shape, bool), jnp.int32(0)
        call = found.compiled[1]
    return call, state, given


def memory_mib(call: Any) -> float:
    """Arguments, outputs and temporary arrays of a compiled program; 0 if unknown."""
    sizes = call.memory_analysis()
    if sizes is None:
        return 0.0
    total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    total += sizes.temp_size_in_bytes - sizes.alias_size_in_bytes
    return total / 2**20


def _mib(tree: Any) -> float:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree)) / 2**20
