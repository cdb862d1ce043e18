"""The installed programs, which answer Ctrl-C also while opjax and JAX are imported.

This package is outside of opjax, because Python imports a package before its modules,
and `import opjax` imports JAX.
"""

import contextlib
import importlib
import os
import signal

_STATUS = 75  # that of `opjax.learn.run.stopping`, which cannot be imported yet


def check() -> None:
    """Runs opjax-check."""
    _run("opjax.learn.cli.check")


def train() -> None:
    """Runs opjax-train."""
    _run("opjax.learn.cli.train")


def predict() -> None:
    """Runs opjax-predict."""
    _run("opjax.learn.cli.predict")


def calibrate() -> None:
    """Runs opjax-calibrate."""
    _run("opjax.learn.cli.calibrate")


def report() -> None:
    """Runs opjax-report."""
    _run("opjax.learn.cli.report")


def publish() -> None:
    """Runs opjax-publish."""
    _run("opjax.learn.cli.publish")


def _run(name: str) -> None:
    """Runs the `main` of a module; the programs handle signals themselves from there.

    Args:
      name: of the module.
    """
    stopping = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, _end) for number in stopping}
    try:
        importlib.import_module(name).main()
    finally:
        for number, former in before.items():
            signal.signal(number, former or signal.SIG_DFL)


def _end(*_: object) -> None:
    """Ends the process at once; nothing has been read or written yet."""
    with contextlib.suppress(OSError):
        os.write(2, b"Stopped before the start. The same command starts anew.\n")
    os._exit(_STATUS)
