"""Processes that tell each other values, here threads of one."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from opjax.learn.run import meeting

SECONDS = 20.0


def met(count):
    """Meetings of so many processes; they come one after the other, the first last."""
    server = meeting.listen("localhost", 0)
    addresses = [("localhost", server.getsockname()[1])]
    with ThreadPoolExecutor(count) as pool:
        others = [
            pool.submit(meeting.join, addresses, process, count, SECONDS)
            for process in reversed(range(1, count))
        ]
        first = meeting.host(server, count, SECONDS)
        return [first, *(future.result() for future in reversed(others))]


def together(meetings, call):
    """What all of them return, or raise, called at the same time."""
    with ThreadPoolExecutor(len(meetings)) as pool:
        futures = [pool.submit(call, one) for one in meetings]
        return [future.exception() or future.result() for future in futures]


@pytest.fixture
def three():
    found = met(3)
    yield found
    for one in found:
        one.close()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_all_get_the_values_of_all_in_their_order(count):
    meetings = met(count)
    for number in range(3):
        found = together(meetings, lambda one: one.gather([one.process, "a\nb"]))
        assert found == count * [[[p, "a\nb"] for p in range(count)]], number
    for one in meetings:
        one.close()


def test_values_may_be_large(three):
    large = "x" * 10**6
    assert together(three, lambda one: one.gather(large)) == 3 * [3 * [large]]


def test_they_wait_for_the_slowest(three):
    begin = time.monotonic()

    def call(one):
        time.sleep(0.3 if one.process == 1 else 0.0)
        return one.gather(None)

    assert together(three, call) == 3 * [3 * [None]]
    assert time.monotonic() - begin >= 0.3


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_a_broken_connection_ends_all(three, dead):
    def call(one):
        if one.process == dead:
            one.close()
            return None
        try:
            return one.gather(0)
        finally:
            one.close()  # as the end of its process does

    found = together(three, call)
    assert found.pop(dead) is None
    assert all(isinstance(error, meeting.LostError) for error in found)


def test_a_process_that_ends_early_ends_the_first_and_all_may_end_together(three):
    begun = threading.Event()

    def call(one):
        if one.process == 2:
            begun.wait(SECONDS)
            return one.end(SECONDS)
        begun.set()
        with pytest.raises(RuntimeError, match=r"Process (0|2) has ended"):
            one.gather(0)
        return one.end(SECONDS)

    assert together(three, call) == [True, True, True]


def test_a_process_that_ends_alone_says_so(three):
    assert not three[1].end(0.1)
    assert not three[0].end(0.1)


def test_strangers_are_sent_away():
    server = meeting.listen("localhost", 0)
    address = server.getsockname()[:2]
    with (
        ThreadPoolExecutor(2) as pool,
        socket.create_connection(address) as web,
        socket.create_connection(address) as list_of_json,
    ):
        web.sendall(b"GET / HTTP/1.1\r\n\r\n")
        list_of_json.sendall(json.dumps([1, 2]).encode() + b"\n")
        first = pool.submit(meeting.host, server, 2, SECONDS)
        second = meeting.join([address], 1, 2, SECONDS)
        found = [first.result(), second]
        assert [one.process for one in found] == [0, 1]
    for one in found:
        one.close()


@pytest.mark.parametrize(("process", "count"), [(1, 3), (0, 2), (2, 2)])
def test_processes_that_do_not_agree_are_refused(process, count):
    server = meeting.listen("localhost", 0)
    address = server.getsockname()[:2]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meeting.host, server, 2, SECONDS)
        other = pool.submit(meeting.join, [address], process, count, SECONDS)
        with pytest.raises(ValueError, match=f"process {process} of {count} tried"):
            first.result()
        assert isinstance(other.exception(), meeting.LostError | TimeoutError)


def test_who_does_not_come_is_named():
    server = meeting.listen("localhost", 0)
    with pytest.raises(TimeoutError, match=r"\[1, 2\]"):
        meeting.host(server, 3, 0.1)
    with pytest.raises(TimeoutError, match="process 0"):
        meeting.join([("localhost", 1)], 1, 2, 0.1)
