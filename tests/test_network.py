"""The session of all tests refuses to talk to other machines."""

import contextlib
import socket
import subprocess
import sys

import pytest

from tests.network import OutsideError


def test_connections_to_other_machines_are_refused():
    with socket.socket() as sock, pytest.raises(OutsideError, match="192.0.2.1"):
        sock.connect(("192.0.2.1", 80))
    with pytest.raises(OutsideError, match="example.org"):
        socket.create_connection(("example.org", 80), timeout=1)
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(OutsideError):
        sock.sendto(b"", ("2001:db8::1" if sock.family == 10 else "192.0.2.1", 80))


def test_this_machine_may_be_talked_to():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        for host in ("127.0.0.1", "localhost"):
            with contextlib.closing(
                socket.create_connection((host, server.getsockname()[1]))
            ):
                pass


@pytest.mark.nightly
def test_importing_everything_opens_no_socket():
    code = """
import sys
opened = []
note = lambda event, given: opened.append(event) if "socket.c" in event else None
sys.addaudithook(note)
import importlib, pkgutil, opjax, opjax.learn, opjax.datasets
for module in pkgutil.walk_packages(opjax.__path__, "opjax."):
    if not module.name.startswith("opjax._onnx"):  # onnx is an extra
        importlib.import_module(module.name)
assert not opened, opened
"""
    subprocess.run([sys.executable, "-c", code], check=True)
