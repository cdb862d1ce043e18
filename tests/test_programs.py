"""The installed programs: what they start, and Ctrl-C before opjax is imported."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import opjax_programs
from opjax.learn.cli import calibrate, check, predict, publish, report, train
from opjax.learn.run import stopping

ROOT = Path(__file__).parents[1]
MODULES = {"check": check, "train": train, "predict": predict}
MODULES |= {"calibrate": calibrate, "report": report, "publish": publish}
# A program whose import interrupts it, as Ctrl-C does, and waits for its end.
INTERRUPTED = """
import importlib, signal, sys, time
import opjax_programs

def imported(name):
    signal.raise_signal(signal.{number})
    time.sleep(1)
    raise AssertionError(name)

importlib.import_module = imported
opjax_programs.{program}()
"""


def test_every_installed_program_is_one_of_them():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {f"opjax-{name}": f"opjax_programs:{name}" for name in MODULES}


@pytest.mark.parametrize("name", MODULES)
def test_a_program_runs_main_and_leaves_signals_as_they_were(name, monkeypatch):
    before, inside = signal.getsignal(signal.SIGINT), []
    monkeypatch.setattr(
        MODULES[name], "main", lambda: inside.append(signal.getsignal(signal.SIGINT))
    )
    getattr(opjax_programs, name)()
    assert len(inside) == 1
    assert inside[0] is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_during_the_imports_ends_with_one_sentence(name, number):
    code = INTERRUPTED.format(number=number, program=name)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == stopping.STATUS
    assert done.stderr == "Stopped before the start. The same command starts anew.\n"
    assert not done.stdout


def test_opjax_is_not_imported_before_signals_are_handled():
    code = "import sys, opjax_programs; print(*{'jax', 'opjax'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == []
    assert done.returncode == 0
