"""The strict session every test runs in, and the fixtures they share."""

import functools
import gc
import os
import pathlib
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from tests import compiled, network, selection

network.forbid()
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# A third of the time of a small program goes into setting up MLIR for its lowering: the
# programs of a file share one set-up. Another version of JAX may do it elsewhere.
try:
    from jax._src.interpreters import mlir

    set_up = mlir.make_ir_context = functools.cache(mlir.make_ir_context)
except (ImportError, AttributeError):
    set_up = functools.cache(lambda: None)

# Papers, data sets and golden vectors, too large for the repository.
SHARED = pathlib.Path(
    os.environ.get("OPJAX_SHARED", pathlib.Path(__file__).parents[2] / "shared")
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", help="one part of the tests, 1/4 for the first of four")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Takes one part, if that is asked for, and starts with the longest files.

    So no core waits for another at the end.

    Tests of a program's run are slow, all of them: the first one runs it. So are those
    of the night, which -m "not slow" would let in otherwise.
    """
    for item in items:
        nightly = item.get_closest_marker("nightly")
        if nightly or "finished" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
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
    items.sort(key=lambda item: -seconds[item.nodeid.partition("::")[0]])


def pytest_collection_finish() -> None:
    """Keeps what was imported out of all later garbage collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[compiled.Folder]:
    """What tests compile is found by other processes and sessions."""
    cache = getattr(request.config, "cache", None)  # `.pytest_cache` of the repository
    place = cache.mkdir("compiled") if cache else tmp_path_factory.mktemp("all")
    own = tmp_path_factory.mktemp("compiled")
    with compiled.shared(own, compiled.kept(place)) as folder:
        yield folder


@pytest.fixture(scope="module", autouse=True)
def lowering(compiled_programs: compiled.Folder) -> Iterator[None]:
    """Frees the constants of the programs of a file, which its set-up holds."""
    yield
    set_up.cache_clear()
    compiled_programs.exchange()


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
