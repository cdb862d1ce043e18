"""No program talks to the outside: sockets other than to this machine are refused."""

import ipaddress
import sys
from typing import Any

_NAMES = ("localhost", "", "0.0.0.0")


class OutsideError(Exception):
    """A program tried to reach another machine."""


def forbid() -> None:
    """Refuses connections to other machines, and to look their names up, for good."""
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        _check(event, arguments[1])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        _check(event, arguments[:1])


def _check(event: str, address: Any) -> None:
    """Addresses of files, and those without a host, are of this machine."""
    if not isinstance(address, tuple) or not address:
        return
    host = address[0].decode() if isinstance(address[0], bytes) else address[0]
    if host is not None and not _here(str(host)):
        raise OutsideError(f"{event}: {host} is another machine.")


def _here(host: str) -> bool:
    try:
        return host in _NAMES or ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False
