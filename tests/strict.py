"""The strict session that every test runs in, from its import on.

`tests/conftest.py` loads it where tests run, and not in the process that only deals
them out: JAX and the package take seconds to import.
"""

import copy
import functools
import gc
from collections.abc import Iterator

import jax
import pytest

from tests import compiled, network

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

# JAX compiles a program per shape to stage a NumPy array: copy the array instead.
try:
    from jax._src.core import Array, stage_p

    stage_p.def_impl(
        lambda x: x if isinstance(x, Array) else jax.device_put(copy.copy(x))
    )
except (ImportError, AttributeError):
    pass


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects no garbage: what is imported stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


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
