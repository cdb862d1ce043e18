"""Named NumPy arrays in a directory, written and read by Orbax.

All uses of Orbax are in this module, through its public interface. The calling process
works alone and in the foreground: it waits for no other process, leaves no thread
behind, and errors reach the caller.

Only the first process can write. `ocp.type_handlers.NumpyHandler` writes only in
process 0, regardless of `MultiprocessingOptions`: in other processes,
`Checkpointer.save` returns without an error, but the arrays are missing. The handler of
`jax.Array` rejects arrays of one process. Therefore `check_process` raises an error;
`tests/test_checkpoint.py` fails as soon as Orbax supports writing there, and the check
can be removed.
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
      RuntimeError: if it is one of several processes, and not the first one.
    """
    if jax.process_index():
        raise RuntimeError(
            f"Process {jax.process_index()} of {jax.process_count()} cannot save, "
            "because Orbax writes NumPy arrays only in process 0. Save in process "
            "0."
        )


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to a directory; their subfolder is created atomically.

    `ocp.CompositeCheckpointHandler` would create both folders, but in the background:
    if one cannot be created, threads and the process wait for five minutes.

    Args:
      path: the directory, which is created; it must not exist or must not contain
        arrays.
      arrays: arrays by name, none of them empty.

    Raises:
      Exception: any error of Orbax and TensorStore, for example if the disk is full.
    """
    path.mkdir(exist_ok=True)
    with _quiet(), _checkpointer() as checkpointer:
        checkpointer.save(path / _FOLDER, args=ocp.args.PyTreeSave(dict(arrays)))


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads all arrays of a directory, from this version or from 0.1 and 0.2.

    Args:
      path: the directory.

    Raises:
      Exception: any error of Orbax and TensorStore, if files are damaged.
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
