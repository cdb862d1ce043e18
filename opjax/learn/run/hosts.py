r"""Training with several processes, on one machine or many.

    opjax-train --devices=batch:2 --coordinator=localhost:4000 --num_processes=2 \
      --process_id=0 ...

All processes run the same program with the same flags, except `--process_id`. Devices
exchange the data of a step, see `training.sharding`. Decisions between steps are made
by the first process or by all together, see `run.meeting`, which waits for the slowest.
Only the first process uses the folder of the run, evaluates and prints; the others need
no access to its disk.

The order of samples does not depend on the number of processes. Samples that stay in
their files (`--stream_samples`): every process reads its part of each batch, after one
pass over all samples for normalisers and shapes, and reads all validation samples.
Other samples: every process reads all of them at the start, or from the cache, which
one process fills while the others that share its folder wait. The devices receive only
their own points.

If a process dies, the others end: immediately if they wait for its numbers, with the
exit status `LOST`; otherwise within `HEARTBEAT_SECONDS`, because JAX aborts them.

`--coordinator` is the address at which the processes connect. There they agree on
another free port for JAX's own service. With `--coordinator=auto`, JAX finds the
processes and starts its devices for this purpose: `JAX_NUM_CPU_DEVICES` sets the number
of CPU cores that become devices.
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
    """Context in which this process is one of several processes.

    Args:
      coordinator: `HOST:PORT`; `auto` if JAX finds the processes on a cluster; or empty
        for a single process.
      num_processes: number of processes; None with `auto`.
      process_id: number of this process, starting at zero; None with `auto`.

    Raises:
      RuntimeError: if the others cannot be reached.
      ValueError: if arguments contradict each other, or no cluster is found.
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
    """Raises ValueError if arguments of `joined` are missing or contradictory."""
    arguments = {"num_processes": num_processes, "process_id": process_id}
    named = [name for name, value in arguments.items() if value is not None]
    if coordinator in ("", "auto"):
        if named:
            raise ValueError(
                f"{' and '.join(named)} need the coordinator's HOST:PORT, but "
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
            f"--coordinator=auto found no cluster ({error}). Pass "
            "--coordinator=HOST:PORT, --num_processes and --process_id."
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
    """Returns the values of all processes, after all have called it.

    Args:
      value: JSON value; other processes receive it converted by `to_json`.
    """
    if _Joined.meeting is None:
        return [value]
    return _Joined.meeting.gather(to_json(value))


def connect(mesh: Mesh) -> None:
    """Connects the devices of a mesh for the first time, at the same time.

    On CPUs, connecting has a time limit of half a minute. Compilation of the first step
    may take one process longer than that. Later communication has no limit.
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
    """Runs `work` in the first process, and returns its result to all processes.

    Args:
      work: function that returns JSON values; other processes receive them converted by
        `to_json`.

    Raises:
      RuntimeError: in the other processes, with the message of the error that `work`
        raises.
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
    """Raises ValueError unless all processes have the same JSON value."""
    values = gather(value)
    for process, other in enumerate(values):
        if other != values[0]:
            raise ValueError(
                f"Processes 0 and {process} differ in {what}: {values[0]} and {other}. "
                "All must have the same flags and read the same data."
            )


def restore(directory: os.PathLike[str], like: Any) -> checkpoint.Restored | None:
    """Reads the newest checkpoint, see `checkpoint.restore`, for all processes.

    The first process reads and sends every bit, so the others need no access to its
    disk.
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
    """Returns the arrays of the first process; shapes and types must match in all.

    They are sent as bytes, because devices add arrays, and a sum may change the sign of
    zero.
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
