"""The smallest preset of every program, as a user gives it."""

import importlib
import json
import pathlib

import pytest

from experiments import published
from tests import sessions

FOLDER = pathlib.Path(__file__).parents[2] / "experiments"
# Programs are files or packages; their presets may be anywhere in a package.
FILES = {
    path.stem: [path]
    for path in FOLDER.glob("*.py")
    if '__name__ == "__main__"' in path.read_text()
}
FILES |= {
    path.parent.name: list(path.parent.rglob("*.py"))
    for path in FOLDER.glob("*/__main__.py")
}
PROGRAMS = sorted(
    name
    for name, files in FILES.items()
    if any('"smoke"' in file.read_text() for file in files)
)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_there_are_programs():
    assert {"darcy", "elasticity", "poisson_schwarz", "rna"} <= set(PROGRAMS)


# By day, tests of single programs run this preset with smaller sizes.
@pytest.mark.nightly
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_smallest_preset_runs(name, tmp_path, cache_dir, monkeypatch, capsys):
    program = importlib.import_module(f"experiments.{name}")
    monkeypatch.setenv("OPJAX_CACHE", str(cache_dir))
    # A user's session is neither strict nor in double precision.
    with sessions.user():
        program.run(program.PRESETS["smoke"], workdir=tmp_path / "run")
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    # What the table of published set-ups compares is in the last line.
    for setup in published.SETUPS:
        if setup.module == name:
            metric = setup.metric.rstrip("_0123456789")
            assert any(key.startswith(metric) for key in last), setup.name
