"""Messages between the processes of a run over TCP; calls wait for the slowest.

Process 0 listens. The others connect to it and stay connected, so a broken connection
shows that a process has died. A message is a JSON value on one line.

JAX has such a service, but not as a public interface. Its public functions,
`multihost_utils`, exchange arrays between devices. They wait for the previous step,
which doubles the time of a 20 ms step of two processes, and they hang if a process is
missing. If a process is missing, connects twice or uses another port, `jax.distributed`
ends the others by a signal, and it does not detect different process counts.
"""

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

Address = tuple[str, int]

_LOST = (
    "Another process of this run has ended, or does not answer; its output may say why "
    "({}). The last checkpoint is kept: the same command continues, on as many "
    "processes as there are."
)
_RETRY_SECONDS = 0.2
_HELLO_SECONDS = 5.0


class LostError(RuntimeError):
    """Another process of the run has ended."""

    def __init__(self, reason: str):
        super().__init__(_LOST.format(reason))


class Link:
    """A connection to another process."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._bytes = bytearray()

    @property
    def complete(self) -> bool:
        """Whether a complete message has arrived."""
        return b"\n" in self._bytes

    def read(self) -> None:
        """Reads the arrived bytes; raises LostError if the connection has ended."""
        try:
            part = self.connection.recv(2**16)
        except OSError as error:
            raise LostError(str(error)) from error
        if not part:
            raise LostError("its connection is closed")
        self._bytes += part

    def take(self) -> Any:
        """Returns the next message, which must be complete."""
        line, _, self._bytes = self._bytes.partition(b"\n")
        return json.loads(line.decode())

    def send(self, message: object) -> None:
        """Sends a JSON value; raises LostError if nobody receives it."""
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise LostError(str(error)) from error


class Meeting:
    """The connections between the processes of a run.

    Args:
      process: number of this one.
      links: in process 0, connections to all others in their order; in the others, the
        connection to process 0.

    Attributes:
      process: number of this process.
      count: number of processes.
    """

    def __init__(self, process: int, count: int, links: Sequence[Link]):
        self.process, self.count = process, count
        self._links = list(links)
        self._ended: set[Link] = set()  # those that have said so

    def gather(self, value: object) -> list[Any]:
        """Returns the values of all processes, after all have called it.

        Args:
          value: JSON value.

        Raises:
          LostError: if a process has died.
          RuntimeError: if a process ends early, see `end`.
        """
        if self.process:
            self._links[0].send({"value": value})
            return self._value_of(self._next(self._links))
        by_process = {0: value}
        pending = list(self._links)
        while pending:
            link = self._next(pending)
            by_process[1 + self._links.index(link)] = self._value_of(link)
            pending.remove(link)
        values = [by_process[process] for process in range(self.count)]
        for link in self._links:
            link.send({"value": values})
        return values

    def end(self, seconds: float) -> bool:
        """Tells the other processes that this one ends early.

        Args:
          seconds: maximum time to wait for the others.

        Returns:
          Whether all of them end early.
        """
        until = time.monotonic() + seconds
        try:
            for link in self._links:
                link.send({"end": True})
            if self.process:
                while "all" not in self._next(self._links, until).take():
                    pass
                return True
            while pending := [x for x in self._links if x not in self._ended]:
                link = self._next(pending, until)
                if "end" in link.take():
                    self._ended.add(link)
            for link in self._links:
                link.send({"all": True})
        except (LostError, TimeoutError):
            return False
        return True

    def close(self) -> None:
        """Closes the connections."""
        for link in self._links:
            link.connection.close()

    def _next(self, links: Iterable[Link], until: float | None = None) -> Link:
        link = next_message(links, until)
        if link is None:
            raise TimeoutError
        return link

    def _value_of(self, link: Link) -> Any:
        message = link.take()
        if "value" in message:
            return message["value"]
        self._ended.add(link)
        process = 1 + self._links.index(link) if not self.process else 0
        raise RuntimeError(
            f"Process {process} has ended; its output contains the reason."
        )


def next_message(links: Iterable[Link], until: float | None = None) -> Link | None:
    """Waits for a message, and returns its connection.

    Args:
      links: connections to wait for.
      until: deadline by the monotonic clock; None for no limit.

    Raises:
      LostError: if one of the connections ends.
    """
    with selectors.DefaultSelector() as selector:
        for link in links:
            if link.complete:
                return link
            selector.register(link.connection, selectors.EVENT_READ, link)
        while True:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            for key, _ in selector.select(left):
                link: Link = key.data
                link.read()
                if link.complete:
                    return link


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; without a host, it accepts any address."""
    if host:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=dual)


def host(server: socket.socket, count: int, seconds: float) -> Meeting:
    """Accepts the connections of all other processes, as process 0.

    Args:
      server: listening socket; closed at the end.
      count: number of processes.
      seconds: time limit.

    Raises:
      TimeoutError: if some processes did not connect.
      ValueError: if two processes have the same number, or their counts differ.
    """
    until = time.monotonic() + seconds
    with server, contextlib.ExitStack() as unfinished:
        links: dict[int, Link] = {}
        while len(links) < count - 1:
            server.settimeout(max(until - time.monotonic(), 1e-3))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, count)) - links.keys())
                raise TimeoutError(f"processes {missing} did not connect") from None
            unfinished.callback(connection.close)
            link = Link(connection)
            greeted = _greeting(link)
            if greeted is None:  # a stranger
                connection.close()
                continue
            process, of = greeted
            if of != count or process in links or not 0 < process < count:
                raise ValueError(
                    f"process {process} of {of} tried to connect to {count} "
                    f"processes, of which {[0, *sorted(links)]} were connected"
                )
            links[process] = link
        unfinished.pop_all()  # they are the meeting's
    met = Meeting(0, count, [links[process] for process in range(1, count)])
    met.gather(None)  # all are there
    return met


def _greeting(link: Link) -> tuple[int, int] | None:
    """Number and count that a process says at first; None if it says something else."""
    with contextlib.suppress(LostError, ValueError, TypeError, KeyError):
        if next_message([link], time.monotonic() + _HELLO_SECONDS) is not None:
            said = link.take()
            return int(said["process"]), int(said["count"])
    return None


def join(
    addresses: Sequence[Address], process: int, count: int, seconds: float
) -> Meeting:
    """Connects to process 0, as soon as it listens.

    Args:
      addresses: possible addresses of process 0.
      process: number of this process.
      count: number of processes.
      seconds: time limit, also for the other processes.

    Raises:
      LostError: if process 0 has ended.
      TimeoutError: if process 0 or another process did not connect.
    """
    until = time.monotonic() + seconds
    with contextlib.ExitStack() as unfinished:
        connection = _connected(addresses, until)
        unfinished.callback(connection.close)
        link = Link(connection)
        link.send({"process": process, "count": count})
        link.send({"value": None})
        if next_message([link], until) is None:
            raise TimeoutError("another process did not connect")
        link.take()
        unfinished.pop_all()  # it is the meeting's
    return Meeting(process, count, [link])


def _connected(addresses: Sequence[Address], until: float) -> socket.socket:
    while True:
        for address in addresses:
            left = max(until - time.monotonic(), 1e-3)
            try:
                connection = socket.create_connection(address, timeout=left)
            except OSError as error:
                if time.monotonic() > until:
                    raise TimeoutError(f"process 0 did not respond: {error}") from error
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        time.sleep(_RETRY_SECONDS)
