"""Selects the batch source of a task."""

from opjax.learn.run.batches import (
    ArrayBatches,
    Batches,
    FreshBatches,
    StoredBatches,
    on_disk,
)
from opjax.learn.run.settings import Settings
from opjax.learn.run.streamed import StreamedBatches
from opjax.learn.tasks.streamed import StreamedTask
from opjax.learn.tasks.task import BaseTask, FreshTask, Task


def make_batches(task: BaseTask, settings: Settings) -> Batches:
    """Returns the batch source of a task."""
    if isinstance(task, FreshTask):
        return FreshBatches(task, settings)
    if isinstance(task, StreamedTask):
        return StreamedBatches(task, settings)
    assert isinstance(task, Task)
    if on_disk(task.train):
        return StoredBatches(task, settings)
    return ArrayBatches(task, settings)
