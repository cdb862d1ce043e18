"""--mesh: the devices that a run is split over, refused before any work is done."""

import contextlib
import os
from typing import Any

import jax
from jax.sharding import Mesh

from opjax import nn, sharding
from opjax.learn import hosts
from opjax.nn.models import chunks

HELP = (
    "Devices, of all processes, that share the points of a sample and the samples of a "
    "batch, such as points:4,batch:2 or batch:2; auto: as many for the batch as there "
    "are and divide it, or all for the points where none do; empty: one. The cores of "
    "a CPU count as devices. Every model takes batch; points are for attention in "
    "bases, also with convolutions: rows of a grid. "
    "Results are those of one device but for rounding"
)


def start(text: str, config: Any, *, points: bool = False) -> Mesh | None:
    """Returns the devices that `--mesh` names, or None for one.

    Several processes have equally many of them, see `hosts.joined`.

    On a CPU whose backend has not started its cores become devices, as many as are
    asked for, with an equal part of XLA's threads each; `JAX_NUM_CPU_DEVICES` in the
    environment takes precedence.

    Args:
      text: see `sharding.parse`; `auto` for as many devices along the batch as there
        are and divide it, or all along the points if none do; empty for one device.
      config: its `batch_size` and `microbatch` must fit.
      points: whether `auto` may split points.

    Raises:
      ValueError: if there are too few devices, or they do not divide a batch; if there
        are several processes that share nothing.
    """
    hosts.require_same("--mesh", text)
    sizes: dict[str, int] = {}
    if text == "auto":
        sizes = _automatic(config, points)
    elif text:
        sizes = sharding.parse(text)
        _claim(sizes.get("points", 1) * sizes.get("batch", 1))
    if not sizes:
        _refuse_several(config)
        return None
    mesh = sharding.device_mesh(**sizes)
    if hasattr(config, "batch_size"):
        sharding.check_batch(mesh, config.batch_size, _parts(config))
    hosts.connect(mesh)
    return mesh


def _automatic(config: Any, points: bool) -> dict[str, int]:
    """Sizes of the mesh that `auto` stands for; none for one device."""
    cores = _cores() * hosts.count()
    wanted = _fitting(cores, config)
    _claim(cores if points and wanted == 1 else wanted)
    count = len(jax.devices())
    found = _fitting(count, config)
    if found > 1:
        return {"batch": found}
    return {"points": count} if points and count > 1 else {}


def _refuse_several(config: Any) -> None:
    """Raises ValueError if there are several processes, which would do the same."""
    count = hosts.count()
    if count > 1:
        raise ValueError(
            f"{count} processes would all do the same; say with --mesh what they "
            f"share, such as batch:{count}, which must divide "
            f"batch_size={getattr(config, 'batch_size', 1)}."
        )


def _claim(count: int) -> None:
    """Makes devices of the cores, if there are as many and no backend has started."""
    cores, settings = _cores(), jax.config.values
    count = max(count // hosts.count(), 1)
    if settings["jax_num_cpu_devices"] < 0 and count <= cores:
        with contextlib.suppress(RuntimeError):  # the backend has started
            jax.config.update("jax_num_cpu_devices", count)
            os.environ.setdefault("NPROC", str(cores // count))


def _fitting(available: int, config: Any) -> int:
    """The largest number of devices that get equal parts of a batch."""
    samples = getattr(config, "batch_size", 1)
    parts = _parts(config) or 1
    processes = hosts.count()
    every = range(processes, available + 1, processes)
    fits = (n for n in every if samples % (n * parts) == 0)
    return max(fits, default=1)


def _parts(config: Any) -> int | None:
    return getattr(config, "microbatch", 0) or None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check(mesh: Mesh | None, task: Any, model: Any) -> None:
    """Raises ValueError if samples or points are split and cannot be.

    Args:
      mesh: of devices, if there are several.
      task: what is to be learned.
      model: of its own, or the shapes of one.
    """
    count = sharding.size(mesh, sharding.BATCH)
    if count > 1 and not task.over_batch:
        raise ValueError(
            f"batch:{count} of the mesh: the loss of this program is no sum over the "
            "samples of a batch. Leave the mesh out."
        )
    count = sharding.size(mesh, sharding.POINTS)
    if count == 1:
        return
    if not task.over_points:
        reason = (
            "the loss of this program does not add up over parts of a sample, or "
            "normalises every point by itself"
        )
    elif not isinstance(model, nn.OperatorTransformer):
        reason = f"a {type(model).__name__} needs all points of a sample together"
    elif model.rematerialize:
        reason = "its blocks are always computed again, so rematerialize means nothing"
    else:
        reason = chunks.obstacle(model, together=True)
    if reason:
        raise ValueError(f"points:{count} of the mesh: {reason}. Split batch alone.")
