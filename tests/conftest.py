"""How tests are chosen and ordered, and the fixtures that they share."""

import os
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

from tests import night_choice, selection

# Papers, data sets and golden vectors, too large for the repository.
SHARED = pathlib.Path(
    os.environ.get("OPJAX_SHARED", pathlib.Path(__file__).parents[2] / "shared")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="one part of the tests, 1/4 for the first of four")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the session strict, but where xdist only deals the tests out."""
    if config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.strict")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Iterator[pytest.CollectReport]:
    """Lets every second process import the tests from the last to the first.

    In a new clone pytest rewrites the assertions of every file, and keeps them for the
    process that comes later: so each rewrites its half.
    """
    report = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if isinstance(collector, pytest.Directory) and int(worker[2:]) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Takes one part, if that is asked for, and starts with the longest files.

    So no core waits for another at the end.

    Tests of a program's run are slow, all of them: the first one runs it. So are those
    of the night, which -m "not slow" would let in otherwise.
    """
    items.sort(key=_file)  # however they were imported
    of_the_night = night_choice.chosen()
    for item in items:
        if night_choice.is_chosen(item.nodeid, of_the_night):
            item.add_marker("nightly")
        nightly = item.get_closest_marker("nightly")
        if nightly or "finished" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
    with selection.without_constants():
        yield  # what -m leaves out is gone
    if part := config.getoption("--part"):
        number, parts = map(int, part.split("/"))
        assert 1 <= number <= parts
        places = [selection.part_of(item.nodeid, parts) for item in items]
        found = list(zip(items, places, strict=True))
        config.hook.pytest_deselected(
            items=[i for i, place in found if place != number]
        )
        items[:] = [item for item, place in found if place == number]
    slow = {item.nodeid: bool(item.get_closest_marker("slow")) for item in items}
    seconds = selection.seconds_of_files(slow)
    items.sort(key=lambda item: -seconds[_file(item)])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.fixture
def shared_dir() -> pathlib.Path:
    """Returns the folder of shared data; skips the test where there is none."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}; set OPJAX_SHARED to their folder")
    return SHARED


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def sample(rng):
    """Returns query, key, value, query_basis and key_basis, all axes different."""
    m, n, d, c, kq, kk = 7, 11, 4, 2, 3, 5
    shapes = [(m, d), (n, d), (n, c), (m, kq), (n, kk)]
    return tuple(rng.normal(size=shape) for shape in shapes)


@pytest.fixture
def weights(rng):
    """Returns positive quadrature weights of the points of `sample`, (m,) and (n,)."""
    return rng.uniform(0.5, 1.5, 7), rng.uniform(0.5, 1.5, 11)
