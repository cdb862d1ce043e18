"""The rows of `metrics.jsonl`, one for each validation, and of TensorBoard."""

import json
import os
import pathlib
from typing import IO, Any

from opjax.learn import hosts
from opjax.learn.folder import RunDirectory
from opjax.learn.json_files import to_json, write_text, writing


class MetricsWriter:
    """Appends rows to `metrics.jsonl`, and to TensorBoard if asked.

    Opened with the number of rows a checkpoint knew of, it drops the ones after, so a
    resumed run leaves the file an uninterrupted one would have written. Of several
    processes the first one writes, the others count.
    """

    def __init__(self, run: RunDirectory, *, rows: int = 0, tensorboard: bool = False):
        path = run.path / "metrics.jsonl"
        self.rows, self._path = rows, path
        self._file: IO[str] | None = None
        self._board = None
        if not hosts.first():
            return
        old = path.read_text().splitlines(keepends=True) if path.exists() else []
        if tensorboard:
            try:
                from tensorboardX import SummaryWriter  # pyright: ignore
            except ImportError:
                raise ModuleNotFoundError(
                    "--tensorboard needs tensorboardX: pip install "
                    "'opjax[tensorboard]', or leave the flag out: "
                    "metrics.jsonl is written in any case."
                ) from None
            step = json.loads(old[rows - 1])["step"] + 1 if 0 < rows <= len(old) else 0
            self._board = SummaryWriter(
                str(run.path / "tensorboard"),
                purge_step=step,
                filename_suffix=f".{rows}",  # two files may be of the same second
            )
        write_text(path, "".join(old[:rows]))
        with writing(path):
            self._file = open(path, "a")  # noqa: SIM115 - closed by `close`

    def write(self, row: dict[str, Any]) -> None:
        """Appends one row, which must have a "step", and pushes it to the disk."""
        self.rows += 1
        if self._file is None:
            return
        row = to_json(row)
        with writing(self._path):
            self._file.write(json.dumps(row, allow_nan=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """Closes the files."""
        if self._file is not None:
            with writing(self._path):
                self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads the complete rows of a run's `metrics.jsonl`."""
    path = pathlib.Path(workdir) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
