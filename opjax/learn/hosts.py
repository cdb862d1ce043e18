"""Several processes, on one machine or many, that train as one.

    opjax-train --mesh=batch:2 --coordinator=localhost:4000 --num_processes=2 \
      --process_id=0 ...

All of them run the same program with the same flags but for `--process_id`. Devices
exchange what a step needs, see `opjax.sharding`. What is decided between steps, the
first process decides or all of them do together, over JAX's coordination service: that
waits as long as the slowest takes. The first process alone uses the folder of the run,
evaluates and prints; the others need not see its disk.

Which samples come next is what it is for one process, any of them. Of those that stay
in their files (`--stream_samples`) every process reads its own part of each batch,
after one pass over all for normalisers and shapes, and all of the validation. Others
every process reads at the start, or from the cache, which one process fills while those
that share its folder wait. Its devices get their own points only.

When a process dies, the others end: at once where they wait for its numbers, with the
status `LOST`, else within `HEARTBEAT_SECONDS`, as JAX aborts them.
"""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from absl import logging

# Which processes there are is public only once the devices are settled, and what they
# tell each other without devices is not at all; Orbax asks here, too.
from jax._src.distributed import global_state
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from opjax import checkpoint
from opjax.learn.json_files import to_json

COORDINATOR_HELP = (
    "HOST:PORT where the first of several processes waits for the others; auto: as "
    "Slurm, Kubernetes or Open MPI say; empty: one process"
)
HEARTBEAT_SECONDS = 20
LOST = 76  # status of a process that ends because another did; EX_PROTOCOL
_MEETING_SECONDS = 300
_POLL_MS = 1000
_ALIKE_MS = 5000  # within which the same error comes everywhere
# In what JAX says when it cannot reach a process.
_SIGNS = ("Gloo", "NCCL", "UNAVAILABLE", "oordinationService", "oordination service")
_LOCAL = ("localhost", "127.0.0.1", "[::1]")

_numbers = itertools.count()
_Value = TypeVar("_Value")


class LostError(RuntimeError):
    """Another process of the run has ended."""


def count() -> int:
    """Returns the number of processes, without starting a backend."""
    return global_state.num_processes if jax.distributed.is_initialized() else 1


def first() -> bool:
    """Whether this process is the first one, which writes files and prints."""
    return global_state.process_id == 0 or not jax.distributed.is_initialized()


@contextlib.contextmanager
def joined(
    coordinator: str, num_processes: int | None, process_id: int | None
) -> Iterator[None]:
    """Makes this process one of several while inside.

    Args:
      coordinator: `HOST:PORT`, `auto` for what JAX finds on a cluster, or empty for
        a single process.
      num_processes: how many there are; None with `auto`.
      process_id: number of this one, from zero on; None with `auto`.

    Raises:
      RuntimeError: if the others cannot be reached.
      ValueError: if arguments contradict each other, or there is no cluster.
    """
    check(coordinator, num_processes, process_id)
    if not coordinator:
        yield
        return
    _initialize(coordinator, num_processes, process_id)
    if not first():
        logging.set_verbosity(min(logging.get_verbosity(), logging.WARNING))
    try:
        with _watched():
            yield
    except LostError as error:
        _exit(error, LOST)
    except BaseException as error:
        if not _all_end():
            _exit(error, 1)
        jax.distributed.shutdown()
        raise
    jax.distributed.shutdown()


def _all_end() -> bool:
    """Says that this process ends early; whether all do, of the same error."""
    client: Any = global_state.client
    client.key_value_set(_end(global_state.process_id), "")
    try:
        for process in range(count()):
            client.blocking_key_value_get(_end(process), _ALIKE_MS)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _end(process: int) -> str:
    return f"opjax/end/{process}"


