"""What the tests of programs share: they compile equal programs once, draw quickly."""

from collections.abc import Iterator

import jax
import pytest

from tests.figures import unarranged  # noqa: F401


@pytest.fixture(scope="package", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Equal programs, of a run and of the same run resumed, are compiled once.

    Processes that tests start share them, too.
    """
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            jax.config.update(name, value)
            patch.setenv(name.upper(), str(value))
        yield
    for name, value in before.items():
        jax.config.update(name, value)
