"""Out-of-memory errors: memory of a training step, and remedies."""

import contextlib
from collections.abc import Generator

import jax

from opjax import nn
from opjax.learn.run import buckets
from opjax.learn.run.settings import Settings
from opjax.learn.tasks.task import BaseTask
from opjax.nn import division
from opjax.streaming import plan

_CHUNK = 512


@contextlib.contextmanager
def explained(task: BaseTask, model: object, settings: Settings) -> Generator[None]:
    """Converts XLA's out-of-memory error to one that suggests remedies.

    Args:
      task: the task to learn.
      model: the trained model.
      settings: settings of the training.

    Raises:
      MemoryError: instead of XLA's error. It states the samples of a step, the
        requested memory and ways to reduce it, with the memory that chunks would need
        if the attention supports them.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(_advice(task, model, settings, str(error))) from error


def _advice(task: BaseTask, model: object, settings: Settings, error: str) -> str:
    """What a step needed and what would need less."""
    told = error.splitlines()[0]
    text = f"A step on {settings.batch_size} samples does not fit into memory: {told}. "
    ways = [] if settings.microbatch == 1 else ["--microbatch=1, one at a time"]
    points = max(map(buckets.num_points, task.known), default=0)
    if points and isinstance(model, nn.OperatorTransformer):
        if division.obstacle(model, "stream") is None:
            chunk = min(model.chunk_size or _CHUNK, _CHUNK)
            needed = plan.needed_bytes(model, points, chunk_size=chunk, store_every=1)
            size = f"{needed / 2**20:.0f} MiB for a sample"
            ways.append(f"--chunk_size={chunk}, about {size}")
            ways.append("--storage_dtype=bfloat16 with it, half of that")
        elif not model.rematerialize:
            ways.append("--rematerialize")
    ways.append("a smaller model, fewer points, or --devices with more devices")
    size = f"Samples have up to {points} points. " * bool(points)
    return f"{text}{size}What needs less: {'; '.join(ways)}."
