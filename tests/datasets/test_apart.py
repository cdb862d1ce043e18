"""Libraries parse files in a process of their own, which may die."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_array_equal

from opjax.files import _parse_apart, apart, variables
from opjax.files._parse_apart import Message
from tests.refused import value_error

BOMBS = """
import os, signal, sys, time
import numpy as np
sys.path.append(FOLDER)
import _parse_apart as parts
def crash(path, request):
    os.kill(os.getpid(), signal.SIGSEGV)
def hang(path, request):
    time.sleep(600)
def burn(path, request):
    while True: pass
def fill(path, request):
    return parts.Message({}, {"u": np.ones(2**28)})
def nonsense(path, request):
    os.write(answers.fileno(), b"[]\\n" + bytes(100))
def huge(path, request):
    return parts.Message({}, {"u": np.zeros(1000)})
def objects(path, request):
    return parts.Message({}, {"u": np.array([{}], object)})
def fine(path, request):
    return parts.Message({"pid": os.getpid()}, {"u": np.arange(3.0)})
names = "crash hang burn fill nonsense huge objects fine".split()
parts._OPERATIONS = {n: parts._Operation(globals()[n], ()) for n in names}
answers = os.fdopen(os.dup(1), "wb")
parts.main()
"""


@pytest.fixture
def bombs(tmp_path, monkeypatch):
    """Replaces the operations of the other process; returns a file to parse."""
    program = tmp_path / "bombs.py"
    folder = str(Path(apart.__file__).parent)
    program.write_text(BOMBS.replace("FOLDER", repr(folder)))
    apart._PARSER.stop()
    monkeypatch.setattr(_parse_apart, "__file__", str(program))
    monkeypatch.setattr(apart, "_SECONDS", 1)
    monkeypatch.setattr(apart, "_PATIENCE", 8)
    path = tmp_path / "a.mat"
    path.write_bytes(b"content")
    yield path
    apart._PARSER.stop()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("crash", "ends the process that parses it, by SIGSEGV"),
        ("hang", "by SIGKILL"),
        ("burn", "by SIGXCPU"),
        ("fill", "too much memory"),
        ("nonsense", "the process that parses it"),
        ("huge", "its arrays take 8000 bytes, above the limit of 1000"),
        ("objects", "the process that parses it"),
    ],
)
def test_whatever_happens_there_is_an_error_with_the_file(operation, message, bombs):
    with value_error(message) as error:
        apart.ask(operation, bombs, max_bytes=1000)
    assert str(bombs) in str(error.value)
    answer = apart.ask("fine", bombs, max_bytes=1000)  # of another process
    assert_array_equal(answer.arrays["u"], np.arange(3.0))


@pytest.mark.nightly
def test_one_process_answers_many_threads_and_dies_with_its_parent(bombs):
    found = []

    def work():
        for _ in range(5):
            found.append(apart.ask("fine", bombs, max_bytes=1000).values["pid"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert len(set(found)) == 1
    program = f"""
import os
from pathlib import Path
from opjax.files import apart, _parse_apart
_parse_apart.__file__ = {_parse_apart.__file__!r}
path = Path({str(bombs)!r})
print(apart.ask("fine", path, max_bytes=1000).values["pid"], flush=True)
os.kill(os.getpid(), 9)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == -signal.SIGKILL
    for _ in range(100):
        if not Path(f"/proc/{int(run.stdout)}").exists():
            break
        time.sleep(0.1)
    else:
        pytest.fail("the process outlives its parent")


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_fork_has_a_process_of_its_own(bombs):
    before = apart.ask("fine", bombs, max_bytes=1000).values["pid"]
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        try:
            gc.disable()
            found = apart.ask("fine", bombs, max_bytes=1000).values["pid"]
            os.write(sink, str(found).encode())
            apart._PARSER.stop()
        finally:
            os._exit(0)
    os.close(sink)
    with open(source, "rb") as file:
        assert int(file.read()) != before
    os.waitpid(child, 0)
    assert apart.ask("fine", bombs, max_bytes=1000).values["pid"] == before


def test_messages_are_read_as_they_were_sent(tmp_path, rng):
    arrays = {
        "numbers": rng.normal(size=(3, 4)).T,
        "none": np.zeros((0, 3), np.int16),
        "one": np.array(2.5),
        "texts": np.array(["a", "bc"]),
    }
    with open(tmp_path / "a", "wb") as file:
        _parse_apart.send(file, Message({"x": [1, "y"]}, arrays))
    with open(tmp_path / "a", "rb") as file:
        found = _parse_apart.receive(file, 1000)
        assert _parse_apart.receive(file, 1000) is None
    assert found.values == {"x": [1, "y"]}
    for name, array in arrays.items():
        assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype
    content = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content[:-1])
    with open(tmp_path / "a", "rb") as file, value_error("end"):
        _parse_apart.receive(file, 1000)


def test_the_process_starts_no_jax(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"u": np.eye(2)})
    found = variables.read_variable(tmp_path / "a.mat", "u", source="x")
    assert_array_equal(found, np.eye(2))
    process = apart._PARSER._process
    if Path("/proc").exists():
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "scipy" in maps
        assert "jaxlib" not in maps
