"""What the processes of a run tell each other, over TCP; they wait for the slowest.

Process 0 listens, the others connect to it and stay connected: a connection that breaks
says that a process has died. A message is a JSON value in a line of its own.

JAX has such a service, without public access. Its public functions, `multihost_utils`,
let devices tell each other arrays: that waits for the step before, which doubles the
time of a step of 20 ms of two processes, and comes too late for processes that do not
meet. Where one is missing, comes twice or has another port, `jax.distributed` ends the
others by a signal, and it does not notice that they disagree on their number.
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
        """Whether a message has come."""
        return b"\n" in self._bytes

    def read(self) -> None:
        """Reads what has come; raises LostError at the end of the connection."""
        try:
            part = self.connection.recv(2**16)
        except OSError as error:
            raise LostError(str(error)) from error
        if not part:
            raise LostError("its connection is closed")
        self._bytes += part

    def take(self) -> Any:
        """Returns the next message, which is complete."""
        line, _, self._bytes = self._bytes.partition(b"\n")
        return json.loads(line.decode())

    def send(self, message: object) -> None:
        """Sends a JSON value; raises LostError if nobody receives it."""
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise LostError(str(error)) from error


class Meeting:
    """The processes of a run.

    Args:
      process: number of this one.
      links: to all others, in their order, of process 0; of the others, to process 0.

    Attributes:
      process: number of this process.
      count: of all processes.
    """

    def __init__(self, process: int, count: int, links: Sequence[Link]):
        self.process, self.count = process, count
        self._links = list(links)
        self._ended: set[Link] = set()  # those that have said so

    def gather(self, value: object) -> list[Any]:
        """Returns the values of all processes, which wait for each other.

        Args:
          value: of JSON.

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
        """Says that this process ends early.

        Args:
          seconds: to wait for the others.

        Returns:
          Whether all of them end early, too.
        """
        until = time.monotonic() + seconds
        try:
            for link in self._links:
                link.send({"end": True})
            if self.process:
                return self._hears_that_all_end(until)
            while pending := [x for x in self._links if x not in self._ended]:
                self._note_end(self._next(pending, until))
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

    def _note_end(self, link: Link) -> None:
        if "end" in link.take():
            self._ended.add(link)

    def _hears_that_all_end(self, until: float) -> bool:
        while "all" not in self._next(self._links, until).take():
            pass
        return True


def next_message(links: Iterable[Link], until: float | None = None) -> Link | None:
    """Waits until a message has come, and returns its link.

    Args:
      links: that are waited for.
      until: time by the monotonic clock; None for as long as it takes.

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
    """Returns a socket that listens; to connections from anywhere without a host."""
    if host:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=dual)


def host(server: socket.socket, count: int, seconds: float) -> Meeting:
    """Waits for all other processes, as process 0.

    Args:
      server: that they connect to; closed at the end.
      count: of all processes.
      seconds: to wait at most.

    Raises:
      TimeoutError: if there are others that did not come.
      ValueError: if two processes have one number, or they do not agree on the count.
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
                raise TimeoutError(f"processes {missing} did not come") from None
            unfinished.callback(connection.close)
            link = Link(connection)
            greeted = _greeting(link)
            if greeted is None:  # a stranger
                connection.close()
                continue
            process, of = greeted
            if of != count or process in links or not 0 < process < count:
                raise ValueError(
                    f"process {process} of {of} came to {count} processes, of which "
                    f"{[0, *sorted(links)]} were there"
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
      addresses: where it may be found.
      process: number of this process.
      count: of all processes.
      seconds: to wait at most, for the others, too.

    Raises:
      LostError: if process 0 has ended.
      TimeoutError: if it, or another one, did not come.
    """
    until = time.monotonic() + seconds
    with contextlib.ExitStack() as unfinished:
        connection = _connected(addresses, until)
        unfinished.callback(connection.close)
        link = Link(connection)
        link.send({"process": process, "count": count})
        link.send({"value": None})
        if next_message([link], until) is None:
            raise TimeoutError("another process did not come")
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
                    raise TimeoutError(f"process 0 did not answer: {error}") from error
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        time.sleep(_RETRY_SECONDS)
