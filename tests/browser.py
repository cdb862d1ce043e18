"""A Chromium without a window for tests: the DevTools protocol through a pipe."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One page of a Chromium.

    Chromium reads messages from its file descriptor 3 and writes them to 4, JSON that
    ends in a zero byte.
    """

    def __init__(self, send: int, receive: int):
        self._send, self._receive = send, receive
        self._numbers, self._rest = itertools.count(1), b""
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._receive, 1 << 16)
            if not received:
                raise EOFError("Chromium has ended.")
            self._rest += received
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def resize(self, *, width: int, height: int = 900) -> None:
        """Gives the window a size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def open(self, url: str, *, width: int = 1280, height: int = 900) -> None:
        """Loads a page, in a window of this size."""
        self.resize(width=width, height=height)
        self.call("Page.navigate", url=url)
        self.wait(
            f"location.href.split('#')[0] == {url.split('#')[0]!r}"
            " && document.readyState == 'complete'"
        )

    def wait(self, condition: str, *, seconds: float = 120.0) -> None:
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"not true within {seconds} s: {condition}")
            time.sleep(0.2)


@contextlib.contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """Starts a Chromium whose settings are in the folder `profile`."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # The shell gives the pipes the numbers that Chromium expects.
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    options = ["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"]
    options += ["--no-first-run", "--hide-scrollbars", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", CHROMIUM or "chromium", *options],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        os.close(ours_in)
        os.close(ours_out)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
