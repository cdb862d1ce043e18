r"""Several processes, on one machine or many, that train as one.

    opjax-train --devices=batch:2 --coordinator=localhost:4000 --num_processes=2 \
      --process_id=0 ...

All of them run the same program with the same flags but for `--process_id`. Devices
exchange what a step needs, see `training.sharding`. What is decided between steps, the
first process decides or all of them do together, see `run.meeting`: that waits as long
as the slowest takes. The first process alone uses the folder of the run,
evaluates and prints; the others need not see its disk.

Which samples come next is what it is for one process, any of them. Of those that stay
in their files (`--stream_samples`) every process reads its own part of each batch,
after one pass over all for normalisers and shapes, and all of the validation. Others
every process reads at the start, or from the cache, which one process fills while those
that share its folder wait. Its devices get their own points only.

When a process dies, the others end: at once where they wait for its numbers, with the
status `LOST`, else within `HEARTBEAT_SECONDS`, as JAX aborts them.

`--coordinator` is where the processes meet; they agree there on another port, a free
one, of JAX's own service. With `--coordinator=auto` JAX finds the processes, and starts
its devices for that: the cores of CPUs are devices as `JAX_NUM_CPU_DEVICES` says.
"""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from opjax.learn.json_files import to_json
from opjax.learn.run import meeting
from opjax.learn.run.meeting import LostError, Meeting
from opjax.training import checkpoint

COORDINATOR_HELP = (
    "Address HOST:PORT of the first of several processes. auto takes it from Slurm, "
    "Kubernetes or Open MPI. Empty runs a single process"
)
HEARTBEAT_SECONDS = 20
LOST = 76  # status of a process that ends because another did; EX_PROTOCOL
_MEETING_SECONDS = 300
_ALIKE_SECONDS = 5.0  # within which the same error comes everywhere
_ADDRESS_BYTES = 1024
# In what JAX says when it cannot reach a process.
_SIGNS = ("Gloo", "NCCL", "UNAVAILABLE", "oordinationService", "oordination service")
_LOCAL = ("localhost", "127.0.0.1", "[::1]")

_Value = TypeVar("_Value")


class _Joined:
    """What this process knows of the others."""

    meeting: Meeting | None = None


def count() -> int:
    """Returns the number of processes, without starting a backend."""
    return 1 if _Joined.meeting is None else _Joined.meeting.count


def first() -> bool:
    """Whether this process is the first one, which writes files and prints."""
    return _Joined.meeting is None or not _Joined.meeting.process


@contextlib.contextmanager
def joined(
    coordinator: str, num_processes: int | None, process_id: int | None
) -> Generator[None]:
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
    met = _met(coordinator, num_processes, process_id)
    _Joined.meeting = met
    if not first():
        logging.set_verbosity(min(logging.get_verbosity(), logging.WARNING))
    try:
        with _watched():
            yield
    except LostError as error:
        _exit(error, LOST)
    except BaseException as error:
        if not met.end(_ALIKE_SECONDS):
            _exit(error, 1)
        _leave(met)
        raise
    _leave(met)


def _leave(met: Meeting) -> None:
    """Ends the connections; all processes do at the same time."""
    _Joined.meeting = None
    jax.distributed.shutdown()
    met.close()


def _exit(error: BaseException, status: int) -> None:
    """Ends at once: exit would wait for the others, which may wait for this one."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


def check(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    """Raises ValueError if arguments of `joined` are missing or contradict."""
    arguments = {"num_processes": num_processes, "process_id": process_id}
    named = [name for name, value in arguments.items() if value is not None]
    if coordinator in ("", "auto"):
        if named:
            raise ValueError(
                f"{' and '.join(named)} without the coordinator's HOST:PORT, but "
                f"{coordinator=}; pass all three, or only --coordinator=auto on a "
                "cluster."
            )
        return
    if num_processes is None or process_id is None:
        raise ValueError(
            f"{coordinator=} also needs num_processes and process_id; on a cluster, "
            "--coordinator=auto determines all three."
        )
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"{coordinator=} must be HOST:PORT or auto.")
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"{process_id=} must be at least 0 and below {num_processes=}."
        )


def _met(coordinator: str, num_processes: int | None, process: int | None) -> Meeting:
    """Connects to the others, before any device is asked for."""
    # JAX would take SIGTERM for itself; `stopping` does what is to be done.
    jax.config.update("jax_enable_preemption_service", False)
    waiting = (
        f"Waiting for all processes at {coordinator}, at most {_MEETING_SECONDS} s."
    )
    print(waiting, file=sys.stderr, flush=True)
    if num_processes is None or process is None:
        return _met_on_cluster()
    try:
        return _met_at(coordinator, num_processes, process)
    except (jax.errors.JaxRuntimeError, OSError, RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"The processes of this run did not connect at {coordinator}: "
            f"{_line(error)}. Start all of them, with the same --coordinator, on a "
            "free port, the same --num_processes and different values of "
            "--process_id."
        ) from error


def _met_at(coordinator: str, count: int, process: int) -> Meeting:
    """Meets at an address, where process 0 says on which port JAX's service is."""
    host, _, port = coordinator.rpartition(":")
    name, local = host.strip("[]"), host in _LOCAL
    if process:
        addresses = [(name, int(port))]
        met = meeting.join(addresses, process, count, _MEETING_SECONDS)
    else:
        server = meeting.listen(name if local else "", int(port))
        met = meeting.host(server, count, _MEETING_SECONDS)
    own = met.gather(_free_port(name if local else ""))[0]
    jax.distributed.initialize(
        coordinator_address=f"{host}:{own}",
        num_processes=count,
        process_id=process,
        cluster_detection_method="deactivate",
        # Of no concern to other machines.
        coordinator_bind_address=f"{host}:{own}" if local else None,
        initialization_timeout=_MEETING_SECONDS,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        shutdown_timeout_seconds=HEARTBEAT_SECONDS,
    )
    return met