def _exit(error: BaseException, status: int) -> None:
    """Ends at once: exit would wait for the others, which may wait for this one."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


def check(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    """Raises ValueError if arguments of `joined` are missing or contradict."""
    given = {"num_processes": num_processes, "process_id": process_id}
    known = [name for name, value in given.items() if value is not None]
    if coordinator in ("", "auto"):
        if known:
            raise ValueError(
                f"{' and '.join(known)} without the coordinator's HOST:PORT, but "
                f"{coordinator=}; give all three, or --coordinator=auto alone on a "
                "cluster."
            )
        return
    if num_processes is None or process_id is None:
        raise ValueError(
            f"{coordinator=} needs num_processes and process_id as well; on a cluster "
            "--coordinator=auto finds all three."
        )
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"{coordinator=} must be HOST:PORT or auto.")
    if not 0 <= process_id < num_processes:
        raise ValueError(f"{process_id=} must be from 0 to {num_processes=} less one.")


def _initialize(coordinator: str, *numbers: int | None) -> None:
    """Connects to the others, before any device is asked for."""
    # JAX would take SIGTERM for itself; `stopping` does what is to be done.
    jax.config.update("jax_enable_preemption_service", False)
    times: Any = {"heartbeat_timeout_seconds": HEARTBEAT_SECONDS}
    times["shutdown_timeout_seconds"] = HEARTBEAT_SECONDS
    given: Any = {}
    if coordinator != "auto":
        names = ("num_processes", "process_id")
        given = {
            "coordinator_address": coordinator,
            **dict(zip(names, numbers, strict=True)),
        }
        given["cluster_detection_method"] = "deactivate"
        if coordinator.rpartition(":")[0] in _LOCAL:  # of no concern to others
            given["coordinator_bind_address"] = coordinator
    # JAX aborts afterwards, without saying what it waited for.
    waiting = (
        f"Waiting for all processes at {coordinator}, at most {_MEETING_SECONDS} s."
    )
    print(waiting, file=sys.stderr, flush=True)
    times["initialization_timeout"] = _MEETING_SECONDS
    try:
        jax.distributed.initialize(**given, **times)
    except ValueError as error:
        raise ValueError(
            f"--coordinator=auto found no cluster ({error}). Give --coordinator="
            "HOST:PORT, --num_processes and --process_id."
        ) from error
    except jax.errors.JaxRuntimeError as error:
        raise RuntimeError(
            f"The processes of this run did not meet at {coordinator}: {_line(error)}. "
            "Start all of them, with the same --coordinator, on a free port, the same "
            "--num_processes and a --process_id each."
        ) from error


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """Raises LostError where JAX finds that it cannot reach another process."""
    try:
        yield
    except (ValueError, RuntimeError) as error:  # dispatch raises the one, waiting both
        if isinstance(error, LostError) or not any(s in str(error) for s in _SIGNS):
            raise
        raise LostError(
            "Another process of this run has ended, or does not answer; its output may "
            f"say why ({_line(error)}). The last checkpoint is kept: the same command "
            "continues, on as many processes as there are."
        ) from error


def _line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0][:300]


def gather(value: Any) -> list[Any]:
    """Returns the values of all processes, which wait for each other.

    Args:
      value: of JSON; other processes see what `to_json` makes of it.
    """
    if count() == 1:
        return [value]
    client: Any = global_state.client
    own = global_state.process_id
    number = next(_numbers)
    client.key_value_set(_key(number, own), json.dumps(to_json(value)))
    found = [_wait(number, process) for process in range(count())]
    if number:  # whoever has answered now has read all answers before
        client.key_value_delete(_key(number - 1, own))
    return [json.loads(text) for text in found]


def _key(number: int, process: int) -> str:
    return f"opjax/{number}/{process}"


def _wait(number: int, process: int) -> str:
    """What another process says, looking meanwhile for its end, and for signals."""
    client: Any = global_state.client
    while True:
        try:
            return client.blocking_key_value_get(_key(number, process), _POLL_MS)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            client.key_value_try_get(_end(process))
            raise RuntimeError(f"Process {process} has ended; its output says why.")


def connect(mesh: Mesh) -> None:
    """Lets the devices of a mesh meet for the first time, at the same time.

    On CPUs they have half a minute for that, and compiling what they do first may take
    one process that much longer than another. Later they wait.
    """
    if count() == 1:
        return
    axes = [name for name, size in mesh.shape.items() if size > 1]
    of_all = tuple(axes) if len(axes) > 1 else ()

    def total(one: Any) -> list[Any]:
        return [jax.lax.psum(one, names) for names in (*axes, of_all) if names]

    whole = jax.P()
    run = jax.shard_map(total, mesh=mesh, in_specs=whole, out_specs=whole)
    meet = jax.jit(run).lower(np.float32(1)).compile()
    gather(None)
    jax.block_until_ready(meet(np.float32(1)))


def tell(work: Callable[[], _Value]) -> _Value:
    """Lets the first process work, and returns its result to all, who wait for it.

    Args:
      work: returns JSON values; other processes get what `to_json` makes of them.

    Raises:
      RuntimeError: in the other processes, with the message of what `work` raises.
    """
    if count() == 1:
        return work()
    if not first():
        said = gather(None)[0]
        if "error" in said:
            raise RuntimeError(f"The first process stops: {said['error']}")
        return said["value"]
    try:
        value = work()
    except Exception as error:
        gather({"error": f"{type(error).__name__}: {error}"})
        raise
    gather({"value": value})
    return value


def require_same(what: str, value: Any) -> None:
    """Raises ValueError unless all processes have the same value, of JSON."""
    found = gather(value)
    for process, other in enumerate(found):
        if other != found[0]:
            raise ValueError(
                f"Processes 0 and {process} differ in {what}: {found[0]} and {other}. "
                "All must have the same flags and read the same data."
            )


def restore(directory: os.PathLike, like: Any) -> checkpoint.Restored | None:
    """Reads the newest checkpoint, see `checkpoint.restore`, for all processes.

    The first one reads and sends the others every bit, so they need not see its disk.
    """
    if count() == 1:
        return checkpoint.restore(directory, like)
    found: list[Any] = []

    def read() -> Any:
        found.append(checkpoint.restore(directory, like))
        return found[0] and found[0]._replace(payload=None)._asdict()

    said: Any = tell(read)
    if said is None:
        return None
    payload = found[0].payload if found else like
    restored = checkpoint.Restored(**said)
    return restored._replace(payload=checkpoint.mapped(copied, payload))


def copied(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the arrays of the first process; others give the same shapes and types.

    As bytes, because devices add them up, and a sum may change the sign of a zero.
    """
    parts = [np.atleast_1d(array).ravel().view(np.uint8) for array in arrays.values()]
    sent = np.array(multihost_utils.broadcast_one_to_all(np.concatenate(parts)))
    ends = np.cumsum([part.size for part in parts])[:-1]
    return {
        name: part.view(array.dtype).reshape(array.shape)
        for (name, array), part in zip(
            arrays.items(), np.split(sent, ends), strict=True
        )
    }
