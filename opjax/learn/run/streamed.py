"""Batches of meshes that are larger than memory, and their updates."""

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from opjax import streaming, training
from opjax._trees import Model
from opjax.learn.run.batches import EpochBatches, History, OneStep, State
from opjax.learn.run.settings import Settings
from opjax.learn.tasks.streamed import StreamedTask
from opjax.samples.sliced import Column


class StreamedBatches(EpochBatches):
    """Reads one mesh after another in slices; updates after every batch."""

    def __init__(self, task: StreamedTask, settings: Settings):
        if settings.mesh is not None:
            raise ValueError(
                "Training on meshes that are read in slices supports only one "
                "device; omit --devices."
            )
        self.task, self.seed = task, settings.seed
        self.batch_size = settings.batch_size
        self.per_epoch = len(self._order(0))
        self.per_call = 1
        self.total = settings.num_epochs * self.per_epoch
        self.optimizer = settings.optimizer(self.total)
        self.update = streaming.make_update(self.optimizer)

    def start(self, model: Model) -> State:
        """Returns the initial state, of every replica."""
        return training.init(model, self.optimizer)

    def prepare(self, state: State, step: int) -> None:
        """Does nothing: programs are compiled at their first call."""

    def advance(
        self, state: State, step: int, good: np.ndarray | None
    ) -> tuple[State, History]:
        """Trains on the meshes of the next batch."""
        del good
        (value, _), gradients = self.task.value_and_grad(state.model, self._batch(step))
        state, metrics = self.update(state, value, gradients)
        return state, {name: np.asarray(value)[None] for name, value in metrics.items()}

    def describe(self, step: int, row: int) -> str:
        """Names the files of a batch."""
        places = [self.task.train.places[i] for i in self._rows(step + row)]
        return f"its batch holds {', '.join(map(str, places))}"

    def one_step(self, model: Model) -> OneStep:
        """Not supported: a streamed step consists of many compiled programs.

        Raises:
          ValueError: always.
        """
        raise ValueError(
            "The cost of a step on meshes that are read in slices is unknown in "
            "advance; omit --describe."
        )

    def _batch(self, step: int) -> Iterator[Mapping[str, Column]]:
        """The meshes of a batch, of which one is open at a time."""
        for row in self._rows(step):
            with self.task.train.open(row) as arrays:
                yield arrays

    def _rows(self, step: int) -> list[int]:
        return self._order(step // self.per_epoch)[step % self.per_epoch]

    @functools.lru_cache(maxsize=2)  # noqa: B019 - lives as long as a run
    def _order(self, epoch: int) -> list[list[int]]:
        count = len(self.task.train)
        order = training.sample_order(self.seed, epoch, count, self.batch_size)
        return np.asarray(order).tolist()
