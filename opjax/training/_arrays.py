"""Named NumPy arrays in a directory, written and read by Orbax.

All that opjax needs of Orbax is in this module, and it is Orbax's public interface. The
calling process works alone, and in the foreground: no other process is waited for, no
thread is left, and errors reach the caller.

Processes other than the first cannot write. `ocp.type_handlers.NumpyHandler` writes in
process 0 alone, whatever `MultiprocessingOptions` say: elsewhere `Checkpointer.save`
returns as if all were well, and the arrays are missing. The handler of `jax.Array`
refuses arrays of one process. So `check_process` refuses;
`tests/test_checkpoint.py` fails as soon as Orbax writes there, and the refusal can go.
"""

import contextlib
import logging
import pathlib
from collections.abc import Generator, Mapping

import jax
import numpy as np
import orbax.checkpoint as ocp

_FOLDER = "arrays"  # the folder of the arrays, also in checkpoints of 0.1 and 0.2


def check_process() -> None:
    """Checks that this process can write.

    Raises:
      RuntimeError: if it is one of several, and not the first.
    """
    if jax.process_index():
        raise RuntimeError(
            f"Process {jax.process_index()} of {jax.process_count()} cannot save: "
            "Orbax writes NumPy arrays in process 0 only. Save in process 0."
        )


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to a directory: their folder in it appears when it is complete.

    `ocp.CompositeCheckpointHandler` would make both folders, but in the background: if
    one cannot be made, threads wait for it for five minutes, and the process with them.

    Args:
      path: the directory, which is made; it does not exist, or has no arrays.
      arrays: arrays by name, none of them empty.

    Raises:
      Exception: whatever Orbax and TensorStore raise, if the disk is full for example.
    """
    path.mkdir(exist_ok=True)
    with _quiet(), _checkpointer() as checkpointer:
        checkpointer.save(path / _FOLDER, args=ocp.args.PyTreeSave(dict(arrays)))


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads all arrays of a directory, of this version or of 0.1 and 0.2.

    Args:
      path: the directory.

    Raises:
      Exception: whatever Orbax and TensorStore raise, if files are damaged.
    """
    with _quiet(), _checkpointer() as checkpointer:
        return checkpointer.restore(path / _FOLDER, args=ocp.args.PyTreeRestore())


def _checkpointer() -> ocp.Checkpointer:
    """Saves NumPy arrays, alone; Orbax's own registry of types stays as it is."""
    own = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
    kinds = ocp.type_handlers.create_type_handler_registry(
        (np.ndarray, ocp.type_handlers.NumpyHandler())
    )
    handler = ocp.PyTreeCheckpointHandler(
        multiprocessing_options=alone, type_handler_registry=kinds
    )
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keeps Orbax's messages from the log; its errors are raised."""
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
