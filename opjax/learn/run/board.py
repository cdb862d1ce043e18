"""Rows of metrics as TensorBoard files, written immediately by the calling thread.

tensorboardX writes rows in a thread. A full disk ends this thread, and the following
rows wait forever. Here, a full disk ends the TensorBoard files, but not the run.
"""

import contextlib
import pathlib
import socket
import time
import warnings
from collections.abc import Generator
from typing import Any

from opjax._trees import Json


def require() -> None:
    """Raises ModuleNotFoundError, naming the extra, if tensorboardX is missing."""
    try:
        import tensorboardX  # noqa: F401  # pyright: ignore
    except ImportError:
        raise ModuleNotFoundError(
            "--tensorboard needs tensorboardX: pip install 'opjax[tensorboard]', or "
            "omit the flag: metrics.jsonl is always written."
        ) from None


class Board:
    """Writes the numbers of rows to a file in `tensorboard/` of a run folder.

    If a run resumes, its earlier rows from `step` on are dropped.
    """

    def __init__(self, folder: pathlib.Path, *, step: int, suffix: str):
        from tensorboardX import record_writer, summary  # pyright: ignore
        from tensorboardX.proto import event_pb2  # pyright: ignore

        made: Any = event_pb2
        self._event, self._scalar = made.Event, summary.scalar
        self._folder = folder / "tensorboard"
        self._writer: Any = None
        log = made.SessionLog
        # Viewers look for this word, and take the files in the order of their times.
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}{suffix}"
        with self._ending():
            self._folder.mkdir(exist_ok=True)
            self._writer = record_writer.RecordWriter(str(self._folder / name))
            self._put(self._event(file_version="brain.Event:2"))
            started = log(status=log.START)
            self._put(self._event(step=step, session_log=started))

    def add(self, row: Json) -> None:
        """Writes the numbers of a row, which must contain "step"."""
        for name, value in row.items():
            if self._writer is not None and isinstance(value, (int, float)):
                with self._ending():
                    summary = self._scalar(name, value)
                    self._put(self._event(step=row["step"], summary=summary))

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            with self._ending():
                self._writer.close()

    def _put(self, event: Any) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    @contextlib.contextmanager
    def _ending(self) -> Generator[None]:
        """Ends the file where it cannot be written."""
        try:
            yield
        except OSError as error:
            warnings.warn(
                f"Cannot write to {self._folder}: {error.strerror or error}. The "
                "TensorBoard log stops here; metrics.jsonl continues.",
                stacklevel=3,
            )
            writer, self._writer = self._writer, None
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.close()
