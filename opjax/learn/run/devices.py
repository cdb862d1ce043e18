"""--devices: the devices that a run is split over, checked before the run starts."""

import contextlib
import os
from collections.abc import Callable

import jax
from jax.sharding import Mesh

from opjax.learn.run import hosts
from opjax.learn.tasks.task import BaseTask
from opjax.nn import OperatorTransformer, division
from opjax.training import sharding, tuning

HELP = (
    "How to use several devices, for example points:4,batch:2. batch splits the "
    "samples of a batch, for every model. points splits the points of a sample, for "
    "attention in a basis (with convolutions: the rows of the grid). auto splits the "
    "batch over as many devices as divide it, or else the points. Empty uses one "
    "device. CPU cores count as devices. Results change only by rounding"
)


class Devices:
    """The devices that `--devices` names, reserved before JAX uses the first one.

    On a CPU, if JAX's backend has not started, cores become devices: as many as
    requested, each with an equal part of XLA's threads. The environment variable
    `JAX_NUM_CPU_DEVICES` takes precedence.

    `auto` is resolved when the task is known, because it may split points.

    Args:
      text: see `sharding.parse`; `auto` uses as many available devices along the batch
        as divide it, or all along the points if no number does; empty for one device.
      config: configuration; if it has `batch_size` and `microbatch`, they must fit.
      points: whether `auto` may split points.

    Raises:
      ValueError: if there are too few devices, they do not divide a batch, or several
        processes do not share a batch or points.
    """

    def __init__(self, text: str, config: object, *, points: bool = False):
        hosts.require_same("--devices", text)
        self._config, self._points = config, points
        self._mesh: Mesh | None = None
        self._auto = text == "auto"
        if self._auto:
            cores = _cores() * hosts.count()
            fitting = _fitting(cores, config)
            _claim(cores if points and fitting == 1 else fitting)
        else:
            sizes = sharding.parse(text) if text else {}
            if sizes:
                _claim(sizes.get("points", 1) * sizes.get("batch", 1))
            self._mesh = self._made(sizes)

    def mesh(self, points: Callable[[], bool]) -> Mesh | None:
        """Returns the device mesh of a training, or None for one device.

        All processes contribute the same number of devices, see `hosts.joined`.

        Args:
          points: whether the points of all samples can be split; called at most once,
            if `auto` depends on it.

        Raises:
          ValueError: if several processes do not share a batch or points.
        """
        if self._auto:
            self._auto = False
            self._mesh = self._made(self._automatic(points))
        return self._mesh

    def _automatic(self, points: Callable[[], bool]) -> dict[str, int]:
        """Sizes of the mesh that `auto` stands for; none for one device."""
        count = len(jax.devices())
        shards = _fitting(count, self._config)
        if shards > 1:
            return {"batch": shards}
        return {"points": count} if self._points and count > 1 and points() else {}

    def _made(self, sizes: dict[str, int]) -> Mesh | None:
        if not sizes:
            if (count := hosts.count()) > 1:  # processes would do the same
                raise ValueError(
                    f"{count} processes would do the same work; split it with "
                    f"--devices, such as batch:{count}, which must divide "
                    f"batch_size={getattr(self._config, 'batch_size', 1)}."
                )
            return None
        mesh = sharding.device_mesh(
            points=sizes.get("points", 1), batch=sizes.get("batch", 1)
        )
        samples = getattr(self._config, "batch_size", None)
        if samples is not None:
            sharding.check_batch(mesh, samples, _parts(self._config))
        hosts.connect(mesh)
        return mesh


def start(text: str, config: object, *, points: bool = False) -> Mesh | None:
    """Returns the devices that `--devices` names, or None for one; see `Devices`.

    Args:
      text: as for `Devices`.
      config: as for `Devices`.
      points: whether `auto` may split points.
    """
    return Devices(text, config, points=points).mesh(lambda: points)


def _claim(count: int) -> None:
    """Makes devices of the cores, if there are as many and no backend has started."""
    cores, settings = _cores(), jax.config.values
    count = max(count // hosts.count(), 1)
    if settings["jax_num_cpu_devices"] < 0 and count <= cores:
        with contextlib.suppress(RuntimeError):  # the backend has started
            jax.config.update("jax_num_cpu_devices", count)
            os.environ.setdefault("NPROC", str(cores // count))


def _fitting(available: int, config: object) -> int:
    """The largest number of devices that get equal parts of a batch."""
    samples = getattr(config, "batch_size", 1)
    parts = _parts(config) or 1
    processes = hosts.count()
    every = range(processes, available + 1, processes)
    fits = (n for n in every if samples % (n * parts) == 0)
    return max(fits, default=1)


def _parts(config: object) -> int | None:
    return getattr(config, "microbatch", 0) or None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check(mesh: Mesh | None, task: BaseTask, model: object) -> None:
    """Raises ValueError if samples or points are split but cannot be.

    Args:
      mesh: device mesh, if there are several devices.
      task: the task to learn.
      model: model of the task, or its shapes.
    """
    count = sharding.size(mesh, sharding.BATCH)
    if count > 1 and not task.over_batch:
        raise ValueError(
            f"batch:{count} of the device mesh: the loss of this program is not a sum "
            "over the samples of a batch. Omit --devices."
        )
    count = sharding.size(mesh, sharding.POINTS)
    reason = obstacle(task, model) if count > 1 else None
    if reason:
        raise ValueError(
            f"points:{count} of the device mesh: {reason}. Split only the batch."
        )


def obstacle(task: BaseTask, model: object) -> str | None:
    """Returns why devices cannot share the points of a sample; None if they can.

    Args:
      task: the task to learn.
      model: model of the task, or its shapes.
    """
    if not task.over_points:
        return (
            "the loss of this program does not add up over parts of a sample, or "
            "normalises every point by itself"
        )
    model = tuning.untuned(model)
    if isinstance(model, OperatorTransformer) and model.rematerialize:
        return "it always recomputes its blocks, so rematerialize has no effect"
    return division.obstacle(model, "devices")