def _met_on_cluster() -> Meeting:
    """Meets where process 0 of those is that JAX finds, which says so by its devices.

    JAX tells which processes there are once the devices are settled only.
    """
    try:
        jax.distributed.initialize(
            initialization_timeout=_MEETING_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except ValueError as error:
        raise ValueError(
            f"--coordinator=auto found no cluster ({error}). Give --coordinator="
            "HOST:PORT, --num_processes and --process_id."
        ) from error
    count, process = jax.process_count(), jax.process_index()
    if process:
        addresses = _said_by_first([])
        return meeting.join(addresses, process, count, _MEETING_SECONDS)
    server = meeting.listen("", 0)
    port: int = server.getsockname()[1]
    _said_by_first([(name, port) for name in _own_names()])
    return meeting.host(server, count, _MEETING_SECONDS)


def _said_by_first(addresses: list[meeting.Address]) -> list[meeting.Address]:
    """Returns the addresses that process 0 gives, over the devices."""
    text = json.dumps(addresses).encode().ljust(_ADDRESS_BYTES)
    sent = multihost_utils.broadcast_one_to_all(np.frombuffer(text, np.uint8))
    return [(name, port) for name, port in json.loads(np.asarray(sent).tobytes())]


def _own_names() -> list[str]:
    """Names and numbers by which other machines may find this one."""
    names = [socket.getfqdn(), socket.gethostname()]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        probe.connect(("192.0.2.1", 9))  # sends nothing; says which way it would
        names.append(probe.getsockname()[0])
    return list(dict.fromkeys(names))


def _free_port(host: str) -> int:
    with meeting.listen(host, 0) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def _watched() -> Generator[None]:
    """Raises LostError where JAX finds that it cannot reach another process."""
    try:
        yield
    except (ValueError, RuntimeError) as error:  # dispatch raises the one, waiting both
        if isinstance(error, LostError) or not any(s in str(error) for s in _SIGNS):
            raise
        raise LostError(_line(error)) from error


def _line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0][:300]


def gather(value: object) -> list[Any]:
    """Returns the values of all processes, which wait for each other.

    Args:
      value: of JSON; other processes see what `to_json` makes of it.
    """
    if _Joined.meeting is None:
        return [value]
    return _Joined.meeting.gather(to_json(value))


def connect(mesh: Mesh) -> None:
    """Lets the devices of a mesh meet for the first time, at the same time.

    On CPUs they have half a minute for that, and compiling what they do first may take
    one process that much longer than another. Later they wait.
    """
    if count() == 1:
        return
    axes = [name for name, size in mesh.shape.items() if size > 1]
    of_all = tuple(axes) if len(axes) > 1 else ()

    def total(one: jax.Array) -> list[jax.Array]:
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


def require_same(what: str, value: object) -> None:
    """Raises ValueError unless all processes have the same value, of JSON."""
    values = gather(value)
    for process, other in enumerate(values):
        if other != values[0]:
            raise ValueError(
                f"Processes 0 and {process} differ in {what}: {values[0]} and {other}. "
                "All must have the same flags and read the same data."
            )


def restore(directory: os.PathLike[str], like: Any) -> checkpoint.Restored | None:
    """Reads the newest checkpoint, see `checkpoint.restore`, for all processes.

    The first one reads and sends the others every bit, so they need not see its disk.
    """
    if count() == 1:
        return checkpoint.restore(directory, like)
    checkpoints: list[Any] = []

    def read() -> Any:
        checkpoints.append(checkpoint.restore(directory, like))
        return checkpoints[0] and checkpoints[0]._replace(payload=None)

    said: Any = tell(read)
    if said is None:
        return None
    payload = checkpoints[0].payload if checkpoints else like
    restored = checkpoint.Restored(*said)
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
